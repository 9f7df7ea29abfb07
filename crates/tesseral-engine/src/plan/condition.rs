//! Evaluation of conditions on cells, and on statistics of chunks.

use std::borrow::Cow;

use tesseral_core::condition::{Condition, Op};
use tesseral_core::dtype::Class;
use tesseral_core::{
    ArraySchema, CellLen, ChunkStats, DType, Element, Error, Field, Result, Scalar, Selection,
    dispatch_element,
};
use tesseral_format::{Column, PlannedChunk, Request, Target, Uncovered};

use crate::decode::columns::{Cells, column_layout};
use crate::handle::Handle;
use crate::missing::column_validity;

/// Resolves a field or dimension by name; fields take precedence.
pub(crate) fn column_of(schema: &ArraySchema, name: &str) -> Result<Column> {
    let field =
        schema.fields.iter().zip(0_u16..).find(|(f, _)| f.name == name).map(|(_, i)| Column::Field(i));
    let dim = || schema.dims.iter().zip(0_u16..).find(|(d, _)| d.name == name).map(|(_, i)| Column::Dim(i));
    field.or_else(dim).ok_or_else(|| {
        let names =
            schema.fields.iter().map(|f| f.name.clone()).chain(schema.dims.iter().map(|d| d.name.clone()));
        Error::not_found("field or dimension", name, names.collect()).in_array(&schema.name)
    })
}

/// Adds the columns of a condition.
pub(crate) fn columns_of(schema: &ArraySchema, condition: &Condition, out: &mut Vec<Column>) -> Result<()> {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => {
            parts.iter().try_for_each(|part| columns_of(schema, part, out))
        }
        Condition::Not(part) => columns_of(schema, part, out),
        Condition::Compare { name, .. } | Condition::In { name, .. } | Condition::IsNull { name } => {
            let column = column_of(schema, name)?;
            if !out.contains(&column) {
                out.push(column);
            }
            Ok(())
        }
    }
}

/// Type of a column's values; `None` if a cell has several.
fn value_type(schema: &ArraySchema, column: Column) -> (DType, bool) {
    match column {
        Column::Field(i) => {
            let field = &schema.fields[usize::from(i)];
            (field.dtype, field.cell == CellLen::One || field.dtype.class() == Class::Text)
        }
        Column::Dim(i) => (schema.dims[usize::from(i)].dtype, true),
        Column::Timestamp | Column::DeletedBy => (DType::UInt64, true),
    }
}

/// Rows of a chunk to evaluate, and their cells.
pub(crate) struct ConditionRows<'a> {
    pub schema: &'a ArraySchema,
    /// Number of rows of the chunk.
    pub count: usize,
    /// Rows to evaluate, in order; `None` for all.
    pub picked: Option<&'a [u32]>,
    /// The cells of a column, one for each row of the chunk.
    pub column: &'a dyn Fn(Column) -> Result<&'a Cells>,
    /// Columns whose cells are all null.
    pub absent: &'a dyn Fn(Column) -> bool,
    /// One byte per row, 0 where no field was written; absent when all were.
    pub written: Option<&'a [u8]>,
    /// Conditions of the format itself know stored validity only.
    pub stored: bool,
}

/// One byte per row each. Rows for which a condition is neither true nor false are unknown.
struct Outcome {
    yes: Vec<u8>,
    no: Vec<u8>,
}

