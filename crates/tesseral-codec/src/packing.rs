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

    /// The parameters that use all of `bits` for the values.
    ///
    /// # Errors
    /// `Codec` when a value is not finite or more than 64 bits are asked for.
    pub fn fit(values: impl Iterator<Item = f64> + Clone, bits: u32, decimal: i32) -> Result<Self> {
        let first = values.clone().next().unwrap_or(0.0);
        let (mut least, mut most) = (first, first);
        for value in values.clone() {
            if !value.is_finite() {
                return Err(fault(format!("{value} cannot be packed")));
            }
            if value < least {
                least = value;
            }
            if value > most {
                most = value;
            }
        }
        if bits == 0 {
            return Self::new(first, 0, decimal, 0);
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

    /// Appends the packed values to `out`.
    ///
    /// # Errors
    /// `Codec` when a value is not finite or the scale is out of range.
    pub fn encode(&self, values: impl Iterator<Item = f64>, out: &mut Vec<u8>) -> Result<()> {
        if self.binary.unsigned_abs() > 256 {
            return Err(fault(format!("the binary scale factor {}", self.binary)));
        }
        let scale = 10_f64.powi(self.decimal) * 2_f64.powi(-self.binary);
        let most = largest(self.bits);
        let mut acc = 0_u128;
        let mut have = 0;
        for value in values {
            if !value.is_finite() {
                return Err(fault(format!("{value} cannot be packed")));
            }
            // The cast saturates: what lies below the reference becomes 0.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let q = (((value - self.reference) * scale).round() as u64).min(most);
            acc = acc << self.bits | u128::from(q);
            have += self.bits;
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

    fn doubles(bytes: &[u8]) -> Vec<f64> {
        bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect()
    }

    #[test]
    fn a_worked_example() {
        let values = [1.5, 2.0, 3.0, 4.25];
        let packing = Packing::fit(values.iter().copied(), 12, 0).unwrap();
        assert_eq!(packing, Packing { reference: 1.5, binary: -10, decimal: 0, bits: 12 });
        let mut packed = Vec::new();
        packing.encode(values.iter().copied(), &mut packed).unwrap();
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
                let packing = Packing::fit(values.iter().copied(), bits, decimal).unwrap();
                let mut packed = Vec::new();
                packing.encode(values.iter().copied(), &mut packed).unwrap();
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

    #[test]
    fn what_cannot_be_packed_is_refused() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Packing::fit([1.0, value].into_iter(), 8, 0).is_err());
            assert!(Packing::new(value, 0, 0, 8).is_err());
            let packing = Packing::new(0.0, 0, 0, 8).unwrap();
            assert!(packing.encode([value].into_iter(), &mut Vec::new()).is_err());
        }
        assert!(Packing::new(0.0, 0, 0, 65).is_err());
        let packing = Packing::new(0.0, 257, 0, 8).unwrap();
        assert!(packing.encode([1.0].into_iter(), &mut Vec::new()).is_err());
    }

    #[test]
    fn values_outside_saturate() {
        let packing = Packing::new(10.0, 0, 0, 8).unwrap();
        let mut packed = Vec::new();
        packing.encode([0.0, 10.5, 1e9].into_iter(), &mut packed).unwrap();
        assert_eq!(packed, [0, 1, 255]);
    }
}
