//! Decoding of stored bytes into cells.

use std::ops::Range;

use bytes::Bytes;
use tesseral_codec::{raw, zstd};
use tesseral_core::{Error, Result};
use tesseral_format::{Column, ColumnMut, PlannedChunk, Scratch};

use crate::array::TetArray;
use crate::wire::chunk_index::{RAW, ZSTD};

/// Decodes a chunk: copies raw cells, or decompresses zstd into the caller's slice, which bounds the output.
pub(crate) fn decode(
    array: &TetArray,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    cells: Range<u64>,
    out: ColumnMut<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let row = array.row(chunk).ok_or_else(|| Error::invalid(format!("unknown chunk {}", chunk.id)))?;
    let (Column::Field(0), [stored], ColumnMut::Fixed { values, validity }) = (column, parts, out) else {
        return Err(Error::internal("expected one part and one fixed-size output column"));
    };
    let count = cells.end.checked_sub(cells.start).filter(|_| cells.end <= chunk.cells);
    let wanted = count.and_then(|n| usize::try_from(n).ok()?.checked_mul(array.cell));
    if wanted != Some(values.len()) {
        return Err(Error::internal(format!(
            "buffer of {} bytes is too small for cells {cells:?}",
            values.len()
        )));
    }
    match row.codec.get() {
        RAW => {
            let start = usize::try_from(cells.start).ok().and_then(|n| n.checked_mul(array.cell));
            let part = start.and_then(|start| stored.get(start..start.checked_add(values.len())?));
            raw::decode_into(part.unwrap_or_default(), values)?;
        }
        ZSTD if cells == (0..chunk.cells) => zstd::decode_into(stored, values, &mut scratch.contexts)?,
        ZSTD => {
            // Bounded by the size of the chunk, which is addressable.
            let start = cells.start.saturating_mul(array.cell as u64);
            zstd::decode_range(stored, start, values, &mut scratch.contexts)?;
        }
        codec => return Err(Error::unsupported(format!(".tet codec {codec}"))),
    }
    to_native(values, array.cell);
    if let Some(validity) = validity {
        validity.fill(1);
    }
    Ok(())
}

/// Number of cells that each frame of a compressed chunk holds, if it has several.
pub(crate) fn frame_cells(array: &TetArray, chunk: &PlannedChunk, stored: &[u8]) -> Option<u64> {
    let row = array.row(chunk).filter(|row| row.codec.get() == ZSTD)?;
    let step = zstd::frame_step(stored, row.raw_byte_len.get())?;
    let cell = array.cell as u64;
    step.is_multiple_of(cell).then(|| step / cell)
}

/// Converts between little-endian and native byte order in place.
pub(crate) fn to_native(values: &mut [u8], cell: usize) {
    if cfg!(target_endian = "big") {
        values.chunks_exact_mut(cell).for_each(<[u8]>::reverse);
    }
}
