//! Decoding: stored bytes of a chunk become cells.

pub(crate) mod bits;
pub(crate) mod chunk;
pub(crate) mod columns;
pub(crate) mod variable_length;
