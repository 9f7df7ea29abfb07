//! General folds: cells that meet a predicate are distributed to slots, with one state per slot.
//!
//! [`summarize`](crate::summarize) and [`reduce`](crate::reduce::axes) are fast special cases, which are used here where they apply. A
//! [`Fold`] defines the role of each axis ([`AxisRole`]), the cells that count ([`Predicate`]) and the state kept of them
//! ([`Reducer`]). The plan alone divides a selection into [`Unit`]s; the partial result of each is plain data, and merging them
//! in order gives the same bits whether one thread, many, or other processes folded them.

mod bins;
mod layout;
mod norms;
mod predicate;
mod product;
mod rows;
mod run;
mod sketch;
mod state;
#[cfg(test)]
mod tests;
mod wire;

pub use layout::AxisRole;
pub use predicate::{Compare, Number, Predicate};
pub use rows::fold_rows;
pub use run::{Fold, Folded, Merger, Partial, Unit, fold, fold_unit, units};
pub use sketch::Sketch;
pub use state::{Arg, FoldState, Reducer, Values};
