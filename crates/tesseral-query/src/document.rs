//! A parsed and validated query document.

use tesseral_core::calendar::TimePart;
use tesseral_core::condition::Op;
use tesseral_engine::fold::Number;

/// A query document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Name of the array, or a field of the only array.
    pub dataset: String,
    /// Accepted and ignored.
    pub layout_version: Option<u32>,
    /// One range per axis; the whole array if absent.
    pub selection: Option<Vec<AxisRange>>,
    /// Condition of the cells.
    pub filter: Option<FilterClause>,
    /// Selection of positions of an axis by label.
    pub label_filter: Option<LabelFilter>,
    /// One result per position, or per label, of some axes.
    pub group_by: Option<GroupBy>,
    /// One result per window along an axis.
    pub window: Option<WindowClause>,
    /// Weights of a sum or mean: a variable, or `cos(axis)`.
    pub weights: Option<String>,
    /// Comparison of axes with those of another array.
    pub align: Option<(String, Vec<AxisToken>)>,
    /// The reduction; if absent, cells are shown.
    pub operation: Option<Operation>,
    /// Output of the selected cells.
    pub spill: Option<String>,
    /// Output of transformed cells.
    pub write: Option<WriteClause>,
    /// Execution options.
    pub execution: Execution,
}

/// An axis by index or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisToken {
    /// Index, from 0.
    Number(usize),
    /// A dimension's name.
    Name(String),
}

impl std::fmt::Display for AxisToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// One end of a range: a position or a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A position.
    Position(u64),
    /// A label, compared exactly.
    Label(String),
}

/// A half-open range of positions along one axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AxisRange {
    /// First position; 0 if absent.
    pub start: Option<Edge>,
    /// Exclusive end; the extent if absent.
    pub stop: Option<Edge>,
    /// Step; 1 if absent.
    pub step: Option<u64>,
}

/// A condition on cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterClause {
    /// Comparisons, all of which must be true.
    pub compare: Vec<(Op, Number)>,
    /// Only null cells, or only valid ones.
    pub null: Option<bool>,
}

/// Positions of an axis with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFilter {
    /// The axis to search.
    pub axis: AxisToken,
    /// The label.
    pub eq: String,
}

/// Axes with one result per position, per label or per part of the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBy {
    /// The axes.
    pub axes: Vec<AxisToken>,
    /// Key of a group of positions.
    pub by: GroupedBy,
}

/// Key of a group of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupedBy {
    /// Nothing: each position is a group.
    Position,
    /// The label.
    Label,
    /// A part of the time.
    Time(TimePart),
}

/// Kind of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WindowMode {
    Bins,
    Rolling,
}

/// Values past the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Pad {
    None,
    Zero,
    Nan,
    Fill,
}

/// Windows along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowClause {
    /// The axis of the windows.
    pub axis: AxisToken,
    /// Number of positions of a window.
    pub size: u64,
    /// Kind of the windows.
    pub mode: WindowMode,
    /// Values past the axis.
    pub pad: Pad,
    /// Step between rolling windows.
    pub step: u64,
    /// Bins end at the end of the axis; rolling windows extend past its end instead of before its start.
    pub align_end: bool,
    /// Minimum number of valid cells for a result.
    pub min_count: u64,
}

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reduction {
    Sum,
    Mean,
    Min,
    Max,
    Count,
    Var,
    Std,
    Product,
    NormL1,
    NormL2,
    AllFinite,
    AnyNan,
    AnyInf,
    ArgMin,
    ArgMax,
    Median,
    NanCount,
    InfCount,
    NanMean,
    NanStd,
    Covariance,
    Correlation,
    Quantile,
    Histogram,
    NullCount,
    Mode,
    Any,
    All,
    First,
    Last,
    Transform,
}

