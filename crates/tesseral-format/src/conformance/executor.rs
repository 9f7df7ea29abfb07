//! Checks of plan executors against the oracle.

use std::sync::Arc;

use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, Field, Result, Scalar, Selection};

use super::facts::{same_float, same_sum};
use super::{Check, Fixture, Violation, for_each_array, open, selections, sparse_ranges};
use crate::oracle::{Cells, Dense, Row, Sparse, Summary};
use crate::{Container, CoordinateRanges, Format, Target};

/// A reader of arrays through the traits, such as the engine.
pub trait Executor {
    /// A field of a dense selection, row-major over the selection. Bytes under nulls are ignored.
    ///
    /// # Errors
    /// Errors of the executor.
    fn read_dense(
        &self,
        container: &Arc<dyn Container>,
        array: usize,
        field: u16,
        selection: &Selection,
    ) -> Result<Cells>;

    /// Fields of the cells in the ranges, sorted as by [`read_sparse`](crate::oracle::read_sparse).
    ///
    /// # Errors
    /// Errors of the executor.
    fn read_sparse(
        &self,
        container: &Arc<dyn Container>,
        array: usize,
        fields: &[u16],
        ranges: &[CoordinateRanges],
    ) -> Result<Vec<Row>>;

    /// Summary of a field over some cells; `magnitude` is ignored.
    ///
    /// # Errors
    /// Errors of the executor.
    fn summary(
        &self,
        container: &Arc<dyn Container>,
        array: usize,
        field: u16,
        target: &Target,
    ) -> Result<Summary>;
}

/// Reads and summarizes all kinds of selections of a source and compares with the oracle.
///
/// # Errors
/// The first violation.
pub fn executor_suite(
    format: &dyn Format,
    fixture: &Fixture,
    executor: &dyn Executor,
) -> Result<(), Violation> {
    let check = Check::new("executor_suite", fixture.seed);
    let container = open(&check, format, fixture)?;
    let mut random = fixture.random(8);
    for_each_array(&check, container.as_ref(), |check, number, source| {
        let schema = source.schema();
        if schema.sparse {
            let sparse = check.must("oracle", Sparse::load(container.as_ref(), number))?;
            for ranges in sparse_ranges(&mut random, &sparse, fixture.effort.selections) {
                let location = format!("{}, {ranges:?}", check.location);
                let check = check.at(&location);
                let mut fields: Vec<u16> = (0..schema.fields.len() as u16).collect();
                random.shuffle(&mut fields);
                fields.truncate(random.within(1, fields.len() as u64) as usize);
                let want = check.must("oracle", sparse.select(&fields, &ranges))?;
                let got = check
                    .guarded("read_sparse", || executor.read_sparse(&container, number, &fields, &ranges))?;
                let got = check.must("read_sparse", got)?;
                check.require(got == want, || {
                    let differs = got.iter().zip(&want).find(|(a, b)| a != b);
                    let (got, want) = (got.len(), want.len());
                    format!("fields {fields:?}: {got} rows, expected {want}; first difference {differs:?}")
                })?;
                let field = &schema.fields[usize::from(fields[0])];
                if adds_up(field) {
                    let want = Summary::from_rows(field, &want, 0);
                    let target = Target::Coordinates(ranges.clone());
                    compare(&check, executor, &container, number, fields[0], &target, &want)?;
                }
            }
            return Ok(());
        }
        let shape = schema.shape().unwrap_or_default();
        let selections =
            check.must("selections", selections(&mut random, &shape, fixture.effort.selections))?;
        for (i, field) in schema.fields.iter().enumerate() {
            let dense = check.must("oracle", Dense::load(container.as_ref(), number, i as u16))?;
            for selection in &selections {
                let location = format!("{}, field {i}, {:?}", check.location, selection.slices());
                let check = check.at(&location);
                let want = check.must("oracle", dense.select(selection))?;
                let got = check
                    .guarded("read_dense", || executor.read_dense(&container, number, i as u16, selection))?;
                let got = check.must("read_dense", got)?.normalized();
                check.same("cells", &got, &want)?;
                if adds_up(field) {
                    let want = Summary::from_cells(field, &want);
                    let target = Target::Cells(selection.clone());
                    compare(&check, executor, &container, number, i as u16, &target, &want)?;
                }
            }
        }
        Ok(())
    })
}

/// Whether a field has one number per cell.
fn adds_up(field: &Field) -> bool {
    field.cell == CellLen::One && !matches!(field.dtype.class(), Class::Complex | Class::Bits | Class::Text)
}

fn compare(
    check: &Check<'_>,
    executor: &dyn Executor,
    container: &Arc<dyn Container>,
    array: usize,
    field: u16,
    target: &Target,
    want: &Summary,
) -> Result<(), Violation> {
    let got = check.guarded("summary", || executor.summary(container, array, field, target))?;
    let got = check.must("summary", got)?;
    let counts = |s: &Summary| [s.cells, s.nulls, s.nans, s.infs, s.count];
    check.same("cells, nulls, NaN, infinite, counted", &counts(&got), &counts(want))?;
    for (what, got, want) in [("min", &got.min, &want.min), ("max", &got.max, &want.max)] {
        let same = match (got, want) {
            (None, None) => true,
            (Some(got), Some(want)) => got.dtype() == want.dtype() && equal(got, want),
            _ => false,
        };
        check.require(same, || format!("{what}: got {got:?}, expected {want:?}"))?;
    }
    let Some(sum) = want.sum else { return Ok(()) };
    // Without values the sum is 0 or absent.
    let same = got.sum.map_or(want.count == 0, |got| same_sum(got, sum, want.magnitude));
    check.require(same, || format!("sum: got {:?}, expected {sum:?}", got.sum))?;
    let same = |got: Option<f64>, want: Option<f64>, scale: f64| match (got, want) {
        (None, None) => true,
        (Some(got), Some(want)) => same_float(got, want, scale),
        _ => false,
    };
    let scale = want.magnitude / want.count.max(1) as f64;
    check.require(same(got.mean, want.mean, scale), || {
        format!("mean: got {:?}, expected {:?}", got.mean, want.mean)
    })?;
    // The deviation of infinities from their mean is undefined.
    check.require(want.infs > 0 || same(got.std, want.std, want.magnitude), || {
        format!("std: got {:?}, expected {:?}", got.std, want.std)
    })
}

fn equal(a: &Scalar, b: &Scalar) -> bool {
    a.compare(b).is_some_and(std::cmp::Ordering::is_eq)
}
