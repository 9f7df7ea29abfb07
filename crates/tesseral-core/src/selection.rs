//! Strided hyperrectangular selections.

use smallvec::SmallVec;

use crate::{Coords, Error, Region, Result};

/// Positions `start, start + step, …` below `end` along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// First position.
    pub start: u64,
    /// One past the last position considered.
    pub end: u64,
    /// Distance between positions, at least 1.
    pub step: u64,
}

impl Slice {
    /// Every position of `start..end`.
    pub fn new(start: u64, end: u64) -> Self {
        Self { start, end: end.max(start), step: 1 }
    }

    /// Number of positions.
    pub fn count(&self) -> u64 {
        (self.end - self.start).div_ceil(self.step)
    }

    /// One past the last selected position.
    pub fn tight_end(&self) -> u64 {
        match self.count() {
            0 => self.start,
            n => self.start + (n - 1) * self.step + 1,
        }
    }

    /// The part of the slice inside `start..end`, and the number of its positions before that part.
    pub fn clip(&self, start: u64, end: u64) -> (Slice, u64) {
        let skipped = start.saturating_sub(self.start).div_ceil(self.step).min(self.count());
        let first = self.start + skipped * self.step;
        (Self { start: first, end: self.end.min(end).max(first), step: self.step }, skipped)
    }
}

/// A selection of positions of a dense array: one [`Slice`] per dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    slices: SmallVec<[Slice; 4]>,
}

impl Selection {
    /// A selection within an array of `shape`.
    ///
    /// # Errors
    /// `InvalidRequest` when the rank differs, a step is 0 or an end is out of range.
    pub fn new(slices: impl IntoIterator<Item = Slice>, shape: &[u64]) -> Result<Self> {
        let slices: SmallVec<[Slice; 4]> = slices.into_iter().collect();
        if slices.len() != shape.len() {
            return Err(Error::invalid(format!(
                "rank mismatch: the selection has {} dimensions, the array has {}",
                slices.len(),
                shape.len()
            )));
        }
        for (d, (slice, &extent)) in slices.iter().zip(shape).enumerate() {
            if slice.step == 0 || slice.end < slice.start || slice.end > extent {
                return Err(Error::invalid(format!(
                    "slice {}:{}:{} is out of range for dimension {d} of {extent} positions",
                    slice.start, slice.end, slice.step
                )));
            }
        }
        Ok(Self { slices })
    }

    /// Every position of an array of `shape`.
    pub fn all(shape: &[u64]) -> Self {
        Self { slices: shape.iter().map(|&n| Slice::new(0, n)).collect() }
    }

    /// Every position of a region.
    pub fn from_region(region: &Region) -> Self {
        Self { slices: region.bounds().iter().map(|&(start, end)| Slice::new(start, end)).collect() }
    }

    /// The slices, one per dimension.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.slices.len()
    }

    /// Number of selected positions along each dimension: the shape of the result.
    pub fn shape(&self) -> Coords {
        self.slices.iter().map(Slice::count).collect()
    }

    /// Number of selected cells; `None` beyond `u64`.
    pub fn cells(&self) -> Option<u64> {
        product(self.slices.iter().map(Slice::count))
    }

    /// Number of selected cells inside `region`; `None` beyond `u64`.
    pub fn cells_in(&self, region: &Region) -> Option<u64> {
        let bounds = region.bounds();
        product(self.slices.iter().zip(bounds).map(|(slice, &(start, end))| slice.clip(start, end).0.count()))
    }

    /// The bounding region of the selected positions.
    pub fn bounds(&self) -> Region {
        Region::new(self.slices.iter().map(|s| (s.start, s.tight_end())))
    }

    /// Whether every position of the bounding region is selected.
    pub fn is_box(&self) -> bool {
        self.slices.iter().all(|s| s.step == 1 || s.count() <= 1)
    }

    /// The part inside `region`, and the region of that part in the result; `None` when it is empty.
    pub fn clip(&self, region: &Region) -> Option<(Selection, Region)> {
        let mut slices = SmallVec::new();
        let mut target: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        for (slice, &(start, end)) in self.slices.iter().zip(region.bounds()) {
            let (part, skipped) = slice.clip(start, end);
            if part.count() == 0 {
                return None;
            }
            target.push((skipped, skipped + part.count()));
            slices.push(part);
        }
        Some((Self { slices }, Region::new(target)))
    }
}

/// A checked product that is 0 when any factor is 0, however large the others.
fn product(counts: impl Iterator<Item = u64> + Clone) -> Option<u64> {
    if counts.clone().any(|n| n == 0) {
        return Some(0);
    }
    counts.into_iter().try_fold(1_u64, u64::checked_mul)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_agrees_with_enumeration() {
        for start in 0..4 {
            for end in start..14 {
                for step in 1..5 {
                    let slice = Slice { start, end, step };
                    let all: Vec<u64> = (start..end).step_by(step as usize).collect();
                    assert_eq!(slice.count(), all.len() as u64);
                    for lo in 0..14 {
                        for hi in lo..14 {
                            let (part, skipped) = slice.clip(lo, hi);
                            let got: Vec<u64> = (0..part.count()).map(|i| part.start + i * step).collect();
                            let expected: Vec<u64> =
                                all.iter().copied().filter(|p| (lo..hi).contains(p)).collect();
                            assert_eq!(got, expected, "{slice:?} in {lo}..{hi}");
                            if !expected.is_empty() {
                                assert_eq!(all[skipped as usize], expected[0]);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn selections_out_of_range_are_rejected() {
        assert!(Selection::new([Slice::new(0, 4)], &[3]).is_err());
        assert!(Selection::new([Slice { start: 0, end: 3, step: 0 }], &[3]).is_err());
        assert!(Selection::new([Slice::new(0, 3)], &[3, 3]).is_err());
    }
}
