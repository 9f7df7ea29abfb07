//! Comparison of sparse arrays by coordinates.

use std::ops::Range;

use tesseral_core::{ArraySchema, Field, Result, Scalar};
use tesseral_engine::kernel::compare::{Comparison, Tolerance};
use tesseral_engine::{CellBatch, Cells, JoinedRows, merge_join};

use super::{DiffOptions, FirstDifference, Side, ValueDifference, text};
use crate::convert::{compare_rows, default_memory};
use tesseral_dataset::variable::Variable;

/// Compares fields of two sparse arrays in one pass over both.
pub(super) fn values(
    fields: &[(&Variable, &Variable)],
    options: &DiffOptions,
) -> Result<Vec<ValueDifference>> {
    let Some((a, b)) = fields.first() else { return Ok(Vec::new()) };
    let schema = a.array.schema();
    let memory = options.execution.memory.unwrap_or_else(default_memory);
    // Two reads share the memory limit.
    let execution = options.execution.clone().with_memory((memory / 2).max(1));
    let stream = |variable: &Variable, other: fn(&(&Variable, &Variable)) -> String| {
        let dims = variable.array.schema().dims.len();
        let named = fields.iter().map(|pair| variable.array.column(&other(pair)));
        let columns = (0..).take(dims).map(|d| Ok(tesseral_format::Column::Dim(d))).chain(named);
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let query = variable.array.cells()?.only(&columns).options(execution.clone());
        if options.stored { query.stored().batches() } else { query.batches() }
    };
    let left = stream(a, |pair| pair.0.array.selected_field().name.clone())?;
    let right = stream(b, |pair| pair.1.array.selected_field().name.clone())?;
    let tolerance = Tolerance { abs: options.max_abs_error, rel: options.max_rel_error };
    let mut all: Vec<FieldDifference<'_>> = fields.iter().map(|(a, _)| FieldDifference::new(a)).collect();
    merge_join(schema, left, right, |pair| {
        execution.cancel.check()?;
        all.iter_mut()
            .enumerate()
            .for_each(|(i, field)| field.compare(schema, schema.dims.len() + i, &pair, &tolerance));
        Ok(())
    })?;
    Ok(all.into_iter().map(|field| field.found).collect())
}

/// State of the comparison of one field.
struct FieldDifference<'a> {
    variable: &'a Variable,
    found: ValueDifference,
}

impl<'a> FieldDifference<'a> {
    fn new(variable: &'a Variable) -> Self {
        let found = ValueDifference {
            name: variable.name.clone(),
            cells: 0,
            differing: 0,
            only_left: 0,
            only_right: 0,
            first: None,
            max_abs: None,
            max_rel: None,
        };
        Self { variable, found }
    }

    fn compare(&mut self, schema: &ArraySchema, column: usize, pair: &JoinedRows<'_>, tolerance: &Tolerance) {
        match pair {
            JoinedRows::Left(batch, rows) => self.alone(schema, column, batch, rows, Side::Left),
            JoinedRows::Right(batch, rows) => self.alone(schema, column, batch, rows, Side::Right),
            JoinedRows::Both(left, a, right, b) => {
                let field = self.variable.array.selected_field();
                let (ours, theirs) = (&left.columns[column].1, &right.columns[column].1);
                let found = &mut self.found;
                let mut coordinate_text =
                    Comparison { max_abs: found.max_abs, max_rel: found.max_rel, ..Comparison::default() };
                compare_rows(field, (ours, a.clone()), (theirs, b.clone()), tolerance, &mut coordinate_text);
                found.cells += a.len() as u64;
                found.differing += coordinate_text.count;
                (found.max_abs, found.max_rel) = (coordinate_text.max_abs, coordinate_text.max_rel);
                if let (None, Some(at)) = (&found.first, coordinate_text.first) {
                    let at = usize::try_from(at).unwrap_or(usize::MAX);
                    found.first = Some(FirstDifference {
                        position: Vec::new(),
                        coordinates: coordinates(schema, left, a.start + at),
                        left: shown(field, ours, a.start + at),
                        right: shown(field, theirs, b.start + at),
                        only: None,
                    });
                }
            }
        }
    }

    /// Counts cells that only one side has.
    fn alone(
        &mut self,
        schema: &ArraySchema,
        column: usize,
        batch: &CellBatch,
        rows: &Range<usize>,
        side: Side,
    ) {
        let value = shown(self.variable.array.selected_field(), &batch.columns[column].1, rows.start);
        let count = rows.len() as u64;
        self.found.cells += count;
        self.found.differing += count;
        let (counter, left, right) = match side {
            Side::Left => (&mut self.found.only_left, value, None),
            Side::Right => (&mut self.found.only_right, None, value),
        };
        *counter += count;
        self.found.first.get_or_insert_with(|| FirstDifference {
            position: Vec::new(),
            coordinates: coordinates(schema, batch, rows.start),
            left,
            right,
            only: Some(side),
        });
    }
}

fn shown(field: &Field, cells: &Cells, row: usize) -> Option<String> {
    cells.is_valid(row).then(|| text(field, cells.get(row)))
}

fn coordinates(schema: &ArraySchema, batch: &CellBatch, row: usize) -> Vec<String> {
    let coordinate_text =
        |(dim, (_, cells)): (&tesseral_core::Dimension, &(tesseral_format::Column, Cells))| {
            Scalar::from_le_bytes(dim.dtype, cells.get(row))
                .map_or_else(|_| String::new(), |value| value.to_string())
        };
    schema.dims.iter().zip(&batch.columns).map(coordinate_text).collect()
}
