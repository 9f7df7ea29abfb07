//! Merging: rows of sparse arrays are filtered, sorted and combined.

pub(crate) mod dense_rows;
pub(crate) mod join;
pub(crate) mod sparse;
