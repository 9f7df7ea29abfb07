//! Summaries of whole selections and of single positions, which stored statistics may answer.

use tesseral_core::{Error, Result, Selection, Slice};
use tesseral_format::{Request, Target};

use super::layout::AxisRole;
use super::merger::Folded;
use super::run::{Fold, fields, fold};
use super::state::{FoldState, Reducer};
use crate::handle::Handle;
use crate::options::Options;
use crate::reduce::kernel::summary::StatSet;
use crate::reduce::summary::{Summarized, summarize_columns};

/// Folds all cells of each column of a request into one summary.
///
/// # Errors
/// As [`fold`](super::fold).
pub fn summaries(
    handle: &Handle,
    request: &Request,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<Summarized>> {
    let roles = vec![AxisRole::Reduce; handle.schema().dims.len()];
    summarized(fold(handle, request, &Fold::new(vec![Reducer::Summary(wanted)], roles), options)?)
}

/// Folds all cells of the only column of a request into one summary.
///
/// # Errors
/// As [`fold`](super::fold); `InvalidRequest` for several columns.
pub fn summary(handle: &Handle, request: &Request, wanted: StatSet, options: &Options) -> Result<Summarized> {
    let mut found = summaries(handle, request, wanted, options)?;
    let too_many = || Error::invalid("a summary requires exactly one column").in_array(&handle.schema().name);
    found.pop().filter(|_| found.is_empty()).ok_or_else(too_many)
}

/// Folds one field of a dense array for each position of a dimension.
///
/// # Errors
/// As [`fold`](super::fold); `InvalidRequest` if positions of the dimension are not selected.
pub fn summaries_by_position(
    handle: &Handle,
    request: &Request,
    dim: usize,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<Summarized>> {
    let invalid =
        || Error::invalid("grouping requires a dimension of positions").in_array(&handle.schema().name);
    let selection = request.selection().filter(|selection| dim < selection.rank()).ok_or_else(invalid)?;
    let mut roles = vec![AxisRole::Reduce; selection.rank()];
    roles[dim] = AxisRole::Keep;
    summarized(fold(handle, request, &Fold::new(vec![Reducer::Summary(wanted)], roles), options)?)
}

/// The summaries of a fold with one reducer, column by column.
fn summarized(folded: Folded) -> Result<Vec<Summarized>> {
    let known = folded.from_statistics.into_iter().chain(std::iter::repeat(false));
    let summary = |(state, from_statistics): (FoldState, bool)| match state {
        FoldState::Summary(summary) => Ok(Summarized { summary, from_statistics }),
        _ => Err(Error::internal("missing summary of a fold")),
    };
    folded.states.into_iter().flatten().zip(known).map(summary).collect()
}

/// The result of a fold that stored statistics may answer: summaries of whole columns, and of single positions of an axis whose
/// chunks are that thin. Thicker chunks would be decoded once per position. `None` for other folds.
pub(super) fn fold_known(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    options: &Options,
) -> Result<Option<Folded>> {
    let [Reducer::Summary(wanted)] = fold.reducers.as_slice() else { return Ok(None) };
    let (sparse, dims) = (handle.schema().sparse, handle.schema().dims.len());
    let all = fold.roles.iter().all(|role| *role == AxisRole::Reduce) && fold.roles.len() == dims;
    let unmasked = fold.masks.iter().all(Option::is_none);
    let rows = matches!(request.target, Target::Coordinates(_));
    // Selected positions of a sparse array are rows, which the units find.
    if all && unmasked && if sparse { rows } else { request.condition.is_none() } {
        let found = summarize_columns(handle, request, *wanted, options)?;
        let from_statistics = found.iter().map(|found| found.from_statistics).collect();
        let states = found.into_iter().map(|found| vec![FoldState::Summary(found.summary)]).collect();
        return Ok(Some(Folded { shape: Vec::new(), states, skipped: 0, from_statistics }));
    }
    if sparse || fold.fast_statistics(request).is_none() {
        return Ok(None);
    }
    positions(handle, request, fold, *wanted, options)
}

/// Summaries of the positions of the only axis that is kept, if its chunks have one position each.
fn positions(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    wanted: StatSet,
    options: &Options,
) -> Result<Option<Folded>> {
    let (_, selection) = fields(handle, request)?;
    let mut kept = (0..fold.roles.len()).filter(|d| fold.roles[*d] == AxisRole::Keep);
    let (Some(dim), None) = (kept.next(), kept.next()) else { return Ok(None) };
    let schema = handle.schema();
    let thin = schema.chunk_shape.as_ref().and_then(|chunk| chunk.get(dim)) == Some(&1);
    let Some(slice) = selection.slices().get(dim).filter(|_| thin && selection.rank() == fold.roles.len())
    else {
        return Ok(None);
    };
    let memory = slice.count().saturating_mul(size_of::<Summarized>() as u64);
    options.check_memory("one row per position", memory).map_err(|e| e.in_array(&schema.name))?;
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    let mut folded =
        Folded { shape: vec![slice.count()], states: Vec::new(), skipped: 0, from_statistics: Vec::new() };
    for column in &request.columns {
        let mut states = Vec::new();
        for i in 0..slice.count() {
            options.cancel.check()?;
            let mut slices = selection.slices().to_vec();
            let position = slice.start + i * slice.step;
            slices[dim] = Slice::new(position, position + 1);
            let target = Target::Cells(Selection::new(slices, &bounds)?);
            let request = Request { target, columns: vec![*column], ..request.clone() };
            for found in summarize_columns(handle, &request, wanted, options)? {
                folded.from_statistics.push(found.from_statistics);
                states.push(FoldState::Summary(found.summary));
            }
        }
        folded.states.push(states);
    }
    Ok(Some(folded))
}
