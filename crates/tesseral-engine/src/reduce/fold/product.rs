//! Products that do not depend on the order of their factors.
//!
//! The exact product of `n` floats has up to `53 · n` bits, which no bounded state holds. A state keeps the leading 256 bits and
//! the number of products of which bits were dropped. Each of them made the product smaller by less than one part in 2^255, which
//! bounds the exact product from both sides. If both bounds round to the same double, that is the correctly rounded product, in
//! any order. Bounds of fewer than 2^64 factors are 2^-189 apart: they round differently only if the exact product has more than
//! 256 bits and bits 55 to 243 of it are all equal.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use smallvec::SmallVec;
use tesseral_core::Element;

use super::number::Number;
use crate::reduce::exact::digits::Digits;
use crate::reduce::exact::fixed::parts;

/// Bits of a mantissa.
const BITS: i64 = 256;
/// Products beyond 2^±`EXTREME` are infinite or zero as doubles.
const EXTREME: i64 = 4096;

/// A product: `mantissa · 2^exponent` and the number of times that bits were dropped, with separate zeros, infinities and signs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Product {
    factors: u64,
    nans: u64,
    zeros: u64,
    infinities: u64,
    negative: bool,
    /// The least significant part first; the highest bit is set.
    #[serde(deserialize_with = "normalized")]
    mantissa: [u64; 4],
    exponent: i64,
    dropped: u64,
}

/// Rejects a mantissa whose highest bit is not set.
fn normalized<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; 4], D::Error> {
    let mantissa = <[u64; 4]>::deserialize(from)?;
    if mantissa[3] >> 63 == 1 { Ok(mantissa) } else { Err(D::Error::custom("product is not normalized")) }
}

impl Default for Product {
    fn default() -> Self {
        Self {
            factors: 0,
            nans: 0,
            zeros: 0,
            infinities: 0,
            negative: false,
            mantissa: [0, 0, 0, 1 << 63],
            exponent: 1 - BITS,
            dropped: 0,
        }
    }
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
            let (negative, (magnitude, exponent)) = if T::IS_FLOAT {
                let value = value.to_f64();
                if value.is_infinite() {
                    self.infinities += 1;
                    self.negative ^= value < 0.0;
                    continue;
                }
                (value.is_sign_negative(), parts(value))
            } else {
                let value = value.to_i128();
                (value < 0, (value.unsigned_abs() as u64, 0))
            };
            self.negative ^= negative;
            match magnitude {
                0 => self.zeros += 1,
                magnitude => {
                    let shift = magnitude.leading_zeros();
                    self.multiply(&[magnitude << shift], i64::from(exponent) - i64::from(shift));
                }
            }
        }
    }

    /// Multiplies by a number whose highest bit is set, times 2^`exponent`.
    fn multiply(&mut self, by: &[u64], exponent: i64) {
        let mut wide = [0_u64; 8];
        for (i, &a) in self.mantissa.iter().enumerate() {
            let mut carry = 0_u128;
            for (j, &b) in by.iter().enumerate() {
                let sum = u128::from(a) * u128::from(b) + u128::from(wide[i + j]) + carry;
                wide[i + j] = sum as u64;
                carry = sum >> 64;
            }
            wide[i + by.len()] = carry as u64;
        }
        // The highest bit is the last or the one before.
        let low = by.len();
        let shift = wide[low + 3].leading_zeros();
        if shift > 0 {
            for i in (1..low + 4).rev() {
                wide[i] = wide[i] << shift | wide[i - 1] >> (64 - shift);
            }
            wide[0] <<= shift;
        }
        self.mantissa.copy_from_slice(&wide[low..low + 4]);
        self.dropped = self.dropped.saturating_add(u64::from(wide[..low].iter().any(|part| *part != 0)));
        let moved = 64 * low as i64 - i64::from(shift);
        self.exponent = self.exponent.saturating_add(exponent).saturating_add(moved);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.factors = self.factors.saturating_add(other.factors);
        self.nans = self.nans.saturating_add(other.nans);
        self.zeros = self.zeros.saturating_add(other.zeros);
        self.infinities = self.infinities.saturating_add(other.infinities);
        self.negative ^= other.negative;
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.multiply(&other.mantissa, other.exponent);
    }

    /// Number of factors.
    pub(super) fn factors(&self) -> u64 {
        self.factors
    }

    /// Cells that are NaN.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// The product without NaNs: an integer of at most 128 bits, or the nearest double. Zero times infinity is NaN.
    pub fn value(&self, float: bool) -> Number {
        let signed = |value: f64| Number::Float(if self.negative { -value } else { value });
        match (self.zeros > 0, self.infinities > 0) {
            (true, true) => return Number::Float(f64::NAN),
            (true, false) if float => return signed(0.0),
            (true, false) => return Number::Int(0),
            (false, true) => return signed(f64::INFINITY),
            (false, false) => {}
        }
        if self.exponent > EXTREME {
            return signed(f64::INFINITY);
        }
        if self.exponent < -EXTREME {
            return signed(0.0);
        }
        let exact = self.digits(0);
        match exact.to_i128() {
            Some(value) if !float && self.dropped == 0 => Number::Int(value),
            _ => Number::Float(self.rounded(&exact)),
        }
    }

    /// The double nearest to the product, given its lower bound; the even one of two where the bounds do not decide.
    fn rounded(&self, exact: &Digits) -> f64 {
        let low = exact.to_f64();
        if self.dropped == 0 {
            return low;
        }
        let high = self.digits((u128::from(self.dropped) + 1) * 2).to_f64();
        if low == high || low.to_bits() & 1 == 0 { low } else { high }
    }

    /// The product with `more` units of its last bit.
    fn digits(&self, more: u128) -> Digits {
        let mut digits: SmallVec<[u32; 16]> = SmallVec::new();
        let shift = self.exponent.rem_euclid(32) as u32;
        let (mut carry, mut above) = (more, 0_u64);
        for part in self.mantissa {
            let sum = u128::from(part) + (carry & u128::from(u64::MAX));
            carry = (carry >> 64) + (sum >> 64);
            let wide = u128::from(sum as u64) << shift | u128::from(above);
            digits.extend([wide as u32, (wide >> 32) as u32]);
            above = (wide >> 64) as u64;
        }
        let wide = carry << shift | u128::from(above);
        digits.extend([wide as u32, (wide >> 32) as u32, (wide >> 64) as u32]);
        Digits::new(self.negative, self.exponent.div_euclid(32) as i32, digits)
    }
}
