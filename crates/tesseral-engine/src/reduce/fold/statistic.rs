//! Statistics by name, and their values from a state.

use std::fmt;

use bytemuck::Zeroable;
use tesseral_core::calendar::TimeCount;
use tesseral_core::dtype::Class;
use tesseral_core::{DType, Scalar, Sum, dispatch_element};

use super::histogram::Histogram;
use super::number::Number;
use super::question::FloatColumn;
use super::state::{FoldState, Reducer};
use crate::reduce::axes::Reduced;
use crate::reduce::kernel::axis::AxisFold;
use crate::reduce::kernel::summary::{StatSet, Summary};

/// A statistic of the cells of a slot. Missing cells have no value; [`Finish`] defines the effect of a NaN.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Statistic {
    /// Number of values that are not NaN.
    Count,
    /// Number of cells, including missing ones.
    Cells,
    /// Number of missing cells, and of those equal to a number.
    NullCount(Option<Number>),
    /// Number of NaNs.
    NanCount,
    /// Number of infinities.
    InfCount,
    /// Sum; weighted where the fold has weights.
    Sum,
    /// Arithmetic mean; weighted where the fold has weights.
    Mean,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Variance.
    Var,
    /// Standard deviation.
    Std,
    /// Product.
    Product,
    /// Sum of magnitudes.
    NormL1,
    /// Square root of the sum of squares.
    NormL2,
    /// Quantile by linear interpolation; the median is the quantile of 0.5.
    Quantile(f64),
    /// Most frequent value; the smallest if there are several.
    Mode,
    /// Whether any value differs from 0.
    Any,
    /// Whether all values differ from 0.
    All,
    /// Position of the first smallest value along the reduced axes.
    ArgMin,
    /// Position of the first largest value along the reduced axes.
    ArgMax,
    /// First value.
    First,
    /// Last value.
    Last,
    /// Whether there is a NaN.
    AnyNan,
    /// Whether there is an infinity.
    AnyInf,
    /// Whether all values are finite.
    AllFinite,
    /// Counts in equal bins between two numbers.
    Histogram(Histogram),
    /// Covariance with the second variable.
    Covariance,
    /// Correlation with the second variable.
    Correlation,
}

/// How an answer is computed from a state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// Delta degrees of freedom of a variance.
    pub ddof: f64,
    /// NaNs are excluded; otherwise they make the result NaN, if it has a value.
    pub skip_nan: bool,
    /// Means of integers are exact quotients, as times require.
    pub quotients: bool,
}

impl Default for Finish {
    fn default() -> Self {
        Self { ddof: 0.0, skip_nan: true, quotients: false }
    }
}

/// The kind of a statistic of times. A sum of dates is undefined, because it depends on the reference date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfTimes {
    /// A time; of a histogram, the edges are.
    Time,
    /// A length of time.
    Duration,
    /// A number, a Boolean or a position.
    Number,
    /// Not defined.
    Undefined,
}

/// One result.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    /// There is no value to answer from.
    #[default]
    None,
    /// An exact integer.
    Int(i128),
    /// An exact quotient of a sum and a count.
    Quotient(i128, u64),
    /// A float.
    Float(f64),
    /// A Boolean.
    Bool(bool),
    /// A cell.
    Value(Scalar),
    /// Counts of a histogram.
    Counts(Vec<u64>),
}

impl Answer {
    /// The answer as a count of time; `None` if it is none, NaT, or no number.
    pub fn time_count(&self) -> Option<TimeCount> {
        match self {
            Self::Int(count) => Some(TimeCount::Int(*count)),
            Self::Quotient(sum, count) => Some(TimeCount::Quotient(*sum, *count)),
            Self::Float(count) => Some(TimeCount::Float(*count)),
            Self::Value(cell) => TimeCount::of_cell(cell),
            Self::None | Self::Bool(_) | Self::Counts(_) => None,
        }
    }
}

impl From<Option<f64>> for Answer {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::None, Self::Float)
    }
}

