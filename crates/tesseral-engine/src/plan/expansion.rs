//! Comparison of declared sizes with stored bytes, before memory or time is spent.

use std::collections::HashMap;

use tesseral_core::limits::{EXPANSION_RATIO, HELD_RATIO};
use tesseral_core::{CellLen, Result, Selection};
use tesseral_format::{ChunkPlan, Column, CoordinateRanges, PlannedChunk, Request, Target};

use crate::handle::Handle;

/// Scratch memory in bytes that needs no justification.
const WORK_SPACE: u64 = 8 << 20;
/// Minimum cost of the work on one cell in bytes.
const CELL_COST: u64 = 4;
/// Minimum cost of a cell that is written as text in bytes.
const TEXT_COST: u64 = 8;
/// Minimum cost of writing one chunk in bytes.
const WRITTEN_CHUNK_COST: u64 = 256;
/// The same where every chunk is a separate object: a file is created, written and renamed.
const WRITTEN_OBJECT_COST: u64 = 5 << 10;
/// Bytes that the work on one array counts as at least: a conversion keeps about 20 kB of metadata for each. A message of one
/// small array has some 400 bytes or more, which justify that much.
const ARRAY_COST: u64 = 24 << 10;
/// Fraction of the decoded bytes that decoding costs.
const DECODED_SHARE: u64 = 4;
/// Minimum cost of the work on one chunk in bytes.
const CHUNK_COST: u64 = 4 << 10;

/// Size of one selected cell of the columns of a request in bytes.
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

/// Rejects decoding `bytes` of a chunk if its stored bytes do not justify it.
pub(crate) fn check_chunk(handle: &Handle, chunk: &PlannedChunk, bytes: usize) -> Result<()> {
    handle.limits().check_expanded(bytes as u64, chunk.stored_bytes())
}

/// Rejects an operation over every cell of a request if the stored bytes do not justify the work: unwritten cells, and chunks
/// that expand far beyond their stored size.
///
/// # Errors
/// `Limit`; errors of the plan.
pub fn check_total(handle: &Handle, request: &Request) -> Result<()> {
    check_work(handle, request, CELL_COST)
}

/// As [`check_total`], for an operation that writes every cell as text.
///
/// # Errors
/// `Limit`; errors of the plan.
pub fn check_text(handle: &Handle, request: &Request) -> Result<()> {
    check_work(handle, request, TEXT_COST)
}

fn check_work(handle: &Handle, request: &Request, cost: u64) -> Result<()> {
    let bytes = work_bytes(handle, request, cost);
    if bytes <= handle.limits().total_expansion {
        return Ok(());
    }
    let stored = evidence(&plan(handle, request)?.chunks);
    let check = handle.limits().check_total("the cells of the selection", bytes, stored);
    check.map_err(|e| e.in_array(&handle.schema().name))
}

/// Cost of the work on every position of a request in bytes.
fn work_bytes(handle: &Handle, request: &Request, cost: u64) -> u64 {
    let Some(selection) = request.selection() else { return 0 };
    let schema = handle.schema();
    let cell = cell_bytes(handle, request).max(cost);
    let bytes = selection.cells().unwrap_or(u64::MAX).saturating_mul(cell);
    let grid = schema.grid().ok().filter(|grid| grid.rank() == selection.rank());
    let chunks = grid.map_or(0, |grid| grid.touched(selection).remaining());
    bytes.max(chunks.saturating_mul(CHUNK_COST))
}

/// Work of an operation over several arrays, compared with their total stored size.
#[derive(Debug, Default)]
pub struct Work {
    bytes: u64,
    /// Cost of chunk records in bytes.
    records: u64,
    /// Bytes of each object that chunks refer to. All of them justify work, not only those of cells: an object of many small arrays
    /// is mostly metadata.
    objects: HashMap<String, u64>,
    unmeasured: Vec<(Handle, Request)>,
}

impl Work {
    /// Adds every cell of a request. Rejects it if the arrays so far do not justify the total work.
    ///
    /// # Errors
    /// `Limit`; errors of the plan.
    pub fn add(&mut self, handle: &Handle, request: &Request) -> Result<()> {
        self.bytes = self.bytes.saturating_add(work_bytes(handle, request, CELL_COST).max(ARRAY_COST));
        self.unmeasured.push((handle.clone(), request.clone()));
        self.check(handle)
    }

