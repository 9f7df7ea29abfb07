//! Planning: chunks that serve a request, their overlaps, and limits on work and memory.

pub(crate) mod blocks;
pub(crate) mod condition;
pub(crate) mod expansion;
pub(crate) mod groups;
pub(crate) mod rechunk;
pub(crate) mod subdivide;
