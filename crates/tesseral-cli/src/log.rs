//! `tet log`: versions of a source in order of time.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tesseral::Version;
use tesseral_core::HistoryRow;
use tesseral_display::json;

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{JsonRows, OutputStream, put_tables};
use crate::progress::Meter;
use crate::text;

/// Arguments of `tet log`.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// Path or URL of a file or folder of any supported format
    source: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: &LogArguments) -> CliResult {
    let container = context.open(&arguments.source, &Meter::new(false))?;
    let versions = container.versions()?;
    let history = container.history();
    if context.json() {
        let head = json!({
            "schema": "tesseral.log/1",
            "source": arguments.source.to_string_lossy(),
            "format": container.format().id(),
        });
        let mut rows = JsonRows::begin(&head, "versions")?;
        versions.iter().try_for_each(|v| rows.push(&json::version(v)))?;
        let history = history.iter().map(row).collect();
        rows.finish(&Map::from_iter([("history".to_owned(), history)]))?;
        return Ok(exit::OK);
    }
    let mut output = OutputStream::stdout()?;
    if !versions.is_empty() {
        let columns = ["time (UTC)", ">first", ">last", "op", "state", ">cells", ">bytes", "name"];
        put_tables(&mut output, &columns, versions.iter().map(shown))?;
    }
    if !history.is_empty() {
        let rows = history.iter().map(|row| vec![row.at.clone(), row.op.clone(), row.source.clone()]);
        put_tables(&mut output, &["at", "op", "source"], rows)?;
    }
    if versions.is_empty() && history.is_empty() {
        output.put(b"no history\n")?;
    }
    output.finish()?;
    Ok(exit::OK)
}

fn shown(version: &Version) -> Vec<String> {
    let unknown = || "-".to_owned();
    let name = match &version.array {
        Some(array) => format!("{array}: {}", version.name),
        None => version.name.clone(),
    };
    vec![
        json::date(version.end),
        version.start.to_string(),
        version.end.to_string(),
        version.op.to_owned(),
        version.state.name().to_owned(),
        version.cells.map_or_else(unknown, |n| n.to_string()),
        version.bytes.map_or_else(unknown, text::size),
        name,
    ]
}

fn row(row: &HistoryRow) -> Json {
    json!({"op": row.op, "source": row.source, "at": row.at})
}
