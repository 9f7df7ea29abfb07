//! Verification of an output before it is published.

use std::ops::Range;

use tesseral_core::{ChunkGrid, Coords, Error, Result};
use tesseral_engine::kernel::compare::{Comparison, Tolerance};
use tesseral_engine::{CellSource, Cells};
use tesseral_format::ArraySpec;

use super::feed::{CellFeed, FeedColumn, MissingPolicy};
use super::options::ConvertOptions;
use super::plan::PlannedArray;
use super::{default_memory, position};
use tesseral_dataset::{Array, Container};

/// Largest errors found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MaxErrors {
    pub max_abs: f64,
    pub max_rel: f64,
}

/// Compares every cell of an output array with its source: bit by bit, or within the error bound.
pub(crate) fn check(
    planned: &PlannedArray,
    number: usize,
    output: &Container,
    options: &ConvertOptions,
) -> Result<MaxErrors> {
    let schema = &planned.spec.schema;
    let written = feed_of(planned, number, output)?;
    let tolerance = planned.bound.map_or(Tolerance::default(), |b| Tolerance { abs: b.abs, rel: b.rel });
    let mut comparison = Comparison::default();
    let memory = options.execution.memory.unwrap_or_else(default_memory);
    let grids = &planned.rechunk.grids;
    let blocks = ChunkGrid::new(&grids.shape, &grown(&grids.shape, &grids.to, grids.cell, memory / 8))?;
    let mut pair: [Vec<Cells>; 2] = std::array::from_fn(|_| columns(planned));
    for index in 0..blocks.total() {
        options.execution.cancel.check()?;
        let region = blocks.region(&blocks.coords(index));
        let count = region.cells().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let [ours, theirs] = &mut pair;
        for (feed, columns) in [(&planned.feed, &mut *ours), (&written, &mut *theirs)] {
            columns.iter_mut().try_for_each(|column| column.reset(count))?;
            feed.read(&region, columns, &options.execution)?;
        }
        let fields = schema.fields.iter().zip(ours.iter().zip(theirs.iter()));
        for (field, (ours, theirs)) in fields {
            compare_columns(field, ours, theirs, &tolerance, &mut comparison);
            if planned.bound.is_some() {
                check_declared(field, ours, theirs).map_err(|cell| {
                    let at = position(&tesseral_core::Selection::from_region(&region), cell);
                    let feature = format!("packing cell {at:?}: it becomes a declared missing value");
                    Error::unsupported(feature).in_array(&schema.name).hint("allow a smaller error")
                })?;
            }
            if let Some(cell) = comparison.first {
                let at = position(&tesseral_core::Selection::from_region(&region), cell);
                if planned.bound.is_some() {
                    let feature = format!("packing cell {at:?} of {:?} within the error bound", field.name);
                    return Err(Error::unsupported(feature)
                        .in_array(&schema.name)
                        .hint("allow a larger error"));
                }
                let detail = format!("cell {at:?} of {:?} differs from the source", field.name);
                return Err(Error::corrupt("the output", output.location(), None, detail)
                    .in_array(&schema.name)
                    .hint("nothing was published; the machine or a codec is at fault"));
            }
        }
    }
    Ok(MaxErrors { max_abs: comparison.max_abs.unwrap_or(0.0), max_rel: comparison.max_rel.unwrap_or(0.0) })
}

/// Checks that packed cells are missing where the source is; returns the first cell that is not.
fn check_declared(field: &tesseral_core::Field, ours: &Cells, theirs: &Cells) -> Result<(), u64> {
    let values = field.missing_values();
    if values.is_empty() {
        return Ok(());
    }
    let missing = |cells: &Cells, i: usize| field.is_missing(&values, cells.get(i));
    let moved = (0..ours.len()).find(|i| missing(ours, *i) != missing(theirs, *i));
    moved.map_or(Ok(()), |i| Err(i as u64))
}

fn columns(planned: &PlannedArray) -> Vec<Cells> {
    planned.spec.schema.fields.iter().map(Cells::for_field).collect()
}

/// Adds the difference of two columns of one field.
pub(crate) fn compare_columns(
    field: &tesseral_core::Field,
    left: &Cells,
    right: &Cells,
    tolerance: &Tolerance,
    out: &mut Comparison,
) {
    compare_rows(field, (left, 0..left.len()), (right, 0..right.len()), tolerance, out);
}