impl ConditionRows<'_> {
    fn len(&self) -> usize {
        self.picked.map_or(self.count, <[u32]>::len)
    }

    /// One byte per row: 1 if the condition is true.
    pub(crate) fn mask(&self, condition: &Condition) -> Result<Vec<u8>> {
        Ok(self.outcome(condition)?.yes)
    }

    /// Where a condition is true and where it is false. A comparison with a missing cell is neither, and so does an expression
    /// that contains it.
    fn outcome(&self, condition: &Condition) -> Result<Outcome> {
        let constant = |yes: u8, no: u8| Outcome { yes: vec![yes; self.len()], no: vec![no; self.len()] };
        Ok(match condition {
            Condition::And(parts) => {
                let mut out = constant(1, 0);
                for part in parts {
                    let other = self.outcome(part)?;
                    out.yes.iter_mut().zip(other.yes).for_each(|(a, b)| *a &= b);
                    out.no.iter_mut().zip(other.no).for_each(|(a, b)| *a |= b);
                }
                out
            }
            Condition::Or(parts) => {
                let mut out = constant(0, 1);
                for part in parts {
                    let other = self.outcome(part)?;
                    out.yes.iter_mut().zip(other.yes).for_each(|(a, b)| *a |= b);
                    out.no.iter_mut().zip(other.no).for_each(|(a, b)| *a &= b);
                }
                out
            }
            Condition::Not(part) => {
                let Outcome { yes, no } = self.outcome(part)?;
                Outcome { yes: no, no: yes }
            }
            Condition::IsNull { name } => {
                let column = column_of(self.schema, name)?;
                if (self.absent)(column) {
                    return Ok(constant(1, 0));
                }
                let cells = (self.column)(column)?;
                match self.validity(column, cells) {
                    None => constant(0, 1),
                    Some(validity) => Outcome {
                        yes: self.test_rows(|row| validity[row] == 0),
                        no: self.test_rows(|row| validity[row] != 0),
                    },
                }
            }
            Condition::Compare { name, op, value } => {
                let column = column_of(self.schema, name)?;
                if (self.absent)(column) {
                    return Ok(constant(0, u8::from(self.stored)));
                }
                let cells = (self.column)(column)?;
                let holds = self.compare(column, cells, *op, value);
                self.of_values(column, cells, holds)
            }
            Condition::In { name, values } => {
                let column = column_of(self.schema, name)?;
                if (self.absent)(column) {
                    return Ok(constant(0, u8::from(self.stored)));
                }
                let cells = (self.column)(column)?;
                let mut holds = vec![0; self.len()];
                for value in values {
                    let equal = self.compare(column, cells, Op::Eq, value);
                    holds.iter_mut().zip(equal).for_each(|(a, b)| *a |= b);
                }
                self.of_values(column, cells, holds)
            }
        })
    }

    /// The validity of the rows of the chunk.
    fn validity<'c>(&self, column: Column, cells: &'c Cells) -> Option<Cow<'c, [u8]>> {
        match column {
            Column::Field(f) if !self.stored => {
                column_validity(&self.schema.fields[usize::from(f)], cells, self.written)
            }
            _ => cells.validity().map(Cow::Borrowed),
        }
    }

    /// The outcome of a test of values, undecided for missing cells.
    fn of_values(&self, column: Column, cells: &Cells, mut holds: Vec<u8>) -> Outcome {
        let mut no: Vec<u8> = holds.iter().map(|byte| byte ^ 1).collect();
        if let Some(validity) = self.validity(column, cells) {
            let valid = self.test_rows(|row| validity[row] != 0);
            for ((yes, no), valid) in holds.iter_mut().zip(&mut no).zip(valid) {
                *yes &= valid;
                *no = if self.stored { *yes ^ 1 } else { *no & valid };
            }
        }
        Outcome { yes: holds, no }
    }

    fn test_rows(&self, holds: impl Fn(usize) -> bool) -> Vec<u8> {
        match self.picked {
            Some(rows) => rows.iter().map(|&row| u8::from(holds(row as usize))).collect(),
            None => (0..self.count).map(|row| u8::from(holds(row))).collect(),
        }
    }

    fn compare(&self, column: Column, cells: &Cells, op: Op, value: &Scalar) -> Vec<u8> {
        let (dtype, single) = value_type(self.schema, column);
        if dtype.class() == Class::Text && value.dtype().class() == Class::Text {
            return self.test_rows(|row| op.holds(Some(cells.get(row).cmp(value.bytes()))));
        }
        let typed = dispatch_element!(dtype, T => self.compare_typed::<T>(cells, op, value.get::<T>().filter(|_| single)), else => None);
        typed.unwrap_or_else(|| {
            let compare_row =
                |row| Scalar::from_le_bytes(dtype, cells.get(row)).ok().and_then(|v| v.compare(value));
            self.test_rows(|row| op.holds(compare_row(row)))
        })
    }

    fn compare_typed<T: Element>(&self, cells: &Cells, op: Op, with: Option<T>) -> Option<Vec<u8>> {
        let with = with?;
        // One loop per operator, for vectorization. NaN has no ordering, so only `≠` is true for it.
        Some(match op {
            Op::Lt => self.test(cells, |v: T| v < with),
            Op::Le => self.test(cells, |v: T| v <= with),
            Op::Gt => self.test(cells, |v: T| v > with),
            Op::Ge => self.test(cells, |v: T| v >= with),
            Op::Eq => self.test(cells, |v: T| v == with),
            Op::Ne => self.test(cells, |v: T| v != with),
        })
    }

    fn test<T: Element>(&self, cells: &Cells, holds: impl Fn(T) -> bool) -> Vec<u8> {
        let size = size_of::<T>();
        let data = cells.data();
        let read = |bytes: &[u8]| u8::from(holds(bytemuck::pod_read_unaligned(bytes)));
        match self.picked {
            None => test_each(data, holds),
            Some(rows) => {
                rows.iter().map(|&row| read(&data[row as usize * size..(row as usize + 1) * size])).collect()
            }
        }
    }
}

