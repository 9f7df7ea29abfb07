//! Simple packing: doubles as integers of B bits over a reference value, `v = R + 2^E · 10^-D · q`, packed big-endian
//! without gaps, as GRIB does.

mod bits;

use multiversion::multiversion;
use tesseral_core::{Error, Result};

/// Values worked on at once: few enough to stay in the first cache from one step to the next, and a multiple of 8, so that
/// their bits end with a byte.
const BLOCK: usize = 512;

/// Added to a number below 2^52, its whole part is in the low bits and what is below is rounded away.
const SHIFT: f64 = (1_u64 << 52) as f64;

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

    /// The parameters that use all of `bits` for the values, native-endian doubles. NaN behind the first value is not looked
    /// for: encoding refuses it.
    ///
    /// # Errors
    /// `Codec` when a value is infinite, the first is NaN, or more than 64 bits are asked for.
    pub fn fit(cells: &[u8], bits: u32, decimal: i32) -> Result<Self> {
        let cells = cells.as_chunks().0;
        let first = cells.first().map_or(0.0, |cell| f64::from_ne_bytes(*cell));
        let (mut least, most) = extremes(cells, first, first);
        if let Some(value) = [least, most].into_iter().find(|value| !value.is_finite()) {
            return Err(fault(format!("{value} cannot be packed")));
        }
        if bits == 0 {
            return Self::new(first, 0, decimal, 0);
        }
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
        let len = Self::packed_len(self.bits, cells.len() as u64).and_then(|len| usize::try_from(len).ok());
        out.reserve(len.ok_or_else(|| fault(format!("{} values", cells.len())))?);
        let scale = 10_f64.powi(self.decimal) * 2_f64.powi(-self.binary);
        let mut packer = bits::Packer::new(self.bits);
        for run in cells.chunks(BLOCK) {
            if !quantize(self, run, scale, packer.numbers(run.len())) {
                let mut values = run.iter().map(|cell| f64::from_ne_bytes(*cell));
                let value = values.find(|value| !value.is_finite()).unwrap_or(f64::NAN);
                return Err(fault(format!("{value} cannot be packed")));
            }
            packer.pack(run.len(), out);
        }
        Ok(())
    }

    /// Appends `count` unpacked values from number `first` on to `out`, native-endian doubles. Memory of `out` is written once: it need
    /// not be cleared first.
    ///
    /// # Errors
    /// `Codec` when `src` ends before the last value.
    pub fn decode(&self, src: &[u8], first: u64, count: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut block = [0; BLOCK * 8];
        for done in (0..count).step_by(BLOCK) {
            let values = &mut block[..(count - done).min(BLOCK) * 8];
            self.decode_into(src, first.saturating_add(done as u64), values)?;
            out.extend_from_slice(values);
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
        let (Some(start), Some(_)) = (start, end.filter(|end| end.div_ceil(8) <= src.len())) else {
            return Err(fault(format!("{} bytes do not hold {count} values of {bits} bits", src.len())));
        };
        // The product is rounded before the sum: no fused multiply-add, as the reference.
        let step = 2_f64.powi(self.binary) * 10_f64.powi(-self.decimal);
        let (first, out) = (start.checked_div(bits).unwrap_or(0), dst.as_chunks_mut().0);
        match self.bits {
            // Not a sum: the reference value may be −0.
            0 => out.fill(self.reference.to_ne_bytes()),
            // Numbers below 2^52 are the last bits of one that is larger by that, and all of this is exact.
            1..=52 => bits::unpack(src, first, self.bits, out, |q| {
                let number = f64::from_bits(q | SHIFT.to_bits()) - SHIFT;
                (self.reference + step * number).to_ne_bytes()
            }),
            // Numbers below 2^63 are converted as signed ones, which takes one instruction.
            53..=63 => bits::unpack_wide(src, first, self.bits, out, |q| {
                (self.reference + step * q.cast_signed() as f64).to_ne_bytes()
            }),
            _ => bits::unpack_wide(src, first, self.bits, out, |q| {
                (self.reference + step * q as f64).to_ne_bytes()
            }),
        }
        Ok(())
    }
}

/// Turns values into numbers of steps, rounded half away from zero and held to 0 and the largest; false when a value is not
/// finite.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn quantize(packing: &Packing, cells: &[[u8; 8]], scale: f64, numbers: &mut [u64]) -> bool {
    round_all(packing, cells, scale, numbers)
}

#[inline(always)]
fn round_all(packing: &Packing, cells: &[[u8; 8]], scale: f64, numbers: &mut [u64]) -> bool {
    let Packing { reference, bits, .. } = *packing;
    let most = largest(bits);
    if bits <= 52 {
        let limit = most as f64;
        each(cells, numbers, |value| round_narrow((value - reference) * scale, limit))
    } else {
        each(cells, numbers, |value| round_wide((value - reference) * scale, most))
    }
}

/// Makes a number of each value; false when one is not finite. All are made before that is decided, so that it is done many at
/// a time.
#[inline(always)]
fn each(cells: &[[u8; 8]], numbers: &mut [u64], make: impl Fn(f64) -> u64) -> bool {
    let mut odd = 0;
    for (number, cell) in numbers.iter_mut().zip(cells) {
        let value = f64::from_ne_bytes(*cell);
        // A zero of either sign, unless the value is not finite.
        odd |= (value * 0.0).to_bits() << 1;
        *number = make(value);
    }
    odd == 0
}

/// The smallest and the largest of values and those given, in eight lanes that do not wait for one another. NaN does not count.
fn extremes(cells: &[[u8; 8]], low: f64, high: f64) -> (f64, f64) {
    let (mut least, mut most) = ([low; 8], [high; 8]);
    let (lanes, rest) = cells.as_chunks::<8>();
    for lane in lanes {
        for (i, cell) in lane.iter().enumerate() {
            let value = f64::from_ne_bytes(*cell);
            least[i] = if value < least[i] { value } else { least[i] };
            most[i] = if value > most[i] { value } else { most[i] };
        }
    }
    let rest = rest.iter().map(|cell| f64::from_ne_bytes(*cell));
    let low = least.into_iter().chain(rest.clone()).fold(low, |a, b| if b < a { b } else { a });
    let high = most.into_iter().chain(rest).fold(high, |a, b| if b > a { b } else { a });
    (low, high)
}

/// Rounds half away from zero into 0..=limit, for limits below 2^52; what is not a number becomes 0.
#[inline(always)]
fn round_narrow(x: f64, limit: f64) -> u64 {
    let x = if x > 0.0 { x } else { 0.0 };
    let x = if x < limit { x } else { limit };
    // To the nearest, and of two to the even one: which is too low where half was dropped. All of it is exact.
    let near = x + SHIFT;
    let low = x - (near - SHIFT) >= 0.5;
    (near.to_bits() ^ SHIFT.to_bits()) + u64::from(low)
}

/// Rounds half away from zero into 0..=most; the cast saturates, so what lies below the reference becomes 0.
#[inline(always)]
fn round_wide(x: f64, most: u64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let q = x.round() as u64;
    q.min(most)
}

/// The largest number of B bits.
fn largest(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

#[cfg(test)]
mod tests;
