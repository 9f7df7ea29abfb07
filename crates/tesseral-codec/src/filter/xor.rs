//! XOR of each element with its predecessor, part by part. Header as [byte shuffle](super::byteshuffle).

use tesseral_core::{Cursor, Result};

use super::header::put_len;
use super::{FilterBuffers, FilterElement, grow};

pub(crate) fn reverse(
    word: FilterElement,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    let mut header = Cursor::codec("xor", meta);
    let mut data = Cursor::codec("xor", data);
    let parts = header.count32(4, "parts")?;
    for _ in 0..parts {
        let part = data.take(header.len32("part length")?, "part")?;
        let target = grow(&mut out.data, part.len(), cap, "xor")?;
        target.copy_from_slice(part);
        // Each byte depends on the same byte of the preceding element.
        for i in word.size..target.len() {
            target[i] ^= target[i - word.size];
        }
    }
    out.meta.extend_from_slice(header.rest());
    Ok(())
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