    fn check(&mut self, handle: &Handle) -> Result<()> {
        if self.bytes <= handle.limits().total_expansion {
            return Ok(());
        }
        for (handle, request) in std::mem::take(&mut self.unmeasured) {
            let chunks = plan(&handle, &request)?.chunks;
            self.measure(&handle, &mut chunks.iter())?;
        }
        let stored = self.objects.values().fold(self.records, |sum, len| sum.saturating_add(*len));
        handle.limits().check_total("the cells of all arrays", self.bytes, stored)
    }

    fn measure(&mut self, handle: &Handle, chunks: &mut dyn Iterator<Item = &PlannedChunk>) -> Result<()> {
        for chunk in chunks {
            self.records = self.records.saturating_add(CHUNK_COST / EXPANSION_RATIO);
            for part in &chunk.parts {
                let name = handle.source().object(part.object);
                if !self.objects.contains_key(&*name) {
                    let len = handle.store().len(&name)?;
                    self.objects.insert(name.into_owned(), len);
                }
            }
        }
        Ok(())
    }

    /// Adds the chunks that a statistics request decodes: those that are not constant.
    ///
    /// # Errors
    /// `Limit`; errors of the plan and the store.
    pub fn add_statistics(&mut self, handle: &Handle, request: &Request) -> Result<()> {
        if request.selection().is_none() {
            return Ok(());
        }
        let chunks = plan(handle, request)?.chunks;
        let constant = |chunk: &PlannedChunk| {
            request.columns.iter().all(|column| handle.source().constant(chunk, *column).is_some())
        };
        let decoded: Vec<&PlannedChunk> = chunks.iter().filter(|chunk| !constant(chunk)).collect();
        let size = usize::try_from(cell_bytes(handle, request)).unwrap_or(usize::MAX);
        self.add_decoded(handle, &decoded, size)
    }

    /// Adds chunks that are only decoded, which costs less than work on each cell.
    ///
    /// # Errors
    /// `Limit`; errors of the store.
    pub(crate) fn add_decoded(
        &mut self,
        handle: &Handle,
        chunks: &[&PlannedChunk],
        size: usize,
    ) -> Result<()> {
        let cells = chunks.iter().map(|chunk| chunk.cells).fold(0, u64::saturating_add);
        self.bytes = self.bytes.saturating_add(cells.saturating_mul(size as u64) / DECODED_SHARE);
        self.measure(handle, &mut chunks.iter().copied())?;
        self.check(handle)
    }
}

/// Rejects an operation that holds boxes of `extents` positions of a request in memory, in sequence, if the stored bytes
/// justify neither one of them nor all cells.
///
/// # Errors
/// `Limit`; errors of the plan.
pub fn check_held(handle: &Handle, request: &Request, extents: &[u64]) -> Result<()> {
    check_total(handle, request)?;
    let bytes = extents.iter().fold(cell_bytes(handle, request), |n, extent| n.saturating_mul(*extent));
    check_bytes(handle, request, "a decoded chunk", bytes)
}

/// Rejects results of `bytes` for the positions of a request if the stored bytes do not justify them. Results are held in
/// addition to a decoded chunk, so they are limited to half of one chunk.
///
/// # Errors
/// `Limit`; errors of the plan.
pub fn check_results(handle: &Handle, request: &Request, bytes: u64) -> Result<()> {
    check_bytes(handle, request, "the results with their work space", bytes.saturating_mul(2))
}

/// Rejects two chunks of `bytes` together, held at the same time, if the stored bytes do not justify them. Nothing else of that
/// size is held: they are limited to one and a half chunks.
///
/// # Errors
/// `Limit`; errors of the plan.
pub fn check_pair(handle: &Handle, request: &Request, bytes: u64) -> Result<()> {
    check_bytes(handle, request, "a source and a target chunk", bytes / 3 * 2)
}

/// Rejects writing `chunks` chunks, or `objects` of one chunk each, for the positions of a request if the stored bytes do not
/// justify the work.
///
/// # Errors
/// `Limit`; errors of the plan.
pub fn check_written_chunks(handle: &Handle, request: &Request, chunks: u64, objects: bool) -> Result<()> {
    let bytes = chunks.saturating_mul(if objects { WRITTEN_OBJECT_COST } else { WRITTEN_CHUNK_COST });
    if bytes <= handle.limits().total_expansion {
        return Ok(());
    }
    let stored = evidence(&plan(handle, request)?.chunks);
    let check = handle.limits().check_total("the chunks to write, with their index", bytes, stored);
    check.map_err(|e| e.in_array(&handle.schema().name))
}

