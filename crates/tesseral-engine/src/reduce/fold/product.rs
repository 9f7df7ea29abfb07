//! Products without intermediate overflow.

use serde::{Deserialize, Serialize};
use tesseral_core::Element;

use super::number::Number;
use super::wire::{bits, halves};

/// A product: an exact integer while it fits in 128 bits, and a fraction with a power of two, so that neither the order nor the
/// size of the factors loses more than rounding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Product {
    factors: u64,
    nans: u64,
    zeros: u64,
    negative: bool,
    fits: bool,
    #[serde(with = "halves")]
    magnitude: u128,
    #[serde(with = "bits")]
    fraction: f64,
    exponent: i64,
}

impl Default for Product {
    fn default() -> Self {
        Self {
            factors: 0,
            nans: 0,
            zeros: 0,
            negative: false,
            fits: true,
            magnitude: 1,
            fraction: 1.0,
            exponent: 0,
        }
    }
}

/// `value` as a fraction of magnitude 0.5 to 1 and a power of two; zeros, infinities and NaN unchanged.
fn split(value: f64) -> (f64, i64) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (value, shift) = if value.is_subnormal() { (value * 2_f64.powi(64), -64) } else { (value, 0) };
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i64 - 1022;
    let fraction = f64::from_bits(value.to_bits() & !(0x7ff << 52) | 1022 << 52);
    (fraction, exponent + shift)
}

impl Product {
    /// Multiplies by cells.
    pub(super) fn fold<T: Element>(&mut self, values: &[T]) {
        for &value in values {
            self.factors += 1;
            if value.is_nan() {
                self.nans += 1;
                continue;
            }
            if T::IS_FLOAT {
                self.scale(value.to_f64(), 0);
                continue;
            }
            let value = value.to_i128();
            if value == 0 {
                self.zeros += 1;
                continue;
            }
            self.negative ^= value < 0;
            self.multiply(value.unsigned_abs());
            self.scale(value.unsigned_abs() as f64, 0);
        }
    }

    fn multiply(&mut self, by: u128) {
        match self.magnitude.checked_mul(by) {
            Some(product) if self.fits => self.magnitude = product,
            _ => (self.fits, self.magnitude) = (false, 1),
        }
    }

    fn scale(&mut self, value: f64, exponent: i64) {
        let (a, up) = split(value);
        let (fraction, more) = split(self.fraction * a);
        self.fraction = fraction;
        self.exponent = self.exponent.saturating_add(exponent).saturating_add(up).saturating_add(more);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.factors += other.factors;
        self.nans += other.nans;
        self.zeros += other.zeros;
        self.negative ^= other.negative;
        if other.fits {
            self.multiply(other.magnitude);
        } else {
            (self.fits, self.magnitude) = (false, 1);
        }
        self.scale(other.fraction, other.exponent);
    }

    /// Number of factors.
    pub(super) fn factors(&self) -> u64 {
        self.factors
    }

    /// Cells that are NaN.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// The product without NaNs; an integer beyond 128 bits as a float, within the rounding errors of the factors.
    pub fn value(&self, float: bool) -> Number {
        if float {
            return Number::Float(join(self.fraction, self.exponent));
        }
        if self.zeros > 0 {
            return Number::Int(0);
        }
        match i128::try_from(self.magnitude) {
            Ok(value) if self.fits => Number::Int(if self.negative { -value } else { value }),
            _ => {
                let value = join(self.fraction, self.exponent);
                Number::Float(if self.negative { -value } else { value })
            }
        }
    }
}

/// `fraction · 2^exponent`, rounded at most once.
fn join(fraction: f64, exponent: i64) -> f64 {
    if fraction == 0.0 || !fraction.is_finite() {
        return fraction;
    }
    let exponent = i32::try_from(exponent.clamp(-3000, 3000)).unwrap_or(0);
    // Powers of two are exact; only the last step may leave the normal range.
    let first = exponent.clamp(-1000, 1000);
    let second = (exponent - first).clamp(-1000, 1000);
    fraction * 2_f64.powi(first) * 2_f64.powi(second) * 2_f64.powi(exponent - first - second)
}
