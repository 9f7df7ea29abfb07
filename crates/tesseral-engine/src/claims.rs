//! Comparing the sizes that an array claims with the bytes that it stores, before memory or time is spent on them.

use tesseral_core::limits::EXPANSION_RATIO;
use tesseral_core::{CellLen, Result};
use tesseral_format::{ChunkPlan, Column, CoordinateRanges, PlannedChunk, Request, Target};

use crate::handle::Handle;

/// Work space that needs no justification.
const WORK_SPACE: u64 = 16 << 20;
/// Bytes that the work on one cell counts as at least.
const CELL_COST: u64 = 4;
/// Bytes of cells that the work on one chunk counts as at least, whatever it holds.
const CHUNK_COST: u64 = 4 << 10;

/// Bytes that one selected cell of the columns of a request takes.
fn cell_bytes(handle: &Handle, request: &Request) -> u64 {
    let size = |column: &Column| match column {
        Column::Field(f) => {
            let field = handle.schema().fields.get(usize::from(*f));
            let fixed = field.filter(|field| field.cell != CellLen::Var).and_then(|field| field.cell_size());
            fixed.map_or(8, |size| size as u64)
        }
        _ => 8,
    };
    request.columns.iter().map(size).fold(0, u64::saturating_add)
}

/// Rejects decoding `bytes` of a chunk when the bytes stored of it do not justify that much.
pub(crate) fn check_chunk(handle: &Handle, chunk: &PlannedChunk, bytes: usize) -> Result<()> {
    handle.limits().check_expanded(bytes as u64, chunk.stored_bytes())
}

/// Rejects an operation that goes through every cell of a request when the stored bytes do not justify that much work: cells that
/// were never written and chunks that decode to far more than is stored of them.
///
/// # Errors
/// `Limit`; what the plan meets.
pub fn check_total(handle: &Handle, request: &Request) -> Result<()> {
    let Some(selection) = request.selection() else { return Ok(()) };
    let schema = handle.schema();
    let cell = cell_bytes(handle, request).max(CELL_COST);
    let bytes = selection.cells().unwrap_or(u64::MAX).saturating_mul(cell);
    let grid = schema.grid().ok().filter(|grid| grid.rank() == selection.rank());
    let chunks = grid.map_or(0, |grid| grid.touched(selection).remaining());
    let bytes = bytes.max(chunks.saturating_mul(CHUNK_COST));
    if bytes <= handle.limits().total_expansion {
        return Ok(());
    }
    let stored = evidence(&plan(handle, request)?.chunks);
    handle.limits().check_total(bytes, stored).map_err(|e| e.in_array(&schema.name))
}

/// Rejects an operation that holds boxes of `extents` positions of a request in memory, one after another, when the stored bytes
/// justify neither one of them nor all cells.
///
/// # Errors
/// `Limit`; what the plan meets.
pub fn check_held(handle: &Handle, request: &Request, extents: &[u64]) -> Result<()> {
    check_total(handle, request)?;
    let bytes = extents.iter().fold(cell_bytes(handle, request), |n, extent| n.saturating_mul(*extent));
    check_bytes(handle, request, "a decoded chunk", bytes)
}

/// Rejects results of `bytes` for the positions of a request when the stored bytes do not justify that much.
///
/// # Errors
/// `Limit`; what the plan meets.
pub fn check_results(handle: &Handle, request: &Request, bytes: u64) -> Result<()> {
    check_bytes(handle, request, "the result", bytes)
}

fn check_bytes(handle: &Handle, request: &Request, what: &str, bytes: u64) -> Result<()> {
    if bytes <= handle.limits().chunk_expansion {
        return Ok(());
    }
    let stored = evidence(&plan(handle, request)?.chunks);
    handle.limits().check_held(what, bytes, stored).map_err(|e| e.in_array(&handle.schema().name))
}

/// Work space for a request: the bytes that would be taken, or less where the stored bytes do not justify them.
///
/// # Errors
/// What the plan meets.
pub fn work_space(handle: &Handle, request: &Request, bytes: u64) -> Result<u64> {
    let cells = request.selection().and_then(|selection| selection.cells()).unwrap_or(u64::MAX);
    if bytes.min(cells.saturating_mul(cell_bytes(handle, request))) <= WORK_SPACE {
        return Ok(bytes);
    }
    let stored = evidence(&plan(handle, request)?.chunks);
    Ok(bytes.min(stored.saturating_mul(EXPANSION_RATIO).max(WORK_SPACE)))
}

/// Plans a request for its chunks alone. Sparse arrays are planned whole.
fn plan(handle: &Handle, request: &Request) -> Result<ChunkPlan> {
    let schema = handle.schema();
    let everywhere = || Target::Coordinates(vec![CoordinateRanges::new(); schema.dims.len()]);
    let target = if schema.sparse { everywhere() } else { request.target.clone() };
    let request = Request { target, columns: request.columns.clone(), condition: None };
    handle.guarded(|| handle.source().plan(&request))
}

fn stored(chunks: &[PlannedChunk]) -> u64 {
    chunks.iter().map(PlannedChunk::stored_bytes).fold(0, u64::saturating_add)
}

/// What the chunks of a plan count as stored: their bytes, and for each what keeps a record of it.
fn evidence(chunks: &[PlannedChunk]) -> u64 {
    stored(chunks).saturating_add((chunks.len() as u64).saturating_mul(CHUNK_COST / EXPANSION_RATIO))
}

/// Whether all threads may each hold a decoded chunk of `size` bytes a cell at once. Where chunks expand to far more than is stored of
/// them, one after another keeps their memory within what the stored bytes justify.
pub(crate) fn concurrent(handle: &Handle, chunks: &[PlannedChunk], size: usize) -> bool {
    let decoded = |chunk: &PlannedChunk| chunk.cells.saturating_mul(size as u64);
    let expanded =
        chunks.iter().filter(|c| decoded(c) > c.stored_bytes().saturating_mul(EXPANSION_RATIO)).map(decoded);
    let Some(largest) = expanded.max() else { return true };
    let allowed = handle.limits().chunk_expansion.max(stored(chunks).saturating_mul(EXPANSION_RATIO));
    largest.saturating_mul(rayon::current_num_threads() as u64) <= allowed
}
