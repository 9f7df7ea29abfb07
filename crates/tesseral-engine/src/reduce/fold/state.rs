//! The state of a slot.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tesseral_core::{DType, Element, Error, Result, Scalar, dispatch_element};

use super::bins::Bins;
use super::norms::Norms;
use super::predicate::{Number, Predicate};
use super::product::Product;
use super::sketch::Sketch;
use crate::kernel::block::{Cell, WorkType};
use crate::kernel::summary::{StatSet, Summary};

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
    /// Every value, for quantiles and medians.
    Values,
    /// Counts in exponentially growing buckets, for approximate quantiles.
    Sketch(#[serde(with = "super::wire::bits")] f64),
    /// Counts in equal bins, with one range for all slots or one per slot.
    Histogram {
        /// Number of bins.
        bins: u32,
        /// Lower and upper bound.
        ranges: Vec<(Number, Number)>,
    },
    /// The number of cells that meet a predicate.
    Matches(Predicate),
}

/// The position of the first extreme value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arg {
    key: i64,
    index: Option<u64>,
    cells: u64,
}

/// Contiguous native-endian values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Values {
    cells: Vec<u8>,
}

/// The state of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum FoldState {
    Summary(#[serde(serialize_with = "summary_to", deserialize_with = "summary_from")] Summary),
    Product(Product),
    Norms(Norms),
    Arg(Arg),
    Values(Values),
    Sketch(Sketch),
    Histogram { counts: Vec<u64>, nans: u64 },
    Count(u64),
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
    /// `Unsupported` for dtypes without arithmetic.
    pub fn new(reducer: &Reducer, dtype: DType) -> Result<Self> {
        let empty = Summary::new(dtype, StatSet::COUNTS)?;
        Ok(match reducer {
            Reducer::Summary(StatSet::COUNTS) => Self::Summary(empty),
            Reducer::Summary(wanted) => Self::Summary(Summary::new(dtype, *wanted)?),
            Reducer::Product => Self::Product(Product::default()),
            Reducer::Norms => Self::Norms(Norms::default()),
            Reducer::ArgMin | Reducer::ArgMax => Self::Arg(Arg::default()),
            Reducer::Values => Self::Values(Values::default()),
            Reducer::Sketch(accuracy) => Self::Sketch(Sketch::new(*accuracy)),
            Reducer::Histogram { bins, .. } => Self::Histogram { counts: vec![0; *bins as usize], nans: 0 },
            Reducer::Matches(_) => Self::Count(0),
        })
    }

    /// Adds selected cells; `index` holds the position of each in its fiber where the reducer needs it.
    pub(super) fn fold<T: Cell>(
        &mut self,
        reducer: &Reducer,
        slot: usize,
        values: &[T],
        index: &[u64],
    ) -> Result<()> {
        match self {
            Self::Summary(summary) => summary.fold(bytemuck::cast_slice(values), None, &[])?,
            Self::Product(product) => product.fold(values),
            Self::Norms(norms) => norms.fold(values),
            Self::Arg(arg) => {
                let smallest = matches!(reducer, Reducer::ArgMin);
                values.iter().zip(index).for_each(|(&value, &index)| arg.fold_value(value, index, smallest));
                arg.cells += values.len() as u64;
            }
            Self::Values(kept) => kept.cells.extend_from_slice(bytemuck::cast_slice(values)),
            Self::Sketch(sketch) => sketch.fold(values),
            Self::Histogram { counts, nans } => {
                let Reducer::Histogram { ranges, .. } = reducer else { return Err(mismatch()) };
                let range = if ranges.len() == 1 { ranges.first() } else { ranges.get(slot) };
                let &(low, high) = range.ok_or_else(mismatch)?;
                let bins = Bins::new(low.to_f64(), high.to_f64(), counts.len());
                for &value in values {
                    match bins.index(value) {
                        Some(bin) => counts[bin] += 1,
                        None => *nans += 1,
                    }
                }
            }
            Self::Count(count) => *count += values.len() as u64,
        }
        Ok(())
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

    /// Adds `n` cells of the same value; `index` is the fiber position of the first.
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
        dispatch_element!(value.dtype(), T => {
            let value = value.get::<T>().ok_or_else(mismatch)?;
            let n = usize::try_from(n).map_err(|_| mismatch())?;
            self.fold::<T>(reducer, 0, &vec![value; n], &vec![index; n])
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
                a.cells += b.cells;
                if let Some(index) = b.index {
                    a.update(b.key, index, matches!(reducer, Reducer::ArgMin));
                }
            }
            (Self::Values(a), Self::Values(b)) => a.cells.extend_from_slice(&b.cells),
            (Self::Sketch(a), Self::Sketch(b)) => a.merge(b),
            (Self::Histogram { counts: a, nans }, Self::Histogram { counts: b, nans: more })
                if a.len() == b.len() =>
            {
                a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                *nans += more;
            }
            (Self::Count(a), Self::Count(b)) => *a += b,
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
            Self::Arg(arg) => arg.cells,
            Self::Values(values) => (values.cells.len() / dtype.size().unwrap_or(1).max(1)) as u64,
            Self::Sketch(sketch) => sketch.count(),
            Self::Histogram { counts, nans } => counts.iter().sum::<u64>() + nans,
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
        // Zeros are equal whatever their sign.
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

    /// The fiber position of the extreme value; `None` without values.
    pub fn index(&self) -> Option<u64> {
        self.index
    }
}

impl Values {
    /// The quantile by linear interpolation between neighbors; NaN if there is a NaN, `None` without values.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, dtype: DType, q: f64) -> Option<Number> {
        dispatch_element!(dtype, T => {
            let mut values: Vec<T> = bytemuck::pod_collect_to_vec(&self.cells);
            if values.is_empty() {
                return None;
            }
            if values.iter().any(|value| value.is_nan()) {
                return Some(Number::Float(f64::NAN));
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
            if T::IS_FLOAT {
                return Some(Number::Float(interpolate(first.to_f64(), next.to_f64(), fraction)));
            }
            let (a, b) = (first.to_i128(), next.to_i128());
            Some(if a == b { Number::Int(a) } else { Number::Float(interpolate_integers(a, b, fraction)) })
        }, else => None)
    }
}

/// Linear interpolation from one value to a larger one. From or to an infinity, the difference is infinite.
fn interpolate(a: f64, b: f64, fraction: f64) -> f64 {
    let way = b - a;
    match (a == b, a.is_infinite() || b.is_infinite()) {
        (true, _) => a,
        (_, true) => a + b,
        _ if way.is_finite() => a + way * fraction,
        _ => a * (1.0 - fraction) + b * fraction,
    }
}

/// Linear interpolation between integers: integral steps stay integers, so that large values are rounded once.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::float_cmp)]
fn interpolate_integers(a: i128, b: i128, fraction: f64) -> f64 {
    if fraction == 0.5 {
        return (a + b) as f64 / 2.0;
    }
    let way = (b - a) as f64 * fraction;
    (a + way.floor() as i128) as f64 + (way - way.floor())
}

impl Reducer {
    /// Whether the reducer needs the fiber position of each cell.
    pub(super) fn indexed(&self) -> bool {
        matches!(self, Self::ArgMin | Self::ArgMax)
    }
}
