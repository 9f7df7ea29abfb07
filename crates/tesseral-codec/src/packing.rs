//! Simple packing: doubles as integers of B bits over a reference value, `v = R + 2^E · 10^-D · q`, packed big-endian
//! without gaps, as GRIB does.

mod bits;

use multiversion::multiversion;
use tesseral_core::{Error, Result};

/// Values per block: few enough to stay in the L1 cache between steps, and a multiple of 8, so that their bits end at a byte
/// boundary.
const BLOCK: usize = 512;

/// Added to a number below 2^52, this leaves the rounded integer part in the low mantissa bits.
const SHIFT: f64 = (1_u64 << 52) as f64;

/// The parameters of a packed array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimplePacking {
    /// R: the value that zero encodes.
    pub reference: f64,
    /// E: the binary scale factor, log2 of one step.
    pub binary: i32,
    /// D: the decimal scale factor; values are multiplied by 10^D before packing.
    pub decimal: i32,
    /// B: bits per value.
    pub bits: u32,
}

fn fault(detail: impl Into<String>) -> Error {
    Error::codec("simple_packing", detail.into())
}

impl SimplePacking {
    /// Checked parameters.
    ///
    /// # Errors
    /// `Codec` for more than 64 bits or a reference value that is not finite.
    pub fn new(reference: f64, binary: i32, decimal: i32, bits: u32) -> Result<Self> {
        if bits > 64 {
            return Err(fault(format!("{bits} bits per value exceed 64")));
        }
        if !reference.is_finite() {
            return Err(fault(format!("reference value {reference} is not finite")));
        }
        Ok(Self { reference, binary, decimal, bits })
    }

    /// The parameters that use the full range of `bits` for the values, native-endian doubles. NaN after the first value is not
    /// checked here: encoding rejects it.
    ///
    /// # Errors
    /// `Codec` when a value is infinite, the first is NaN, or `bits` exceeds 64.
    pub fn fit(cells: &[u8], bits: u32, decimal: i32) -> Result<Self> {
        let cells = cells.as_chunks().0;
        let first = cells.first().map_or(0.0, |cell| f64::from_ne_bytes(*cell));
        let (mut least, most) = extremes(cells, first, first);
        if let Some(value) = [least, most].into_iter().find(|value| !value.is_finite()) {
            return Err(fault(format!("value {value} is not finite")));
        }
        if bits == 0 {
            return Self::new(first, 0, decimal, 0);
        }
        if least == 0.0 {
            // Zeros of both signs compare equal; the first one determines the sign.
            let zero = cells.iter().map(|cell| f64::from_ne_bytes(*cell)).find(|value| *value == 0.0);
            least = zero.unwrap_or(least);
        }
        let range = (most - least) * 10_f64.powi(decimal);
        let steps = largest(bits) as f64;
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
            return Err(fault(format!("binary scale factor {} out of range", self.binary)));
        }
        let cells = cells.as_chunks().0;
        let len = Self::packed_len(self.bits, cells.len() as u64).and_then(|len| usize::try_from(len).ok());
        out.reserve(len.ok_or_else(|| fault(format!("packed size of {} values overflows", cells.len())))?);
        let scale = 10_f64.powi(self.decimal) * 2_f64.powi(-self.binary);
        let mut packer = bits::Packer::new(self.bits);
        for run in cells.chunks(BLOCK) {
            if !quantize(self, run, scale, packer.numbers(run.len())) {
                let mut values = run.iter().map(|cell| f64::from_ne_bytes(*cell));
                let value = values.find(|value| !value.is_finite()).unwrap_or(f64::NAN);
                return Err(fault(format!("value {value} is not finite")));
            }
            packer.pack(run.len(), out);
        }
        Ok(())
    }

    /// Appends `count` unpacked values from index `first` on to `out`, as native-endian doubles. `out` need not be zeroed first:
    /// its memory is written once.
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

    /// Unpacks values from index `first` on into `dst`, as native-endian doubles.
    ///
    /// # Errors
    /// `Codec` when `src` ends before the last value.
    pub fn decode_into(&self, src: &[u8], first: u64, dst: &mut [u8]) -> Result<()> {
        let start = first.saturating_mul(u64::from(self.bits));
        let bit = first_bit(src, start, self.bits, dst.len() / 8)?;
        // The product is rounded before the addition, as in the reference: no fused multiply-add.
        let step = 2_f64.powi(self.binary) * 10_f64.powi(-self.decimal);
        let out = dst.as_chunks_mut().0;
        match self.bits {
            // Not computed by an addition: the reference value may be −0.
            0 => out.fill(self.reference.to_ne_bytes()),
            // A number below 2^52 becomes the low mantissa bits of 2^52 plus itself; all of this is exact.
            1..=52 => bits::unpack(src, bit, self.bits, out, |q| {
                let number = f64::from_bits(q | SHIFT.to_bits()) - SHIFT;
                (self.reference + step * number).to_ne_bytes()
            }),
            // Numbers below 2^63 are converted as signed integers, which takes one instruction.
            53..=63 => bits::unpack_wide(src, bit, self.bits, out, |q| {
                (self.reference + step * q.cast_signed() as f64).to_ne_bytes()
            }),
            _ => bits::unpack_wide(src, bit, self.bits, out, |q| {
                (self.reference + step * q as f64).to_ne_bytes()
            }),
        }
        Ok(())
    }
}