/// One byte per cell: 1 if it passes a test.
#[multiversion::multiversion(targets("x86_64+avx2"))]
fn test_each<T: Element, F: Fn(T) -> bool>(cells: &[u8], holds: F) -> Vec<u8> {
    let mut out = vec![0; cells.len() / size_of::<T>()];
    for (out, cell) in out.iter_mut().zip(cells.chunks_exact(size_of::<T>())) {
        *out = u8::from(holds(bytemuck::pod_read_unaligned(cell)));
    }
    out
}

/// Possible results of a condition for a chunk's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConditionBounds {
    /// Whether some cell can match the condition.
    pub yes: bool,
    /// Whether some cell can fail it.
    pub no: bool,
    /// It may do neither, because some cell may be missing.
    pub unknown: bool,
}

impl ConditionBounds {
    const OPEN: Self = Self { yes: true, no: true, unknown: true };

    /// Whether the condition is true for every cell.
    pub(crate) fn all(self) -> bool {
        !self.no && !self.unknown
    }
}

/// Evaluates a condition on statistics. `stats` returns those of a column, `None` if unknown.
pub(crate) fn condition_bounds(
    schema: &ArraySchema,
    condition: &Condition,
    stats: &dyn Fn(Column) -> Option<ChunkStats>,
) -> Result<ConditionBounds> {
    let each = |parts: &[Condition]| -> Result<Vec<ConditionBounds>> {
        parts.iter().map(|part| condition_bounds(schema, part, stats)).collect()
    };
    let known = |name: &str| column_of(schema, name).map(|column| (column, stats(column)));
    let open = ConditionBounds::OPEN;
    let unknown = |parts: &[ConditionBounds]| parts.iter().any(|p| p.unknown);
    Ok(match condition {
        Condition::And(parts) => {
            let parts = each(parts)?;
            ConditionBounds {
                yes: parts.iter().all(|p| p.yes),
                no: parts.iter().any(|p| p.no),
                unknown: unknown(&parts),
            }
        }
        Condition::Or(parts) => {
            let parts = each(parts)?;
            ConditionBounds {
                yes: parts.iter().any(|p| p.yes),
                no: parts.iter().all(|p| p.no),
                unknown: unknown(&parts),
            }
        }
        Condition::Not(part) => {
            let part = condition_bounds(schema, part, stats)?;
            // Conditions of the format itself fail of missing cells, so that their negation holds.
            ConditionBounds { yes: part.no || part.unknown, no: part.yes, unknown: part.unknown }
        }
        Condition::IsNull { name } => {
            let (column, stats) = known(name)?;
            let can = matches!(column, Column::Field(f) if can_be_missing(&schema.fields[usize::from(f)]));
            match stats {
                _ if !can => ConditionBounds { yes: false, no: true, unknown: false },
                None => ConditionBounds { unknown: false, ..open },
                Some(stats) => ConditionBounds {
                    yes: stats.nulls.bound() != Some(&0),
                    no: stats.nulls.exact() != Some(&stats.cells),
                    unknown: false,
                },
            }
        }
        Condition::Compare { name, op, value } => {
            let (column, stats) = known(name)?;
            stats.map_or(open, |stats| expect(schema, column, &stats, *op, value))
        }
        Condition::In { name, values } => {
            let (column, stats) = known(name)?;
            let Some(stats) = stats else { return Ok(open) };
            let any = values.iter().any(|value| expect(schema, column, &stats, Op::Eq, value).yes);
            ConditionBounds { yes: any, no: true, unknown: true }
        }
    })
}

