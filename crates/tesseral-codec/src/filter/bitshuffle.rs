//! Bit shuffle: the first bits of all elements, then the second bits, and so on, in blocks of 8 KiB.
//!
//! Header as [byte shuffle](super::byteshuffle). A part whose length is not a multiple of 8 and of the element's width is
//! copied. In a block of `n` elements the first `⌊n/8⌋·8` are transposed: bit `b` of byte `k` of element `i` is bit `i`
//! of row `8k + b`, least significant first; the others are copied.

use tesseral_core::Result;

use super::header::{Header, put_len};
use super::{Pair, Word, grow};

const BLOCK: usize = 8192;

pub(crate) fn reverse(word: Word, meta: &[u8], data: &[u8], out: &mut Pair, cap: usize) -> Result<()> {
    let mut header = Header::new("bitshuffle", meta);
    let mut data = Header::new("bitshuffle", data);
    let parts = header.count(4, "parts")?;
    for _ in 0..parts {
        let part = data.take(header.len("a part's length")?, "a part")?;
        let target = grow(&mut out.data, part.len(), cap, "bitshuffle")?;
        if !part.len().is_multiple_of(8) || !part.len().is_multiple_of(word.size) {
            target.copy_from_slice(part);
            continue;
        }
        for (block, target) in part.chunks(BLOCK).zip(target.chunks_mut(BLOCK)) {
            untranspose(word.size, block, target);
        }
    }
    out.meta.extend_from_slice(header.rest);
    Ok(())
}

/// Turns an 8×8 matrix of bits, one row per byte, by swapping ever larger squares across the diagonal.
fn transpose8(mut x: u64) -> u64 {
    let t = (x ^ x >> 7) & 0x00AA_00AA_00AA_00AA;
    x ^= t ^ t << 7;
    let t = (x ^ x >> 14) & 0x0000_CCCC_0000_CCCC;
    x ^= t ^ t << 14;
    let t = (x ^ x >> 28) & 0x0000_0000_F0F0_F0F0;
    x ^ t ^ t << 28
}

/// Eight elements at a time: eight bytes of eight rows give byte `k` of those elements.
fn untranspose(width: usize, block: &[u8], out: &mut [u8]) {
    let groups = block.len() / width / 8;
    let whole = groups * 8 * width;
    for k in 0..width {
        for group in 0..groups {
            let mut rows = [0; 8];
            for (b, row) in rows.iter_mut().enumerate() {
                *row = block[(8 * k + b) * groups + group];
            }
            let bytes = transpose8(u64::from_le_bytes(rows)).to_le_bytes();
            for (i, byte) in bytes.into_iter().enumerate() {
                out[(group * 8 + i) * width + k] = byte;
            }
        }
    }
    out[whole..].copy_from_slice(&block[whole..]);
}

/// Shuffles a first part of whole groups of eight bytes; what is left is a part of its own, and copied.
pub(crate) fn forward(word: Word, meta: &[u8], data: &[u8], out: &mut Pair) -> Result<()> {
    let (whole, rest) = data.split_at(data.len() / 8 * 8);
    let parts: Vec<&[u8]> = [whole, rest].into_iter().filter(|part| !part.is_empty()).collect();
    put_len("bitshuffle", parts.len(), &mut out.meta)?;
    for part in parts {
        put_len("bitshuffle", part.len(), &mut out.meta)?;
        let start = out.data.len();
        out.data.extend_from_slice(part);
        if part.len().is_multiple_of(8) && part.len().is_multiple_of(word.size) {
            for (block, target) in part.chunks(BLOCK).zip(out.data[start..].chunks_mut(BLOCK)) {
                transpose(word.size, block, target);
            }
        }
    }
    out.meta.extend_from_slice(meta);
    Ok(())
}

/// The inverse of [`untranspose`].
fn transpose(width: usize, block: &[u8], out: &mut [u8]) {
    let groups = block.len() / width / 8;
    for k in 0..width {
        for group in 0..groups {
            let mut bytes = [0; 8];
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = block[(group * 8 + i) * width + k];
            }
            let rows = transpose8(u64::from_le_bytes(bytes)).to_le_bytes();
            for (b, row) in rows.into_iter().enumerate() {
                out[(8 * k + b) * groups + group] = row;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_single_bits() {
        for (width, elements) in [(1, 24), (2, 12), (4, 10), (8, 17)] {
            let cells: Vec<u8> = (0..width * elements).map(|i| (i * 37 + 11) as u8).collect();
            let rows = elements / 8;
            let mut shuffled = vec![0; cells.len()];
            for i in 0..rows * 8 {
                for k in 0..width {
                    for b in 0..8 {
                        let bit = cells[i * width + k] >> b & 1;
                        shuffled[(8 * k + b) * rows + i / 8] |= bit << (i % 8);
                    }
                }
            }
            let whole = rows * 8 * width;
            shuffled[whole..].copy_from_slice(&cells[whole..]);
            let mut out = vec![0; cells.len()];
            untranspose(width, &shuffled, &mut out);
            assert_eq!(out, cells, "width {width}");
        }
    }
}
