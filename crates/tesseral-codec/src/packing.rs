//! Simple packing: doubles as integers of B bits over a reference value, `v = R + 2^E · 10^-D · q`, packed big-endian
//! without gaps, as GRIB does.

use tesseral_core::{Error, Result};

/// The numbers that a packed array needs beside its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packing {
    /// R: what zero stands for.
    pub reference: f64,
    /// E: the power of two that one step is worth.
    pub binary: i32,
    /// D: the power of ten that values are multiplied by before packing.
    pub decimal: i32,
    /// B: bits per value.
    pub bits: u32,
}

fn fault(detail: impl Into<String>) -> Error {
    Error::codec("simple_packing", detail.into())
}

impl Packing {
    /// Checked parameters.
    ///
    /// # Errors
    /// `Codec` for more than 64 bits or a reference value that is not finite.
    pub fn new(reference: f64, binary: i32, decimal: i32, bits: u32) -> Result<Self> {
        if bits > 64 {
            return Err(fault(format!("{bits} bits per value")));
        }
        if !reference.is_finite() {
            return Err(fault(format!("the reference value {reference}")));
        }
        Ok(Self { reference, binary, decimal, bits })
    }

    /// The parameters that use all of `bits` for the values, native-endian doubles.
    ///
    /// # Errors
    /// `Codec` when a value is not finite or more than 64 bits are asked for.
    pub fn fit(cells: &[u8], bits: u32, decimal: i32) -> Result<Self> {
        let cells = cells.as_chunks().0;
        check_finite(cells)?;
        let first = cells.first().map_or(0.0, |cell| f64::from_ne_bytes(*cell));
        if bits == 0 {
            return Self::new(first, 0, decimal, 0);
        }
        let (mut least, most) = extremes(cells, first);
        if least == 0.0 {
            // Zeros of both signs are equal; the first one counts.
            let zero = cells.iter().map(|cell| f64::from_ne_bytes(*cell)).find(|value| *value == 0.0);
            least = zero.unwrap_or(least);
        }
        let range = (most - least) * 10_f64.powi(decimal);
        let steps = largest(bits) as f64;
        #[allow(clippy::cast_possible_truncation)]
        let binary = if range == 0.0 { 0 } else { (range / steps).log2().ceil() as i32 };
        Self::new(least, binary, decimal, bits)
    }

    /// Bytes of `count` packed values; `None` beyond `u64`.
    pub fn packed_len(bits: u32, count: u64) -> Option<u64> {
        count.checked_mul(u64::from(bits)).map(|bits| bits.div_ceil(8))
    }

    /// Appends packed values, given as native-endian doubles, to `out`.
    ///
    /// # Errors
    /// `Codec` when a value is not finite or the scale is out of range.
    pub fn encode(&self, cells: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if self.binary.unsigned_abs() > 256 {
            return Err(fault(format!("the binary scale factor {}", self.binary)));
        }
        let cells = cells.as_chunks().0;
        check_finite(cells)?;
        let scale = 10_f64.powi(self.decimal) * 2_f64.powi(-self.binary);
        let (reference, most) = (self.reference, largest(self.bits));
        let scaled = |cell: &[u8; 8]| (f64::from_ne_bytes(*cell) - reference) * scale;
        // Up to here the largest number is a double, so that values can be held to the range before they are rounded.
        let limit = most as f64;
        let narrow = |cell: &[u8; 8]| round_narrow(scaled(cell), limit);
        match self.bits {
            0 => {}
            8 => out.extend(cells.iter().map(|cell| narrow(cell) as u8)),
            16 => out.extend(cells.iter().flat_map(|cell| (narrow(cell) as u16).to_be_bytes())),
            24 => out.extend(cells.iter().flat_map(|cell| {
                let [_, a, b, c] = (narrow(cell) as u32).to_be_bytes();
                [a, b, c]
            })),
            32 => out.extend(cells.iter().flat_map(|cell| (narrow(cell) as u32).to_be_bytes())),
            bits @ 1..=52 => pack(cells, bits, out, |cell| narrow(cell) as u64),
            bits @ 53..=56 => pack(cells, bits, out, |cell| round_wide(scaled(cell), most)),
            bits => pack_wide(cells, bits, out, |cell| round_wide(scaled(cell), most)),
        }
        Ok(())
    }

