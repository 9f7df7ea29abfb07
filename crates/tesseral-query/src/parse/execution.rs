//! Execution and output: `execution`, `write`.

use serde_json::Value as Json;
use tesseral_core::Result;

use super::super::document::{Execution, WriteClause, WriteTarget};
use super::bad;
use super::values::{object, text, whole};

pub(super) fn write(value: &Json) -> Result<WriteClause> {
    let target_of = |value: &Json| match value.as_str() {
        Some("switch") => Ok(WriteTarget::Switch),
        Some("ram") => Ok(WriteTarget::Ram),
        Some("spill") => Ok(WriteTarget::Spill),
        Some("sidecar") => Ok(WriteTarget::Sidecar),
        _ => Err(bad("write.target", "expected one of switch, ram, spill, sidecar")),
    };
    if value.is_string() {
        return Ok(WriteClause { target: target_of(value)?, path: None, timestamp: true });
    }
    let object = object("write", value, &["target", "path", "timestamp"])?;
    let target = object.get("target").map(target_of).transpose()?.unwrap_or_default();
    let path = object.get("path").map(|value| text("write.path", value)).transpose()?;
    if path.is_some() && !matches!(target, WriteTarget::Spill | WriteTarget::Sidecar) {
        return Err(bad("write.path", "it requires the target spill or sidecar"));
    }
    let timestamp = match object.get("timestamp") {
        None => true,
        Some(_) if target != WriteTarget::Sidecar => {
            return Err(bad("write.timestamp", "it requires the target sidecar"));
        }
        Some(value) => value.as_bool().ok_or_else(|| bad("write.timestamp", "expected true or false"))?,
    };
    Ok(WriteClause { target, path, timestamp })
}

pub(super) fn execution(value: &Json) -> Result<Execution> {
    let known = [
        "memory_budget_bytes",
        "memory_budget_percent",
        "memory_budget_percent_bps",
        "fold_parallel",
        "device",
    ];
    let object = object("execution", value, &known)?;
    let mut execution = Execution::default();
    for (name, value) in object {
        let key = format!("execution.{name}");
        match name.as_str() {
            "memory_budget_bytes" => execution.memory_budget_bytes = Some(whole(&key, value)?),
            "memory_budget_percent" | "memory_budget_percent_bps" => {
                let scale = if name == "memory_budget_percent" { 100.0 } else { 1.0 };
                let points = value.as_f64().map(|value| (value * scale).round());
                let points = points.filter(|points| (0.0..=10_000.0).contains(points));
                let points = points.ok_or_else(|| bad(&key, "expected a percentage of at most 100"))?;
                // In range, as checked above.
                if execution.memory_budget_bps.replace(points as u16).is_some() {
                    return Err(bad(&key, "duplicate memory budget"));
                }
            }
            "fold_parallel" => {
                execution.fold_parallel =
                    Some(value.as_bool().ok_or_else(|| bad(&key, "expected true or false"))?);
            }
            _ => execution.device = Some(text(&key, value)?),
        }
    }
    Ok(execution)
}
