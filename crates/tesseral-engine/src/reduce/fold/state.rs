//! The state of a slot.

use bytemuck::Zeroable;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tesseral_core::{DType, Element, Error, Result, Scalar, alloc, dispatch_element};

use super::histogram::Histogram;
use super::norms::Norms;
use super::number::Number;
use super::pairs::Pairs;
use super::product::Product;
use super::sketch::Sketch;
use super::weights::Weighted;
use crate::reduce::exact::{Moments, weighted_quantile};
use crate::reduce::kernel::block::{Cell, WorkType};
use crate::reduce::kernel::summary::{StatSet, Summary};

/// The state to keep for each slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reducer {
    /// Counts, range, sum and spread, as selected by [`StatSet`].
    Summary(StatSet),
    /// The product.
    Product,
    /// Sums of magnitudes and squares.
    Norms,
    /// The position of the first minimum.
    ArgMin,
    /// The position of the first maximum.
    ArgMax,
    /// The first value in the order of the selection that is not NaN.
    First,
    /// The last value in the order of the selection that is not NaN.
    Last,
    /// Numbers of zeros and of other values.
    Truth,
    /// Every value, for quantiles, medians and modes.
    Values,
    /// Counts in exponentially growing buckets, for approximate quantiles.
    Sketch(#[serde(with = "super::wire::bits")] f64),
    /// Counts in equal bins, with one range for all slots or one per slot.
    Histogram(Histogram),
    /// The number of missing cells, and of those equal to a number.
    Nulls(Option<Number>),
    /// Sums of weights and of weighted values.
    Weighted {
        /// Whether weighted squares are summed, too.
        spread: bool,
    },
    /// Every value and its weight, for weighted quantiles.
    WeightedValues,
    /// Sums of two variables and of their products.
    Pairs,
}

/// The position of the first extreme value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arg {
    key: i64,
    index: Option<u64>,
    cells: u64,
}

/// Numbers of zeros and of other values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Values equal to 0.
    pub zeros: u64,
    /// Other values, without NaN.
    pub others: u64,
    /// NaNs.
    pub nans: u64,
}

/// Contiguous native-endian values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Values {
    cells: Vec<u8>,
}

/// Contiguous native-endian values, and the weight of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WeightedValues {
    values: Values,
    #[serde(with = "super::wire::many_bits")]
    weights: Vec<f64>,
}

/// The state of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum FoldState {
    Summary(#[serde(serialize_with = "summary_to", deserialize_with = "summary_from")] Summary),
    Product(Product),
    Norms(Norms),
    Arg(Arg),
    Edge(Arg),
    Truth(Truth),
    Values(Values),
    Sketch(Sketch),
    Histogram { counts: Vec<u64>, nans: u64 },
    Count(u64),
    Weighted(Box<Weighted>),
    WeightedValues(WeightedValues),
    Pairs(Box<Pairs>),
}

/// Selected values of a slot, and where they are as far as its reducers need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotValues<'a, T> {
    pub values: &'a [T],
    /// Positions in the fiber.
    pub fiber: &'a [u64],
    /// Positions in the selection.
    pub order: &'a [u64],
    pub weights: &'a [f64],
    /// Values of the second variable.
    pub paired: &'a [f64],
}

impl<'a, T> SlotValues<'a, T> {
    /// Values whose places are not needed.
    pub(super) fn plain(values: &'a [T]) -> Self {
        Self { values, fiber: &[], order: &[], weights: &[], paired: &[] }
    }
}

fn summary_to<S: Serializer>(summary: &Summary, to: S) -> Result<S::Ok, S::Error> {
    summary.to_bytes().as_slice().serialize(to)
}

fn summary_from<'de, D: Deserializer<'de>>(from: D) -> Result<Summary, D::Error> {
    let bytes = Vec::<u8>::deserialize(from)?;
    Summary::from_bytes(&bytes).map_err(serde::de::Error::custom)
}

impl Serialize for StatSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.bits().serialize(to)
    }
}

