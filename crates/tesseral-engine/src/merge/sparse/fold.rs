//! Folding of sparse cells into one summary, from statistics if they are exact.

use tesseral_core::{DType, Error, Result, Scalar};
use tesseral_format::{Column, Request};

use super::{CellOrder, CellRead, partition, stream};
use crate::handle::Handle;
use crate::kernel::summary::{StatSet, Summary};
use crate::options::Options;
use crate::plan::condition::condition_bounds;
use crate::reduce::summary::Summarized;

/// Folds one column of the requested cells. The statistics of a chunk are used if all its cells are visible, in the ranges and
/// match the condition; no other chunk has a cell at its positions, so the rest is read without it.
pub(crate) fn summarize(
    handle: &Handle,
    request: &Request,
    wanted: StatSet,
    options: &Options,
) -> Result<Summarized> {
    let schema = handle.schema();
    let [column] = request.columns.as_slice() else {
        return Err(Error::invalid("a fold requires exactly one column").in_array(&schema.name));
    };
    let (dtype, missing): (DType, Vec<Scalar>) = match *column {
        Column::Field(f) => schema.fields.get(usize::from(f)).map(|f| (f.dtype, f.missing_values())),
        Column::Dim(d) => schema.dims.get(usize::from(d)).map(|d| (d.dtype, Vec::new())),
        _ => None,
    }
    .ok_or_else(|| Error::invalid(format!("folding {column:?}")).in_array(&schema.name))?;
    let mut summary = Summary::new(dtype, wanted).map_err(|e| e.in_array(&schema.name))?;
    let mut query = CellRead::new(handle, request, CellOrder::Stored, false, options)?;
    let whole = query.whole();
    let mut left = Vec::new();
    for chunk in std::mem::take(&mut query.plan.chunks) {
        let counted =
            chunk.whole && (0..schema.dims.len()).all(|d| partition::inside(&chunk, d, &whole.limits[d]));
        let all = counted
            && match &request.condition {
                None => true,
                Some(condition) => {
                    condition_bounds(schema, condition, &|column| Some(query.stats(&chunk, column)))?.all()
                }
            };
        if !all || !summary.merge_stats(&query.stats(&chunk, *column))? {
            left.push(chunk);
        }
    }
    query.plan.chunks = left;
    let from_statistics = query.plan.chunks.is_empty();
    for batch in stream(query) {
        for (_, cells) in &batch?.columns {
            summary.fold(cells.data(), cells.validity(), &missing)?;
        }
    }
    Ok(Summarized { summary, from_statistics })
}
