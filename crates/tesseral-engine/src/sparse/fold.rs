//! Folding cells of a sparse array into one summary, from statistics where they are exact.

use tesseral_core::{DType, Error, Result, Scalar};
use tesseral_format::{Column, Request};

use super::{CellOrder, Query, slab, stream};
use crate::aggregate::Summarized;
use crate::condition::outlook;
use crate::handle::Handle;
use crate::kernel::summary::{Summary, Wanted};
use crate::options::Options;

/// Folds one column of the cells that a request names. A chunk all of whose cells count, lie in the ranges and meet the
/// condition is answered by its statistics; no other chunk has a cell at its positions, so the rest is read without it.
pub(crate) fn summarize(
    handle: &Handle,
    request: &Request,
    wanted: Wanted,
    options: &Options,
) -> Result<Summarized> {
    let schema = handle.schema();
    let [column] = request.columns.as_slice() else {
        return Err(Error::invalid("one column is folded at a time").in_array(&schema.name));
    };
    let (dtype, fill): (DType, Option<&Scalar>) = match *column {
        Column::Field(f) => schema.fields.get(usize::from(f)).map(|f| (f.dtype, f.missing())),
        Column::Dim(d) => schema.dims.get(usize::from(d)).map(|d| (d.dtype, None)),
        _ => None,
    }
    .ok_or_else(|| Error::invalid(format!("{column:?} cannot be folded")).in_array(&schema.name))?;
    let mut summary = Summary::new(dtype, wanted).map_err(|e| e.in_array(&schema.name))?;
    let mut query = Query::new(handle, request, CellOrder::Stored, false, options)?;
    let whole = query.whole();
    let mut left = Vec::new();
    for chunk in std::mem::take(&mut query.plan.chunks) {
        let counted =
            chunk.whole && (0..schema.dims.len()).all(|d| slab::inside(&chunk, d, &whole.limits[d]));
        let all = counted
            && match &request.condition {
                None => true,
                Some(condition) => {
                    !outlook(schema, condition, &|column| Some(query.stats(&chunk, column)))?.no
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
            summary.fold(cells.data(), cells.validity(), fill)?;
        }
    }
    Ok(Summarized { summary, from_statistics })
}
