//! One summary for each position of a dimension.

use tesseral_core::{Error, Result, Selection, Slice};
use tesseral_format::{Request, Target};

use super::fold::{AxisRole, Fold, FoldState, Reducer, fold};
use super::summary::{Summarized, summarize};
use crate::handle::Handle;
use crate::kernel::summary::StatSet;
use crate::options::Options;

/// Folds one field of a dense array for each position of a dimension.
///
/// With chunks of one position each summary can come from stored statistics. Thicker chunks would be decoded once per position, so their
/// cells are read once and distributed.
///
/// # Errors
/// As [`summarize`]; `Limit` if the summaries exceed the memory limit.
pub fn summarize_positions(
    handle: &Handle,
    request: &Request,
    dim: usize,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<Summarized>> {
    let schema = handle.schema();
    let invalid = || Error::invalid("grouping requires a dimension of positions").in_array(&schema.name);
    let selection = request.selection().filter(|selection| dim < selection.rank()).ok_or_else(invalid)?;
    let slice = selection.slices()[dim];
    let memory = slice.count().saturating_mul(size_of::<Summarized>() as u64);
    options.check_memory("one row per position", memory).map_err(|e| e.in_array(&schema.name))?;
    let thin =
        schema.chunk_shape.as_ref().and_then(|chunk| chunk.get(dim)).is_some_and(|extent| *extent == 1);
    if thin || slice.count() <= 1 {
        let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
        let summarize_position = |i: u64| {
            options.cancel.check()?;
            let mut slices = selection.slices().to_vec();
            let position = slice.start + i * slice.step;
            slices[dim] = Slice::new(position, position + 1);
            let target = Target::Cells(Selection::new(slices, &bounds)?);
            summarize(handle, &Request { target, ..request.clone() }, wanted, options)
        };
        return (0..slice.count()).map(summarize_position).collect();
    }
    let mut roles = vec![AxisRole::Reduce; selection.rank()];
    roles[dim] = AxisRole::Keep;
    let states =
        fold(handle, request, &Fold::new(vec![Reducer::Summary(wanted)], roles), options)?.single()?;
    let summary = |state: FoldState| match state {
        FoldState::Summary(summary) => Ok(Summarized { summary, from_statistics: false }),
        _ => Err(Error::internal("missing summary of a fold")),
    };
    states.into_iter().map(summary).collect()
}
