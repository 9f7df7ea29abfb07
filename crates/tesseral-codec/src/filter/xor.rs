//! XOR of each element with its predecessor, part by part. Header as [byte shuffle](super::byteshuffle).

use tesseral_core::Result;

use super::header::{put_len, reverse_parts};
use super::{FilterBuffers, FilterElement};

pub(crate) fn reverse(
    word: FilterElement,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    reverse_parts("xor", meta, data, out, cap, |part, target| {
        target.copy_from_slice(part);
        // Each byte depends on the same byte of the preceding element.
        for i in word.size..target.len() {
            target[i] ^= target[i - word.size];
        }
        Ok(())
    })
}

/// Encodes the data as one part.
pub(crate) fn forward(word: FilterElement, meta: &[u8], data: &[u8], out: &mut FilterBuffers) -> Result<()> {
    put_len("xor", 1, &mut out.meta)?;
    put_len("xor", data.len(), &mut out.meta)?;
    out.meta.extend_from_slice(meta);
    let first = data.len().min(word.size);
    out.data.extend_from_slice(&data[..first]);
    out.data.extend(data.iter().zip(&data[first..]).map(|(before, byte)| before ^ byte));
    Ok(())
}
