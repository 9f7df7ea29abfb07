//! Approximate quantiles with bounded memory and a stated error.
//!
//! Values are counted in buckets whose bounds grow by a constant factor, after Masson, Rim and Lee ("DDSketch", 2019): the relative
//! error of a quantile is at most the accuracy. Counts do not depend on order, so sketches of parts merge into exactly the
//! sketch of the whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tesseral_core::Element;

use super::wire::bits;

/// Counts of values in exponentially growing buckets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sketch {
    #[serde(with = "bits")]
    accuracy: f64,
    above: BTreeMap<i32, u64>,
    below: BTreeMap<i32, u64>,
    zeros: u64,
    infinite: (u64, u64),
    nans: u64,
}

impl Sketch {
    /// An empty sketch. The accuracy is a fraction between 0 and 1.
    pub fn new(accuracy: f64) -> Self {
        let accuracy = accuracy.clamp(1e-6, 0.5);
        Self { accuracy, above: BTreeMap::new(), below: BTreeMap::new(), zeros: 0, infinite: (0, 0), nans: 0 }
    }

    /// The maximum relative error of a quantile.
    pub fn accuracy(&self) -> f64 {
        self.accuracy
    }

    fn growth(&self) -> f64 {
        (1.0 + self.accuracy) / (1.0 - self.accuracy)
    }

    pub(super) fn fold<T: Element>(&mut self, values: &[T]) {
        let scale = self.growth().ln().recip();
        for &value in values {
            let value = value.to_f64();
            let bucket = || (value.abs().ln() * scale).ceil() as i32;
            match value {
                v if v.is_nan() => self.nans += 1,
                v if v == f64::INFINITY => self.infinite.1 += 1,
                v if v == f64::NEG_INFINITY => self.infinite.0 += 1,
                0.0 => self.zeros += 1,
                v if v > 0.0 => *self.above.entry(bucket()).or_default() += 1,
                _ => *self.below.entry(bucket()).or_default() += 1,
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.above, &other.above), (&mut self.below, &other.below)] {
            theirs.iter().for_each(|(bucket, count)| *mine.entry(*bucket).or_default() += count);
        }
        self.zeros += other.zeros;
        self.infinite.0 += other.infinite.0;
        self.infinite.1 += other.infinite.1;
        self.nans += other.nans;
    }

    /// The number of values, including NaN.
    pub fn count(&self) -> u64 {
        let buckets = self.above.values().chain(self.below.values()).sum::<u64>();
        buckets + self.zeros + self.infinite.0 + self.infinite.1 + self.nans
    }

    /// Values that are NaN.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// The quantile without NaNs; `None` without values.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count() - self.nans;
        if count == 0 {
            return None;
        }
        let mut rank = (q.clamp(0.0, 1.0) * (count - 1) as f64).round() as u64;
        let growth = self.growth();
        let bucket_value = |bucket: i32| 2.0 * growth.powi(bucket) / (growth + 1.0);
        let low = std::iter::once((f64::NEG_INFINITY, self.infinite.0));
        let below = self.below.iter().rev().map(|(&bucket, &n)| (-bucket_value(bucket), n));
        let zero = std::iter::once((0.0, self.zeros));
        let above = self.above.iter().map(|(&bucket, &n)| (bucket_value(bucket), n));
        for (value, n) in low.chain(below).chain(zero).chain(above) {
            if rank < n {
                return Some(value);
            }
            rank -= n;
        }
        Some(f64::INFINITY)
    }
}
