//! Exact sums of products, for covariances.

use tesseral_core::Result;

use super::block::{BLOCK, add_products, bounds};
use super::digits::Digits;
use super::fixed::Fixed;
use super::moments::{Moments, co_spread, degrees, root_of_ratio};

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

    /// The correlation of `n` pairs, within one unit in the last place; NaN with infinities or a constant variable.
    pub fn correlation(&self, x: &Moments, y: &Moments, n: u64) -> f64 {
        let (Some(both), Some(x), Some(y)) = (self.spread(x, y, n), x.spread(n), y.spread(n)) else {
            return f64::NAN;
        };
        if x.is_zero() || y.is_zero() {
            return f64::NAN;
        }
        if both.is_zero() {
            return 0.0;
        }
        // The root of the exact square, which has the sign of the covariance.
        let magnitude = root_of_ratio(&both.times(&both), &x.times(&y)).min(1.0);
        if both.negative { -magnitude } else { magnitude }
    }

    /// Adds the products of other pairs.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
    }

    /// Appends the bytes of the sum.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.sum.digits().write(out);
    }

    /// Parses a sum from the start of `bytes`, and returns the bytes after it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of a sum.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let (sum, rest) = Digits::parse(bytes)?;
        Ok((Self { sum: Fixed::from(&sum) }, rest))
    }

    /// `n · Σxy − Σx · Σy`; `None` with infinities.
    fn spread(&self, x: &Moments, y: &Moments, n: u64) -> Option<Digits> {
        let finite = x.infinities() == [0, 0] && y.infinities() == [0, 0];
        finite.then(|| co_spread(n, &self.sum, &x.sums().0.digits(), &y.sums().0.digits()))
    }
}
