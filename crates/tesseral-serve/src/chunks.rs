//! Storage of arrays: chunks, sizes, codecs.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tesseral::{Cancel, Result};
use tesseral_core::schema::VariableRole;
use tesseral_display::{ArraySummary, document};

use crate::server::ServerState;
use crate::view::CellParameters;

/// Chunks of one page.
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
    let rows = summary.chunk_rows_from(query.from, CHUNKS + 1)?;
    let shown = usize::try_from(CHUNKS).unwrap_or(usize::MAX);
    Ok(json!({
        "from": query.from,
        "total": summary.chunks,
        "stored": summary.stored,
        "digests": summary.digests,
        "more": rows.len() > shown,
        "chunks": rows.iter().take(shown).map(document::chunk).collect::<Vec<_>>(),
    }))
}