impl Operation {
    /// Returns whether the result is a matrix of the variables of a table.
    pub fn is_matrix(&self) -> bool {
        matches!(self.reduction, Reduction::Covariance | Reduction::Correlation) && self.with.is_none()
    }
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Self; 31] = [
        Self::Sum,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::Count,
        Self::Var,
        Self::Std,
        Self::Product,
        Self::NormL1,
        Self::NormL2,
        Self::AllFinite,
        Self::AnyNan,
        Self::AnyInf,
        Self::ArgMin,
        Self::ArgMax,
        Self::Median,
        Self::NanCount,
        Self::InfCount,
        Self::NanMean,
        Self::NanStd,
        Self::Covariance,
        Self::Correlation,
        Self::Quantile,
        Self::Histogram,
        Self::NullCount,
        Self::Mode,
        Self::Any,
        Self::All,
        Self::First,
        Self::Last,
        Self::Transform,
    ];

    /// Key in documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
            Self::Var => "var",
            Self::Std => "std",
            Self::Product => "product",
            Self::NormL1 => "norm_l1",
            Self::NormL2 => "norm_l2",
            Self::AllFinite => "all_finite",
            Self::AnyNan => "any_nan",
            Self::AnyInf => "any_inf",
            Self::ArgMin => "arg_min",
            Self::ArgMax => "arg_max",
            Self::Median => "median",
            Self::NanCount => "nan_count",
            Self::InfCount => "inf_count",
            Self::NanMean => "nan_mean",
            Self::NanStd => "nan_std",
            Self::Covariance => "covariance",
            Self::Correlation => "correlation",
            Self::Quantile => "quantile",
            Self::Histogram => "histogram",
            Self::NullCount => "null_count",
            Self::Mode => "mode",
            Self::Any => "any",
            Self::All => "all",
            Self::First => "first",
            Self::Last => "last",
            Self::Transform => "transform",
        }
    }

    /// Parses a key.
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reduction| reduction.key() == key)
    }

    /// Returns whether its state has a fixed size, so that windows support it.
    pub fn streams(self) -> bool {
        !matches!(
            self,
            Self::Median
                | Self::Quantile
                | Self::Mode
                | Self::Histogram
                | Self::Covariance
                | Self::Correlation
                | Self::Transform
        )
    }
}

/// Kind of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    Center,
    Scale,
    Zscore,
    Minmax,
    L1,
    L2,
    Log1p,
    Sqrt,
    Softmax,
}

impl Method {
    /// All transforms.
    pub const ALL: [(&'static str, Self); 9] = [
        ("center", Self::Center),
        ("scale", Self::Scale),
        ("zscore", Self::Zscore),
        ("minmax", Self::Minmax),
        ("l1", Self::L1),
        ("l2", Self::L2),
        ("log1p", Self::Log1p),
        ("sqrt", Self::Sqrt),
        ("softmax", Self::Softmax),
    ];

    /// Name in documents.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
}

/// The requested reduction.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The reduction.
    pub reduction: Reduction,
    /// Axes to reduce; empty for all.
    pub axes: Vec<AxisToken>,
    /// `quantile`: the probability.
    pub q: f64,
    /// `quantile`: relative error of an approximation; exact if absent.
    pub sketch: Option<f64>,
    /// `histogram`: number of bins.
    pub bins: u32,
    /// `histogram`: range of values.
    pub range: Option<(Number, Number)>,
    /// `null_count`: the missing value.
    pub fill: Option<Number>,
    /// `covariance`, `correlation`: the second variable; without one, a matrix of the variables of a table.
    pub with: Option<String>,
    /// `transform`: the kind.
    pub method: Option<Method>,
}

/// Destination of transformed cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WriteTarget {
    #[default]
    Switch,
    Ram,
    Spill,
    Sidecar,
}

/// Output of transformed cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteClause {
    /// Destination.
    pub target: WriteTarget,
    /// Path of the file.
    pub path: Option<String>,
    /// Whether the name of a new file contains a timestamp.
    pub timestamp: bool,
}

/// Execution options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Execution {
    /// Memory limit in bytes.
    pub memory_budget_bytes: Option<u64>,
    /// Memory limit in hundredths of a percent of the available memory.
    pub memory_budget_bps: Option<u16>,
    /// Accepted and ignored: folds are always parallel, and results do not depend on it.
    pub fold_parallel: Option<bool>,
    /// Accepted if it is the CPU.
    pub device: Option<String>,
}
