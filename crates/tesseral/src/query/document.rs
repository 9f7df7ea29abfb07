//! What a query document says, once it was read and checked by itself.

use tesseral_engine::fold::{Compare, Number};

/// A query document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The array: its name, or a field of the only array.
    pub dataset: String,
    /// Accepted and otherwise unused.
    pub layout_version: Option<u32>,
    /// One range per axis; all of the array when absent.
    pub selection: Option<Vec<AxisRange>>,
    /// Which cells count.
    pub filter: Option<Filter>,
    /// Which positions of an axis count.
    pub label_filter: Option<LabelFilter>,
    /// One result per position, or per label, of some axes.
    pub group_by: Option<GroupBy>,
    /// One result per window along an axis.
    pub window: Option<Window>,
    /// Compares axes with those of another array.
    pub align: Option<(String, Vec<AxisToken>)>,
    /// What to compute; cells are shown when absent.
    pub operation: Option<Operation>,
    /// Where to write the selected cells.
    pub spill: Option<String>,
    /// Where to write transformed cells.
    pub write: Option<Write>,
    /// How to run.
    pub execution: Execution,
}

/// An axis by number or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisToken {
    /// From 0.
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
    /// A label, by its exact text.
    Label(String),
}

/// A half-open range of positions along one axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AxisRange {
    /// The first position; 0 when absent.
    pub start: Option<Edge>,
    /// One past the last; the end when absent.
    pub stop: Option<Edge>,
    /// Distance between positions; 1 when absent.
    pub step: Option<u64>,
}

/// A condition on cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Comparisons, all of which hold.
    pub compare: Vec<(Compare, Number)>,
    /// Only null cells, or only others.
    pub null: Option<bool>,
}

/// Positions of an axis by their label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFilter {
    /// The axis.
    pub axis: AxisToken,
    /// The label.
    pub eq: String,
}

/// Axes with one result per position or per label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBy {
    /// The axes.
    pub axes: Vec<AxisToken>,
    /// Positions with the same label go together.
    pub labels: bool,
}

/// How windows follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WindowMode {
    Bins,
    Rolling,
}

/// What stands where a window reaches past the axis.
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
pub struct Window {
    /// The axis.
    pub axis: AxisToken,
    /// Positions of a window.
    pub size: u64,
    /// How they follow one another.
    pub mode: WindowMode,
    /// What stands past the axis.
    pub pad: Pad,
    /// Distance between rolling windows.
    pub step: u64,
    /// Runs end where the axis ends; rolling windows reach past its end instead of before its start.
    pub align_end: bool,
    /// Fewer cells than this give no result.
    pub min_count: u64,
}

/// A reduction by name.
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
    Transform,
}

impl Reduction {
    /// All there are.
    pub const ALL: [Self; 26] = [
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
        Self::Transform,
    ];

    /// The key in documents.
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
            Self::Transform => "transform",
        }
    }

    /// The reduction of that key.
    pub fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reduction| reduction.key() == key)
    }

    /// Whether states of fixed size suffice, so that windows can take it.
    pub fn streams(self) -> bool {
        !matches!(
            self,
            Self::Median
                | Self::Quantile
                | Self::Histogram
                | Self::Covariance
                | Self::Correlation
                | Self::Transform
        )
    }
}

/// How cells are transformed.
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
    /// All there are.
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

    /// The name in documents.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
}

/// What to compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The reduction.
    pub reduction: Reduction,
    /// Over which axes; all of them when empty.
    pub axes: Vec<AxisToken>,
    /// `quantile`: which.
    pub q: f64,
    /// `quantile`: within this fraction of the value instead of exactly.
    pub sketch: Option<f64>,
    /// `histogram`: how many bins.
    pub bins: u32,
    /// `histogram`: from where to where.
    pub range: Option<(Number, Number)>,
    /// `null_count`: what counts as missing.
    pub fill: Option<Number>,
    /// `transform`: how.
    pub method: Option<Method>,
}

/// Where transformed cells go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WriteTarget {
    #[default]
    Switch,
    Ram,
    Spill,
    Sidecar,
}

/// Where and how transformed cells are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where to.
    pub target: WriteTarget,
    /// The file.
    pub path: Option<String>,
    /// Whether the name of a new file says when it was made.
    pub timestamp: bool,
}

/// How to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Execution {
    /// Memory in bytes.
    pub memory_budget_bytes: Option<u64>,
    /// Memory in hundredths of a percent of what is available.
    pub memory_budget_bps: Option<u16>,
    /// Accepted: folds are always parallel, and their results never depend on it.
    pub fold_parallel: Option<bool>,
    /// Accepted when it is the processor.
    pub device: Option<String>,
}
