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
    for (tile, elements) in src.chunks(TILE * size).enumerate() {
        for b in 0..size {
            let start = b * n + tile * TILE;
            let out = &mut dst[start..start + elements.len() / size];
            out.iter_mut().zip(elements[b..].iter().step_by(size)).for_each(|(out, byte)| *out = *byte);
        }
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
    for (tile, elements) in dst.chunks_mut(TILE * size).enumerate() {
        for b in 0..size {
            let start = b * n + tile * TILE;
            let bytes = &src[start..start + elements.len() / size];
            elements[b..].iter_mut().step_by(size).zip(bytes).for_each(|(out, byte)| *out = *byte);
        }
    }
    Ok(())
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
