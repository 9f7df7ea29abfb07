//! Hot loops over plain slices, each tested against a naive loop.
//!
//! Kernels do no I/O, spawn no threads and know nothing of chunks: bytes in, numbers or bytes out. Those that reduce cells are in
//! `reduce::kernel`.

pub mod cast;
pub mod compare;
pub mod copy;
