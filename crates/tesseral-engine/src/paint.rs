//! Painting: decoded cells of dense arrays are copied to their positions of the output.

pub(crate) mod dense;
pub(crate) mod scatter;
pub(crate) mod sink;
pub(crate) mod strips;
