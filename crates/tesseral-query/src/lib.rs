//! Query documents: Tetration's flat JSON or TOML objects, on arrays of any format.
//!
//! [`Document::parse`] parses and validates a document, [`Plan::new`] resolves it against an array, [`Plan::run`] executes it.
//! A plan can be [split](Plan::split) into serializable jobs, which threads, processes or schedulers run separately;
//! [merging](Plan::merge) their results gives the same bits as a single run.
//!
//! ```
//! # fn main() -> Result<(), tesseral::Error> {
//! let document = tesseral::query::Document::parse(r#"{"dataset": "sst", "mean": ["time"]}"#)?;
//! assert_eq!(document.dataset, "sst");
//! assert!(tesseral::query::Document::parse(r#"{"dataset": "sst", "average": []}"#).is_err());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod align;
mod document;
mod execution;
mod matrix;
mod outcome;
mod parse;
mod plan;
mod report;
mod run;
mod spill;
#[cfg(test)]
mod tests;
mod transform;
mod window;

pub use document::{
    AxisRange, AxisToken, Document, Edge, Execution, FilterClause, GroupBy, GroupedBy, LabelFilter, Method,
    Operation, Pad, Reduction, WindowClause, WindowMode, WriteClause, WriteTarget,
};
pub use outcome::{Answer, QueryOutcome, Written};
pub use plan::Plan;
pub use report::{Detail, report, to_json};
pub use run::{QueryOptions, find};
pub use tesseral_engine::fold::{Job, Results};
