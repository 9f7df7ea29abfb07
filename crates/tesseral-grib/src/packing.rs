//! Packings: how the values of a field are stored.

mod ccsds;
mod complex;
mod image;
mod run_length;
mod second_order;

use tesseral_codec::packing::unpack_with;
use tesseral_core::{Error, Result};
use tesseral_format::Scratch;

pub(crate) use ccsds::Ccsds;
pub(crate) use complex::Complex;
pub(crate) use run_length::RunLength;
pub(crate) use second_order::SecondOrder;

/// Conversion of a packed integer to a value: `(n · 2^E + R) · 10^-D`, in this order, as by the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PackingScale {
    reference: f64,
    binary: f64,
    decimal: f64,
}

/// A power by repeated multiplication or division, which rounds as the reference does.
fn power(base: f64, exponent: i32) -> f64 {
    let step = |value: f64| if exponent < 0 { value / base } else { value * base };
    // No double is larger than 2^1024 or smaller than 2^-1074: further steps change nothing.
    (0..exponent.unsigned_abs().min(1100)).fold(1.0, |value, _| step(value))
}

impl PackingScale {
    pub(crate) fn new(reference: f64, binary: i32, decimal: i32) -> Self {
        Self { reference, binary: power(2.0, binary), decimal: power(10.0, -decimal) }
    }

    /// The value of an integer.
    #[inline(always)]
    fn value(&self, number: f64) -> [u8; 8] {
        ((number * self.binary + self.reference) * self.decimal).to_ne_bytes()
    }

    /// The value of a field whose integers have no bits: the reference value, which the reference does not scale.
    pub(crate) fn constant(&self) -> f64 {
        self.reference
    }
}

/// How values are stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldPacking {
    /// Integers of equal width.
    Simple { scale: PackingScale, bits: u32 },
    /// Groups of integers of different widths, possibly differences.
    Complex { scale: PackingScale, complex: Complex },
    /// Groups of integers of different widths, of edition 1.
    SecondOrder { scale: PackingScale, second: SecondOrder },
    /// Integers compressed by the adaptive entropy coder of CCSDS.
    Ccsds { scale: PackingScale, ccsds: Ccsds },
    /// A JPEG 2000 image.
    Jpeg2000 { scale: PackingScale, bits: u32 },
    /// A PNG image.
    Png { scale: PackingScale, bits: u32 },
    /// IEEE numbers.
    Ieee { double: bool },
    /// Runs of few different values.
    RunLength(RunLength),
}

/// A number below 2^52 becomes the low mantissa bits of 2^52 plus itself.
const SHIFT: f64 = (1_u64 << 52) as f64;

#[inline(always)]
fn narrow(number: u64) -> f64 {
    f64::from_bits(number | SHIFT.to_bits()) - SHIFT
}

