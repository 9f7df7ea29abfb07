//! Results of queries, and conversion of states to results.

use std::path::PathBuf;

use tesseral_core::DType;
pub use tesseral_engine::fold::Answer;
use tesseral_engine::fold::{Finish, FoldState};

use super::document::{Operation, Reduction};
use super::plan::statistic;

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
    /// The parts of times that cells are grouped by, in the order of the results.
    pub group_labels: Option<Vec<String>>,
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

/// Finalizes a state. Results that include a NaN are NaN; extremes, positions and counts skip it.
pub(super) fn answer(operation: &Operation, state: &FoldState, dtype: DType) -> Answer {
    let skip_nan = matches!(
        operation.reduction,
        Reduction::Min
            | Reduction::Max
            | Reduction::NanMean
            | Reduction::NanStd
            | Reduction::Mode
            | Reduction::Any
    );
    let how = Finish { skip_nan, ..Finish::default() };
    plain(statistic(operation).answer(state, dtype, how))
}

/// Cells as numbers; integers are exact.
pub(super) fn plain(answer: Answer) -> Answer {
    let Answer::Value(value) = answer else { return answer };
    value.as_i128().map(Answer::Int).or_else(|| value.as_f64().map(Answer::Float)).unwrap_or(Answer::None)
}
