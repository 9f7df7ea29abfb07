//! Histograms: equal bins between two numbers, with correctly rounded edges.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tesseral_core::{Element, Error, Result, Scalar};
use tesseral_format::Request;

use super::number::Number;
use super::run::{Fold, fold};
use super::state::{FoldState, Reducer};
use crate::handle::Handle;
use crate::options::Options;
use crate::reduce::exact::Moments;
use crate::reduce::kernel::summary::StatSet;

/// Integers up to this magnitude are exact floats.
const EXACT: f64 = (1_u64 << 53) as f64;

/// Lower and upper bound of the bins.
pub type BinRange = (Number, Number);

/// Largest number of bins: jobs arrive as bytes from outside, and every slot has all bins.
pub const MAX_BINS: u32 = 1 << 20;

/// The bins of a histogram.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of bins.
    pub bins: u32,
    /// One range for all slots, or one for each; none where it is yet to be computed from the values.
    pub ranges: Vec<BinRange>,
    /// Whether values outside of the range are counted in the first and last bin, instead of not at all.
    pub clamp: bool,
    /// The edges of the only range.
    #[serde(skip)]
    edges: OnceLock<Vec<f64>>,
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        (self.bins, &self.ranges, self.clamp) == (other.bins, &other.ranges, other.clamp)
    }
}

impl Histogram {
    /// Number of bins, at least one.
    ///
    /// # Errors
    /// `Limit` for more than [`MAX_BINS`].
    pub(super) fn checked_bins(&self) -> Result<usize> {
        if self.bins > MAX_BINS {
            return Err(Error::limit("the bins of a histogram", self.bins.into(), MAX_BINS.into()));
        }
        Ok(self.bins.max(1) as usize)
    }

    /// A histogram of some bins.
    pub fn new(bins: u32, ranges: Vec<BinRange>, clamp: bool) -> Self {
        Self { bins, ranges, clamp, edges: OnceLock::new() }
    }

    /// Whether a reducer is a histogram without a range.
    pub(super) fn is_open(reducer: &Reducer) -> bool {
        matches!(reducer, Reducer::Histogram(histogram) if histogram.ranges.is_empty())
    }

    /// Sets the ranges of a histogram that has none.
    pub(super) fn close(reducer: &mut Reducer, ranges: &[BinRange]) {
        if let Reducer::Histogram(histogram) = reducer
            && histogram.ranges.is_empty()
        {
            *histogram = Self::new(histogram.bins, ranges.to_vec(), histogram.clamp);
        }
    }

    /// The edges of the bins of the only range, one more than bins.
    pub fn edges(&self) -> Option<&[f64]> {
        let &[range] = self.ranges.as_slice() else { return None };
        Some(self.edges.get_or_init(|| edges(range, self.bins)))
    }

    /// Adds values to the counts of a slot, and NaNs to theirs.
    pub(super) fn fold<T: Element>(
        &self,
        slot: usize,
        values: &[T],
        counts: &mut [u64],
        nans: &mut u64,
    ) -> Result<()> {
        let own: Vec<f64>;
        let (range, edges) = match (self.edges(), self.ranges.get(slot)) {
            (Some(edges), _) => (self.ranges[0], edges),
            (None, Some(range)) => {
                own = edges(*range, self.bins);
                (*range, own.as_slice())
            }
            (None, None) => return Err(Error::invalid("a histogram has no range for a slot")),
        };
        let bins = Bins { range, edges };
        for &value in values {
            if value.is_nan() {
                *nans += 1;
            } else if (self.clamp || bins.contains(value))
                && let Some(count) = counts.get_mut(bins.index(value))
            {
                *count += 1;
            }
        }
        Ok(())
    }
}

/// The correctly rounded edges of equal bins.
fn edges((low, high): BinRange, bins: u32) -> Vec<f64> {
    let bins = u64::from(bins.max(1));
    let edge = |i: u64| {
        let mut sum = Moments::default();
        for (bound, times) in [(low, bins - i), (high, i)] {
            match bound {
                Number::Float(value) if times > 0 => sum.add_product(value, times as f64),
                // Bounds that are cells have at most 64 bits.
                Number::Int(value) => sum.add_integer_sum(value.saturating_mul(i128::from(times))),
                Number::Float(_) => {}
            }
        }
        sum.mean(bins)
    };
    (0..=bins).map(edge).collect()
}

