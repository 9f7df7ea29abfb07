//! Folds in general: cells that meet a predicate, dealt out to slots, one state per slot.
//!
//! [`summarize`](crate::summarize) and [`reduce`](crate::reduce) are the fast special cases, and are used here where they
//! fit. A [`Fold`] says what becomes of each axis ([`Role`]), which cells count ([`Predicate`]) and what is kept of them
//! ([`Reducer`]). A selection is cut into [`Unit`]s by the plan alone; the partial result of each is plain data, and merging them
//! in order gives the same bits whoever folded them: one thread, many, or other processes.

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

pub use layout::Role;
pub use predicate::{Compare, Number, Predicate};
pub use rows::fold_rows;
pub use run::{Fold, Folded, Merger, Partial, Unit, fold, fold_unit, units};
pub use sketch::Sketch;
pub use state::{Arg, Reducer, State, Values};