impl From<Option<Scalar>> for Answer {
    fn from(value: Option<Scalar>) -> Self {
        value.map_or(Self::None, Self::Value)
    }
}

impl From<Option<Sum>> for Answer {
    fn from(sum: Option<Sum>) -> Self {
        match sum {
            Some(Sum::Int(sum)) => Self::Int(sum),
            Some(Sum::Float(sum)) => Self::Float(sum),
            None => Self::None,
        }
    }
}

impl From<Number> for Answer {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(value) => Self::Int(value),
            Number::Float(value) => Self::Float(value),
        }
    }
}

/// The reducers that some statistics need, each once, and the index of each statistic's.
pub fn reducers(statistics: &[Statistic], weighted: bool, sketch: Option<f64>) -> (Vec<Reducer>, Vec<usize>) {
    let mut found: Vec<Reducer> = Vec::new();
    let mut places = Vec::with_capacity(statistics.len());
    for statistic in statistics {
        let wanted = statistic.reducer(weighted, sketch);
        let known = found.iter_mut().position(|reducer| match (reducer, &wanted) {
            // One summary serves all of them.
            (Reducer::Summary(set), Reducer::Summary(more)) => {
                *set = *set | *more;
                true
            }
            (Reducer::Weighted { spread }, Reducer::Weighted { spread: more }) => {
                *spread |= *more;
                true
            }
            (known, wanted) => *known == *wanted,
        });
        places.push(known.unwrap_or_else(|| {
            found.push(wanted);
            found.len() - 1
        }));
    }
    (found, places)
}

impl Statistic {
    /// Statistics without parameters, by name.
    const NAMED: [(&'static str, Self); 24] = [
        ("count", Self::Count),
        ("cells", Self::Cells),
        ("null_count", Self::NullCount(None)),
        ("nan_count", Self::NanCount),
        ("inf_count", Self::InfCount),
        ("sum", Self::Sum),
        ("mean", Self::Mean),
        ("min", Self::Min),
        ("max", Self::Max),
        ("var", Self::Var),
        ("std", Self::Std),
        ("product", Self::Product),
        ("norm_l1", Self::NormL1),
        ("norm_l2", Self::NormL2),
        ("median", Self::Quantile(0.5)),
        ("mode", Self::Mode),
        ("any", Self::Any),
        ("all", Self::All),
        ("argmin", Self::ArgMin),
        ("argmax", Self::ArgMax),
        ("first", Self::First),
        ("last", Self::Last),
        ("cov", Self::Covariance),
        ("corr", Self::Correlation),
    ];

    /// The names of statistics without parameters.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().map(|(name, _)| *name)
    }