    /// Unpacks values from number `first` on into `dst`, native-endian doubles.
    ///
    /// # Errors
    /// `Codec` when `src` ends before the last value.
    pub fn decode_into(&self, src: &[u8], first: u64, dst: &mut [u8]) -> Result<()> {
        let count = dst.len() / 8;
        let bits = self.bits as usize;
        let start = usize::try_from(first).ok().and_then(|n| n.checked_mul(bits));
        let end = start.and_then(|start| start.checked_add(count.checked_mul(bits)?));
        let (Some(start), Some(end)) = (start, end.filter(|end| end.div_ceil(8) <= src.len())) else {
            return Err(fault(format!("{} bytes do not hold {count} values of {bits} bits", src.len())));
        };
        // The product is rounded before the sum: no fused multiply-add, as the reference.
        let step = 2_f64.powi(self.binary) * 10_f64.powi(-self.decimal);
        let value = |q: u64| self.reference + step * q as f64;
        // Numbers below 2^63 are converted as signed ones, which takes one instruction.
        let narrow = |q: u64| self.reference + step * q.cast_signed() as f64;
        let bytes = &src[start / 8..end.div_ceil(8)];
        match bits {
            0 => fill(dst, std::iter::repeat_n(self.reference, count)),
            8 => fill(dst, bytes.iter().map(|b| value((*b).into()))),
            16 => fill(dst, bytes.as_chunks().0.iter().map(|b| value(u16::from_be_bytes(*b).into()))),
            24 => fill(
                dst,
                bytes.as_chunks().0.iter().map(|&[a, b, c]| value(u32::from_be_bytes([0, a, b, c]).into())),
            ),
            32 => fill(dst, bytes.as_chunks().0.iter().map(|b| value(u32::from_be_bytes(*b).into()))),
            64 => fill(dst, bytes.as_chunks().0.iter().map(|b| value(u64::from_be_bytes(*b)))),
            1..=57 => self.decode_odd(bytes, start % 8, dst, narrow),
            _ => self.decode_odd(bytes, start % 8, dst, value),
        }
        Ok(())
    }

    /// Widths that do not end with a byte. A value of up to 57 bits lies in the 8 bytes from its first one; wider ones
    /// need one more. The last values, whose 16 bytes would pass the end, are read from a padded copy.
    fn decode_odd(&self, bytes: &[u8], skip: usize, dst: &mut [u8], value: impl Fn(u64) -> f64) {
        let bits = self.bits as usize;
        let take = |bytes: &[u8], bit: usize| {
            let at = bit / 8;
            let window = bytes.get(at..at + 16).and_then(|w| w.first_chunk::<16>());
            window.map(|w| {
                #[allow(clippy::cast_possible_truncation)]
                if bits <= 57 {
                    let word = u64::from_be_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]);
                    word << (bit % 8) >> (64 - bits)
                } else {
                    (u128::from_be_bytes(*w) << (bit % 8) >> (128 - bits)) as u64
                }
            })
        };
        let tail_start = bytes.len().saturating_sub(16);
        let mut tail = bytes[tail_start..].to_vec();
        tail.resize(tail.len() + 16, 0);
        let values = (0..dst.len() / 8).map(|i| {
            let bit = skip + i * bits;
            let q = take(bytes, bit).or_else(|| take(&tail, bit - tail_start * 8));
            value(q.unwrap_or_default())
        });
        fill(dst, values);
    }
}

/// Refuses values that are not finite: only those differ from themselves, or do so once multiplied by zero.
fn check_finite(cells: &[[u8; 8]]) -> Result<()> {
    let finite = |cell: &[u8; 8]| f64::from_ne_bytes(*cell) * 0.0 == 0.0;
    for run in cells.chunks(1024) {
        // All of a run before anything is decided, so that it is done many at a time.
        if !run.iter().fold(true, |all, cell| all & finite(cell)) {
            let value = run.iter().find(|cell| !finite(cell)).map_or(0.0, |cell| f64::from_ne_bytes(*cell));
            return Err(fault(format!("{value} cannot be packed")));
        }
    }
    Ok(())
}