/// Returns whether a chunk that `may` match has cells of a dense request. True if cells come from no chunk.
pub(crate) fn any_chunk(handle: &Handle, request: &Request, may: impl Fn(&PlannedChunk) -> bool) -> bool {
    // The following read reports errors of the plan.
    let (Ok(plan), Some(selection)) = (handle.plan(request), request.selection()) else {
        return true;
    };
    let region = selection.bounds();
    let all = |chunk: &PlannedChunk| chunk.cover.region().is_some_and(|cover| cover.contains(&region));
    let covered = plan.uncovered != Uncovered::Fill || plan.chunks.iter().any(all);
    plan.chunks.is_empty() || !covered || plan.chunks.iter().any(may)
}

/// Returns whether a part of a dense array can contain a cell that matches the request's condition, by the statistics of its chunks.
/// Reads no cells.
pub fn may_hold(handle: &Handle, request: &Request, part: &Selection) -> bool {
    let Some(condition) = &request.condition else { return true };
    let request = Request { target: Target::Cells(part.clone()), condition: None, ..request.clone() };
    let mut columns = Vec::new();
    // The following read reports unknown names and errors of the store.
    let known = columns_of(handle.schema(), condition, &mut columns).is_ok();
    columns.retain(|column| matches!(column, Column::Field(_)));
    if known && let Ok(plan) = handle.plan(&request) {
        let _ = handle.load_stats(&plan.chunks, &columns);
    }
    any_chunk(handle, &request, |chunk| {
        let stats = |column| matches!(column, Column::Field(_)).then(|| handle.stats(chunk, column));
        condition_bounds(handle.schema(), condition, &stats).is_ok_and(|bounds| bounds.yes)
    })
}

/// Which cells of one field meet a condition on that field alone: native-endian cells, and one byte per cell that is 0 for a missing
/// one.
///
/// # Errors
/// `InvalidRequest` when the condition has other columns.
pub fn matches(
    schema: &ArraySchema,
    condition: &Condition,
    field: u16,
    cells: &[u8],
    validity: Option<&[u8]>,
) -> Result<Vec<bool>> {
    let size = column_layout(schema, Column::Field(field))?.0;
    let only = Cells::from_fixed(size, cells.to_vec(), validity.map(<[u8]>::to_vec));
    let column = |column: Column| match column {
        Column::Field(number) if number == field => Ok(&only),
        _ => Err(Error::invalid("the condition has other columns")),
    };
    let count = only.len();
    let rows = ConditionRows {
        schema,
        count,
        picked: None,
        column: &column,
        absent: &|_| false,
        written: None,
        stored: false,
    };
    Ok(rows.mask(condition)?.into_iter().map(|holds| holds != 0).collect())
}

/// Possible results of a comparison for cells described by statistics: values between the bounds, missing cells, NaN.
fn expect(
    schema: &ArraySchema,
    column: Column,
    stats: &ChunkStats,
    op: Op,
    value: &Scalar,
) -> ConditionBounds {
    let field = match column {
        Column::Field(f) => Some(&schema.fields[usize::from(f)]),
        _ => None,
    };
    let (dtype, single) = value_type(schema, column);
    if !single {
        return ConditionBounds::OPEN;
    }
    let unknown = field.is_some_and(can_be_missing) && stats.nulls.bound() != Some(&0);
    let mut bounds = ConditionBounds { yes: false, no: false, unknown };
    if dtype.class() == Class::Float && stats.nans.bound() != Some(&0) {
        bounds.yes |= op == Op::Ne;
        bounds.no |= op != Op::Ne;
    }
    if stats.nulls.exact() == Some(&stats.cells) {
        return bounds;
    }
    let (Some(min), Some(max)) = (stats.min.bound(), stats.max.bound()) else {
        return ConditionBounds::OPEN;
    };
    let (Some(low), Some(high)) = (min.compare(value), max.compare(value)) else {
        return ConditionBounds::OPEN;
    };
    let within = low.is_le() && high.is_ge();
    let (yes, no) = match op {
        Op::Lt => (low.is_lt(), high.is_ge()),
        Op::Le => (low.is_le(), high.is_gt()),
        Op::Gt => (high.is_gt(), low.is_le()),
        Op::Ge => (high.is_ge(), low.is_lt()),
        Op::Eq => (within, !(low.is_eq() && high.is_eq())),
        Op::Ne => (!(low.is_eq() && high.is_eq()), within),
    };
    ConditionBounds { yes: bounds.yes | yes, no: bounds.no | no, ..bounds }
}