    /// The statistic of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, statistic)| statistic.clone())
    }

    /// Whether weights change the statistic, or it needs none: counts, extremes and positions.
    pub(super) fn takes_weights(&self) -> bool {
        !matches!(
            self,
            Self::Product
                | Self::NormL1
                | Self::NormL2
                | Self::Mode
                | Self::Histogram(_)
                | Self::Covariance
                | Self::Correlation
        )
    }

    /// Whether the statistic is one of two variables.
    pub fn is_paired(&self) -> bool {
        matches!(self, Self::Covariance | Self::Correlation)
    }

    /// The kind of the result for cells that are times.
    pub fn of_times(&self) -> OfTimes {
        match self {
            Self::Min
            | Self::Max
            | Self::Mean
            | Self::Quantile(_)
            | Self::Mode
            | Self::First
            | Self::Last
            | Self::Histogram(_) => OfTimes::Time,
            Self::Std => OfTimes::Duration,
            Self::Sum | Self::Var | Self::Product | Self::NormL1 | Self::NormL2 | Self::Covariance => {
                OfTimes::Undefined
            }
            _ => OfTimes::Number,
        }
    }

    /// The state that the answer is computed from.
    fn reducer(&self, weighted: bool, sketch: Option<f64>) -> Reducer {
        match self {
            Self::Sum | Self::Mean if weighted => Reducer::Weighted { spread: false },
            Self::Quantile(_) if weighted => Reducer::WeightedValues,
            Self::Var | Self::Std if weighted => Reducer::Weighted { spread: true },
            Self::Count | Self::Cells | Self::NanCount | Self::AnyNan => Reducer::Summary(StatSet::COUNTS),
            Self::Sum | Self::Mean => Reducer::Summary(StatSet::SUM),
            Self::Min | Self::Max | Self::AnyInf | Self::AllFinite => Reducer::Summary(StatSet::RANGE),
            Self::Var | Self::Std => Reducer::Summary(StatSet::SPREAD),
            Self::InfCount => Reducer::Summary(StatSet::INFINITIES),
            Self::NullCount(fill) => Reducer::Nulls(*fill),
            Self::Product => Reducer::Product,
            Self::NormL1 | Self::NormL2 => Reducer::Norms,
            Self::Quantile(_) => sketch.map_or(Reducer::Values, Reducer::Sketch),
            Self::Mode => Reducer::Values,
            Self::Any | Self::All => Reducer::Truth,
            Self::ArgMin => Reducer::ArgMin,
            Self::ArgMax => Reducer::ArgMax,
            Self::First => Reducer::First,
            Self::Last => Reducer::Last,
            Self::Histogram(histogram) => Reducer::Histogram(histogram.clone()),
            Self::Covariance | Self::Correlation => Reducer::Pairs,
        }
    }

    /// The answer from a state; `None` if the state is not of this statistic.
    pub fn answer(&self, state: &FoldState, dtype: DType, how: Finish) -> Answer {
        let float = dtype.class() == Class::Float;
        let unless_nan = |nans: u64, answer: Answer| {
            if nans > 0 && !how.skip_nan { Answer::Float(f64::NAN) } else { answer }
        };
        let count = |n: u64| Answer::Int(n.into());
        match (self, state) {
            (_, FoldState::Summary(summary)) => self.of_summary(summary, how),
            (_, FoldState::Product(product)) => unless_nan(product.nans(), product.value(float).into()),
            (Self::NormL1, FoldState::Norms(norms)) => unless_nan(norms.nans(), norms.l1(float).into()),
            (_, FoldState::Norms(norms)) => unless_nan(norms.nans(), Answer::Float(norms.l2())),
            (_, FoldState::Arg(arg)) => arg.index().map_or(Answer::None, count),
            (_, FoldState::Edge(edge)) => edge.value(dtype).into(),
            (Self::Any, FoldState::Truth(truth)) => {
                Answer::Bool(truth.others > 0 || (truth.nans > 0 && !how.skip_nan))
            }
            (_, FoldState::Truth(truth)) => Answer::Bool(truth.zeros == 0),
            (Self::Mode, FoldState::Values(values)) => {
                unless_nan(values.nans(dtype), values.mode(dtype).into())
            }
            (Self::Quantile(q), FoldState::Values(values)) => {
                unless_nan(values.nans(dtype), values.quantile(dtype, *q).map_or(Answer::None, Answer::from))
            }
            (Self::Quantile(q), FoldState::Sketch(sketch)) => {
                unless_nan(sketch.nans(), sketch.quantile(*q).into())
            }
            (Self::Quantile(q), FoldState::WeightedValues(values)) => {
                unless_nan(values.nans(dtype), values.quantile(dtype, *q).into())
            }
            (Self::Covariance, FoldState::Pairs(pairs)) => unless_nan(
                pairs.nans(),
                with_degrees(pairs.valid(), how.ddof, false, |ddof| pairs.covariance(ddof)),
            ),
            (_, FoldState::Pairs(pairs)) => unless_nan(pairs.nans(), pairs.correlation().into()),
            (_, FoldState::Histogram { counts, .. }) => Answer::Counts(counts.clone()),
            (_, FoldState::Count(n)) => count(*n),
            (Self::Sum, FoldState::Weighted(weighted)) => {
                unless_nan(weighted.nans(), Answer::Float(weighted.sum()))
            }
            (Self::Var, FoldState::Weighted(weighted)) => {
                unless_nan(weighted.nans(), weighted.variance().into())
            }
            (Self::Std, FoldState::Weighted(weighted)) => unless_nan(weighted.nans(), weighted.std().into()),
            (_, FoldState::Weighted(weighted)) => unless_nan(weighted.nans(), weighted.mean().into()),
            _ => Answer::None,
        }
    }

    /// Whether the answers from summaries of cells of a dtype are floats.
    pub(super) fn has_floats(&self, dtype: DType, how: Finish) -> bool {
        let (float, number) = (dtype.class() == Class::Float, dtype.class() != Class::Time);
        match self {
            Self::Min | Self::Max | Self::Sum => float,
            Self::Mean => number && !how.quotients,
            Self::Var | Self::Std => number && how.ddof >= 0.0 && how.ddof.fract() == 0.0,
            _ => false,
        }
    }

    /// The answers from a fold along axes; NaN where there is none, or fewer values than `least`. The statistic [has
    /// floats](Self::has_floats).
    pub(super) fn floats(&self, reduced: &Reduced, dtype: DType, how: Finish, least: u64) -> FloatColumn {
        let excluded =
            |fold: &AxisFold, i: usize| (!how.skip_nan && fold.nans(i) > 0) || fold.valid(i) < least;
        if let Self::Min | Self::Max = self {
            let cells: Vec<u8> = dispatch_element!(dtype, T => {
                let nan = Scalar::parse(dtype, "NaN").ok().and_then(|nan| nan.get::<T>());
                let nan = nan.unwrap_or_else(T::zeroed);
                let cell = |fold: &AxisFold, i: usize| {
                    let value = if *self == Self::Min { fold.low(i) } else { fold.high(i) };
                    value.filter(|_| !excluded(fold, i)).unwrap_or(nan)
                };
                bytemuck::cast_slice(&reduced.collect(cell)).to_vec()
            }, else => Vec::new());
            return FloatColumn::Cells(cells);
        }
        let ddof = how.ddof as u64;
        FloatColumn::Numbers(reduced.collect_runs(|fold, first, out: &mut [f64]| {
            match self {
                Self::Mean => fold.means(first, out),
                Self::Var => fold.spreads(first, ddof, false, out),
                Self::Std => fold.spreads(first, ddof, true, out),
                _ => {
                    let sum = |i: usize| fold.sum(i).map_or(f64::NAN, Sum::to_f64);
                    (first..).zip(&mut *out).for_each(|(i, to)| *to = sum(i));
                }
            }
            if (!how.skip_nan && fold.any_nan()) || least > 0 {
                let excluded = (first..).zip(out).filter(|(i, _)| excluded(fold, *i));
                excluded.for_each(|(_, to)| *to = f64::NAN);
            }
        }))
    }

    /// The answer from a summary, of one slot or of a position of many.
    pub fn of_summary(&self, summary: &impl Summarizing, how: Finish) -> Answer {
        let nans = summary.nans();
        let unless_nan =
            |answer: Answer| if nans > 0 && !how.skip_nan { Answer::Float(f64::NAN) } else { answer };
        let count = |n: u64| Answer::Int(n.into());
        let infinite = || {
            let edges = [summary.min(), summary.max()];
            edges.into_iter().flatten().any(|v| v.as_f64().is_some_and(f64::is_infinite))
        };
        match self {
            Self::Count => count(summary.valid()),
            Self::Cells => count(summary.cells()),
            Self::NanCount => count(nans),
            Self::InfCount => summary.infinities().map_or(Answer::None, count),
            Self::AnyNan => Answer::Bool(nans > 0),
            Self::AnyInf => Answer::Bool(infinite()),
            Self::AllFinite => Answer::Bool(nans == 0 && !infinite()),
            Self::Sum => unless_nan(summary.sum().into()),
            Self::Mean => match summary.sum() {
                Some(Sum::Int(sum)) if how.quotients && summary.valid() > 0 => {
                    Answer::Quotient(sum, summary.valid())
                }
                _ => unless_nan(summary.mean().into()),
            },
            Self::Min => unless_nan(summary.min().into()),
            Self::Max => unless_nan(summary.max().into()),
            Self::Var => unless_nan(with_degrees(summary.valid(), how.ddof, false, |d| summary.variance(d))),
            Self::Std => unless_nan(with_degrees(summary.valid(), how.ddof, true, |d| summary.std(d))),
            _ => Answer::None,
        }
    }
}

