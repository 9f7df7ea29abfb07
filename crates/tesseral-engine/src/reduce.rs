//! Reducing: all arithmetic on cells, for statistics of whole arrays, along dimensions, by group, and folds of query documents.
//!
//! ```text
//! fold      questions, states of slots, their merges and answers
//! summary, axes, columns   walks over the cells of a selection that feed the kernels
//! kernel    hot loops over plain slices of cells
//! exact     sums that never round, and the one rounding at the end
//! ```

pub(crate) mod axes;
pub(crate) mod columns;
pub mod exact;
pub mod fold;
pub mod kernel;
pub(crate) mod summary;
pub(crate) mod visit;
