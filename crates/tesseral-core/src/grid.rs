//! The chunk grid of an array.

use crate::{Coords, Error, Region, Result, Selection};

/// A regular grid of chunks over an array; chunks at the far edges are clipped to the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkGrid {
    shape: Coords,
    chunk: Coords,
    counts: Coords,
    /// `None` beyond `u64`.
    total: Option<u64>,
}

impl ChunkGrid {
    /// A grid of chunks of `chunk` positions over an array of `shape`.
    ///
    /// # Errors
    /// `InvalidRequest` when the ranks differ, a chunk extent is 0, or the number of chunks exceeds `u64`.
    pub fn new(shape: &[u64], chunk: &[u64]) -> Result<Self> {
        Self::uncounted(shape, chunk)?.counted()
    }

    /// A grid that can have more chunks than `u64`. Its chunks have no numbers then, but regions of it can be read.
    ///
    /// # Errors
    /// `InvalidRequest` when the ranks differ or a chunk extent is 0.
    pub fn uncounted(shape: &[u64], chunk: &[u64]) -> Result<Self> {
        if shape.len() != chunk.len() {
            return Err(Error::invalid(format!("shape {shape:?} and chunk shape {chunk:?} differ in rank")));
        }
        if chunk.contains(&0) {
            return Err(Error::invalid(format!("chunk shape {chunk:?} contains 0")));
        }
        let counts: Coords = shape.iter().zip(chunk).map(|(n, c)| n.div_ceil(*c)).collect();
        let total = Region::from_shape(&counts).cells();
        Ok(Self { shape: Coords::from_slice(shape), chunk: Coords::from_slice(chunk), counts, total })
    }

    /// The grid, if its chunks can be numbered.
    ///
    /// # Errors
    /// `InvalidRequest` when the number of chunks exceeds `u64`.
    pub fn counted(self) -> Result<Self> {
        if self.is_counted() {
            return Ok(self);
        }
        let Self { shape, chunk, .. } = self;
        Err(Error::invalid(format!("too many chunks: shape {shape:?} in chunks of {chunk:?}")))
    }

    /// Whether the number of chunks is at most `u64::MAX`.
    pub fn is_counted(&self) -> bool {
        self.total.is_some()
    }

    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The shape of an unclipped chunk.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk
    }

    /// Number of chunks along each dimension.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Number of chunks; `u64::MAX` if they are not [counted](Self::is_counted).
    pub fn total(&self) -> u64 {
        self.total.unwrap_or(u64::MAX)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Whether the grid has a chunk at these grid coordinates.
    pub fn contains(&self, coords: &[u64]) -> bool {
        coords.len() == self.rank() && coords.iter().zip(&self.counts).all(|(c, n)| c < n)
    }

    /// The cells of the chunk at `coords`, clipped to the array. Coordinates outside the grid give an empty region.
    pub fn region(&self, coords: &[u64]) -> Region {
        Region::new(coords.iter().zip(&self.chunk).zip(&self.shape).map(|((&c, &extent), &n)| {
            let start = c.saturating_mul(extent).min(n);
            (start, start.saturating_add(extent).min(n))
        }))
    }

    /// Row-major index of the chunk in the grid, last dimension fastest. Not unique if the chunks are not
    /// [counted](Self::is_counted).
    pub fn linear(&self, coords: &[u64]) -> u64 {
        let fold = |linear: u64, (c, n): (&u64, &u64)| linear.wrapping_mul(*n).wrapping_add(*c);
        coords.iter().zip(&self.counts).fold(0, fold)
    }

    /// Grid coordinates of the chunk at a row-major index.
    pub fn coords(&self, mut linear: u64) -> Coords {
        let mut coords = Coords::from_elem(0, self.rank());
        for d in (0..self.rank()).rev() {
            let n = self.counts[d].max(1);
            coords[d] = linear % n;
            linear /= n;
        }
        coords
    }

    /// Returns the grid coordinates of the chunk that contains a cell.
    pub fn chunk_of(&self, point: &[u64]) -> Coords {
        point.iter().zip(&self.chunk).map(|(p, c)| p / c).collect()
    }

    /// Iterates over the chunks that contain at least one selected cell, in row-major order of the grid.
    pub fn touched(&self, selection: &Selection) -> Touched {
        let axes: Vec<AxisChunks> = selection
            .slices()
            .iter()
            .zip(&self.chunk)
            .map(|(slice, &extent)| AxisChunks::new(slice, extent))
            .collect();
        let at = axes.iter().map(|axis| axis.get(0)).collect();
        let left = axes.iter().try_fold(1_u64, |n, axis| n.checked_mul(axis.len())).unwrap_or(u64::MAX);
        Touched { step: vec![0; axes.len()], axes, at, left }
    }
}

