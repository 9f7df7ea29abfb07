//! Query documents: Tetration's flat JSON or TOML objects, on arrays of any format.
//!
//! [`Document::parse`] reads and checks one, [`Plan::new`] fits it to an array, [`Plan::run`] answers. A plan also
//! [splits](Plan::split) into jobs that are plain data: threads, processes and schedulers run them apart and
//! [merge](Plan::merge) what they give, to the same bits as the whole.
//!
//! ```
//! # fn main() -> Result<(), tesseral::Error> {
//! let document = tesseral::query::Document::parse(r#"{"dataset": "sst", "mean": ["time"]}"#)?;
//! assert_eq!(document.dataset, "sst");
//! assert!(tesseral::query::Document::parse(r#"{"dataset": "sst", "average": []}"#).is_err());
//! # Ok(())
//! # }
//! ```

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
    AxisRange, AxisToken, Document, Edge, Execution, Filter, GroupBy, LabelFilter, Method, Operation, Pad,
    Reduction, Window, WindowMode, Write, WriteTarget,
};
pub use outcome::{Answer, Outcome, Written};
pub use plan::{Job, Plan, Results};
pub use report::{Detail, report};
pub use run::{Settings, find};
