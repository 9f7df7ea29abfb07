//! Comparison of axes of two arrays.

use serde_json::{Map, Value as Json, json};
use tesseral_core::Result;

use super::outcome::QueryOutcome;
use super::plan::{Plan, axis, labels};
use tesseral_dataset::Array;

/// Compares the listed axes: extents, names, labels.
pub(super) fn compare(plan: &Plan, other: &Array) -> Result<QueryOutcome> {
    let (name, tokens) = plan.document.align.clone().unwrap_or_default();
    let (ours, theirs) = (plan.array.schema(), other.schema());
    let mut axes = Vec::new();
    for token in &tokens {
        let number = axis(&plan.array, "align.axes", token)?;
        let (left, right) = (&ours.dims[number], theirs.dims.get(number));
        let extents = (left.extent, right.and_then(|dim| dim.extent));
        let names = (left.name.as_str(), right.map(|dim| dim.name.as_str()));
        let theirs = right.and_then(|_| labels(other, number));
        let labels_ok = labels(&plan.array, number) == theirs;
        let reason = match () {
            () if right.is_none() => Some("the other array does not have this axis"),
            () if names.1.is_some_and(|name| name != names.0) => Some("dim_names differ"),
            () if extents.0 != extents.1 => Some("extents differ"),
            () if !labels_ok => Some("labels differ"),
            () => None,
        };
        let mut entry = Map::new();
        entry.insert("axis".into(), json!(token.to_string()));
        entry.insert("ok".into(), json!(reason.is_none()));
        entry.insert("extent_left".into(), json!(extents.0));
        entry.insert("extent_right".into(), json!(extents.1));
        entry.insert("dim_name_left".into(), json!(names.0));
        entry.insert("dim_name_right".into(), json!(names.1));
        entry.insert("labels_ok".into(), json!(labels_ok));
        if let Some(reason) = reason {
            entry.insert("reason".into(), json!(reason));
        }
        axes.push((reason.is_none(), Json::Object(entry)));
    }
    let aligned = axes.iter().all(|(ok, _)| *ok);
    let axes: Vec<Json> = axes.into_iter().map(|(_, entry)| entry).collect();
    let alignment = json!({"aligned": aligned, "left": plan.document.dataset, "with": name, "axes": axes});
    Ok(QueryOutcome { alignment: Some(alignment), strategy: "metadata", ..QueryOutcome::default() })
}
