//! The ranges of positions, as keys in the order of the values.

use multiversion::multiversion;
use tesseral_core::{Result, alloc};

/// The lowest and the highest key of each position, as narrow as the cells; no positions where ranges are not requested.
#[derive(Clone, Debug)]
pub(crate) enum Ranges {
    Narrow { min: Vec<i32>, max: Vec<i32> },
    Wide { min: Vec<i64>, max: Vec<i64> },
}

/// A key of [`Ranges`].
pub(crate) trait KeptKey: Copy + Ord {
    /// Ranges of `n` positions without cells.
    fn empty(n: usize) -> Result<Ranges>;
    /// The keys, if they are of this type.
    fn keys(ranges: &mut Ranges) -> Option<[&mut [Self]; 2]>;
}

macro_rules! kept_keys {
    ($($t:ty, $variant:ident;)*) => {$(
        impl KeptKey for $t {
            fn empty(n: usize) -> Result<Ranges> {
                const WHAT: &str = "the results of a reduction";
                let (min, max) = (alloc::filled(WHAT, <$t>::MAX, n)?, alloc::filled(WHAT, <$t>::MIN, n)?);
                Ok(Ranges::$variant { min, max })
            }
            fn keys(ranges: &mut Ranges) -> Option<[&mut [Self]; 2]> {
                if let Ranges::$variant { min, max } = ranges { Some([min, max]) } else { None }
            }
        }
    )*};
}

kept_keys! {
    i32, Narrow;
    i64, Wide;
}

impl Ranges {
    /// The lowest and the highest key of a position, if ranges are requested; of no meaning without values.
    #[inline]
    pub fn get(&self, i: usize) -> Option<(i64, i64)> {
        match self {
            Self::Narrow { min, max } => Some((i64::from(*min.get(i)?), i64::from(*max.get(i)?))),
            Self::Wide { min, max } => Some((*min.get(i)?, *max.get(i)?)),
        }
    }

    /// Adds a range to a position, which an empty one does not change.
    pub fn add(&mut self, i: usize, (low, high): (i64, i64)) {
        if low > high {
            return;
        }
        match self {
            Self::Narrow { min, max } => {
                // Keys of narrow cells fit.
                if let (Some(min), Some(max)) = (min.get_mut(i), max.get_mut(i)) {
                    (*min, *max) = ((*min).min(low as i32), (*max).max(high as i32));
                }
            }
            Self::Wide { min, max } => {
                if let (Some(min), Some(max)) = (min.get_mut(i), max.get_mut(i)) {
                    (*min, *max) = ((*min).min(low), (*max).max(high));
                }
            }
        }
    }

    /// Adds the ranges of other positions of the same dtype, one to one.
    pub fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Narrow { min, max }, Self::Narrow { min: low, max: high }) => widen(min, max, low, high),
            (Self::Wide { min, max }, Self::Wide { min: low, max: high }) => widen(min, max, low, high),
            _ => {}
        }
    }
}

/// Widens ranges by others. Keys of no cells never do.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn widen<K: KeptKey, N: Copy + Into<K>>(min: &mut [K], max: &mut [K], low: &[N], high: &[N]) {
    for (min, &low) in min.iter_mut().zip(low) {
        *min = low.into().min(*min);
    }
    for (max, &high) in max.iter_mut().zip(high) {
        *max = high.into().max(*max);
    }
}
