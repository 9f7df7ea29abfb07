//! Sums that are exact until they are rounded once.
//!
//! Additions of floats round, so a sum computed with them depends on the order of its terms: on chunks, threads and memory limits.
//! Here terms are added as integers to accumulators wide enough for every term (`fixed`), which is exact and therefore independent of
//! order. Sum, mean, variance, standard deviation and covariance are the correctly rounded values of the exact ones (`digits`):
//! rounded to nearest, ties to even, once. Most cells are added in plain loops over blocks whose sums provably do not round
//! (`block`).
//!
//! # Special values
//!
//! - Infinities are counted separately from the finite sum. With infinities of both signs the sum is NaN, with those of one sign
//!   it is that infinity, and second moments are NaN. NaNs are left to the caller, who counts them.
//! - A sum whose exact value is 0 is +0.0 for any signs of the zeros and of other terms, as that of Python's `math.fsum`. A mean that
//!   underflows keeps its sign.
//! - A sum beyond the largest double is infinite only at the end: larger intermediate sums have no effect.

pub(crate) mod block;
pub(crate) mod columns;
pub(crate) mod digits;
pub(crate) mod fixed;
mod moments;
mod products;
mod quantile;
mod rounding;
pub(crate) mod slots;
pub(crate) mod split;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

pub use moments::Moments;
pub(crate) use moments::{ratio, weighted_spread};
pub use products::Products;
pub(crate) use quantile::weighted_quantile;