fn check_bytes(handle: &Handle, request: &Request, what: &str, bytes: u64) -> Result<()> {
    if bytes <= handle.limits().chunk_expansion {
        return Ok(());
    }
    let stored = evidence(&plan(handle, request)?.chunks);
    handle.limits().check_held(what, bytes, stored).map_err(|e| e.in_array(&handle.schema().name))
}

/// Scratch memory for a request: the given size, or less if the stored bytes do not justify it.
///
/// # Errors
/// Errors of the plan.
pub fn work_space(handle: &Handle, request: &Request, bytes: u64) -> Result<u64> {
    let cells = request.selection().and_then(|selection| selection.cells()).unwrap_or(u64::MAX);
    if bytes.min(cells.saturating_mul(cell_bytes(handle, request))) <= WORK_SPACE {
        return Ok(bytes);
    }
    let stored = evidence(&plan(handle, request)?.chunks);
    Ok(bytes.min(stored.saturating_mul(HELD_RATIO / 4).max(WORK_SPACE)))
}

/// Bytes of the cells of a selection that may be processed, if only these parts of it are known: the stored bytes of the others are
/// taken to be as many for each cell.
///
/// # Errors
/// Errors of the plan.
pub fn allowed_bytes(handle: &Handle, selection: &Selection, parts: &[Request]) -> Result<u64> {
    let (mut chunks, mut cells) = (Vec::new(), 0_u64);
    for part in parts {
        chunks.extend(plan(handle, part)?.chunks);
        let own = part.selection().and_then(Selection::cells);
        cells = cells.saturating_add(own.unwrap_or(u64::MAX));
    }
    let all = u128::from(selection.cells().unwrap_or(u64::MAX));
    let stored = u128::from(stored(&chunks)).saturating_mul(all) / u128::from(cells.max(1));
    Ok(handle.limits().total_of(u64::try_from(stored).unwrap_or(u64::MAX)))
}

/// Plans a request for its chunks only. Sparse arrays are planned completely.
fn plan(handle: &Handle, request: &Request) -> Result<ChunkPlan> {
    let schema = handle.schema();
    let everywhere = || Target::Coordinates(vec![CoordinateRanges::new(); schema.dims.len()]);
    let target = if schema.sparse { everywhere() } else { request.target.clone() };
    // Coordinates of dense arrays are computed, not stored.
    let is_stored = |column: &&Column| schema.sparse || matches!(column, Column::Field(_));
    let columns = request.columns.iter().filter(is_stored).copied().collect();
    let request = Request { target, columns, condition: None };
    handle.guarded(|| handle.plan(&request))
}

/// Stored size of the chunks of a plan in bytes. Shared bytes are counted once.
fn stored(chunks: &[PlannedChunk]) -> u64 {
    let parts = chunks.iter().flat_map(|chunk| &chunk.parts);
    let mut spans: Vec<(u32, u64, u64)> =
        parts.map(|part| (part.object, part.offset, part.offset.saturating_add(part.len))).collect();
    spans.sort_unstable();
    let (mut total, mut covered) = (0_u64, (0, 0));
    for (object, start, end) in spans {
        let from = if covered.0 == object { start.max(covered.1) } else { start };
        total = total.saturating_add(end.saturating_sub(from));
        covered = (object, if covered.0 == object { end.max(covered.1) } else { end });
    }
    total
}

/// Accounted size of the chunks of a plan: their stored bytes, and the record of each.
fn evidence(chunks: &[PlannedChunk]) -> u64 {
    stored(chunks).saturating_add((chunks.len() as u64).saturating_mul(CHUNK_COST / EXPANSION_RATIO))
}

/// Returns whether all threads can hold a decoded chunk of `size` bytes per cell at once. If chunks expand far beyond their
/// stored size, they are decoded sequentially to bound the memory.
pub(crate) fn concurrent(handle: &Handle, chunks: &[PlannedChunk], size: usize) -> bool {
    let decoded = |chunk: &PlannedChunk| chunk.cells.saturating_mul(size as u64);
    let expanded =
        chunks.iter().filter(|c| decoded(c) > c.stored_bytes().saturating_mul(HELD_RATIO)).map(decoded);
    let Some(largest) = expanded.max() else { return true };
    let allowed = handle.limits().chunk_expansion.max(stored(chunks).saturating_mul(HELD_RATIO));
    largest.saturating_mul(rayon::current_num_threads() as u64) <= allowed
}
