//! Reading bits: cells of a dense array that share bytes.

use bytes::Bytes;
use tesseral_core::{Error, Region, Result, Selection, alloc};
use tesseral_format::{Column, ColumnMut, Cover, PlannedChunk, Request};

use crate::chunk::with_workspace;
use crate::claims::check_total;
use crate::fetch::{self, Source};
use crate::handle::Handle;
use crate::options::Options;

/// All cells of a chunk, packed from the most significant bit.
pub(crate) fn decode_packed(
    handle: &Handle,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
) -> Result<Vec<u8>> {
    let len = usize::try_from(chunk.cells.div_ceil(8))
        .map_err(|_| Error::limit("a chunk's cells", chunk.cells, usize::MAX as u64))?;
    crate::claims::check_chunk(handle, chunk, len)?;
    let mut values = alloc::zeroed("a chunk of bits", len)?;
    let out = ColumnMut::Fixed { values: &mut values, validity: None };
    with_workspace(|w| handle.source().decode(chunk, column, parts, 0..chunk.cells, out, &mut w.scratch))?;
    Ok(values)
}

/// Reads a selection of a field of bits: one byte per cell, 0 or 1, row-major.
///
/// # Errors
/// What the plan, the store and the decoders meet; `Limit`; `Unsupported` where cells may be missing.
pub fn read_bits(handle: &Handle, request: &Request, options: &Options) -> Result<Vec<u8>> {
    handle.restartable(|handle| read_chunks(handle, request, options))
}

fn read_chunks(handle: &Handle, request: &Request, options: &Options) -> Result<Vec<u8>> {
    let (Some(selection), [column]) = (request.selection(), request.columns.as_slice()) else {
        return Err(Error::invalid("a dense read takes positions of one field"));
    };
    let schema = handle.schema();
    check_total(handle, request)?;
    let mut plan = handle.source().plan(request).map_err(|e| e.in_array(&schema.name))?;
    let cells = selection.cells().and_then(|n| usize::try_from(n).ok());
    let cells = cells.ok_or_else(|| Error::limit("the selection", u64::MAX, usize::MAX as u64))?;
    options.check_memory("the result", cells as u64)?;
    let mut out = alloc::zeroed("the result", cells)?;
    let mut written = 0;
    // Higher layers are painted last.
    plan.chunks.sort_by_key(|chunk| chunk.layer);
    for chunk in &plan.chunks {
        let Cover::Exact(cover) = &chunk.cover else {
            return Err(Error::unsupported("bits of cells that are listed").in_array(&schema.name));
        };
        let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
        let parts = Source::Fetched(&fetched).column(handle, chunk, *column)?;
        let bits = decode_packed(handle, chunk, *column, &parts).map_err(|e| e.in_array(&schema.name))?;
        written += paint(selection, cover, chunk.tile.as_ref().unwrap_or(cover), &bits, &mut out);
    }
    if written < cells {
        return Err(Error::unsupported("bits of an array with gaps").in_array(&schema.name));
    }
    Ok(out)
}

/// Copies the selected bits of a chunk, stored row-major over its tile; gives how many there were.
fn paint(selection: &Selection, cover: &Region, tile: &Region, bits: &[u8], out: &mut [u8]) -> usize {
    let slices = selection.slices();
    let mut at = vec![0_u64; slices.len()];
    let mut written = 0;
    for cell in out.iter_mut() {
        let position = |d: usize| slices[d].start + at[d] * slices[d].step;
        if (0..at.len()).all(|d| (cover.start(d)..cover.end(d)).contains(&position(d))) {
            let stored = (0..at.len()).fold(0, |n, d| n * tile.extent(d) + (position(d) - tile.start(d)));
            let byte = usize::try_from(stored / 8).ok().and_then(|i| bits.get(i)).copied().unwrap_or(0);
            *cell = byte >> (7 - stored % 8) & 1;
            written += 1;
        }
        for d in (0..at.len()).rev() {
            at[d] += 1;
            if at[d] < slices[d].count() {
                break;
            }
            at[d] = 0;
        }
    }
    written
}
