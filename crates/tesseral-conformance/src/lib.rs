//! Tests for implementations of [`Format`](tesseral_format::Format) and for engines that execute their plans.
//!
//! - The [suite] checks a format through the traits alone: [`read_suite`], [`write_suite`], [`sparse_write_suite`].
//! - The [oracle] determines the content of an array with plain loops, as the reference for an engine ([`executor_suite`]).
//! - [`testing`] has formats in memory that exercise every feature of the traits.
//!
//! The crate is a dev-dependency; no shipped crate depends on it.
#![forbid(unsafe_code)]

pub mod oracle;
pub mod suite;
pub mod testing;

pub use suite::{
    Effort, Executor, Expected, Fixture, SparseCase, Violation, WriteCase, digests_match, executor_suite,
    expectations_hold, read_suite, sparse_write_suite, store_suite, write_suite,
};
