//! The one reducer: cells that meet a condition are distributed to slots, with one state per slot, reducer and field.
//!
//! A [`Fold`] defines the role of each axis ([`AxisRole`]) and the states kept of the cells ([`Reducer`]); the request names the
//! fields and the condition. The plan alone divides a selection into [`Unit`]s; the [partial result](Partial) of each is plain
//! data, and merging them gives the same bits whether one thread, many, or other processes folded them. [`Statistic`]s are the
//! public names: each selects the reducer that it needs and computes its answer from the state. Where a fold is a plain summary
//! of all cells, or one along axes, vectorized folds produce the same states.

mod coordinates;
mod distribute;
mod histogram;
mod job;
mod layout;
mod matrix;
mod merger;
mod norms;
mod number;
mod pairs;
mod points;
mod positions;
mod product;
mod question;
mod rows;
mod run;
mod sketch;
mod state;
mod statistic;
#[cfg(test)]
mod tests;
mod weights;
mod wire;

pub use coordinates::summaries_by_coordinate;
pub use histogram::{BinRange, Histogram, ranges};
pub use job::{Job, Results, merge, split};
pub use layout::AxisRole;
pub use matrix::{Matrix, TableBlock};
pub use merger::{Folded, Merger, Partial};
pub use number::Number;
pub use pairs::{Paired, Pairs};
pub use points::{PointMeans, PointRun};
pub use positions::{summaries, summaries_by_position, summary};
pub use question::{Answers, FloatAnswers, FloatColumn, Question};
pub use run::{Fold, Unit, fold, fold_unit, units};
pub use sketch::Sketch;
pub use state::{Arg, FoldState, Reducer, Truth, Values, WeightedValues};
pub use statistic::{Answer, Finish, OfTimes, Position, Statistic, Summarizing, reducers};
pub use weights::{Weighted, Weights};
