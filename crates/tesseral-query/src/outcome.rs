//! Results of queries, and conversion of states to results.

use std::path::PathBuf;

use tesseral_core::{DType, Scalar, Sum, dtype::Class};
use tesseral_engine::fold::{FoldState, Number};

use super::document::{Operation, Reduction};

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// An exact integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A Boolean.
    Bool(bool),
    /// Counts of a histogram.
    Counts(Vec<u64>),
    /// No result, because there is no valid cell.
    None,
}

/// A file that a query wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Path of the file.
    pub path: PathBuf,
    /// Size of its cells in bytes.
    pub bytes: u64,
}

/// Result of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryOutcome {
    /// Number of results along each remaining axis; `None` for a single result.
    pub shape: Option<Vec<u64>>,
    /// The results, row-major.
    pub answers: Vec<Answer>,
    /// Additional statistics by key, as used by a transform.
    pub statistics: Vec<(&'static str, Vec<Answer>)>,
    /// Bin edges of a single histogram.
    pub edges: Option<Vec<f64>>,
    /// Number of valid cells of a single result; otherwise number of selected cells.
    pub elements: Option<u64>,
    /// Number of results of `group_by`.
    pub groups: Option<u64>,
    /// Number of windows along the axis.
    pub windows: Option<u64>,
    /// Number of chunks that were pruned by statistics.
    pub skipped: u64,
    /// First cells of the selection, as bytes, and whether there are more.
    pub preview: Option<(Vec<u8>, bool)>,
    /// Comparisons of axes.
    pub alignment: Option<serde_json::Value>,
    /// The written file.
    pub written: Option<Written>,
    /// Number of cells that a transform could not divide, and the first ones.
    pub undivided: Option<(u64, Vec<u64>)>,
    /// Relative error of a quantile.
    pub accuracy: Option<f64>,
    /// Memory use.
    pub strategy: &'static str,
}

impl From<Number> for Answer {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(value) => Self::Int(value),
            Number::Float(value) => Self::Float(value),
        }
    }
}

impl From<Sum> for Answer {
    fn from(sum: Sum) -> Self {
        match sum {
            Sum::Int(value) => Self::Int(value),
            Sum::Float(value) => Self::Float(value),
        }
    }
}

impl From<Option<f64>> for Answer {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::None, Self::Float)
    }
}

/// Converts a cell; integers are exact.
pub(super) fn of_scalar(value: Option<Scalar>) -> Answer {
    let Some(value) = value else { return Answer::None };
    value.as_i128().map(Answer::Int).or_else(|| value.as_f64().map(Answer::Float)).unwrap_or(Answer::None)
}

/// Finalizes a state.
pub(super) fn answer(operation: &Operation, state: &FoldState, dtype: DType) -> Answer {
    let float = dtype.class() == Class::Float;
    let count = |n: u64| Answer::Int(n.into());
    match (operation.reduction, state) {
        (reduction, FoldState::Summary(summary)) => {
            // Results that include a NaN are NaN; others skip it.
            let spoiled = |value: Answer| if summary.nans() > 0 { Answer::Float(f64::NAN) } else { value };
            let infinite = || {
                let edges = [summary.min(), summary.max()];
                edges.into_iter().flatten().any(|v| v.as_f64().is_some_and(f64::is_infinite))
            };
            match reduction {
                Reduction::Sum => spoiled(summary.sum().map_or(Answer::None, Answer::from)),
                Reduction::Mean => spoiled(summary.mean().into()),
                Reduction::Var => spoiled(summary.variance().into()),
                Reduction::Std => spoiled(summary.std().into()),
                Reduction::NanMean => summary.mean().into(),
                Reduction::NanStd => summary.std().into(),
                Reduction::Min => of_scalar(summary.min()),
                Reduction::Max => of_scalar(summary.max()),
                Reduction::Count => count(summary.count()),
                Reduction::NanCount => count(summary.nans()),
                Reduction::InfCount => summary.infinities().map_or(Answer::None, count),
                Reduction::AnyNan => Answer::Bool(summary.nans() > 0),
                Reduction::AnyInf => Answer::Bool(infinite()),
                Reduction::AllFinite => Answer::Bool(summary.nans() == 0 && !infinite()),
                _ => Answer::None,
            }
        }
        (_, FoldState::Product(product)) => product.value(float).into(),
        (Reduction::NormL1, FoldState::Norms(norms)) => norms.l1(float).into(),
        (_, FoldState::Norms(norms)) => Answer::Float(norms.l2()),
        (_, FoldState::Arg(arg)) => arg.index().map_or(Answer::None, count),
        (_, FoldState::Values(values)) => {
            values.quantile(dtype, operation.q).map_or(Answer::None, Answer::from)
        }
        (_, FoldState::Sketch(sketch)) => sketch.quantile(operation.q).into(),
        (_, FoldState::Histogram { counts, .. }) => Answer::Counts(counts.clone()),
        (_, FoldState::Count(n)) => count(*n),
    }
}
