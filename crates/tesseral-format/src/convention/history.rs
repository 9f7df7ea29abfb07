//! History as JSON, for formats without a place for it.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tesseral_core::{Attributes, HistoryRow, Value};

/// Replaces the inputs of the last row, as [`Writer::set_parents`](crate::Writer::set_parents): sizes that follow from the history stay.
pub fn set_parents(rows: &mut [HistoryRow], parents: &[String]) -> bool {
    let Some(row) = rows.last_mut().filter(|row| same_lengths(&row.parents, parents)) else { return false };
    row.parents = parents.to_vec();
    true
}

/// Returns whether texts have the lengths of others.
pub fn same_lengths(texts: &[String], others: &[String]) -> bool {
    texts.len() == others.len() && texts.iter().zip(others).all(|(text, other)| text.len() == other.len())
}

/// Converts rows to JSON.
pub fn to_json(rows: &[HistoryRow]) -> Json {
    let row = |row: &HistoryRow| {
        json!({
            "op": row.op, "source": row.source, "at": row.at, "parents": row.parents, "params": row.params,
            "extra": row.extra,
        })
    };
    rows.iter().map(row).collect()
}

/// Reads rows from their JSON as an attribute value. Values that are not rows are skipped.
pub fn from_value(value: Option<Value>) -> Vec<HistoryRow> {
    let Some(Value::List(rows)) = value else { return Vec::new() };
    let text = |map: &Attributes, key: &str| match map.get(key) {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let texts = |map: &Attributes, key: &str| match map.get(key) {
        Some(Value::Map(inner)) => inner.keys().map(|name| (name.clone(), text(inner, name))).collect(),
        _ => BTreeMap::new(),
    };
    let row = |value: &Value| match value {
        Value::Map(map) => Some(HistoryRow {
            op: text(map, "op"),
            source: text(map, "source"),
            at: text(map, "at"),
            parents: match map.get("parents") {
                Some(Value::List(parents)) => parents.iter().map(ToString::to_string).collect(),
                _ => Vec::new(),
            },
            params: texts(map, "params"),
            extra: texts(map, "extra"),
        }),
        _ => None,
    };
    rows.iter().filter_map(row).collect()
}