/// One chunk of [`ChunkGrid::visit_touched`].
#[derive(Debug)]
pub struct TouchedChunk<'a> {
    /// Grid coordinates.
    pub coords: &'a [u64],
    /// Row-major index in the grid, as [`ChunkGrid::linear`].
    pub linear: u64,
    /// The cells of the chunk, as [`ChunkGrid::region`].
    pub region: &'a Region,
}

/// Chunk numbers intersected along one dimension.
#[derive(Clone, Copy, Debug)]
enum AxisChunks {
    /// Steps no longer than a chunk intersect every chunk in between.
    Run { first: u64, count: u64 },
    /// Longer steps skip chunks: position `i` is in chunk `(start + i * step) / extent`.
    Stride { start: u64, step: u64, extent: u64, count: u64 },
}

impl AxisChunks {
    fn new(slice: &crate::Slice, extent: u64) -> Self {
        let count = slice.count();
        if count == 0 {
            return Self::Run { first: 0, count: 0 };
        }
        if slice.step <= extent {
            let (first, last) = (slice.start / extent, (slice.tight_end() - 1) / extent);
            return Self::Run { first, count: last - first + 1 };
        }
        Self::Stride { start: slice.start, step: slice.step, extent, count }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Run { count, .. } | Self::Stride { count, .. } => *count,
        }
    }

    fn get(&self, i: u64) -> u64 {
        match self {
            Self::Run { first, .. } => first + i,
            Self::Stride { start, step, extent, .. } => (start + i * step) / extent,
        }
    }
}

impl ChunkGrid {
    /// Calls `visit` for the chunks of [`touched`](Self::touched), in their order, until it returns an error. Steps cost the axes
    /// that change, and nothing is allocated for a chunk.
    ///
    /// # Errors
    /// Errors of `visit`.
    pub fn visit_touched<E>(
        &self,
        selection: &Selection,
        mut visit: impl FnMut(TouchedChunk<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Touched { axes, mut step, at: mut coords, mut left } = self.touched(selection);
        if left == 0 {
            return Ok(());
        }
        let rank = axes.len();
        // Chunks per step along each dimension.
        let mut strides = Coords::from_elem(1, rank);
        for d in (1..rank).rev() {
            strides[d - 1] = strides[d].wrapping_mul(self.counts[d]);
        }
        let mut region = self.region(&coords);
        let mut linear = self.linear(&coords);
        loop {
            visit(TouchedChunk { coords: &coords, linear, region: &region })?;
            left -= 1;
            if left == 0 {
                return Ok(());
            }
            for d in (0..rank).rev() {
                step[d] += 1;
                let turned = step[d] == axes[d].len();
                if turned {
                    step[d] = 0;
                }
                let next = axes[d].get(step[d]);
                linear = linear.wrapping_add(next.wrapping_sub(coords[d]).wrapping_mul(strides[d]));
                coords[d] = next;
                let start = next.saturating_mul(self.chunk[d]).min(self.shape[d]);
                region.set_bounds(d, start, start.saturating_add(self.chunk[d]).min(self.shape[d]));
                if !turned {
                    break;
                }
            }
        }
    }
}

/// Iterator of [`ChunkGrid::touched`].
#[derive(Clone, Debug)]
pub struct Touched {
    axes: Vec<AxisChunks>,
    step: Vec<u64>,
    at: Coords,
    left: u64,
}

impl Touched {
    /// Number of remaining chunks.
    pub fn remaining(&self) -> u64 {
        self.left
    }
}

impl Iterator for Touched {
    type Item = Coords;

