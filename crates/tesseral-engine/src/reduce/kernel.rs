//! Hot loops that reduce plain slices, each tested against a naive loop.
//!
//! As other [kernels](crate::kernel), they do no I/O, spawn no threads and know nothing of chunks. Sums are
//! [exact](super::exact), so that the width of registers and the number of lanes do not change a bit of a result.

pub mod axis;
pub(crate) mod block;
pub mod summary;
#[cfg(test)]
pub(crate) mod testing;
