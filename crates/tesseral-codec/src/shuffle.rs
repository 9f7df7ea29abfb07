//! Byte shuffle: byte `b` of every element comes before byte `b + 1` of any.
//!
//! Elements go eight bytes of each at a time, eight elements to a square of bytes that is turned over its diagonal: twelve
//! exchanges of half of two words, instead of 64 bytes moved one by one. Four squares side by side are turned together, so
//! that the words of an exchange lie in vectors, and rows of the result are 32 bytes.

use tesseral_core::{Error, Result};

/// Elements moved at once byte by byte, so that both sides stay in the first cache.
const TILE: usize = 512;
/// Squares turned together.
const SQUARES: usize = 4;
/// Elements in them.
const GROUP: usize = 8 * SQUARES;

fn check(src: &[u8], dst: &[u8], size: usize) -> Result<()> {
    if size == 0 || src.len() != dst.len() || !src.len().is_multiple_of(size) {
        let detail = format!("{} bytes into {} in elements of {size}", src.len(), dst.len());
        return Err(Error::codec("shuffle", detail));
    }
    Ok(())
}

/// Gathers the bytes of elements of `size` bytes by their place.
///
/// # Errors
/// `Codec` when the lengths differ or are not a multiple of `size`.
pub fn encode_into(src: &[u8], size: usize, dst: &mut [u8]) -> Result<()> {
    check(src, dst, size)?;
    let n = src.len() / size;
    if size == 1 {
        dst.copy_from_slice(src);
        return Ok(());
    }
    for first in (0..size).step_by(8) {
        match size - first {
            1 => squares_out::<1>(src, size, first, n, dst),
            2 => squares_out::<2>(src, size, first, n, dst),
            3 => squares_out::<3>(src, size, first, n, dst),
            4 => squares_out::<4>(src, size, first, n, dst),
            5 => squares_out::<5>(src, size, first, n, dst),
            6 => squares_out::<6>(src, size, first, n, dst),
            7 => squares_out::<7>(src, size, first, n, dst),
            _ => squares_out::<8>(src, size, first, n, dst),
        }
    }
    strided_out(src, size, n, n / GROUP * GROUP, dst);
    Ok(())
}

/// Puts the bytes back; the inverse of [`encode_into`].
///
/// # Errors
/// `Codec` when the lengths differ or are not a multiple of `size`.
pub fn decode_into(src: &[u8], size: usize, dst: &mut [u8]) -> Result<()> {
    check(src, dst, size)?;
    let n = src.len() / size;
    match size {
        1 => dst.copy_from_slice(src),
        2 => zip2(src, n, dst),
        4 => zip4(src, n, dst),
        _ if size.is_multiple_of(8) => {
            (0..size).step_by(8).for_each(|first| squares_back(src, size, first, n, dst));
            strided_back(src, size, n, n / GROUP * GROUP, dst);
        }
        _ => strided_back(src, size, n, 0, dst),
    }
    Ok(())
}

/// Rows of equal length, one per byte of an element.
fn zip2(src: &[u8], n: usize, dst: &mut [u8]) {
    let (a, b) = src.split_at(n);
    for ((out, a), b) in dst.as_chunks_mut::<2>().0.iter_mut().zip(a).zip(b) {
        *out = [*a, *b];
    }
}

fn zip4(src: &[u8], n: usize, dst: &mut [u8]) {
    let ((a, b), (c, d)) = (src[..2 * n].split_at(n), src[2 * n..].split_at(n));
    for ((((out, a), b), c), d) in dst.as_chunks_mut::<4>().0.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *out = [*a, *b, *c, *d];
    }
}

/// Turns squares of eight words of eight bytes, by exchanging ever smaller squares across the diagonal.
#[inline]
fn turn(words: &mut [[u64; SQUARES]; 8]) {
    for (shift, mask) in [(32, 0xffff_ffff_u64), (16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff)] {
        let half = shift / 8;
        for i in (0..8).filter(|i| i & half == 0) {
            let (upper, lower) = words.split_at_mut(i + half);
            for (a, b) in upper[i].iter_mut().zip(&mut lower[0]) {
                let t = (*a >> shift ^ *b) & mask;
                *a ^= t << shift;
                *b ^= t;
            }
        }
    }
}