    fn next(&mut self) -> Option<Coords> {
        if self.left == 0 {
            return None;
        }
        let out = self.at.clone();
        self.left -= 1;
        for d in (0..self.axes.len()).rev() {
            self.step[d] += 1;
            if self.step[d] < self.axes[d].len() {
                self.at[d] = self.axes[d].get(self.step[d]);
                break;
            }
            self.step[d] = 0;
            self.at[d] = self.axes[d].get(0);
        }
        Some(out)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = usize::try_from(self.left).unwrap_or(usize::MAX);
        (n, Some(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slice;

    #[test]
    fn edges_are_clipped() {
        let grid = ChunkGrid::new(&[3, 5], &[2, 2]).unwrap();
        let cells: Vec<u64> = (0..6).map(|i| grid.region(&grid.coords(i)).cells().unwrap()).collect();
        assert_eq!(cells, [4, 4, 2, 2, 2, 1]);
        assert!((0..6).all(|i| grid.linear(&grid.coords(i)) == i));
        assert!(grid.region(&[7, 0]).is_empty());
    }

    #[test]
    fn touched_agrees_with_enumeration() {
        let grid = ChunkGrid::new(&[7, 11], &[3, 2]).unwrap();
        for (a, b, s) in [(0, 7, 1), (1, 6, 4), (2, 3, 1), (0, 7, 6), (4, 4, 1)] {
            for (c, d, t) in [(0, 11, 1), (1, 10, 5), (3, 11, 3), (10, 11, 7)] {
                let slices = [Slice { start: a, end: b, step: s }, Slice { start: c, end: d, step: t }];
                let selection = Selection::new(slices, grid.shape()).unwrap();
                let mut expected = Vec::new();
                for i in (a..b).step_by(s as usize) {
                    for j in (c..d).step_by(t as usize) {
                        expected.push(grid.chunk_of(&[i, j]));
                    }
                }
                expected.sort_by_key(|c| grid.linear(c));
                expected.dedup();
                assert_eq!(grid.touched(&selection).collect::<Vec<_>>(), expected, "{slices:?}");
                let mut visited = Vec::new();
                let visit = |chunk: TouchedChunk<'_>| {
                    let coords = Coords::from_slice(chunk.coords);
                    assert_eq!(chunk.linear, grid.linear(&coords));
                    assert_eq!(*chunk.region, grid.region(&coords));
                    visited.push(coords);
                    if visited.len() == 5 { Err(()) } else { Ok(()) }
                };
                assert_eq!(grid.visit_touched(&selection, visit).is_err(), expected.len() >= 5);
                assert_eq!(visited, expected[..expected.len().min(5)], "{slices:?}");
            }
        }
    }

    #[test]
    fn overflowing_shapes_are_rejected() {
        assert!(ChunkGrid::new(&[u64::MAX, u64::MAX], &[1, 1]).is_err());
        let uncounted = ChunkGrid::uncounted(&[u64::MAX, u64::MAX], &[1, 1]).unwrap();
        assert!(!uncounted.is_counted());
        let window = Selection::new([Slice::new(7, 9), Slice::new(0, 2)], uncounted.shape()).unwrap();
        assert_eq!(uncounted.touched(&window).count(), 4);
        assert!(ChunkGrid::new(&[1], &[0]).is_err());
        let huge = ChunkGrid::new(&[u64::MAX], &[u64::MAX - 1]).unwrap();
        assert_eq!(huge.region(&[1]), Region::new([(u64::MAX - 1, u64::MAX)]));
    }

    #[test]
    fn a_scalar_has_one_chunk() {
        let grid = ChunkGrid::new(&[], &[]).unwrap();
        assert_eq!((grid.total(), grid.touched(&Selection::all(&[])).count()), (1, 1));
    }
}
