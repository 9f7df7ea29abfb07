//! What is known of a chunk without reading it, and how surely.

use crate::Scalar;

/// A statistic with its exactness. A bound may prune; only an exact one may answer.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Stat<T> {
    /// The number itself.
    Exact(T),
    /// A safe bound: a minimum that may be too low, a maximum or count that may be too high.
    Bound(T),
    /// Nothing is known.
    #[default]
    Absent,
}

impl<T> Stat<T> {
    /// The number, only when it is exact.
    pub fn exact(&self) -> Option<&T> {
        match self {
            Self::Exact(value) => Some(value),
            _ => None,
        }
    }

    /// The number, exact or a bound.
    pub fn bound(&self) -> Option<&T> {
        match self {
            Self::Exact(value) | Self::Bound(value) => Some(value),
            Self::Absent => None,
        }
    }

    /// The same number, no longer trusted to be exact.
    #[must_use]
    pub fn weaken(self) -> Self {
        match self {
            Self::Exact(value) => Self::Bound(value),
            other => other,
        }
    }
}

/// A sum that did not lose anything on the way: integers exactly, floats compensated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// Of integers, bools, durations.
    Int(i128),
    /// Of floats.
    Float(f64),
}

impl Sum {
    /// The nearest `f64`.
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(sum) => sum as f64,
            Self::Float(sum) => sum,
        }
    }
}

/// What is known of one field of one chunk.
///
/// Minimum, maximum and sum are over the cells that are neither null nor NaN; when there is no such cell they are
/// [`Stat::Absent`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChunkStats {
    /// Cells in the chunk, null ones included.
    pub cells: u64,
    /// Null cells: by validity, or equal to the declared fill.
    pub nulls: Stat<u64>,
    /// Cells that are NaN and not null.
    pub nans: Stat<u64>,
    /// Smallest value.
    pub min: Stat<Scalar>,
    /// Largest value.
    pub max: Stat<Scalar>,
    /// Sum of the values.
    pub sum: Stat<Sum>,
}

impl ChunkStats {
    /// Nothing known but the number of cells.
    pub fn unknown(cells: u64) -> Self {
        Self { cells, ..Self::default() }
    }

    /// The same numbers as bounds, for a chunk of which only a part counts.
    #[must_use]
    pub fn weaken(self) -> Self {
        Self {
            cells: self.cells,
            nulls: self.nulls.weaken(),
            nans: self.nans.weaken(),
            min: self.min.weaken(),
            max: self.max.weaken(),
            sum: Stat::Absent,
        }
    }
}