/// The smallest and the largest of finite values, in eight lanes that do not wait for one another.
fn extremes(cells: &[[u8; 8]], first: f64) -> (f64, f64) {
    let (mut least, mut most) = ([first; 8], [first; 8]);
    let (lanes, rest) = cells.as_chunks::<8>();
    for lane in lanes {
        for (i, cell) in lane.iter().enumerate() {
            let value = f64::from_ne_bytes(*cell);
            least[i] = if value < least[i] { value } else { least[i] };
            most[i] = if value > most[i] { value } else { most[i] };
        }
    }
    let rest = rest.iter().map(|cell| f64::from_ne_bytes(*cell));
    let low = least.into_iter().chain(rest.clone()).fold(first, |a, b| if b < a { b } else { a });
    let high = most.into_iter().chain(rest).fold(first, |a, b| if b > a { b } else { a });
    (low, high)
}

/// Rounds half away from zero into 0..=limit, for limits below 2^53; what is not a number becomes 0.
#[inline]
fn round_narrow(x: f64, limit: f64) -> i64 {
    let x = if x > 0.0 { x } else { 0.0 };
    let x = if x < limit { x } else { limit };
    #[allow(clippy::cast_possible_truncation)]
    let whole = x as i64;
    // Exact: both have no more bits than a double holds.
    whole + i64::from(x - whole as f64 >= 0.5)
}

/// Rounds half away from zero into 0..=most; the cast saturates, so what lies below the reference becomes 0.
#[inline]
fn round_wide(x: f64, most: u64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let q = x.round() as u64;
    q.min(most)
}

/// Packs numbers of up to 56 bits: each goes below those that wait in a word, which is stored whole and moved on by its
/// whole bytes, so that every number costs one store and no loop.
fn pack(cells: &[[u8; 8]], bits: u32, out: &mut Vec<u8>, number: impl Fn(&[u8; 8]) -> u64) {
    let start = out.len();
    let len = (cells.len() * bits as usize).div_ceil(8);
    // Room for the last word.
    out.resize(start + len + 8, 0);
    let room = &mut out[start..];
    let (mut word, mut have, mut at) = (0_u64, 0, 0);
    for cell in cells {
        word |= number(cell) << (64 - bits - have);
        room[at..at + 8].copy_from_slice(&word.to_be_bytes());
        have += bits;
        at += (have / 8) as usize;
        word = word.checked_shl(have & !7).unwrap_or(0);
        have &= 7;
    }
    out.truncate(start + len);
}

/// Packs numbers of any width.
fn pack_wide(cells: &[[u8; 8]], bits: u32, out: &mut Vec<u8>, number: impl Fn(&[u8; 8]) -> u64) {
    let (mut acc, mut have) = (0_u128, 0);
    for cell in cells {
        acc = acc << bits | u128::from(number(cell));
        have += bits;
        while have >= 8 {
            have -= 8;
            #[allow(clippy::cast_possible_truncation)]
            out.push((acc >> have) as u8);
        }
    }
    if have > 0 {
        #[allow(clippy::cast_possible_truncation)]
        out.push((acc << (8 - have)) as u8);
    }
}