/// Whether a cell of the field can be missing although it was written.
fn can_be_missing(field: &Field) -> bool {
    field.nullable || !field.missing_values().is_empty()
}

#[cfg(test)]
mod tests {
    use tesseral_core::{Field, Stat};

    use super::*;

    fn schema(dtype: DType, nullable: bool) -> ArraySchema {
        let mut schema = ArraySchema::dense("x", dtype, &[4], &[4]);
        schema.fields = vec![Field { nullable, ..Field::new("a", dtype) }];
        schema
    }

    fn stats<T: Element>(min: T, max: T, nulls: u64, nans: Stat<u64>) -> ChunkStats {
        ChunkStats {
            cells: 10,
            nulls: Stat::Exact(nulls),
            nans,
            min: Stat::Bound(Scalar::from_element(min)),
            max: Stat::Bound(Scalar::from_element(max)),
            sum: Stat::Absent,
            partial_sum: None,
            missing: Vec::new(),
        }
    }

    fn test(op: Op, value: i32) -> Condition {
        Condition::Compare { name: "a".into(), op, value: Scalar::from_element(value) }
    }

    /// For all cells that match statistics, an outlook never excludes the result of a cell.
    #[test]
    fn outlooks_never_exclude_a_cell() {
        let ops = [Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::Eq, Op::Ne];
        for nulls in [0, 3] {
            let schema = schema(DType::Int32, true);
            for (min, max) in [(2, 2), (2, 5), (-3, 4)] {
                let known = stats(min, max, nulls, Stat::Exact(0));
                for op in ops {
                    for with in -4..7 {
                        for condition in [test(op, with), Condition::Not(Box::new(test(op, with)))] {
                            let found =
                                condition_bounds(&schema, &condition, &|_| Some(known.clone())).unwrap();
                            let mut cells = Cells::new(4, true);
                            (min..=max).for_each(|v: i32| cells.push(&v.to_ne_bytes(), true));
                            if nulls > 0 {
                                cells.push(&[0; 4], false);
                            }
                            let count = cells.len();
                            let rows = ConditionRows {
                                schema: &schema,
                                count,
                                picked: None,
                                column: &|_| Ok(&cells),
                                absent: &|_| false,
                                written: None,
                                stored: false,
                            };
                            let Outcome { yes, no } = rows.outcome(&condition).unwrap();
                            let unknown = yes.iter().zip(&no).any(|(yes, no)| yes | no == 0);
                            assert!(found.yes || !yes.contains(&1), "{condition:?} of {min}..={max}");
                            assert!(found.no || !no.contains(&1), "{condition:?} of {min}..={max}");
                            assert_eq!(unknown, nulls > 0, "{condition:?} of {min}..={max}");
                            assert!(found.unknown || !unknown, "{condition:?} of {min}..={max}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn bounds_prune_and_unknown_nan_does_not() {
        let ints = schema(DType::Int32, false);
        let known = stats(2_i32, 5, 0, Stat::Exact(0));
        let of =
            |condition: &Condition| condition_bounds(&ints, condition, &|_| Some(known.clone())).unwrap();
        assert_eq!(of(&test(Op::Gt, 5)), ConditionBounds { yes: false, no: true, unknown: false });
        assert_eq!(of(&test(Op::Ge, 2)), ConditionBounds { yes: true, no: false, unknown: false });
        assert_eq!(of(&test(Op::Eq, 9)), ConditionBounds { yes: false, no: true, unknown: false });
        let floats = schema(DType::Float64, false);
        let unsure = stats(2_f64, 5.0, 0, Stat::Absent);
        let apart = Condition::Compare { name: "a".into(), op: Op::Ne, value: Scalar::from_element(9_f64) };
        assert_eq!(
            condition_bounds(&floats, &apart, &|_| Some(unsure.clone())).unwrap(),
            ConditionBounds { yes: true, no: false, unknown: false }
        );
        let below = Condition::Compare { name: "a".into(), op: Op::Lt, value: Scalar::from_element(9_f64) };
        assert_eq!(
            condition_bounds(&floats, &below, &|_| Some(unsure.clone())).unwrap(),
            ConditionBounds { yes: true, no: true, unknown: false }
        );
    }
}
