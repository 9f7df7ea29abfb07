//! Exact sums of products, for covariances.

use super::block::{BLOCK, add_products, bounds};
use super::digits::Digits;
use super::fixed::Fixed;
use super::moments::{Moments, co_spread, degrees};

/// An exact sum of the products of two variables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Products {
    sum: Fixed,
}

impl Products {
    /// Adds the products of finite floats, two and two.
    pub fn add_floats(&mut self, x: &[f64], y: &[f64]) {
        for (x, y) in x.chunks(BLOCK).zip(y.chunks(BLOCK)) {
            // Products with zeros only are zeros.
            if let (Some(a), Some(b)) = (bounds(x), bounds(y)) {
                add_products(x, y, (a, b), &mut self.sum);
            }
        }
    }

    /// Adds the product of two integers of at most 64 bits.
    pub fn add_integers(&mut self, x: i128, y: i128) {
        let magnitude = x.unsigned_abs().saturating_mul(y.unsigned_abs());
        self.sum.add_wide((x < 0) != (y < 0), magnitude, 0);
    }

    /// The correctly rounded covariance of `n > ddof` pairs; NaN with infinities.
    pub fn covariance(&self, x: &Moments, y: &Moments, n: u64, ddof: u64) -> f64 {
        self.spread(x, y, n).map_or(f64::NAN, |spread| spread.quotient(degrees(n, ddof)))
    }

    /// The correlation of `n` pairs, to within a few units in the last place; NaN with infinities or a constant variable.
    pub fn correlation(&self, x: &Moments, y: &Moments, n: u64) -> f64 {
        let (Some(both), Some(x), Some(y)) = (self.spread(x, y, n), x.spread(n), y.spread(n)) else {
            return f64::NAN;
        };
        if x.is_zero() || y.is_zero() {
            return f64::NAN;
        }
        // Each variable is scaled by a power of two, so that nothing overflows.
        let (a, b) = (x.magnitude_digits() / 2, y.magnitude_digits() / 2);
        let root = |spread: &Digits, by: i32| spread.shifted(-2 * by).root_of_quotient(1);
        let ratio = both.shifted(-a - b).to_f64() / root(&x, a) / root(&y, b);
        ratio.clamp(-1.0, 1.0)
    }

    /// `n · Σxy − Σx · Σy`; `None` with infinities.
    fn spread(&self, x: &Moments, y: &Moments, n: u64) -> Option<Digits> {
        let finite = x.infinities() == [0, 0] && y.infinities() == [0, 0];
        finite.then(|| co_spread(n, &self.sum, &x.sums().0.digits(), &y.sums().0.digits()))
    }
}
