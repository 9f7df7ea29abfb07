//! Hot loops over plain slices, each beside the naive loop it must agree with.
//!
//! Nothing here reads files, spawns threads or knows chunks: bytes in, numbers or bytes out. Every kernel gives the
//! same bits on every machine: the order of floating-point operations is written out with a fixed number of lanes,
//! and wider registers only change how many of those lanes one instruction serves.

pub mod axis;
pub(crate) mod block;
pub mod cast;
pub mod compare;
pub mod copy;
pub mod summary;
#[cfg(test)]
mod testing;
