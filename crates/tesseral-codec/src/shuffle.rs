//! Byte shuffle: byte `b` of every element precedes byte `b + 1` of any element.
//!
//! Encoding transposes 8×8 squares of bytes: eight bytes of eight elements, in twelve exchanges of half words instead of 64
//! single-byte moves. Four adjacent squares are transposed together, so that the words of an exchange fill vector registers
//! and the rows of the result are 32 bytes long.
//!
//! Decoding interleaves rows in pairs: bytes of two rows into pairs, pairs into groups of four, those into groups of eight.
//! Each step is a loop over two slices that the compiler vectorizes.

use tesseral_core::{Error, Result};

/// Elements per block, so that source, destination and the intermediate buffer stay in the L1 cache.
const TILE: usize = 512;
/// Squares transposed together.
const SQUARES: usize = 4;
/// Elements in these squares.
const GROUP: usize = 8 * SQUARES;

fn check(src: &[u8], dst: &[u8], size: usize) -> Result<()> {
    if size == 0 || src.len() != dst.len() || !src.len().is_multiple_of(size) {
        let detail =
            format!("{} source bytes, {} destination bytes, elements of {size} bytes", src.len(), dst.len());
        return Err(Error::codec("shuffle", detail));
    }
    Ok(())
}

/// Gathers the bytes of elements of `size` bytes by their position in the element.
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
            1 => shuffle_squares::<1>(src, size, first, n, dst),
            2 => shuffle_squares::<2>(src, size, first, n, dst),
            3 => shuffle_squares::<3>(src, size, first, n, dst),
            4 => shuffle_squares::<4>(src, size, first, n, dst),
            5 => shuffle_squares::<5>(src, size, first, n, dst),
            6 => shuffle_squares::<6>(src, size, first, n, dst),
            7 => shuffle_squares::<7>(src, size, first, n, dst),
            _ => shuffle_squares::<8>(src, size, first, n, dst),
        }
    }
    shuffle_strided(src, size, n, n / GROUP * GROUP, dst);
    Ok(())
}

/// Restores the element order; the inverse of [`encode_into`].
///
/// # Errors
/// `Codec` when the lengths differ or are not a multiple of `size`.
pub fn decode_into(src: &[u8], size: usize, dst: &mut [u8]) -> Result<()> {
    check(src, dst, size)?;
    decode_range_into(src, size, 0, dst)
}

/// Restores elements from element `first` on, as many as `dst` holds.
///
/// # Errors
/// `Codec` when there are fewer elements, or lengths are not a multiple of `size`.
pub fn decode_range_into(src: &[u8], size: usize, first: usize, dst: &mut [u8]) -> Result<()> {
    if size == 0 || !src.len().is_multiple_of(size) || !dst.len().is_multiple_of(size) {
        check(src, dst, size)?;
    }
    let (n, count) = (src.len() / size, dst.len() / size);
    if first.checked_add(count).is_none_or(|end| end > n) {
        return Err(Error::codec(
            "shuffle",
            format!("elements {first}..+{count} out of range for {n} elements"),
        ));
    }
    // From here on, rows of the source begin with the first requested element.
    let src = &src[first..];
    match size {
        1 => dst.copy_from_slice(&src[..count]),
        2 => interleave::<1, 2>(src, &src[n..], dst),
        4 => unshuffle_4(src, n, dst),
        _ if size.is_multiple_of(8) => {
            (0..size).step_by(8).for_each(|byte| unshuffle_8(&src[byte * n..], size, byte, n, dst));
        }
        _ => unshuffle_strided(src, size, n, dst),
    }
    Ok(())
}

/// Interleaves pieces of `N` bytes of two slices; a pair is `M` bytes.
#[inline]
fn interleave<const N: usize, const M: usize>(a: &[u8], b: &[u8], out: &mut [u8]) {
    let (a, b) = (a.as_chunks::<N>().0, b.as_chunks::<N>().0);
    for ((out, a), b) in out.as_chunks_mut::<M>().0.iter_mut().zip(a).zip(b) {
        out[..N].copy_from_slice(a);
        out[N..].copy_from_slice(b);
    }
}

/// Restores elements of four bytes, from rows that begin `n` bytes apart.
fn unshuffle_4(src: &[u8], n: usize, dst: &mut [u8]) {
    let mut twos = [[0; 2 * TILE]; 2];
    for (tile, out) in dst.chunks_mut(4 * TILE).enumerate() {
        let row = |b: usize| &src[b * n + tile * TILE..][..out.len() / 4];
        for (i, two) in twos.iter_mut().enumerate() {
            interleave::<1, 2>(row(2 * i), row(2 * i + 1), two);
        }
        interleave::<2, 4>(&twos[0], &twos[1], out);
    }
}

