//! Sums of magnitudes and squares.

use serde::{Deserialize, Serialize};
use tesseral_core::Element;

use super::predicate::Number;
use super::wire::{bits, halves};
use crate::kernel::block::{compensated, neumaier};

/// Magnitudes between these, 2^-500 and 2^500, square within the normal range; others do after scaling by 2^600 or 2^-600.
const SMALL: f64 = f64::from_bits(523 << 52);
const LARGE: f64 = f64::from_bits(1523 << 52);
const SCALE: f64 = f64::from_bits(1623 << 52);

/// A compensated sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct CompensatedSum {
    #[serde(with = "bits")]
    sum: f64,
    #[serde(with = "bits")]
    lost: f64,
}

impl CompensatedSum {
    fn add(&mut self, value: f64) {
        neumaier(&mut self.sum, &mut self.lost, value);
    }

    fn merge(&mut self, other: Self) {
        self.add(other.sum);
        self.lost += other.lost;
    }

    fn value(self) -> f64 {
        compensated(self.sum, self.lost)
    }
}

/// Sum of magnitudes and sum of squares: exact for integers, compensated for floats; the squares of very small and very large
/// floats are scaled and kept separately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    cells: u64,
    #[serde(with = "halves")]
    int_sum: u128,
    /// Squares of integers, 256 bits.
    #[serde(with = "halves")]
    square_low: u128,
    #[serde(with = "halves")]
    square_high: u128,
    sum: CompensatedSum,
    small: CompensatedSum,
    middle: CompensatedSum,
    large: CompensatedSum,
}

impl Norms {
    pub(super) fn fold<T: Element>(&mut self, values: &[T]) {
        self.cells += values.len() as u64;
        for &value in values {
            if !T::IS_FLOAT {
                let value = value.to_i128().unsigned_abs();
                // At most 2^64 cells of at most 2^64 each.
                self.int_sum = self.int_sum.saturating_add(value);
                // A 64-bit magnitude squared fits.
                self.square(value.saturating_mul(value), 0);
                continue;
            }
            let value = value.to_f64().abs();
            self.sum.add(value);
            match value {
                v if v > LARGE => self.large.add((v / SCALE).powi(2)),
                v if v < SMALL => self.small.add((v * SCALE).powi(2)),
                // Including NaN.
                v => self.middle.add(v * v),
            }
        }
    }

    fn square(&mut self, low: u128, high: u128) {
        let (sum, carry) = self.square_low.overflowing_add(low);
        self.square_low = sum;
        self.square_high = self.square_high.saturating_add(high).saturating_add(u128::from(carry));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.cells += other.cells;
        self.int_sum = self.int_sum.saturating_add(other.int_sum);
        self.square(other.square_low, other.square_high);
        self.sum.merge(other.sum);
        self.small.merge(other.small);
        self.middle.merge(other.middle);
        self.large.merge(other.large);
    }

    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// The sum of magnitudes.
    pub fn l1(&self, float: bool) -> Number {
        match i128::try_from(self.int_sum) {
            Ok(sum) if !float => Number::Int(sum),
            _ => Number::Float(self.sum.value()),
        }
    }

    /// The square root of the sum of squares.
    #[allow(clippy::cast_precision_loss)]
    pub fn l2(&self, float: bool) -> f64 {
        if !float {
            return (self.square_high as f64 * 2_f64.powi(128) + self.square_low as f64).sqrt();
        }
        let (small, middle, large) = (self.small.value(), self.middle.value(), self.large.value());
        if large > 0.0 || large.is_nan() {
            // Smaller squares are negligible.
            return (large + middle / SCALE / SCALE).sqrt() * SCALE;
        }
        if middle > 0.0 || middle.is_nan() {
            return (middle + small / SCALE / SCALE).sqrt();
        }
        small.sqrt() / SCALE
    }
}
