//! Weighted sums, exact until they are rounded once.

use serde::{Deserialize, Serialize};
use tesseral_core::{Error, Result};

use super::wire::moments;
use crate::reduce::exact::block::BLOCK;
use crate::reduce::exact::fixed::Fixed;
use crate::reduce::exact::{Moments, ratio, weighted_spread};
use crate::reduce::kernel::block::{Cell, WorkType};

/// One weight for each position of some axes of a selection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    axes: Vec<bool>,
    #[serde(with = "super::wire::many_bits")]
    values: Vec<f64>,
}

impl Weights {
    /// Weights along the axes of a selection of this shape for which `axes` is true, row-major.
    ///
    /// # Errors
    /// `InvalidRequest` if their number differs or one of them is not finite.
    pub fn new(axes: Vec<bool>, shape: &[u64], values: Vec<f64>) -> Result<Self> {
        let weights = Self { axes, values };
        weights.check_shape(shape)?;
        weights.check_finite()?;
        Ok(weights)
    }

    /// Checks that they fit a selection of this shape.
    pub(super) fn check_shape(&self, shape: &[u64]) -> Result<()> {
        let Self { axes, values } = self;
        let extents = axes.iter().zip(shape).filter(|(has, _)| **has).map(|(_, n)| *n);
        let wanted = extents.fold(1_u64, u64::saturating_mul);
        if axes.len() != shape.len() || wanted != values.len() as u64 {
            return Err(Error::invalid(format!("expected {wanted} weights, found {}", values.len())));
        }
        Ok(())
    }

    /// Checks that all of them are finite numbers.
    pub(super) fn check_finite(&self) -> Result<()> {
        if let Some(odd) = self.values.iter().find(|weight| !weight.is_finite()) {
            return Err(Error::invalid(format!("a weight is {odd}: weights must be finite numbers")));
        }
        Ok(())
    }

    /// Whether a weight is below 0.
    pub(super) fn any_negative(&self) -> bool {
        self.values.iter().any(|weight| *weight < 0.0)
    }

    /// The distance of the weights of neighbors along each axis.
    pub(super) fn strides(&self, shape: &[u64]) -> Vec<u64> {
        let mut strides = vec![0; shape.len()];
        let mut stride = 1_u64;
        for d in (0..shape.len()).rev().filter(|d| self.axes.get(*d) == Some(&true)) {
            strides[d] = stride;
            stride = stride.saturating_mul(shape[d]);
        }
        strides
    }

    #[inline]
    pub(super) fn at(&self, place: u64) -> f64 {
        usize::try_from(place).ok().and_then(|i| self.values.get(i)).copied().unwrap_or(0.0)
    }
}

/// Exact sums of weights, of weighted values and, where requested, of weighted squares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Weighted {
    cells: u64,
    nans: u64,
    #[serde(with = "moments")]
    values: Moments,
    #[serde(with = "moments")]
    weights: Moments,
    #[serde(with = "moments")]
    squares: Moments,
}

impl Weighted {
    pub(super) fn fold<T: Cell>(&mut self, values: &[T], weights: &[f64], spread: bool) {
        // Wide integers may be no doubles.
        let doubles = T::IS_FLOAT || size_of::<T>() <= 4;
        self.cells += values.len() as u64;
        let (mut x, mut w) = (Vec::new(), Vec::new());
        for (values, weights) in values.chunks(BLOCK).zip(weights.chunks(BLOCK)) {
            x.clear();
            w.clear();
            for (&value, &weight) in values.iter().zip(weights) {
                if value.is_nan() {
                    self.nans += 1;
                    continue;
                }
                let wide = value.to_f64();
                if doubles && wide.is_finite() {
                    x.push(wide);
                    w.push(weight);
                } else {
                    self.weights.add_float(weight, 1, false);
                    self.values.add_weighted(value, weight);
                }
                if spread && wide.is_finite() {
                    self.squares.add_weighted_square(value, weight);
                }
            }
            self.weights.add_block(&w, false);
            self.values.add_products(&x, &w);
        }
    }

    /// Adds values of the same weight: their sum is multiplied once.
    pub(super) fn fold_run<T: Cell>(&mut self, values: &[T], weight: f64, scratch: &mut Vec<T::WorkType>) {
        let (mut sum, mut added) = (Fixed::default(), 0);
        for block in values.chunks(BLOCK) {
            let same = bytemuck::try_cast_slice::<T, T::WorkType>(block).ok();
            let cells = same.filter(|cells| cells.len() == block.len()).unwrap_or_else(|| {
                scratch.clear();
                scratch.extend(block.iter().map(|value| value.widen()));
                scratch
            });
            if T::WorkType::add(cells, &mut sum, None) {
                added += block.len() as u64;
            } else {
                self.fold(block, &vec![weight; block.len()], false);
            }
        }
        self.cells += added;
        self.weights.add_float(weight, added, false);
        self.values.add_scaled(&sum, weight);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.cells = self.cells.saturating_add(other.cells);
        self.nans = self.nans.saturating_add(other.nans);
        self.values.merge(&other.values);
        self.weights.merge(&other.weights);
        self.squares.merge(&other.squares);
    }

    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// Cells that are NaN.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// The sum of weighted values, correctly rounded.
    pub fn sum(&self) -> f64 {
        self.values.sum()
    }

    /// The weighted variance `Σw(x − mean)² / Σw`, correctly rounded; `None` if the weights of the values add up to 0.
    pub fn variance(&self) -> Option<f64> {
        weighted_spread(&self.weights, &self.values, &self.squares, false)
    }

    /// The root of the weighted variance, within one unit in the last place.
    pub fn std(&self) -> Option<f64> {
        weighted_spread(&self.weights, &self.values, &self.squares, true)
    }

    /// The weighted mean, correctly rounded; `None` if the weights of the values add up to 0.
    pub fn mean(&self) -> Option<f64> {
        ratio(&self.values, &self.weights)
    }
}
