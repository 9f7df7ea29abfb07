//! Bit shuffle: bit `b` of byte `k` of every element is in row `8k + b`, least significant first.
//!
//! Elements are processed in groups of eight; elements after the last full group and trailing bytes are copied.

/// Transposes an 8×8 bit matrix, one row per byte, by swapping ever larger squares across the diagonal.
fn transpose8(mut x: u64) -> u64 {
    let t = (x ^ x >> 7) & 0x00AA_00AA_00AA_00AA;
    x ^= t ^ t << 7;
    let t = (x ^ x >> 14) & 0x0000_CCCC_0000_CCCC;
    x ^= t ^ t << 14;
    let t = (x ^ x >> 28) & 0x0000_0000_F0F0_F0F0;
    x ^ t ^ t << 28
}

/// Restores the bits of elements of `width` bytes: eight bytes of eight rows give byte `k` of eight elements. Both slices
/// have the same length.
pub fn decode_into(src: &[u8], width: usize, dst: &mut [u8]) {
    let groups = src.len() / width / 8;
    let whole = groups * 8 * width;
    for k in 0..width {
        let rows = &src[8 * k * groups..8 * (k + 1) * groups];
        for group in 0..groups {
            let mut bits = [0; 8];
            for (b, row) in bits.iter_mut().enumerate() {
                *row = rows[b * groups + group];
            }
            let bytes = transpose8(u64::from_le_bytes(bits)).to_le_bytes();
            for (i, byte) in bytes.into_iter().enumerate() {
                dst[(group * 8 + i) * width + k] = byte;
            }
        }
    }
    dst[whole..].copy_from_slice(&src[whole..]);
}

/// Gathers bits of equal significance; the inverse of [`decode_into`].
pub fn encode_into(src: &[u8], width: usize, dst: &mut [u8]) {
    let groups = src.len() / width / 8;
    let whole = groups * 8 * width;
    for k in 0..width {
        let rows = &mut dst[8 * k * groups..8 * (k + 1) * groups];
        for group in 0..groups {
            let mut bytes = [0; 8];
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = src[(group * 8 + i) * width + k];
            }
            let bits = transpose8(u64::from_le_bytes(bytes)).to_le_bytes();
            for (b, row) in bits.into_iter().enumerate() {
                rows[b * groups + group] = row;
            }
        }
    }
    dst[whole..].copy_from_slice(&src[whole..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_bit_by_bit_shuffle() {
        for (width, elements, tail) in
            [(1, 24, 0), (2, 12, 1), (4, 10, 3), (8, 17, 0), (3, 5, 2), (16, 40, 9)]
        {
            let cells: Vec<u8> = (0..width * elements + tail).map(|i| (i * 37 + 11) as u8).collect();
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
            decode_into(&shuffled, width, &mut out);
            assert_eq!(out, cells, "width {width}");
            encode_into(&cells, width, &mut out);
            assert_eq!(out, shuffled, "width {width}");
        }
    }
}
