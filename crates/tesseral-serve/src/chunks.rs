//! Storage of arrays: chunks, sizes, codecs.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tesseral::{Cancel, Result};
use tesseral_core::schema::VariableRole;
use tesseral_display::{ArraySummary, document};

use crate::server::ServerState;
use crate::view::CellParameters;

/// Chunks of one page, unless several are at the place of the last one.
const CHUNKS: u64 = 100;

/// An array, and where its list begins.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChunkParameters {
    source: usize,
    array: usize,
    field: u16,
    as_of: Option<String>,
    from: u64,
}

/// A page of chunks with sizes, codecs and statistics.
pub(crate) fn chunks(shared: &ServerState, query: &ChunkParameters, cancel: Cancel) -> Result<Json> {
    let cells = CellParameters {
        source: query.source,
        array: query.array,
        field: query.field,
        as_of: query.as_of.clone(),
        stored: true,
        at: String::new(),
    };
    let opened = cells.open(shared, cancel)?;
    let summary = ArraySummary::new(opened.array, VariableRole::Data, Some(query.field))?;
    let (rows, next) = summary.chunk_rows_from(query.from, CHUNKS)?;
    Ok(json!({
        "from": query.from,
        "next": next,
        "total": summary.chunks,
        "stored": summary.stored,
        "digests": summary.digests,
        "chunks": rows.iter().map(document::chunk).collect::<Vec<_>>(),
    }))
}