/// Equal bins, the last closed.
struct Bins<'a> {
    range: BinRange,
    edges: &'a [f64],
}

impl Bins<'_> {
    /// Whether a value is at least a bound, exactly.
    fn reaches<T: Element>(cell: T, bound: Number) -> bool {
        match bound {
            Number::Int(bound) if !T::IS_FLOAT => cell.to_i128() >= bound,
            bound => reaches_edge(cell, bound.to_f64()),
        }
    }

    /// Whether a value lies in the range.
    fn contains<T: Element>(&self, cell: T) -> bool {
        let (low, high) = self.range;
        let above = match high {
            Number::Int(high) if !T::IS_FLOAT => cell.to_i128() > high,
            high if T::IS_FLOAT => cell.to_f64() > high.to_f64(),
            high => cell.to_i128() > high.to_f64().floor() as i128,
        };
        Self::reaches(cell, low) && !above
    }

    /// The bin of a value; the first or last one for values outside.
    fn index<T: Element>(&self, cell: T) -> usize {
        let last = self.edges.len().saturating_sub(2);
        let (low, high) = (self.edges[0], self.edges[last + 1]);
        if high <= low {
            return 0;
        }
        // Halves do not overflow. The quotient may be off by one where it rounds across an edge, so it is corrected by the edges.
        let fraction = (cell.to_f64() / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
        let mut bin = ((fraction * (last + 1) as f64) as usize).min(last);
        while bin > 0 && !reaches_edge(cell, self.edges[bin]) {
            bin -= 1;
        }
        while bin < last && reaches_edge(cell, self.edges[bin + 1]) {
            bin += 1;
        }
        bin
    }
}

/// Whether a value is at least an edge. An integer that is not an exact float is not rounded across it.
fn reaches_edge<T: Element>(cell: T, edge: f64) -> bool {
    let value = cell.to_f64();
    if !T::IS_FLOAT && value.abs() > EXACT { cell.to_i128() >= edge.ceil() as i128 } else { value >= edge }
}

impl Reducer {
    /// Edges of the bins of a histogram with one range.
    pub fn edges(&self) -> Option<Vec<f64>> {
        match self {
            Self::Histogram(histogram) => histogram.edges().map(<[f64]>::to_vec),
            _ => None,
        }
    }
}

/// The smallest and the largest selected value of each slot of a fold, for the bins of its histograms; `None` without values.
///
/// # Errors
/// As [`fold`]; `InvalidRequest` if a value is infinite.
pub fn ranges(
    handle: &Handle,
    request: &Request,
    of: &Fold,
    options: &Options,
) -> Result<Vec<Option<BinRange>>> {
    let first = Fold { reducers: vec![Reducer::Summary(StatSet::RANGE)], ..of.clone() };
    let states = fold(handle, request, &first, options)?.single()?;
    let range = |state: FoldState| {
        let FoldState::Summary(summary) = state else { return Err(Error::internal("missing range")) };
        let bound = |value: &Scalar| {
            let float = || value.as_f64().filter(|v| v.is_finite()).map(Number::Float);
            value.as_i128().map(Number::Int).or_else(float).ok_or_else(|| {
                Error::invalid("a histogram of infinite cells requires a range")
                    .hint("set the smallest and the largest value")
            })
        };
        match (summary.min(), summary.max()) {
            (Some(min), Some(max)) => Ok(Some((bound(&min)?, bound(&max)?))),
            _ => Ok(None),
        }
    };
    states.into_iter().map(range).collect()
}

/// One range for the values of all slots.
pub(super) fn enclosing(ranges: Vec<Option<BinRange>>) -> BinRange {
    let less = |a: Number, b: Number| match (a, b) {
        (Number::Int(a), Number::Int(b)) => a < b,
        (a, b) => a.to_f64() < b.to_f64(),
    };
    let join = |a: BinRange, b: BinRange| {
        (if less(b.0, a.0) { b.0 } else { a.0 }, if less(a.1, b.1) { b.1 } else { a.1 })
    };
    ranges.into_iter().flatten().reduce(join).unwrap_or((Number::Int(0), Number::Int(0)))
}
