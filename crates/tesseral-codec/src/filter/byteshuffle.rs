//! Byte shuffle: the first bytes of all elements, then the second bytes, and so on.
//!
//! Header `u32 parts`, then one `u32` length per part. Each part is shuffled by itself; bytes behind its last whole element
//! are copied.

use tesseral_core::Result;

use super::header::{Header, put_len};
use super::{Pair, Word, grow};

pub(crate) fn reverse(word: Word, meta: &[u8], data: &[u8], out: &mut Pair, cap: usize) -> Result<()> {
    let mut header = Header::new("byteshuffle", meta);
    let mut data = Header::new("byteshuffle", data);
    let parts = header.count(4, "parts")?;
    for _ in 0..parts {
        let part = data.take(header.len("a part's length")?, "a part")?;
        unshuffle(word.size, part, grow(&mut out.data, part.len(), cap, "byteshuffle")?);
    }
    out.meta.extend_from_slice(header.rest);
    Ok(())
}

/// Generic over the width so that the inner loop unrolls.
fn gather<const W: usize>(part: &[u8], out: &mut [u8]) {
    let n = part.len() / W;
    for (i, element) in out.chunks_exact_mut(W).enumerate() {
        for (k, byte) in element.iter_mut().enumerate() {
            *byte = part[k * n + i];
        }
    }
    out[n * W..].copy_from_slice(&part[n * W..]);
}

fn unshuffle(width: usize, part: &[u8], out: &mut [u8]) {
    match width {
        2 => gather::<2>(part, out),
        4 => gather::<4>(part, out),
        8 => gather::<8>(part, out),
        _ => out.copy_from_slice(part),
    }
}

/// Shuffles the data as one part.
pub(crate) fn forward(word: Word, meta: &[u8], data: &[u8], out: &mut Pair) -> Result<()> {
    put_len("byteshuffle", 1, &mut out.meta)?;
    put_len("byteshuffle", data.len(), &mut out.meta)?;
    out.meta.extend_from_slice(meta);
    out.data.extend_from_slice(data);
    let whole = data.len() / word.size * word.size;
    crate::shuffle::encode_into(&data[..whole], word.size, &mut out.data[..whole])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_bytes_stay() {
        let mut out = [0; 7];
        unshuffle(2, &[1, 3, 5, 2, 4, 6, 9], &mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 9]);
    }
}
