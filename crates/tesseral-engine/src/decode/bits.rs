//! Reading of bitmask arrays, whose cells share bytes.

use bytes::Bytes;
use tesseral_core::{Error, Region, Result, Selection, alloc};
use tesseral_format::{Column, ColumnMut, Cover, PlannedChunk, Request};

use crate::decode::chunk::with_workspace;
use crate::fetch::{self, ChunkBytes};
use crate::handle::Handle;
use crate::options::Options;
use crate::plan::expansion::check_total;

/// Decodes all cells of a chunk, packed most significant bit first.
pub(crate) fn decode_packed(
    handle: &Handle,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
) -> Result<Vec<u8>> {
    let len = usize::try_from(chunk.cells.div_ceil(8))
        .map_err(|_| Error::limit("a chunk's cells", chunk.cells, usize::MAX as u64))?;
    crate::plan::expansion::check_chunk(handle, chunk, len)?;
    let mut values = alloc::zeroed("a chunk of bits", len)?;
    let out = ColumnMut::Fixed { values: &mut values, validity: None };
    with_workspace(|w| handle.source().decode(chunk, column, parts, 0..chunk.cells, out, &mut w.scratch))?;
    Ok(values)
}

/// Reads a selection of a bitmask field: one byte per cell, 0 or 1, row-major.
///
/// # Errors
/// Errors of the plan, the store and the decoders; `Limit`; `Unsupported` if cells can be unwritten.
pub fn read_bits(handle: &Handle, request: &Request, options: &Options) -> Result<Vec<u8>> {
    handle.operate(options, |handle| read_chunks(handle, request, options))
}

fn read_chunks(handle: &Handle, request: &Request, options: &Options) -> Result<Vec<u8>> {
    let (Some(selection), [column]) = (request.selection(), request.columns.as_slice()) else {
        return Err(Error::invalid("a dense read requires positions of one field"));
    };
    let schema = handle.schema();
    check_total(handle, request)?;
    let mut plan = handle.plan(request)?;
    let cells = selection.cells().and_then(|n| usize::try_from(n).ok());
    let cells = cells.ok_or_else(|| Error::limit("the selection", u64::MAX, usize::MAX as u64))?;
    options.check_memory("the result", cells as u64)?;
    let mut out = alloc::zeroed("the result", cells)?;
    let mut written = 0;
    // Higher layers are painted last.
    plan.chunks.sort_by_key(|chunk| chunk.layer);
    for chunk in &plan.chunks {
        let Cover::Exact(cover) = &chunk.cover else {
            return Err(Error::unsupported("bitmasks in sparse arrays").in_array(&schema.name));
        };
        let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
        let parts = ChunkBytes::Fetched(&fetched).column(handle, chunk, *column)?;
        let bits = decode_packed(handle, chunk, *column, &parts).map_err(|e| e.in_array(&schema.name))?;
        written += paint(selection, cover, chunk.tile.as_deref().unwrap_or(cover), &bits, &mut out);
    }
    if written < cells {
        return Err(Error::unsupported("bitmasks with unwritten cells").in_array(&schema.name));
    }
    Ok(out)
}

/// Copies the selected bits of a chunk, stored row-major over its tile; returns their number.
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