/// The name of the statistic, with its parameter.
impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantile(q) => write!(f, "quantile_{q}"),
            Self::NullCount(_) => f.write_str("null_count"),
            Self::AnyNan => f.write_str("any_nan"),
            Self::AnyInf => f.write_str("any_inf"),
            Self::AllFinite => f.write_str("all_finite"),
            Self::Histogram(_) => f.write_str("histogram"),
            _ => {
                f.write_str(Self::NAMED.iter().find(|(_, known)| known == self).map_or("", |(name, _)| name))
            }
        }
    }
}

/// A variance or, with `root`, a standard deviation with `ddof` degrees of freedom less; exact ones where that is an integer.
fn with_degrees(valid: u64, ddof: f64, root: bool, value: impl Fn(u64) -> Option<f64>) -> Answer {
    let cells = valid as f64;
    if valid == 0 || ddof.is_nan() || cells <= ddof {
        return Answer::None;
    }
    if ddof >= 0.0 && ddof.fract() == 0.0 {
        return value(ddof as u64).into();
    }
    let factor = cells / (cells - ddof);
    value(0).map(|v| v * if root { factor.sqrt() } else { factor }).into()
}

/// A summary of the cells of a slot.
pub trait Summarizing {
    /// Cells, including missing ones.
    fn cells(&self) -> u64;
    /// Cells that are neither missing nor NaN.
    fn valid(&self) -> u64;
    /// NaNs.
    fn nans(&self) -> u64;
    /// Infinities, where requested.
    fn infinities(&self) -> Option<u64>;
    /// The sum, where requested.
    fn sum(&self) -> Option<Sum>;
    /// The mean, where requested.
    fn mean(&self) -> Option<f64>;
    /// The minimum, where requested.
    fn min(&self) -> Option<Scalar>;
    /// The maximum, where requested.
    fn max(&self) -> Option<Scalar>;
    /// The variance, where requested, with fewer degrees of freedom than there are cells.
    fn variance(&self, ddof: u64) -> Option<f64>;
    /// The standard deviation, likewise.
    fn std(&self, ddof: u64) -> Option<f64>;
}

