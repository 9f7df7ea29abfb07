//! Hot loops over plain slices, each tested against a naive loop.
//!
//! Kernels do no I/O, spawn no threads and know nothing of chunks: bytes in, numbers or bytes out. Every kernel gives the
//! same bits on every machine: the order of floating-point operations is fixed by a constant number of lanes, and wider
//! registers only change how many of those lanes one instruction processes.

pub mod axis;
pub(crate) mod block;
pub mod cast;
pub mod compare;
pub mod copy;
pub mod summary;
#[cfg(test)]
pub(crate) mod testing;
