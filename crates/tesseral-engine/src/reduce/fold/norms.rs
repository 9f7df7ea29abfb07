//! Sums of magnitudes and squares.

use serde::{Deserialize, Serialize};

use super::number::Number;
use crate::reduce::exact::Moments;
use crate::reduce::exact::block::BLOCK;
use crate::reduce::kernel::block::Cell;

/// Exact sum of magnitudes and sum of squares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    cells: u64,
    nans: u64,
    #[serde(with = "super::wire::moments")]
    magnitudes: Moments,
}

impl Norms {
    pub(super) fn fold<T: Cell>(&mut self, values: &[T]) {
        // Wide integers may be no doubles.
        let doubles = T::IS_FLOAT || size_of::<T>() <= 4;
        self.cells += values.len() as u64;
        let mut magnitudes = Vec::with_capacity(BLOCK.min(values.len()));
        for values in values.chunks(BLOCK) {
            magnitudes.clear();
            for &value in values {
                let wide = value.to_f64().abs();
                if value.is_nan() {
                    self.nans += 1;
                } else if doubles && wide.is_finite() {
                    magnitudes.push(wide);
                } else if T::IS_FLOAT {
                    self.magnitudes.add_float(wide, 1, true);
                } else {
                    self.magnitudes.add_integer(value.to_i128().abs(), 1, true);
                }
            }
            self.magnitudes.add_floats(&magnitudes);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.cells = self.cells.saturating_add(other.cells);
        self.nans = self.nans.saturating_add(other.nans);
        self.magnitudes.merge(&other.magnitudes);
    }

    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// Cells that are NaN.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// The sum of magnitudes without NaNs, correctly rounded if it is not an integer of 128 bits.
    pub fn l1(&self, float: bool) -> Number {
        match self.magnitudes.integer_sum() {
            Some(sum) if !float => Number::Int(sum),
            _ => Number::Float(self.magnitudes.sum()),
        }
    }

    /// The square root of the sum of squares without NaNs, correctly rounded.
    pub fn l2(&self) -> f64 {
        self.magnitudes.root_of_squares()
    }
}