/// A position of a fold along axes.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a>(pub &'a AxisFold, pub usize);

macro_rules! summarizing {
    ($type:ty, |$it:ident| ($of:expr $(, $i:expr)?)) => {
        impl Summarizing for $type {
            fn cells(&self) -> u64 {
                let $it = self;
                $of.count($($i)?)
            }
            fn valid(&self) -> u64 {
                let $it = self;
                $of.valid($($i)?)
            }
            fn nans(&self) -> u64 {
                let $it = self;
                $of.nans($($i)?)
            }
            fn infinities(&self) -> Option<u64> {
                let $it = self;
                $of.infinities($($i)?)
            }
            fn sum(&self) -> Option<Sum> {
                let $it = self;
                $of.sum($($i)?)
            }
            fn mean(&self) -> Option<f64> {
                let $it = self;
                $of.mean($($i)?)
            }
            fn min(&self) -> Option<Scalar> {
                let $it = self;
                $of.min($($i)?)
            }
            fn max(&self) -> Option<Scalar> {
                let $it = self;
                $of.max($($i)?)
            }
            fn variance(&self, ddof: u64) -> Option<f64> {
                let $it = self;
                $of.variance_of($($i,)? ddof)
            }
            fn std(&self, ddof: u64) -> Option<f64> {
                let $it = self;
                $of.std_of($($i,)? ddof)
            }
        }
    };
}

summarizing!(Summary, |summary| (summary));
summarizing!(Position<'_>, |position| (position.0, position.1));
