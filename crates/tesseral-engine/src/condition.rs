//! Which cells meet a condition, and what statistics say of a chunk whose cells were not looked at.

use tesseral_core::condition::{Condition, Op};
use tesseral_core::dtype::Class;
use tesseral_core::{
    ArraySchema, CellLen, ChunkStats, DType, Element, Error, Result, Scalar, dispatch_element,
};
use tesseral_format::{Column, PlannedChunk, Request, Uncovered};

use crate::cells::Cells;
use crate::handle::Handle;

/// A field or dimension by name; fields go first.
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

/// Adds the columns a condition looks at.
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

/// The type of a column's values; `None` where a cell holds several of them.
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

/// Rows of a chunk to look at, and where their cells are.
pub(crate) struct Rows<'a> {
    pub schema: &'a ArraySchema,
    /// Rows of the chunk.
    pub count: usize,
    /// Which of them, in order; all when absent.
    pub picked: Option<&'a [u32]>,
    /// The cells of a column, one for each row of the chunk.
    pub column: &'a dyn Fn(Column) -> Result<&'a Cells>,
    /// Columns whose cells count as null, whatever stands for them.
    pub absent: &'a dyn Fn(Column) -> bool,
}

impl Rows<'_> {
    fn len(&self) -> usize {
        self.picked.map_or(self.count, <[u32]>::len)
    }

    /// One byte per row: 1 where the condition holds.
    pub(crate) fn mask(&self, condition: &Condition) -> Result<Vec<u8>> {
        match condition {
            Condition::And(parts) => {
                let mut out = vec![1; self.len()];
                for part in parts {
                    let other = self.mask(part)?;
                    out.iter_mut().zip(other).for_each(|(a, b)| *a &= b);
                }
                Ok(out)
            }
            Condition::Or(parts) => {
                let mut out = vec![0; self.len()];
                for part in parts {
                    let other = self.mask(part)?;
                    out.iter_mut().zip(other).for_each(|(a, b)| *a |= b);
                }
                Ok(out)
            }
            Condition::Not(part) => {
                let mut out = self.mask(part)?;
                out.iter_mut().for_each(|byte| *byte ^= 1);
                Ok(out)
            }
            Condition::IsNull { name } => {
                let column = column_of(self.schema, name)?;
                if (self.absent)(column) {
                    return Ok(vec![1; self.len()]);
                }
                let cells = (self.column)(column)?;
                Ok(match cells.validity() {
                    None => vec![0; self.len()],
                    Some(validity) => self.each(|row| validity[row] == 0),
                })
            }
            Condition::Compare { name, op, value } => {
                let column = column_of(self.schema, name)?;
                if (self.absent)(column) {
                    return Ok(vec![0; self.len()]);
                }
                let cells = (self.column)(column)?;
                let mut out = self.compare(column, cells, *op, value);
                self.drop_nulls(cells, &mut out);
                Ok(out)
            }
            Condition::In { name, values } => {
                let column = column_of(self.schema, name)?;
                if (self.absent)(column) {
                    return Ok(vec![0; self.len()]);
                }
                let cells = (self.column)(column)?;
                let mut out = vec![0; self.len()];
                for value in values {
                    let equal = self.compare(column, cells, Op::Eq, value);
                    out.iter_mut().zip(equal).for_each(|(a, b)| *a |= b);
                }
                self.drop_nulls(cells, &mut out);
                Ok(out)
            }
        }
    }

    fn each(&self, holds: impl Fn(usize) -> bool) -> Vec<u8> {
        match self.picked {
            Some(rows) => rows.iter().map(|&row| u8::from(holds(row as usize))).collect(),
            None => (0..self.count).map(|row| u8::from(holds(row))).collect(),
        }
    }

    /// No comparison with a null holds.
    fn drop_nulls(&self, cells: &Cells, out: &mut [u8]) {
        if let Some(validity) = cells.validity() {
            let valid = self.each(|row| validity[row] != 0);
            out.iter_mut().zip(valid).for_each(|(a, b)| *a &= b);
        }
    }

    fn compare(&self, column: Column, cells: &Cells, op: Op, value: &Scalar) -> Vec<u8> {
        let (dtype, single) = value_type(self.schema, column);
        if dtype.class() == Class::Text && value.dtype().class() == Class::Text {
            return self.each(|row| op.holds(Some(cells.get(row).cmp(value.bytes()))));
        }
        let typed = dispatch_element!(dtype, T => self.compare_typed::<T>(cells, op, value.get::<T>().filter(|_| single)), else => None);
        typed.unwrap_or_else(|| {
            let one = |row| Scalar::from_le_bytes(dtype, cells.get(row)).ok().and_then(|v| v.compare(value));
            self.each(|row| op.holds(one(row)))
        })
    }

    fn compare_typed<T: Element>(&self, cells: &Cells, op: Op, with: Option<T>) -> Option<Vec<u8>> {
        let with = with?;
        // One loop per operator, so that each vectorises. NaN compares with nothing, so only `≠` holds of it.
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
            None => data.chunks_exact(size).map(read).collect(),
            Some(rows) => {
                rows.iter().map(|&row| read(&data[row as usize * size..(row as usize + 1) * size])).collect()
            }
        }
    }
}

