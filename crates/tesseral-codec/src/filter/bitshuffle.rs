//! Bit shuffle: the first bits of all elements, then the second bits, and so on, in blocks of 8 KiB.
//!
//! Header as [byte shuffle](super::byteshuffle). A part whose length is not a multiple of 8 and of the element size is
//! copied. The layout of a block is that of [`crate::bitshuffle`].

use tesseral_core::Result;

use super::header::{put_len, reverse_parts};
use super::{FilterBuffers, FilterElement};
use crate::bitshuffle;

const BLOCK: usize = 8192;

pub(crate) fn reverse(
    word: FilterElement,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    reverse_parts("bitshuffle", meta, data, out, cap, |part, target| {
        if !part.len().is_multiple_of(8) || !part.len().is_multiple_of(word.size) {
            target.copy_from_slice(part);
            return Ok(());
        }
        for (block, target) in part.chunks(BLOCK).zip(target.chunks_mut(BLOCK)) {
            bitshuffle::decode_into(block, word.size, target);
        }
        Ok(())
    })
}

/// Shuffles a first part of full groups of eight bytes; the remaining bytes form a second part, which is copied.
pub(crate) fn forward(word: FilterElement, meta: &[u8], data: &[u8], out: &mut FilterBuffers) -> Result<()> {
    let (whole, rest) = data.split_at(data.len() / 8 * 8);
    let parts: Vec<&[u8]> = [whole, rest].into_iter().filter(|part| !part.is_empty()).collect();
    put_len("bitshuffle", parts.len(), &mut out.meta)?;
    for part in parts {
        put_len("bitshuffle", part.len(), &mut out.meta)?;
        let start = out.data.len();
        out.data.extend_from_slice(part);
        if part.len().is_multiple_of(8) && part.len().is_multiple_of(word.size) {
            for (block, target) in part.chunks(BLOCK).zip(out.data[start..].chunks_mut(BLOCK)) {
                bitshuffle::encode_into(block, word.size, target);
            }
        }
    }
    out.meta.extend_from_slice(meta);
    Ok(())
}