impl<'de> Deserialize<'de> for StatSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from_bits(u8::deserialize(from)?))
    }
}

impl FoldState {
    /// The state of no cells.
    ///
    /// # Errors
    /// `Unsupported` for dtypes without arithmetic; `Limit` for a histogram of too many bins.
    pub fn new(reducer: &Reducer, dtype: DType) -> Result<Self> {
        let empty = Summary::new(dtype, StatSet::COUNTS)?;
        Ok(match reducer {
            Reducer::Summary(StatSet::COUNTS) => Self::Summary(empty),
            Reducer::Summary(wanted) => Self::Summary(Summary::new(dtype, *wanted)?),
            Reducer::Product => Self::Product(Product::default()),
            Reducer::Norms => Self::Norms(Norms::default()),
            Reducer::ArgMin | Reducer::ArgMax => Self::Arg(Arg::default()),
            Reducer::First | Reducer::Last => Self::Edge(Arg::default()),
            Reducer::Truth => Self::Truth(Truth::default()),
            Reducer::Values => Self::Values(Values::default()),
            Reducer::Sketch(accuracy) => Self::Sketch(Sketch::new(*accuracy)),
            Reducer::Histogram(histogram) => Self::Histogram {
                counts: alloc::zeroed("the bins of a histogram", histogram.checked_bins()?)?,
                nans: 0,
            },
            Reducer::Nulls(_) => Self::Count(0),
            Reducer::Weighted { .. } => Self::Weighted(Box::default()),
            Reducer::WeightedValues => Self::WeightedValues(WeightedValues::default()),
            Reducer::Pairs => Self::Pairs(Box::default()),
        })
    }

    /// Adds selected values.
    pub(super) fn fold<T: Cell>(
        &mut self,
        reducer: &Reducer,
        dtype: DType,
        slot: usize,
        cells: SlotValues<'_, T>,
    ) -> Result<()> {
        let values = cells.values;
        match self {
            Self::Summary(summary) => summary.fold(bytemuck::cast_slice(values), None, &[])?,
            Self::Product(product) => product.fold(values),
            Self::Norms(norms) => norms.fold(values),
            Self::Arg(arg) => {
                let smallest = matches!(reducer, Reducer::ArgMin);
                values.iter().zip(cells.fiber).for_each(|(&v, &index)| arg.fold_value(v, index, smallest));
                arg.cells += values.len() as u64;
            }
            Self::Edge(edge) => {
                let first = matches!(reducer, Reducer::First);
                values.iter().zip(cells.order).for_each(|(&v, &place)| edge.fold_edge(v, place, first));
                edge.cells += values.len() as u64;
            }
            Self::Truth(truth) => {
                for value in values {
                    let to = match value {
                        value if value.is_nan() => &mut truth.nans,
                        value if *value == T::zeroed() => &mut truth.zeros,
                        _ => &mut truth.others,
                    };
                    *to += 1;
                }
            }
            Self::Values(kept) => kept.cells.extend_from_slice(bytemuck::cast_slice(values)),
            Self::Sketch(sketch) => sketch.fold(values),
            Self::Histogram { counts, nans } => {
                let Reducer::Histogram(histogram) = reducer else { return Err(mismatch()) };
                histogram.fold(slot, values, counts, nans)?;
            }
            Self::Count(count) => {
                let Reducer::Nulls(fill) = reducer else { return Err(mismatch()) };
                let fill = fill.and_then(|fill| fill.to_scalar(dtype)).and_then(|fill| fill.get::<T>());
                if let Some(fill) = fill {
                    let equal = |v: &&T| **v == fill || (fill.is_nan() && v.is_nan());
                    *count += values.iter().filter(equal).count() as u64;
                }
            }
            Self::Weighted(weighted) => {
                let spread = matches!(reducer, Reducer::Weighted { spread: true });
                weighted.fold(values, cells.weights, spread);
            }
            Self::WeightedValues(kept) => {
                kept.values.cells.extend_from_slice(bytemuck::cast_slice(values));
                kept.weights.extend_from_slice(cells.weights);
            }
            Self::Pairs(pairs) => pairs.fold(values, cells.paired),
        }
        Ok(())
    }