/// What can be said of a chunk's cells without looking at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// Some cell may meet the condition.
    pub yes: bool,
    /// Some cell may fail it.
    pub no: bool,
}

/// What statistics tell of a condition. `stats` gives those of a column, `None` where nothing is known.
pub(crate) fn outlook(
    schema: &ArraySchema,
    condition: &Condition,
    stats: &dyn Fn(Column) -> Option<ChunkStats>,
) -> Result<Outlook> {
    let each = |parts: &[Condition]| -> Result<Vec<Outlook>> {
        parts.iter().map(|part| outlook(schema, part, stats)).collect()
    };
    let known = |name: &str| column_of(schema, name).map(|column| (column, stats(column)));
    let open = Outlook { yes: true, no: true };
    Ok(match condition {
        Condition::And(parts) => {
            let parts = each(parts)?;
            Outlook { yes: parts.iter().all(|p| p.yes), no: parts.iter().any(|p| p.no) }
        }
        Condition::Or(parts) => {
            let parts = each(parts)?;
            Outlook { yes: parts.iter().any(|p| p.yes), no: parts.iter().all(|p| p.no) }
        }
        Condition::Not(part) => {
            let part = outlook(schema, part, stats)?;
            Outlook { yes: part.no, no: part.yes }
        }
        Condition::IsNull { name } => {
            let (column, stats) = known(name)?;
            let nullable = matches!(column, Column::Field(f) if schema.fields[usize::from(f)].nullable);
            match stats {
                _ if !nullable => Outlook { yes: false, no: true },
                None => open,
                Some(stats) => {
                    // Counted nulls may be cells that equal the declared fill, so a full count proves nothing.
                    Outlook { yes: stats.nulls.exact() != Some(&0), no: true }
                }
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
            Outlook { yes: any, no: true }
        }
    })
}

/// Whether a chunk that `may` hold what is looked for has cells of a request to a dense array. Yes where cells come from no chunk.
pub(crate) fn any_chunk(handle: &Handle, request: &Request, may: impl Fn(&PlannedChunk) -> bool) -> bool {
    // A plan that fails is told by the read that follows.
    let (Ok(plan), Some(selection)) = (handle.source().plan(request), request.selection()) else {
        return true;
    };
    let region = selection.bounds();
    let all = |chunk: &PlannedChunk| chunk.cover.region().is_some_and(|cover| cover.contains(&region));
    let covered = plan.uncovered != Uncovered::Fill || plan.chunks.iter().any(all);
    plan.chunks.is_empty() || !covered || plan.chunks.iter().any(may)
}

/// What a comparison may give for the cells that statistics describe: values between the bounds, nulls, NaN, fills.
fn expect(schema: &ArraySchema, column: Column, stats: &ChunkStats, op: Op, value: &Scalar) -> Outlook {
    let field = match column {
        Column::Field(f) => Some(&schema.fields[usize::from(f)]),
        _ => None,
    };
    let (dtype, single) = value_type(schema, column);
    if !single {
        return Outlook { yes: true, no: true };
    }
    let mut outlook = Outlook { yes: false, no: false };
    let some_null = stats.nulls.exact() != Some(&0);
    if some_null && field.is_some_and(|f| f.nullable) {
        outlook.no = true;
    }
    if some_null && let Some(fill) = field.and_then(|f| f.missing()) {
        let holds = op.holds(fill.compare(value));
        outlook.yes |= holds;
        outlook.no |= !holds;
    }
    if dtype.class() == Class::Float && stats.nans.exact() != Some(&0) {
        outlook.yes |= op == Op::Ne;
        outlook.no |= op != Op::Ne;
    }
    if stats.nulls.exact() == Some(&stats.cells) {
        return outlook;
    }
    let (Some(min), Some(max)) = (stats.min.bound(), stats.max.bound()) else {
        return Outlook { yes: true, no: true };
    };
    let (Some(low), Some(high)) = (min.compare(value), max.compare(value)) else {
        return Outlook { yes: true, no: true };
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
    Outlook { yes: outlook.yes | yes, no: outlook.no | no }
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
        }
    }

    fn test(op: Op, value: i32) -> Condition {
        Condition::Compare { name: "a".into(), op, value: Scalar::from_element(value) }
    }

    /// Whatever cells statistics can describe, an outlook never rules out what a cell does.
    #[test]
    fn outlooks_never_rule_out_a_cell() {
        let ops = [Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::Eq, Op::Ne];
        for nulls in [0, 3] {
            let schema = schema(DType::Int32, true);
            for (min, max) in [(2, 2), (2, 5), (-3, 4)] {
                let known = stats(min, max, nulls, Stat::Exact(0));
                for op in ops {
                    for with in -4..7 {
                        for condition in [test(op, with), Condition::Not(Box::new(test(op, with)))] {
                            let found = outlook(&schema, &condition, &|_| Some(known.clone())).unwrap();
                            let mut cells = Cells::new(4, true);
                            (min..=max).for_each(|v: i32| cells.push(&v.to_ne_bytes(), true));
                            if nulls > 0 {
                                cells.push(&[0; 4], false);
                            }
                            let count = cells.len();
                            let rows = Rows {
                                schema: &schema,
                                count,
                                picked: None,
                                column: &|_| Ok(&cells),
                                absent: &|_| false,
                            };
                            let mask = rows.mask(&condition).unwrap();
                            assert!(found.yes || !mask.contains(&1), "{condition:?} of {min}..={max}");
                            assert!(found.no || !mask.contains(&0), "{condition:?} of {min}..={max}");
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
        let of = |condition: &Condition| outlook(&ints, condition, &|_| Some(known.clone())).unwrap();
        assert_eq!(of(&test(Op::Gt, 5)), Outlook { yes: false, no: true });
        assert_eq!(of(&test(Op::Ge, 2)), Outlook { yes: true, no: false });
        assert_eq!(of(&test(Op::Eq, 9)), Outlook { yes: false, no: true });
        let floats = schema(DType::Float64, false);
        let unsure = stats(2_f64, 5.0, 0, Stat::Absent);
        let apart = Condition::Compare { name: "a".into(), op: Op::Ne, value: Scalar::from_element(9_f64) };
        assert_eq!(
            outlook(&floats, &apart, &|_| Some(unsure.clone())).unwrap(),
            Outlook { yes: true, no: false }
        );
        let below = Condition::Compare { name: "a".into(), op: Op::Lt, value: Scalar::from_element(9_f64) };
        assert_eq!(
            outlook(&floats, &below, &|_| Some(unsure.clone())).unwrap(),
            Outlook { yes: true, no: true }
        );
    }
}