/// Adds the difference of a range of cells of two columns of one field.
pub(crate) fn compare_rows(
    field: &tesseral_core::Field,
    (left, a): (&Cells, Range<usize>),
    (right, b): (&Cells, Range<usize>),
    tolerance: &Tolerance,
    out: &mut Comparison,
) {
    let nulls = |column: &Cells, rows: &Range<usize>| {
        column.validity().is_some_and(|validity| validity[rows.clone()].contains(&0))
    };
    let size = left.size();
    if size > 0 && right.size() == size && a.len() == b.len() && !nulls(left, &a) && !nulls(right, &b) {
        let bytes = |column: &Cells, rows: Range<usize>| rows.start * column.size()..rows.end * column.size();
        let (a, b) = (&left.data()[bytes(left, a)], &right.data()[bytes(right, b)]);
        out.add(field.dtype, size, a, b, 0, tolerance);
        return;
    }
    let valid = |n: usize| left.is_valid(a.start + n) && right.is_valid(b.start + n);
    let (common, mut n) = (a.len().min(b.len()), 0);
    while n < common {
        let (i, j) = (a.start + n, b.start + n);
        if size > 0 && right.size() == size && valid(n) {
            // A run of values on both sides.
            let run = (n..common).take_while(|n| valid(*n)).count();
            let (values, others) = (i * size..(i + run) * size, j * size..(j + run) * size);
            out.add(field.dtype, size, &left.data()[values], &right.data()[others], n as u64, tolerance);
            n += run;
            continue;
        }
        if left.is_valid(i) != right.is_valid(j) || (left.is_valid(i) && left.get(i) != right.get(j)) {
            out.note(n as u64);
        }
        n += 1;
    }
    (common..a.len().max(b.len())).for_each(|n| out.note(n as u64));
}

/// A block of whole chunks of up to `room` bytes, filling the last dimensions first; a part of a chunk if that is much larger.
pub(crate) fn grown(shape: &[u64], chunk: &[u64], cell: u64, room: u64) -> Coords {
    let mut block = Coords::from_slice(chunk);
    let bytes =
        |block: &Coords| block.iter().zip(shape).fold(cell, |n, (b, s)| n.saturating_mul((*b).min(*s)));
    if bytes(&block) / 2 > room {
        for d in 0..block.len() {
            let row = Coords::from_iter(block.iter().enumerate().map(|(i, n)| if i == d { 1 } else { *n }));
            block[d] = (room / bytes(&row).max(1)).clamp(1, block[d].min(shape[d]).max(1));
            if bytes(&block) <= room {
                break;
            }
        }
        return block;
    }
    for d in (0..block.len()).rev() {
        while block[d] < shape[d] {
            let mut next = block.clone();
            next[d] = block[d].saturating_mul(2).min(shape[d].div_ceil(chunk[d]) * chunk[d]);
            if bytes(&next) > room {
                return block;
            }
            block = next;
        }
    }
    block
}

/// An array of the output, by number if names are only hints.
pub(crate) fn written(spec: &ArraySpec, number: usize, output: &Container) -> Result<Array> {
    if output.len() == 1 {
        return output.array_at(0);
    }
    if output.format().messages().is_none() {
        return output.array(&spec.schema.name);
    }
    // Index coordinates that were given as labels are separate arrays between the others.
    let mut named = None;
    for index in number..output.len() {
        let array = output.array_at(index)?;
        if array.variable_name() == spec.schema.name {
            named = Some(array);
            break;
        }
    }
    named.map_or_else(|| output.array_at(number), Ok)
}

/// The array of the output, without selection.
fn feed_of(planned: &PlannedArray, number: usize, output: &Container) -> Result<CellFeed> {
    let schema = &planned.spec.schema;
    let array = written(&planned.spec, number, output)?;
    let column = |field: &tesseral_core::Field| -> Result<FeedColumn> {
        let array: Array =
            if schema.fields.len() == 1 { array.clone() } else { array.clone().field(&field.name)? };
        let own = array.selected_field();
        let absent =
            if own.nullable && !field.nullable { MissingPolicy::Reject } else { MissingPolicy::Preserve };
        Ok(FeedColumn { dtype: own.dtype, absent, replaced: Vec::new(), array })
    };
    let columns = schema.fields.iter().map(column).collect::<Result<_>>()?;
    Ok(CellFeed { columns, selection: array.all()?, pass_through: false })
}
