//! Folding of sparse cells into one summary, from statistics if they are exact.

use tesseral_core::{DType, Error, Result, Scalar};
use tesseral_format::{Column, PlannedChunk, Request};

use crate::handle::Handle;
use crate::merge::sparse::{CellOrder, CellRead, stream};
use crate::options::Options;
use crate::plan::condition::condition_bounds;
use crate::reduce::kernel::summary::{StatSet, Summary};
use crate::reduce::summary::Summarized;

/// Folds the requested columns of the requested cells in one pass. The statistics of a chunk are used if all its cells are visible,
/// in the ranges and match the condition; no other chunk has a cell at its positions, so the rest is read without it.
pub(crate) fn summarize(
    handle: &Handle,
    request: &Request,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<Summarized>> {
    let schema = handle.schema();
    let mut summaries = Vec::with_capacity(request.columns.len());
    let mut missing: Vec<Vec<Scalar>> = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        let (dtype, declared): (DType, Vec<Scalar>) = match *column {
            Column::Field(f) => schema.fields.get(usize::from(f)).map(|f| (f.dtype, f.missing_values())),
            Column::Dim(d) => schema.dims.get(usize::from(d)).map(|d| (d.dtype, Vec::new())),
            _ => None,
        }
        .ok_or_else(|| Error::invalid(format!("folding {column:?}")).in_array(&schema.name))?;
        summaries.push(Summary::new(dtype, wanted).map_err(|e| e.in_array(&schema.name))?);
        missing.push(declared);
    }
    let mut query = CellRead::new(handle, request, CellOrder::Stored, false, options)?;
    handle.load_stats(&query.plan.chunks, &request.columns)?;
    let includes = query.includes();
    let mut left = Vec::new();
    for chunk in std::mem::take(&mut query.plan.chunks) {
        let all = includes(&chunk)
            && match &request.condition {
                None => true,
                Some(condition) => {
                    condition_bounds(schema, condition, &|column| Some(query.stats(&chunk, column)))?.all()
                }
            };
        if !all || !merge_stats(&query, &chunk, &mut summaries)? {
            left.push(chunk);
        }
    }
    query.plan.chunks = left;
    let from_statistics = query.plan.chunks.is_empty();
    for batch in stream(query) {
        for (((_, cells), summary), missing) in batch?.columns.iter().zip(&mut summaries).zip(&missing) {
            summary.fold(cells.data(), cells.validity(), missing)?;
        }
    }
    Ok(summaries.into_iter().map(|summary| Summarized { summary, from_statistics }).collect())
}

/// Adds the statistics of a chunk to the summary of each column; without effect if those of any do not suffice.
fn merge_stats(query: &CellRead, chunk: &PlannedChunk, summaries: &mut Vec<Summary>) -> Result<bool> {
    let mut merged = summaries.clone();
    for (summary, column) in merged.iter_mut().zip(&query.request.columns) {
        if !summary.merge_stats(&query.stats(chunk, *column))? {
            return Ok(false);
        }
    }
    *summaries = merged;
    Ok(true)
}
