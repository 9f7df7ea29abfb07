//! Hyperrectangular regions of positions.

use std::fmt;

use smallvec::SmallVec;

/// One number per dimension.
pub type Coords = SmallVec<[u64; 4]>;

/// A half-open box of positions, `start..end` along each dimension.
///
/// Rank 0 is the box of the single cell of a scalar.
#[derive(PartialEq, Eq, Hash)]
pub struct Region {
    bounds: SmallVec<[(u64, u64); 4]>,
}

impl Clone for Region {
    /// Copies the bounds at once: plans clone a region for each of very many chunks.
    fn clone(&self) -> Self {
        Self { bounds: SmallVec::from_slice(&self.bounds) }
    }
}

impl Region {
    /// A region with these bounds. An end below its start is treated as empty.
    pub fn new(bounds: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self { bounds: bounds.into_iter().map(|(start, end)| (start, end.max(start))).collect() }
    }

    /// The region of an entire array of `shape`.
    pub fn from_shape(shape: &[u64]) -> Self {
        Self { bounds: shape.iter().map(|&n| (0, n)).collect() }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.bounds.len()
    }

    /// First position along dimension `d`.
    #[inline]
    pub fn start(&self, d: usize) -> u64 {
        self.bounds[d].0
    }

    /// One past the last position along dimension `d`.
    #[inline]
    pub fn end(&self, d: usize) -> u64 {
        self.bounds[d].1
    }

    /// Changes the bounds along dimension `d`. An end below its start is treated as empty.
    #[inline]
    pub fn set_bounds(&mut self, d: usize, start: u64, end: u64) {
        self.bounds[d] = (start, end.max(start));
    }

    /// Number of positions along dimension `d`.
    #[inline]
    pub fn extent(&self, d: usize) -> u64 {
        let (start, end) = self.bounds[d];
        end - start
    }

    /// `(start, end)` of each dimension.
    pub fn bounds(&self) -> &[(u64, u64)] {
        &self.bounds
    }

    /// Number of positions along each dimension.
    pub fn shape(&self) -> Coords {
        self.bounds.iter().map(|&(start, end)| end - start).collect()
    }

    /// Number of cells; `None` beyond `u64`.
    pub fn cells(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        self.bounds.iter().try_fold(1_u64, |n, &(start, end)| n.checked_mul(end - start))
    }

    /// Whether it contains no cells.
    pub fn is_empty(&self) -> bool {
        self.bounds.iter().any(|&(start, end)| start == end)
    }

    /// The intersection; `None` when it is empty.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        debug_assert_eq!(self.rank(), other.rank());
        let mut bounds = self.bounds.clone();
        for (bound, &(start, end)) in bounds.iter_mut().zip(&other.bounds) {
            *bound = (bound.0.max(start), bound.1.min(end));
            if bound.0 >= bound.1 {
                return None;
            }
        }
        Some(Self { bounds })
    }

    /// Whether every cell of `other` is in this region.
    pub fn contains(&self, other: &Self) -> bool {
        other.is_empty()
            || self
                .bounds
                .iter()
                .zip(&other.bounds)
                .all(|(outer, inner)| outer.0 <= inner.0 && inner.1 <= outer.1)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, (start, end)) in self.bounds.iter().enumerate() {
            write!(f, "{}{start}..{end}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersections_and_containment() {
        let a = Region::new([(0, 4), (2, 9)]);
        assert_eq!(a.intersect(&Region::new([(3, 9), (0, 3)])), Some(Region::new([(3, 4), (2, 3)])));
        assert_eq!(a.intersect(&Region::new([(4, 9), (0, 3)])), None);
        assert!(a.contains(&Region::new([(1, 2), (2, 9)])));
        assert!(!a.contains(&Region::new([(1, 2), (1, 9)])));
    }

    #[test]
    fn cell_counts_do_not_overflow() {
        assert_eq!(Region::from_shape(&[]).cells(), Some(1));
        assert_eq!(Region::from_shape(&[u64::MAX, 2]).cells(), None);
        assert_eq!(Region::from_shape(&[u64::MAX, 2, 0]).cells(), Some(0));
    }
}
