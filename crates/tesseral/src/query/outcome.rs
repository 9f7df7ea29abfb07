//! What a query gave, and how states become answers.

use std::path::PathBuf;

use tesseral_core::{DType, Scalar, Sum, dtype::Class};
use tesseral_engine::fold::{Number, State};

use super::document::{Operation, Reduction};

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// An integer, exactly.
    Int(i128),
    /// A float.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// Counts in bins.
    Counts(Vec<u64>),
    /// There is none: no cell counted.
    None,
}

/// A file that a query wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Bytes of cells in it.
    pub bytes: u64,
}

/// What a query gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Results along each axis that is left; `None` for one result over everything.
    pub shape: Option<Vec<u64>>,
    /// The results, row-major.
    pub answers: Vec<Answer>,
    /// Further statistics, by key: those a transform is made with.
    pub statistics: Vec<(&'static str, Vec<Answer>)>,
    /// Edges of the bins of one histogram.
    pub edges: Option<Vec<f64>>,
    /// Cells that counted, for one result over everything; cells selected otherwise.
    pub elements: Option<u64>,
    /// Results of `group_by`.
    pub groups: Option<u64>,
    /// Windows along the axis.
    pub windows: Option<u64>,
    /// Chunks that statistics left unread.
    pub skipped: u64,
    /// First cells of the selection, as bytes, and whether there are more.
    pub preview: Option<(Vec<u8>, bool)>,
    /// Axes compared, one by one.
    pub alignment: Option<serde_json::Value>,
    /// A file that was written.
    pub written: Option<Written>,
    /// Cells that a transform could not divide: how many, and the first of them.
    pub undivided: Option<(u64, Vec<u64>)>,
    /// By how much of itself a quantile may be off.
    pub accuracy: Option<f64>,
    /// How memory was used.
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

/// A cell, integers exactly.
pub(super) fn of_scalar(value: Option<Scalar>) -> Answer {
    let Some(value) = value else { return Answer::None };
    value.as_i128().map(Answer::Int).or_else(|| value.as_f64().map(Answer::Float)).unwrap_or(Answer::None)
}

/// The answer that a state holds.
pub(super) fn answer(operation: &Operation, state: &State, dtype: DType) -> Answer {
    let float = dtype.class() == Class::Float;
    let count = |n: u64| Answer::Int(n.into());
    match (operation.reduction, state) {
        (reduction, State::Summary(summary)) => {
            // What is computed with a NaN is one; the others look past them.
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
        (_, State::Product(product)) => product.value(float).into(),
        (Reduction::NormL1, State::Norms(norms)) => norms.l1(float).into(),
        (_, State::Norms(norms)) => Answer::Float(norms.l2(float)),
        (_, State::Arg(arg)) => arg.index().map_or(Answer::None, count),
        (_, State::Values(values)) => values.quantile(dtype, operation.q).map_or(Answer::None, Answer::from),
        (_, State::Sketch(sketch)) => sketch.quantile(operation.q).into(),
        (_, State::Histogram { counts, .. }) => Answer::Counts(counts.clone()),
        (_, State::Count(n)) => count(*n),
    }
}
