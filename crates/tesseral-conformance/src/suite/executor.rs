//! Checks of plan executors against the oracle.

use std::sync::Arc;

use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, Field, Result, Scalar, Selection};

use super::facts::{same_float, same_sum};
use super::{Check, Fixture, Violation, for_each_array, open, selections, sparse_ranges};
use crate::oracle::{Cells, Dense, Row, Sparse, Summary};
use tesseral_format::{ContainerSource, CoordinateRanges, Format, Target};

/// A reader of arrays through the traits, such as the engine.
pub trait Executor {
    /// A field of a dense selection, row-major over the selection. Bytes under nulls are ignored.
    ///
    /// # Errors
    /// Errors of the executor.
    fn read_dense(
        &self,
        container: &Arc<dyn ContainerSource>,
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
        container: &Arc<dyn ContainerSource>,
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
        container: &Arc<dyn ContainerSource>,
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
                let expected = check.must("oracle", sparse.select(&fields, &ranges))?;
                let got = check
                    .guarded("read_sparse", || executor.read_sparse(&container, number, &fields, &ranges))?;
                let got = check.must("read_sparse", got)?;
                check.require(got == expected, || {
                    let differs = got.iter().zip(&expected).find(|(a, b)| a != b);
                    let (got, expected) = (got.len(), expected.len());
                    format!(
                        "fields {fields:?}: {got} rows, expected {expected}; first difference {differs:?}"
                    )
                })?;
                let field = &schema.fields[usize::from(fields[0])];
                if has_sum(field) {
                    let expected = Summary::from_rows(field, &expected, 0);
                    let target = Target::Coordinates(ranges.clone());
                    compare(&check, executor, &container, number, fields[0], &target, &expected)?;
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
                let expected = check.must("oracle", dense.select(selection))?;
                let got = check
                    .guarded("read_dense", || executor.read_dense(&container, number, i as u16, selection))?;
                let got = check.must("read_dense", got)?.normalized();
                check.same("cells", &got, &expected)?;
                if has_sum(field) {
                    let expected = check.must("oracle", dense.summary(selection))?;
                    let target = Target::Cells(selection.clone());
                    compare(&check, executor, &container, number, i as u16, &target, &expected)?;
                }
            }
        }
        Ok(())
    })
}

/// Whether a field has one number per cell.
fn has_sum(field: &Field) -> bool {
    field.cell == CellLen::One && !matches!(field.dtype.class(), Class::Complex | Class::Bits | Class::Text)
}

fn compare(
    check: &Check<'_>,
    executor: &dyn Executor,
    container: &Arc<dyn ContainerSource>,
    array: usize,
    field: u16,
    target: &Target,
    expected: &Summary,
) -> Result<(), Violation> {
    let got = check.guarded("summary", || executor.summary(container, array, field, target))?;
    let got = check.must("summary", got)?;
    let counts = |s: &Summary| [s.cells, s.nulls, s.nans, s.infs, s.count];
    check.same("cells, nulls, NaN, infinite, counted", &counts(&got), &counts(expected))?;
    for (what, got, expected) in [("min", &got.min, &expected.min), ("max", &got.max, &expected.max)] {
        let same = match (got, expected) {
            (None, None) => true,
            (Some(got), Some(expected)) => got.dtype() == expected.dtype() && equal(got, expected),
            _ => false,
        };
        check.require(same, || format!("{what}: got {got:?}, expected {expected:?}"))?;
    }
    let Some(sum) = expected.sum else { return Ok(()) };
    // Without values the sum is 0 or absent.
    let same = got.sum.map_or(expected.count == 0, |got| same_sum(got, sum, expected.magnitude));
    check.require(same, || format!("sum: got {:?}, expected {sum:?}", got.sum))?;
    let same = |got: Option<f64>, expected: Option<f64>, scale: f64| match (got, expected) {
        (None, None) => true,
        (Some(got), Some(expected)) => same_float(got, expected, scale),
        _ => false,
    };
    let scale = expected.magnitude / expected.count.max(1) as f64;
    check.require(same(got.mean, expected.mean, scale), || {
        format!("mean: got {:?}, expected {:?}", got.mean, expected.mean)
    })?;
    // The deviation of infinities from their mean is undefined.
    check.require(expected.infs > 0 || same(got.std, expected.std, expected.magnitude), || {
        format!("std: got {:?}, expected {:?}", got.std, expected.std)
    })
}

fn equal(a: &Scalar, b: &Scalar) -> bool {
    a.compare(b).is_some_and(std::cmp::Ordering::is_eq)
}