impl FieldPacking {
    /// Name for display.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Simple { .. } => "grid_simple",
            Self::Complex { complex, .. } => complex.name(),
            Self::SecondOrder { .. } => "grid_second_order",
            Self::Ccsds { .. } => "grid_ccsds",
            Self::Jpeg2000 { .. } => "grid_jpeg",
            Self::Png { .. } => "grid_png",
            Self::Ieee { .. } => "grid_ieee",
            Self::RunLength(_) => "grid_run_length",
        }
    }

    /// Whether values can be marked as missing in the data.
    pub(crate) fn has_missing(&self) -> bool {
        match self {
            Self::Complex { complex, .. } => complex.has_missing(),
            Self::RunLength(_) => true,
            _ => false,
        }
    }

    /// Whether decoding needs the number of values of each row of the grid.
    pub(crate) fn by_row(&self) -> bool {
        matches!(self, Self::SecondOrder { second, .. } if second.by_row())
    }

    /// Value of all points, if the metadata determines it.
    pub(crate) fn constant(&self) -> Option<f64> {
        match self {
            Self::Simple { scale, bits: 0 } => Some(scale.constant()),
            Self::Complex { scale, complex } if complex.groups() == 0 => Some(scale.constant()),
            _ => None,
        }
    }

    /// Whether any range of values can be decoded alone.
    pub(crate) fn seeks(&self) -> bool {
        matches!(self, Self::Simple { .. } | Self::Ieee { .. }) || self.constant().is_some()
    }

    /// Bytes that decoding `count` values takes in addition to them: the decoder of JPEG 2000 holds coefficients and samples.
    pub(crate) fn work_bytes(&self, count: u64) -> u64 {
        match self {
            Self::Jpeg2000 { .. } => count.saturating_mul(12),
            _ => 0,
        }
    }

    /// Number of bytes of `count` values, if it is known.
    pub(crate) fn packed_len(&self, count: u64) -> Option<u64> {
        let bits = match self {
            Self::Simple { bits, .. } => u64::from(*bits),
            Self::Ieee { double } => 32 << u32::from(*double),
            _ => return None,
        };
        Some(count.checked_mul(bits)?.div_ceil(8))
    }

    /// Decodes all values, or those from `first` on if the packing [seeks](Self::seeks). `validity` receives 0 for values that
    /// are marked as missing and is otherwise left alone. `rows` are the numbers of values of each row of the grid, if
    /// [needed](Self::by_row).
    ///
    /// # Errors
    /// `Codec`, `Corrupt`, `Unsupported`, `Limit`.
    pub(crate) fn decode(
        &self,
        data: &[u8],
        first: u64,
        rows: &[u64],
        out: &mut [[u8; 8]],
        validity: Option<&mut [u8]>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if let Some(value) = self.constant() {
            out.fill(value.to_ne_bytes());
            return Ok(());
        }
        match self {
            Self::Simple { scale, bits } => {
                let bit = first.saturating_mul(u64::from(*bits));
                match bits {
                    0..=52 => unpack_with(data, bit, *bits, out, |n| scale.value(narrow(n))),
                    _ => unpack_with(data, bit, *bits, out, |n| scale.value(n as f64)),
                }
            }
            Self::Complex { scale, complex } => complex.decode(data, scale, out, validity),
            Self::SecondOrder { scale, second } => second.decode(data, scale, rows, out),
            Self::Ccsds { scale, ccsds } => ccsds.decode(data, scale, out, scratch),
            Self::Jpeg2000 { scale, bits } => image::jpeg2000(data, scale, *bits, out),
            Self::Png { scale, .. } => image::png(data, scale, out),
            Self::Ieee { double: false } => unpack_with(data, first.saturating_mul(32), 32, out, |n| {
                f64::from(f32::from_bits(n as u32)).to_ne_bytes()
            }),
            Self::Ieee { double: true } => {
                unpack_with(data, first.saturating_mul(64), 64, out, u64::to_ne_bytes)
            }
            Self::RunLength(runs) => runs.decode(data, out, validity),
        }
    }
}

fn fault(packing: &'static str, detail: impl Into<String>) -> Error {
    Error::codec(packing, detail.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Powers are products, which differ from the nearest double of the power.
    #[test]
    fn powers_are_products() {
        assert_eq!(power(10.0, -2), 1.0 / 10.0 / 10.0);
        assert_eq!(power(2.0, -20), 2_f64.powi(-20));
        assert_eq!(power(10.0, 3), 1000.0);
        assert_eq!((power(10.0, i32::MAX), power(10.0, i32::MIN)), (f64::INFINITY, 0.0));
    }

    #[test]
    fn values_are_scaled_in_the_order_of_the_reference() {
        let packing = FieldPacking::Simple { scale: PackingScale::new(27315.5, -3, 2), bits: 12 };
        let mut out = [[0; 8]; 2];
        packing.decode(&[0xab, 0xc1, 0x23], 0, &[], &mut out, None, &mut Scratch::default()).unwrap();
        let expected = |n: f64| ((n * 0.125 + 27315.5) * (1.0 / 10.0 / 10.0)).to_ne_bytes();
        assert_eq!(out, [expected(2748.0), expected(291.0)]);
        assert!(packing.decode(&[0xab, 0xc1], 0, &[], &mut out, None, &mut Scratch::default()).is_err());
    }

    #[test]
    fn ieee_numbers_keep_their_bits() {
        let mut out = [[0; 8]; 1];
        let bits = 0x7ff0_0000_0000_0001_u64;
        let packing = FieldPacking::Ieee { double: true };
        packing.decode(&bits.to_be_bytes(), 0, &[], &mut out, None, &mut Scratch::default()).unwrap();
        assert_eq!(u64::from_ne_bytes(out[0]), bits);
    }
}
