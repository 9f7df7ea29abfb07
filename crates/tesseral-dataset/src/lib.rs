//! Datasets of all formats: opened [containers](Container) with their [arrays](Array) and [variables](Variables), creation
//! ([`Create`]), appends and edits ([`Append`], [`edit`]) and atomic [outputs](Output).
//!
//! Parses selections and conditions, and resolves questions about cells ([`StatisticsQuery`]). Formats are found through the
//! registry.
#![forbid(unsafe_code)]

mod advise;
mod append;
mod array;
mod as_of;
mod asynchronous;
mod cells;
mod container;
mod copy;
mod create;
mod declare;
mod filter;
mod labels;
mod output;
mod overview;
mod pivot;
mod recover;
mod reduction;
mod repair;
mod roles;
mod select;
mod time_condition;
#[cfg(feature = "ndarray")]
mod typed;
pub mod variable;
mod window;

pub use advise::{ChunkAdvice, ReadCost, advise};
pub use append::{Append, condition, edit, edit_store};
pub use array::Array;
pub use as_of::as_of;
pub use asynchronous::{AsyncResult, AsyncResults};
pub use cells::CellQuery;
pub use container::{Container, Open, open};
pub use copy::{CopiedDataset, copy_dataset};
pub use create::{ArrayId, Create, Session};
pub use declare::declared_field;
pub use output::{Output, StagedOutput};
pub use overview::{Overview, Point, overview, overview_within};
pub use recover::recover;
pub use reduction::{AnswerAxis, Asked, Rolling, StatisticsQuery, TimeGroups, paired, time_groups, weights};
pub use repair::{apply_repair, remove_unfinished, repairs, unfinished};
pub use variable::{Variable, Variables};
pub use window::{CoordinateRange, PositionRange, SelectedCells};
