//! The framing shared by all compressors: parts of metadata and data, each compressed separately.
//!
//! Header `u32 metadata parts`, `u32 data parts`, then per part `u32` original and `u32` compressed length. The data are the
//! compressed parts, those of metadata first.

use tesseral_core::{Cursor, Result};

use super::header::put_len;
use super::{FilterBuffers, grow};

/// Calls `decode(compressed, into)` for every part.
pub(crate) fn reverse(
    filter: &'static str,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
    mut decode: impl FnMut(&[u8], &mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut header = Cursor::codec(filter, meta);
    let mut data = Cursor::codec(filter, data);
    let meta_parts = header.len32("metadata parts")?;
    let data_parts = header.count32(8, "data parts")?;
    for part in 0..meta_parts.saturating_add(data_parts) {
        let original = header.len32("part length")?;
        let compressed = data.take(header.len32("part compressed length")?, "part")?;
        let out = if part < meta_parts { &mut out.meta } else { &mut out.data };
        let target = grow(out, original, cap, filter)?;
        if original > 0 {
            decode(compressed, target)?;
        }
    }
    Ok(())
}

/// The single part of a chunk with exactly `len` bytes of data and no metadata, which can be decoded directly into the output.
pub(crate) fn single<'a>(meta: &[u8], data: &'a [u8], len: usize) -> Option<&'a [u8]> {
    let mut header = Cursor::codec("", meta);
    let parts = (header.u32("").ok()?, header.u32("").ok()?);
    let lens = (header.len32("").ok()?, header.len32("").ok()?);
    (parts == (0, 1) && header.rest().is_empty() && lens == (len, data.len())).then_some(data)
}

/// Calls `encode(part, out)` for the metadata, if any, and for the data.
pub(crate) fn forward(
    filter: &'static str,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    mut encode: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    put_len(filter, usize::from(!meta.is_empty()), &mut out.meta)?;
    put_len(filter, 1, &mut out.meta)?;
    for part in (!meta.is_empty()).then_some(meta).into_iter().chain([data]) {
        let start = out.data.len();
        encode(part, &mut out.data)?;
        put_len(filter, part.len(), &mut out.meta)?;
        put_len(filter, out.data.len() - start, &mut out.meta)?;
    }
    Ok(())
}
