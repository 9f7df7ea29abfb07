//! Memory limits, and previews of cells.

use tesseral_core::{Error, Result, Scalar, dtype::Class};
use tesseral_engine::{Dense, available_memory};

use super::document::Execution;
use super::parse::bad;
use super::plan::Plan;

/// Minimum memory of a fold in bytes.
pub(super) const MIN_MEMORY: u64 = 1 << 20;

/// Effective memory limit: the document's bytes, else the file's or the caller's, else the document's fraction of the available
/// memory; at most `most`.
pub(super) fn budget(execution: &Execution, own: Option<u64>, most: Option<u64>) -> Result<Option<u64>> {
    if let Some(device) = &execution.device
        && !matches!(device.as_str(), "cpu" | "auto")
    {
        return Err(Error::unsupported(format!(
            "query key `execution.device`: unknown device {device:?}; available: cpu"
        )));
    }
    let part = execution.memory_budget_bps.filter(|points| *points > 0);
    let part = part.and_then(|p| available_memory().map(|bytes| (bytes / 10_000 * u64::from(p)).max(1)));
    let chosen = execution.memory_budget_bytes.filter(|bytes| *bytes > 0).or(own).or(part);
    Ok(match (chosen, most) {
        (Some(chosen), Some(most)) => Some(chosen.min(most)),
        (chosen, most) => chosen.or(most),
    })
}

/// Value of cells that a condition excludes.
pub(super) fn blank(plan: &Plan) -> Result<Vec<u8>> {
    let field = plan.array.selected_field();
    if field.dtype.class() == Class::Float {
        return Scalar::parse(field.dtype, "NaN").map(|nan| nan.bytes().to_vec());
    }
    match &field.fill {
        Some(fill) => Ok(fill.bytes().to_vec()),
        None => Err(bad("filter", "excluded integers require a declared missing value")),
    }
}

/// Replaces the excluded cells of a block. `first` is its position in the selection.
pub(super) fn left_out(plan: &Plan, block: &Dense, first: &[u64]) -> Result<Option<Vec<bool>>> {
    if plan.condition.is_none() && plan.masks.iter().all(Option::is_none) {
        return Ok(None);
    }
    let cells = block.shape.iter().product::<u64>();
    let mut out = match &plan.condition {
        Some(condition) => {
            let (schema, number) = (plan.array.schema(), plan.array.field_number());
            let met = tesseral_engine::matches(schema, condition, number, block.bytes(), block.validity())?;
            met.into_iter().map(|met| !met).collect()
        }
        None => vec![false; usize::try_from(cells).unwrap_or(0)],
    };
    let mut stride = 1_u64;
    for d in (0..block.shape.len()).rev() {
        if let Some(mask) = &plan.masks[d] {
            for (i, out) in out.iter_mut().enumerate() {
                let position = i as u64 / stride % block.shape[d] + first[d];
                let kept = usize::try_from(position).ok().and_then(|p| mask.get(p)).copied();
                *out |= !kept.unwrap_or(false);
            }
        }
        stride *= block.shape[d].max(1);
    }
    Ok(Some(out))
}

/// Start of a part of the selection.
pub(super) fn selection_offset(plan: &Plan, part: &tesseral_core::Selection) -> Vec<u64> {
    let both = part.slices().iter().zip(plan.selection.slices());
    both.map(|(part, whole)| (part.start - whole.start) / whole.step).collect()
}

/// Reads the cells of a part of the selection, with excluded ones replaced.
pub(super) fn cells(plan: &Plan, part: &tesseral_core::Selection) -> Result<Vec<u8>> {
    let block = plan.array.read(part)?;
    let mut bytes = block.bytes().to_vec();
    if let Some(out) = left_out(plan, &block, &selection_offset(plan, part))? {
        let blank = blank(plan)?;
        for (cell, _) in bytes.chunks_exact_mut(blank.len()).zip(out).filter(|(_, out)| *out) {
            cell.copy_from_slice(&blank);
        }
    }
    Ok(bytes)
}

/// Returns the first cells, and whether there are more.
pub(super) fn preview(plan: &Plan) -> Result<(Vec<u8>, bool)> {
    let size = plan.array.selected_field().cell_size().unwrap_or(1);
    let wanted = plan.settings.preview;
    let total = plan.selection.cells().unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    for part in plan.array.blocks(&plan.selection, (wanted.max(1) * size) as u64)? {
        if bytes.len() >= wanted * size {
            break;
        }
        bytes.extend(cells(plan, &part)?);
    }
    bytes.truncate(wanted * size);
    let shown = (bytes.len() / size.max(1)) as u64;
    Ok((bytes, shown < total))
}