/// Shuffles `C` bytes of elements, from `first` on, as far as elements come in whole groups.
fn squares_out<const C: usize>(src: &[u8], size: usize, first: usize, n: usize, dst: &mut [u8]) {
    for (number, group) in src.chunks_exact(GROUP * size).enumerate() {
        let mut words: [[u64; SQUARES]; 8] = std::array::from_fn(|i| {
            std::array::from_fn(|square| {
                let bytes = group[(8 * square + i) * size + first..].first_chunk::<C>();
                let mut word = [0; 8];
                word[..C].copy_from_slice(bytes.map_or(&[0; C], |bytes| bytes));
                u64::from_le_bytes(word)
            })
        });
        turn(&mut words);
        for (b, row) in words.into_iter().take(C).enumerate() {
            let at = (first + b) * n + GROUP * number;
            dst[at..at + GROUP].copy_from_slice(row.map(u64::to_le_bytes).as_flattened());
        }
    }
}

/// The way back of [`squares_out`], for eight bytes.
fn squares_back(src: &[u8], size: usize, first: usize, n: usize, dst: &mut [u8]) {
    for (number, group) in dst.chunks_exact_mut(GROUP * size).enumerate() {
        let mut words: [[u64; SQUARES]; 8] = std::array::from_fn(|b| {
            let row = src[(first + b) * n + GROUP * number..].as_chunks().0.first_chunk::<SQUARES>();
            row.map_or([0; SQUARES], |row| row.map(u64::from_le_bytes))
        });
        turn(&mut words);
        for (i, row) in words.into_iter().enumerate() {
            for (square, word) in row.into_iter().enumerate() {
                let at = (8 * square + i) * size + first;
                group[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// Elements from `first` on, byte by byte.
fn strided_out(src: &[u8], size: usize, n: usize, first: usize, dst: &mut [u8]) {
    for (tile, elements) in src[first * size..].chunks(TILE * size).enumerate() {
        for b in 0..size {
            let start = b * n + first + tile * TILE;
            let out = &mut dst[start..start + elements.len() / size];
            out.iter_mut().zip(elements[b..].iter().step_by(size)).for_each(|(out, byte)| *out = *byte);
        }
    }
}

/// The way back of [`strided_out`].
fn strided_back(src: &[u8], size: usize, n: usize, first: usize, dst: &mut [u8]) {
    for (tile, elements) in dst[first * size..].chunks_mut(TILE * size).enumerate() {
        for b in 0..size {
            let start = b * n + first + tile * TILE;
            let bytes = &src[start..start + elements.len() / size];
            elements[b..].iter_mut().step_by(size).zip(bytes).for_each(|(out, byte)| *out = *byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_definition() {
        for size in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24] {
            for n in [0, 1, 5, 31, 32, 33, 95, 511, 512, 513, 2000] {
                let src: Vec<u8> = (0..size * n).map(|i| (i * 31 + i / 7) as u8).collect();
                let mut out = vec![0; src.len()];
                encode_into(&src, size, &mut out).unwrap();
                for e in 0..n {
                    for b in 0..size {
                        assert_eq!(out[b * n + e], src[e * size + b], "{size} {n}");
                    }
                }
                let mut back = vec![0; src.len()];
                decode_into(&out, size, &mut back).unwrap();
                assert_eq!(back, src, "{size} {n}");
            }
        }
    }

    #[test]
    fn odd_lengths_are_refused() {
        for (len, size) in [(7, 2), (4, 0), (1, 8)] {
            assert!(decode_into(&vec![0; len], size, &mut vec![0; len]).is_err());
            assert!(encode_into(&vec![0; len], size, &mut vec![0; len]).is_err());
        }
        assert!(decode_into(&[0; 4], 2, &mut [0; 6]).is_err());
    }
}
