//! Reducing: statistics of whole arrays, along dimensions, by group, and folds of query documents.

pub(crate) mod axes;
pub mod fold;
pub(crate) mod summary;
pub(crate) mod visit;