/// Restores bytes `first..first + 8` of each element.
fn unshuffle_8(src: &[u8], size: usize, first: usize, n: usize, dst: &mut [u8]) {
    let mut twos = [[0; 2 * TILE]; 4];
    let mut fours = [[0; 4 * TILE]; 2];
    let mut eights = [0; 8 * TILE];
    for (tile, out) in dst.chunks_mut(size * TILE).enumerate() {
        let row = |b: usize| &src[b * n + tile * TILE..][..out.len() / size];
        for (i, two) in twos.iter_mut().enumerate() {
            interleave::<1, 2>(row(2 * i), row(2 * i + 1), two);
        }
        for (i, four) in fours.iter_mut().enumerate() {
            interleave::<2, 4>(&twos[2 * i], &twos[2 * i + 1], four);
        }
        if size == 8 {
            interleave::<4, 8>(&fours[0], &fours[1], out);
        } else {
            interleave::<4, 8>(&fours[0], &fours[1], &mut eights);
            for (element, eight) in out.chunks_exact_mut(size).zip(eights.as_chunks::<8>().0) {
                element[first..first + 8].copy_from_slice(eight);
            }
        }
    }
}

/// Transposes squares of eight 8-byte words by exchanging ever smaller squares across the diagonal.
#[inline]
fn transpose_squares(words: &mut [[u64; SQUARES]; 8]) {
    for (shift, mask) in [(32, 0xffff_ffff_u64), (16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff)] {
        let half = shift / 8;
        for i in (0..8).filter(|i| i & half == 0) {
            let (a, b) = (words[i], words[i + half]);
            let t: [u64; SQUARES] = std::array::from_fn(|square| (a[square] >> shift ^ b[square]) & mask);
            words[i] = std::array::from_fn(|square| a[square] ^ t[square] << shift);
            words[i + half] = std::array::from_fn(|square| b[square] ^ t[square]);
        }
    }
}

/// Shuffles bytes `first..first + C` of each element, for all full groups of elements.
fn shuffle_squares<const C: usize>(src: &[u8], size: usize, first: usize, n: usize, dst: &mut [u8]) {
    for (number, group) in src.chunks_exact(GROUP * size).enumerate() {
        let mut words: [[u64; SQUARES]; 8] = std::array::from_fn(|i| {
            std::array::from_fn(|square| {
                let bytes = group[(8 * square + i) * size + first..].first_chunk::<C>();
                let mut word = [0; 8];
                word[..C].copy_from_slice(bytes.map_or(&[0; C], |bytes| bytes));
                u64::from_le_bytes(word)
            })
        });
        transpose_squares(&mut words);
        for (b, row) in words.into_iter().take(C).enumerate() {
            let at = (first + b) * n + GROUP * number;
            dst[at..at + GROUP].copy_from_slice(row.map(u64::to_le_bytes).as_flattened());
        }
    }
}

/// Shuffles elements from `first` on, byte by byte.
fn shuffle_strided(src: &[u8], size: usize, n: usize, first: usize, dst: &mut [u8]) {
    for (tile, elements) in src[first * size..].chunks(TILE * size).enumerate() {
        for b in 0..size {
            let start = b * n + first + tile * TILE;
            let out = &mut dst[start..start + elements.len() / size];
            out.iter_mut().zip(elements[b..].iter().step_by(size)).for_each(|(out, byte)| *out = *byte);
        }
    }
}

/// Restores all elements, byte by byte.
fn unshuffle_strided(src: &[u8], size: usize, n: usize, dst: &mut [u8]) {
    for (tile, elements) in dst.chunks_mut(TILE * size).enumerate() {
        for b in 0..size {
            let start = b * n + tile * TILE;
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
                for (first, end) in [(0, n / 2), (n / 3, n), (n / 5, n - n / 7), (n, n)] {
                    let mut part = vec![0; (end - first) * size];
                    decode_range_into(&out, size, first, &mut part).unwrap();
                    assert_eq!(part, src[first * size..end * size], "{size} {n} {first}..{end}");
                }
                assert!(decode_range_into(&out, size, n, &mut vec![0; size]).is_err());
                assert!(decode_range_into(&out, size, usize::MAX, &mut vec![0; size]).is_err());
            }
        }
    }

    #[test]
    fn lengths_that_are_not_whole_elements_are_rejected() {
        for (len, size) in [(7, 2), (4, 0), (1, 8)] {
            assert!(decode_into(&vec![0; len], size, &mut vec![0; len]).is_err());
            assert!(encode_into(&vec![0; len], size, &mut vec![0; len]).is_err());
        }
        assert!(decode_into(&[0; 4], 2, &mut [0; 6]).is_err());
        assert!(decode_range_into(&[0; 5], 2, 0, &mut [0; 2]).is_err());
        assert!(decode_range_into(&[0; 4], 2, 0, &mut [0; 3]).is_err());
    }
}
