//! Byte shuffle: byte `b` of every element comes before byte `b + 1` of any.

use tesseral_core::{Error, Result};

/// Elements moved at once, so that both sides stay in the first cache.
const TILE: usize = 512;

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
    match size {
        1 => dst.copy_from_slice(src),
        8 => {
            let done = squares_out(src.as_chunks().0, n, dst);
            strided_out(src, size, n, done, dst);
        }
        _ => strided_out(src, size, n, 0, dst),
    }
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
        8 => {
            let done = squares_back(src, n, dst.as_chunks_mut().0);
            strided_back(src, size, n, done, dst);
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

/// Turns a square of eight words of eight bytes, by swapping ever larger squares across the diagonal: twelve exchanges of
/// half of two words, instead of 64 bytes moved one by one.
#[inline]
fn turn(words: &mut [u64; 8]) {
    for (shift, mask) in [(32, 0xffff_ffff_u64), (16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff)] {
        let half = shift / 8;
        for i in (0..8).filter(|i| i & half == 0) {
            let t = (words[i] >> shift ^ words[i + half]) & mask;
            words[i] ^= t << shift;
            words[i + half] ^= t;
        }
    }
}

/// Shuffles whole squares of eight elements of eight bytes; gives the number of elements done.
fn squares_out(src: &[[u8; 8]], n: usize, dst: &mut [u8]) -> usize {
    for (number, square) in src.as_chunks::<8>().0.iter().enumerate() {
        let mut words = square.map(u64::from_le_bytes);
        turn(&mut words);
        for (b, word) in words.into_iter().enumerate() {
            let at = b * n + 8 * number;
            dst[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
    n / 8 * 8
}

/// The way back of [`squares_out`].
fn squares_back(src: &[u8], n: usize, dst: &mut [[u8; 8]]) -> usize {
    for (number, square) in dst.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut words: [u64; 8] = std::array::from_fn(|b| {
            let at = b * n + 8 * number;
            src[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
        });
        turn(&mut words);
        *square = words.map(u64::to_le_bytes);
    }
    n / 8 * 8
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
        for size in [1, 2, 3, 4, 8, 16, 17] {
            for n in [0, 1, 5, 511, 512, 513, 2000] {
                let src: Vec<u8> = (0..size * n).map(|i| (i * 31 + i / 7) as u8).collect();
                let mut out = vec![0; src.len()];
                encode_into(&src, size, &mut out).unwrap();
                for e in 0..n {
                    for b in 0..size {
                        assert_eq!(out[b * n + e], src[e * size + b]);
                    }
                }
                let mut back = vec![0; src.len()];
                decode_into(&out, size, &mut back).unwrap();
                assert_eq!(back, src);
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
