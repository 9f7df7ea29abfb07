//! Chunk statistics and their exactness.

use crate::Scalar;

/// A statistic with its exactness. An inexact bound can be used for pruning; only an exact value can be returned as a result.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Stat<T> {
    /// The exact value.
    Exact(T),
    /// A safe bound: a minimum that can be too low, a maximum or count that can be too high.
    Bound(T),
    /// Unknown.
    #[default]
    Absent,
}

impl<T> Stat<T> {
    /// The value, only when it is exact.
    pub fn exact(&self) -> Option<&T> {
        match self {
            Self::Exact(value) => Some(value),
            _ => None,
        }
    }

    /// The value, exact or a bound.
    pub fn bound(&self) -> Option<&T> {
        match self {
            Self::Exact(value) | Self::Bound(value) => Some(value),
            Self::Absent => None,
        }
    }

    /// The same value as an inexact bound.
    #[must_use]
    pub fn weaken(self) -> Self {
        match self {
            Self::Exact(value) => Self::Bound(value),
            other => other,
        }
    }
}

/// A sum: exact for integers, rounded for floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// Of integers, bools and durations.
    Int(i128),
    /// Of floats.
    Float(f64),
}

impl Sum {
    /// The nearest `f64`.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(sum) => sum as f64,
            Self::Float(sum) => sum,
        }
    }
}

/// The statistics of one field of one chunk.
///
/// Minimum, maximum and sum cover the cells that are neither null nor NaN; without such cells they are [`Stat::Absent`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChunkStats {
    /// Number of cells in the chunk, including nulls.
    pub cells: u64,
    /// Number of null cells: by validity, or equal to one of [`missing`](Self::missing).
    pub nulls: Stat<u64>,
    /// Number of cells that are NaN and not null.
    pub nans: Stat<u64>,
    /// Minimum.
    pub min: Stat<Scalar>,
    /// Maximum.
    pub max: Stat<Scalar>,
    /// Sum of the values.
    pub sum: Stat<Sum>,
    /// The exact sum of the values as the engine serializes it, so that sums of chunks add up to the sum of all without rounding.
    /// Formats store the bytes as they are.
    pub partial_sum: Option<Box<[u8]>>,
    /// The values that are counted as null. A format lists those that its statistics leave out; other missing values of the field are
    /// among the cells that the statistics describe.
    pub missing: Vec<Scalar>,
}

impl ChunkStats {
    /// Statistics of which only the number of cells is known.
    pub fn unknown(cells: u64) -> Self {
        Self { cells, ..Self::default() }
    }

    /// The same values as inexact bounds, for a chunk that is only partially selected.
    #[must_use]
    pub fn weaken(self) -> Self {
        Self {
            cells: self.cells,
            nulls: self.nulls.weaken(),
            nans: self.nans.weaken(),
            min: self.min.weaken(),
            max: self.max.weaken(),
            sum: Stat::Absent,
            partial_sum: None,
            missing: self.missing,
        }
    }
}