/// The largest number of B bits.
fn largest(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

#[inline]
fn fill(dst: &mut [u8], values: impl Iterator<Item = f64>) {
    for (out, value) in dst.chunks_exact_mut(8).zip(values) {
        out.copy_from_slice(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    fn doubles(bytes: &[u8]) -> Vec<f64> {
        bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect()
    }

    #[test]
    fn a_worked_example() {
        let values = [1.5, 2.0, 3.0, 4.25];
        let packing = Packing::fit(&bytes(&values), 12, 0).unwrap();
        assert_eq!(packing, Packing { reference: 1.5, binary: -10, decimal: 0, bits: 12 });
        let mut packed = Vec::new();
        packing.encode(&bytes(&values), &mut packed).unwrap();
        assert_eq!(packed, [0x00, 0x02, 0x00, 0x60, 0x0b, 0x00]);
        let mut back = [0; 32];
        packing.decode_into(&packed, 0, &mut back).unwrap();
        assert_eq!(doubles(&back), values);
    }

    /// One bit at a time.
    fn naive(packing: &Packing, packed: &[u8], i: usize) -> f64 {
        let mut q = 0_u64;
        for bit in i * packing.bits as usize..(i + 1) * packing.bits as usize {
            q = q << 1 | u64::from(packed[bit / 8] >> (7 - bit % 8) & 1);
        }
        packing.reference + 2_f64.powi(packing.binary) * 10_f64.powi(-packing.decimal) * q as f64
    }

    #[test]
    fn every_width_agrees_with_the_naive_reader() {
        let values: Vec<f64> = (0..101).map(|i| f64::from(i * i % 37) * 1.75 - 11.0).collect();
        for bits in 0..=64 {
            for decimal in [0, 2, -1] {
                let packing = Packing::fit(&bytes(&values), bits, decimal).unwrap();
                let mut packed = Vec::new();
                packing.encode(&bytes(&values), &mut packed).unwrap();
                assert_eq!(packed.len() as u64, Packing::packed_len(bits, 101).unwrap());
                for range in [0..101, 0..1, 7..8, 100..101, 13..99, 101..101] {
                    let mut back = vec![0; range.len() * 8];
                    packing.decode_into(&packed, range.start as u64, &mut back).unwrap();
                    let expected: Vec<f64> = range.clone().map(|i| naive(&packing, &packed, i)).collect();
                    assert_eq!(doubles(&back), expected, "{bits} bits, {range:?}");
                }
                if bits > 0 {
                    assert!(packing.decode_into(&packed[..packed.len() - 1], 0, &mut [0; 808]).is_err());
                    assert!(packing.decode_into(&packed, 90, &mut vec![0; 808]).is_err());
                    assert!(packing.decode_into(&packed, u64::MAX, &mut vec![0; 808]).is_err());
                }
            }
        }
    }

    /// One bit at a time, rounding as the library does.
    fn naive_encode(packing: &Packing, values: &[f64]) -> Vec<u8> {
        let scale = 10_f64.powi(packing.decimal) * 2_f64.powi(-packing.binary);
        let mut out = vec![0; (values.len() * packing.bits as usize).div_ceil(8)];
        for (i, value) in values.iter().enumerate() {
            let q = (((value - packing.reference) * scale).round() as u64).min(largest(packing.bits));
            for bit in 0..packing.bits as usize {
                let at = i * packing.bits as usize + bit;
                out[at / 8] |= ((q >> (packing.bits as usize - 1 - bit) & 1) as u8) << (7 - at % 8);
            }
        }
        out
    }

    #[test]
    fn every_width_agrees_with_the_naive_writer() {
        let mut values: Vec<f64> = (0..333).map(|i| f64::from(i * i % 97) * 0.37 - 11.0).collect();
        values.extend([
            0.5,
            1.5,
            2.5,
            -0.5,
            0.499_999_999_999_999_94,
            1e300,
            -1e300,
            1e18,
            4_503_599_627_370_497.5,
        ]);
        for bits in 0..=64 {
            for (reference, binary) in [(-11.0, 0), (0.0, 0), (0.0, -3), (-1e300, 200), (1.0, -256)] {
                let packing = Packing::new(reference, binary, 0, bits).unwrap();
                let mut packed = Vec::new();
                packing.encode(&bytes(&values), &mut packed).unwrap();
                assert!(packed == naive_encode(&packing, &values), "{packing:?}");
            }
        }
    }

    #[test]
    fn the_first_zero_is_the_reference() {
        for (values, negative) in
            [([3.0, -0.0, 0.0], true), ([3.0, 0.0, -0.0], false), ([0.0, -0.0, 1.0], false)]
        {
            let many: Vec<f64> = [5.0; 20].into_iter().chain(values).collect();
            let packing = Packing::fit(&bytes(&many), 8, 0).unwrap();
            assert_eq!(packing.reference.is_sign_negative(), negative, "{values:?}");
        }
    }

    #[test]
    fn what_cannot_be_packed_is_refused() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Packing::fit(&bytes(&[1.0, value]), 8, 0).is_err());
            assert!(Packing::new(value, 0, 0, 8).is_err());
            let packing = Packing::new(0.0, 0, 0, 8).unwrap();
            assert!(packing.encode(&bytes(&[value]), &mut Vec::new()).is_err());
        }
        assert!(Packing::new(0.0, 0, 0, 65).is_err());
        let packing = Packing::new(0.0, 257, 0, 8).unwrap();
        assert!(packing.encode(&bytes(&[1.0]), &mut Vec::new()).is_err());
    }

    #[test]
    fn values_outside_saturate() {
        let packing = Packing::new(10.0, 0, 0, 8).unwrap();
        let mut packed = Vec::new();
        packing.encode(&bytes(&[0.0, 10.5, 1e9]), &mut packed).unwrap();
        assert_eq!(packed, [0, 1, 255]);
    }
}
