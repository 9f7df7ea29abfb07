//! `tet info --json`.

use serde_json::{Map, Value as Json, json};
use tesseral_display::document;

use super::{ArrayEntry, MessageRow, Report};
use crate::error::CliResult;
use crate::messages;
use crate::output::JsonRows;
use tesseral_display::json;

/// Prints the document: common members, and format-specific details under the format's id. Arrays are printed one by one.
pub(super) fn print(report: &Report<'_>) -> CliResult<()> {
    let container = report.container;
    let head = json!({
        "schema": "tesseral.info/1",
        "source": report.arguments.source.to_string_lossy(),
        "format": container.format().id(),
        "size_bytes": report.size,
    });
    let mut arrays = JsonRows::begin(&head, "arrays")?;
    report.each(&mut |entry| arrays.push(&described(report, &entry)?))?;
    let mut tail = Map::new();
    tail.insert("attributes".into(), json::attributes(container.attributes()));
    tail.insert("history".into(), container.history().iter().map(document::history).collect());
    if let Some(messages) = &report.messages {
        let keys = messages::keys(&report.arguments.keys);
        let row = |row: &MessageRow| {
            let pairs = keys.iter().zip(&row.values);
            let values = pairs.filter_map(|(key, value)| Some((key.clone(), json::value(value.as_ref()?))));
            json!({"message": row.number, "values": values.collect::<Map<_, _>>()})
        };
        tail.insert("rows".into(), messages.iter().map(row).collect());
    }
    tail.insert(container.format().id().into(), report.details());
    arrays.finish(&tail)
}

fn described(report: &Report<'_>, entry: &ArrayEntry) -> CliResult<Json> {
    let known = match &entry.array {
        Ok(known) => known,
        Err(error) => return Ok(json!({"name": entry.name, "error": error.to_string()})),
    };
    let mut array = document::array(known);
    if report.arguments.chunks || report.arguments.all {
        let rows = known.chunk_rows(report.arguments.rows)?;
        array.insert("chunk_list".into(), rows.iter().map(document::chunk).collect());
    }
    Ok(Json::Object(array))
}