/// Returns the first bit of `count` numbers of `width` bits that begin at `bit`, if `src` holds all of them.
fn first_bit(src: &[u8], bit: u64, width: u32, count: usize) -> Result<usize> {
    let start = usize::try_from(bit).ok();
    let end = start.and_then(|start| start.checked_add(count.checked_mul(width as usize)?));
    match (start, end) {
        (Some(start), Some(end)) if end.div_ceil(8) <= src.len() => Ok(start),
        _ => Err(fault(format!("truncated: {} bytes do not hold {count} values of {width} bits", src.len()))),
    }
}

/// Unpacks unsigned numbers of `width` bits, the first of which begins at bit `bit`, and converts each to a cell of 8 bytes.
///
/// # Errors
/// `Codec` when `src` ends before the last number, or the width exceeds 64.
pub fn unpack_with(
    src: &[u8],
    bit: u64,
    width: u32,
    out: &mut [[u8; 8]],
    cell: impl Fn(u64) -> [u8; 8],
) -> Result<()> {
    if width > 64 {
        return Err(fault(format!("{width} bits per value exceed 64")));
    }
    let bit = first_bit(src, bit, width, out.len())?;
    match width {
        0 => out.fill(cell(0)),
        1..=52 => bits::unpack(src, bit, width, out, cell),
        _ => bits::unpack_wide(src, bit, width, out, cell),
    }
    Ok(())
}

/// As [`unpack_with`], for runs of few numbers: without the loops that are compiled per width and instruction set.
///
/// # Errors
/// As [`unpack_with`].
#[inline]
pub fn unpack_run(
    src: &[u8],
    bit: u64,
    width: u32,
    out: &mut [[u8; 8]],
    cell: impl Fn(u64) -> [u8; 8],
) -> Result<()> {
    if width > 64 {
        return Err(fault(format!("{width} bits per value exceed 64")));
    }
    let bit = first_bit(src, bit, width, out.len())?;
    match width {
        0 => out.fill(cell(0)),
        _ => bits::unpack_rest(src, bit, width, out, 0, cell),
    }
    Ok(())
}

/// Converts values to step counts, rounded half away from zero and clamped to 0..=largest; false when a value is not finite.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn quantize(packing: &SimplePacking, cells: &[[u8; 8]], scale: f64, numbers: &mut [u64]) -> bool {
    round_all(packing, cells, scale, numbers)
}

#[inline(always)]
fn round_all(packing: &SimplePacking, cells: &[[u8; 8]], scale: f64, numbers: &mut [u64]) -> bool {
    let SimplePacking { reference, bits, .. } = *packing;
    let most = largest(bits);
    if bits <= 52 {
        let limit = most as f64;
        convert_all(cells, numbers, |value| round_narrow((value - reference) * scale, limit))
    } else {
        convert_all(cells, numbers, |value| round_wide((value - reference) * scale, most))
    }
}

/// Converts each value to a number; false when a value is not finite. That is checked after all conversions, so that the loop
/// vectorizes.
#[inline(always)]
fn convert_all(cells: &[[u8; 8]], numbers: &mut [u64], make: impl Fn(f64) -> u64) -> bool {
    let mut odd = 0;
    for (number, cell) in numbers.iter_mut().zip(cells) {
        let value = f64::from_ne_bytes(*cell);
        // Zero of either sign, unless the value is not finite.
        odd |= (value * 0.0).to_bits() << 1;
        *number = make(value);
    }
    odd == 0
}

/// The minimum and maximum of the values, `low` and `high`, in eight independent lanes. NaN is ignored.
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

/// Rounds half away from zero into 0..=limit, for limits below 2^52; NaN becomes 0.
#[inline(always)]
fn round_narrow(x: f64, limit: f64) -> u64 {
    let x = if x > 0.0 { x } else { 0.0 };
    let x = if x < limit { x } else { limit };
    // Rounds to nearest even, which is too low where a half was dropped. All operations are exact.
    let near = x + SHIFT;
    let low = x - (near - SHIFT) >= 0.5;
    (near.to_bits() ^ SHIFT.to_bits()) + u64::from(low)
}

/// Rounds half away from zero into 0..=most; the cast saturates, so values below the reference become 0.
#[inline(always)]
fn round_wide(x: f64, most: u64) -> u64 {
    let q = x.round() as u64;
    q.min(most)
}

/// The largest number of `bits` bits.
fn largest(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

#[cfg(test)]
mod tests;