    /// Adds values of the same weight to a state of a reducer [of runs](Reducer::takes_runs).
    pub(super) fn fold_run<T: Cell>(
        &mut self,
        values: &[T],
        weight: f64,
        scratch: &mut Vec<T::WorkType>,
    ) -> Result<()> {
        match self {
            Self::Summary(summary) => summary.fold(bytemuck::cast_slice(values), None, &[])?,
            Self::Weighted(weighted) => weighted.fold_run(values, weight, scratch),
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    /// Adds the cells that a mask selects to a summary.
    pub(super) fn fold_masked<T: Cell>(
        &mut self,
        cells: &[T],
        validity: Option<&[u8]>,
        mask: &[u8],
    ) -> Result<()> {
        match self {
            Self::Summary(summary) => summary.fold_masked(cells, validity, mask),
            _ => Err(mismatch()),
        }
    }

    /// Adds selected missing cells.
    ///
    /// # Errors
    /// `Limit` when a count overflows.
    pub fn fold_nulls(&mut self, n: u64) -> Result<()> {
        match self {
            Self::Summary(summary) => summary.fold_nulls(n),
            Self::Count(count) => {
                *count += n;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds `n` cells of the same value that are not cells of the selection; `index` is the fiber position of the first.
    ///
    /// # Errors
    /// `InvalidRequest` when the dtype of the value differs.
    pub fn fold_repeated(&mut self, reducer: &Reducer, value: &Scalar, n: u64, index: u64) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        if let Self::Summary(summary) = self {
            return summary.fold_value_repeated(value, n);
        }
        let dtype = value.dtype();
        dispatch_element!(dtype, T => {
            let value = value.get::<T>().ok_or_else(mismatch)?;
            let n = usize::try_from(n).map_err(|_| mismatch())?;
            let (values, fiber) = (vec![value; n], vec![index; n]);
            self.fold::<T>(reducer, dtype, 0, SlotValues { fiber: &fiber, ..SlotValues::plain(&values) })
        }, else => Err(mismatch()))
    }

    /// Adds the cells of another state, as if they had been folded after these.
    ///
    /// # Errors
    /// `InvalidRequest` when the other state belongs to a different reducer.
    pub fn merge(&mut self, reducer: &Reducer, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Summary(a), Self::Summary(b)) => a.merge(b)?,
            (Self::Product(a), Self::Product(b)) => a.merge(b),
            (Self::Norms(a), Self::Norms(b)) => a.merge(b),
            (Self::Arg(a), Self::Arg(b)) => {
                a.cells = a.cells.saturating_add(b.cells);
                if let Some(index) = b.index {
                    a.update(b.key, index, matches!(reducer, Reducer::ArgMin));
                }
            }
            (Self::Edge(a), Self::Edge(b)) => {
                a.cells = a.cells.saturating_add(b.cells);
                if let Some(place) = b.index {
                    a.update_edge(b.key, place, matches!(reducer, Reducer::First));
                }
            }
            (Self::Truth(a), Self::Truth(b)) => {
                a.zeros = a.zeros.saturating_add(b.zeros);
                a.others = a.others.saturating_add(b.others);
                a.nans = a.nans.saturating_add(b.nans);
            }
            (Self::Weighted(a), Self::Weighted(b)) => a.merge(b),
            (Self::WeightedValues(a), Self::WeightedValues(b)) => {
                a.values.cells.extend_from_slice(&b.values.cells);
                a.weights.extend_from_slice(&b.weights);
            }
            (Self::Pairs(a), Self::Pairs(b)) => a.merge(b),
            (Self::Values(a), Self::Values(b)) => a.cells.extend_from_slice(&b.cells),
            (Self::Sketch(a), Self::Sketch(b)) => a.merge(b),
            (Self::Histogram { counts: a, nans }, Self::Histogram { counts: b, nans: more })
                if a.len() == b.len() =>
            {
                a.iter_mut().zip(b).for_each(|(a, b)| *a = a.saturating_add(*b));
                *nans = nans.saturating_add(*more);
            }
            (Self::Count(a), Self::Count(b)) => *a = a.saturating_add(*b),
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    /// The number of selected cells, where the state records it: including nulls for summaries.
    pub fn cells(&self, dtype: DType) -> u64 {
        match self {
            Self::Summary(summary) => summary.count(),
            Self::Product(product) => product.factors(),
            Self::Norms(norms) => norms.cells(),
            Self::Arg(arg) | Self::Edge(arg) => arg.cells,
            Self::Truth(truth) => truth.zeros.saturating_add(truth.others).saturating_add(truth.nans),
            Self::Weighted(weighted) => weighted.cells(),
            Self::Values(values) => (values.cells.len() / dtype.size().unwrap_or(1).max(1)) as u64,
            Self::WeightedValues(values) => values.weights.len() as u64,
            Self::Pairs(pairs) => pairs.cells(),
            Self::Sketch(sketch) => sketch.count(),
            Self::Histogram { counts, nans } => {
                counts.iter().fold(*nans, |n, count| n.saturating_add(*count))
            }
            Self::Count(count) => *count,
        }
    }
}

fn mismatch() -> Error {
    Error::invalid("partial results of different reducers do not merge")
}

impl Arg {
    fn fold_value<T: Cell>(&mut self, value: T, index: u64, smallest: bool) {
        if value.is_nan() {
            return;
        }
        // Zeros are equal regardless of their sign.
        let value = if value == T::zeroed() { T::zeroed() } else { value };
        self.update(value.widen().key(), index, smallest);
    }

    fn update(&mut self, key: i64, index: u64, smallest: bool) {
        let better = match self.index {
            None => true,
            Some(current) => {
                let order = if smallest { key.cmp(&self.key) } else { self.key.cmp(&key) };
                order.is_lt() || (order.is_eq() && index < current)
            }
        };
        if better {
            (self.key, self.index) = (key, Some(index));
        }
    }

    fn fold_edge<T: Cell>(&mut self, value: T, place: u64, first: bool) {
        if !value.is_nan() {
            self.update_edge(value.widen().key(), place, first);
        }
    }

    fn update_edge(&mut self, key: i64, place: u64, first: bool) {
        if self.index.is_none_or(|known| if first { place < known } else { place > known }) {
            (self.key, self.index) = (key, Some(place));
        }
    }

    /// The fiber position of the extreme value; `None` without values.
    pub fn index(&self) -> Option<u64> {
        self.index
    }

    /// The value; `None` without values.
    pub fn value(&self, dtype: DType) -> Option<Scalar> {
        self.index?;
        dispatch_element!(dtype, T => {
            Some(Scalar::from_element(<T as Cell>::from_key(self.key)).with_dtype(dtype))
        }, else => None)
    }
}

impl Values {
    /// Values that are NaN.
    pub fn nans(&self, dtype: DType) -> u64 {
        dispatch_element!(dtype, T => {
            let nan = |bytes: &&[u8]| bytemuck::pod_read_unaligned::<T>(bytes).is_nan();
            if T::IS_FLOAT { self.cells.chunks_exact(size_of::<T>()).filter(nan).count() as u64 } else { 0 }
        }, else => 0)
    }

    /// The quantile by linear interpolation between neighbors, without NaNs; `None` without values.
    pub fn quantile(&self, dtype: DType, q: f64) -> Option<Number> {
        dispatch_element!(dtype, T => {
            let mut values: Vec<T> = numbers(&self.cells);
            if values.is_empty() {
                return None;
            }
            let rank = q.clamp(0.0, 1.0) * (values.len() - 1) as f64;
            let (low, fraction) = (rank.floor() as usize, rank - rank.floor());
            let order = |a: &T, b: &T| a.widen().key().cmp(&b.widen().key());
            let (_, &mut first, above) = values.select_nth_unstable_by(low, order);
            let next = above.iter().copied().min_by(order);
            let exact = |value: T| {
                if T::IS_FLOAT { Number::Float(value.to_f64()) } else { Number::Int(value.to_i128()) }
            };
            let Some(next) = next.filter(|_| fraction > 0.0) else { return Some(exact(first)) };
            Some(if first == next { exact(first) } else { Number::Float(interpolate(first, next, fraction)) })
        }, else => None)
    }

    /// The most frequent value without NaNs, the smallest of several; zeros are equal regardless of their sign. `None` without
    /// values.
    pub fn mode(&self, dtype: DType) -> Option<Scalar> {
        dispatch_element!(dtype, T => {
            let zero = |value: T| if value == T::zeroed() { T::zeroed() } else { value };
            let mut values: Vec<T> = numbers(&self.cells).into_iter().map(zero).collect();
            values.sort_unstable_by_key(|value| value.widen().key());
            // The first of the longest runs.
            let runs = values.chunk_by(|a, b| a == b);
            let longest = runs.reduce(|best, run| if run.len() > best.len() { run } else { best })?;
            Some(Scalar::from_element(*longest.first()?).with_dtype(dtype))
        }, else => None)
    }
}

impl WeightedValues {
    /// Values that are NaN.
    pub fn nans(&self, dtype: DType) -> u64 {
        self.values.nans(dtype)
    }

    /// The weighted quantile, without NaNs, correctly rounded; `None` if the weights of the values add up to 0.
    pub fn quantile(&self, dtype: DType, q: f64) -> Option<f64> {
        dispatch_element!(dtype, T => {
            let cells: Vec<T> = bytemuck::pod_collect_to_vec(&self.values.cells);
            let cells = cells.into_iter().zip(self.weights.iter().copied());
            let mut cells: Vec<(T, f64)> = cells.filter(|(value, _)| !value.is_nan()).collect();
            cells.sort_unstable_by_key(|(value, _)| value.widen().key());
            weighted_quantile(&cells, q.clamp(0.0, 1.0))
        }, else => None)
    }
}

/// Values that are not NaN.
fn numbers<T: Cell>(cells: &[u8]) -> Vec<T> {
    let mut values: Vec<T> = bytemuck::pod_collect_to_vec(cells);
    if T::IS_FLOAT {
        values.retain(|value| !value.is_nan());
    }
    values
}

/// Linear interpolation between two values, correctly rounded: `a · (1 − fraction) + b · fraction`. From or to an infinity, the
/// difference is infinite.
fn interpolate<T: Cell>(a: T, b: T, fraction: f64) -> f64 {
    let mut sum = Moments::default();
    for (value, share) in [(a, 1.0), (a, -fraction), (b, fraction)] {
        sum.add_weighted(value, share);
    }
    // Minus infinity to infinity is NaN; an infinity and a finite number are that infinity for any share.
    match (a.to_f64(), b.to_f64()) {
        (a, b) if a.is_infinite() || b.is_infinite() => a + b,
        _ => sum.sum(),
    }
}

impl Reducer {
    /// Whether the reducer needs the place of each cell: its fiber position or its order.
    pub(super) fn placed(&self) -> bool {
        matches!(self, Self::ArgMin | Self::ArgMax | Self::First | Self::Last)
    }

    /// Whether the reducer needs the weight of each cell.
    pub(super) fn weighted(&self) -> bool {
        matches!(self, Self::Weighted { .. } | Self::WeightedValues)
    }

    /// Whether the reducer folds values of the same weight together.
    pub(super) fn takes_runs(&self) -> bool {
        matches!(self, Self::Weighted { spread: false } | Self::Summary(_))
    }

    /// Whether the reducer keeps every value.
    pub(super) fn keeps_values(&self) -> bool {
        matches!(self, Self::Values | Self::WeightedValues)
    }

    /// Bytes that the reducer keeps of each cell of a size.
    pub fn kept_bytes(&self, size: u64) -> u64 {
        match self {
            Self::Values => size,
            Self::WeightedValues => size.saturating_add(size_of::<f64>() as u64),
            _ => 0,
        }
    }
}
