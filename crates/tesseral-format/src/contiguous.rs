//! Chunks of cells that a file stores contiguously in row-major order, without stored chunks.

use tesseral_core::{Coords, Region};

/// Approximate size in bytes of a chunk of contiguous cells: the read size where files are not memory-mapped.
pub const CONTIGUOUS_CHUNK: u64 = 4 << 20;

/// Chunk shape of contiguous cells of `cell` bytes: the largest boxes of about [`CONTIGUOUS_CHUNK`] bytes whose cells are
/// themselves contiguous.
pub fn contiguous_chunk_shape(shape: &[u64], cell: u64) -> Coords {
    let mut chunk = Coords::from_elem(1, shape.len());
    let mut bytes = cell.max(1);
    for (extent, n) in chunk.iter_mut().zip(shape).rev() {
        *extent = (*n).min(CONTIGUOUS_CHUNK / bytes).max(1);
        if *extent < *n {
            break;
        }
        bytes = bytes.saturating_mul(*extent);
    }
    chunk
}

/// Row-major index of the first cell of a box in an array; `None` if it exceeds `u64`.
pub fn first_cell(shape: &[u64], region: &Region) -> Option<u64> {
    let mut dims = shape.iter().zip(region.bounds());
    dims.try_fold(0_u64, |index, (n, (start, _))| index.checked_mul(*n)?.checked_add(*start))
}

/// Runs of cells of a box that are consecutive in an array: for each its first cell, row-major, and their common length. `None` if
/// numbers exceed `u64`.
pub fn contiguous_runs(shape: &[u64], region: &Region) -> Option<(u64, impl Iterator<Item = u64> + use<>)> {
    let bounds = region.bounds();
    // A run spans the trailing dimensions that the box covers completely, and the one before them.
    let whole = bounds.iter().zip(shape).rev().take_while(|((start, end), n)| end - start == **n).count();
    let outer = (shape.len() - whole).saturating_sub(1);
    let inner = bounds.get(outer..).unwrap_or_default();
    let run = inner.iter().try_fold(1_u64, |cells, (start, end)| cells.checked_mul(end - start))?;
    let first = first_cell(shape, region)?;
    shape.iter().try_fold(1_u64, |cells, n| cells.checked_mul((*n).max(1)))?;
    // Distance and number of positions of each outer dimension.
    let mut stride: u64 = shape.get(outer..).unwrap_or_default().iter().product();
    let mut outer: Vec<(u64, u64)> = bounds
        .iter()
        .zip(shape)
        .take(outer)
        .rev()
        .map(|((start, end), n)| {
            let own = stride;
            stride *= n;
            (own, end - start)
        })
        .collect();
    outer.reverse();
    let total: u64 = outer.iter().map(|(_, n)| n).product();
    let total = if run == 0 { 0 } else { total };
    Some((
        run,
        (0..total).map(move |number| {
            let mut rest = number;
            outer.iter().rev().fold(first, |cell, (stride, n)| {
                let position = rest % n;
                rest /= n;
                cell + position * stride
            })
        }),
    ))
}

#[cfg(test)]
mod tests {
    use tesseral_core::{ChunkGrid, Selection};

    use super::*;

    #[test]
    fn runs_of_a_box_are_its_cells() {
        for (shape, bounds, want) in [
            (&[4_u64, 3, 5][..], &[(1_u64, 3_u64), (0, 3), (0, 5)][..], (30, vec![15])),
            (&[4, 3, 5], &[(1, 3), (1, 3), (0, 5)], (10, vec![20, 35])),
            (&[4, 3, 5], &[(2, 3), (1, 3), (2, 4)], (2, vec![37, 42])),
            (&[2, 2, 2, 2], &[(0, 2), (0, 1), (0, 2), (1, 2)], (1, vec![1, 3, 9, 11])),
            (&[7], &[(2, 5)], (3, vec![2])),
            (&[], &[], (1, vec![0])),
            (&[0, 3], &[(0, 0), (0, 3)], (0, vec![])),
        ] {
            let (run, starts) = contiguous_runs(shape, &Region::new(bounds.iter().copied())).unwrap();
            assert_eq!((run, starts.collect::<Vec<_>>()), want, "{bounds:?}");
        }
    }

    /// The chunks of a grid follow one another in the file.
    #[test]
    fn chunks_are_consecutive() {
        for (shape, cell, want) in [
            (&[10_u64, 2, 1 << 18][..], 2, &[4_u64, 2, 1 << 18][..]),
            (&[3, 5, 1 << 20], 8, &[1, 1, 1 << 19]),
            (&[3, 5, 1 << 20], 4, &[1, 1, 1 << 20]),
            (&[7], 16, &[7]),
            (&[], 8, &[]),
            (&[2, 3], 8 << 20, &[1, 1]),
        ] {
            let chunk = contiguous_chunk_shape(shape, cell);
            assert_eq!(chunk.as_slice(), want);
            let grid = ChunkGrid::new(shape, &chunk).unwrap();
            let mut at = 0;
            for coords in grid.touched(&Selection::all(shape)) {
                let region = grid.region(&coords);
                assert_eq!(first_cell(shape, &region), Some(at));
                at += region.cells().unwrap();
            }
            assert_eq!(at, shape.iter().product::<u64>());
        }
        assert_eq!(contiguous_chunk_shape(&[0, 4], 8).as_slice(), [1, 4]);
        assert_eq!(first_cell(&[1, u64::MAX, 9], &Region::new([(0, 1), (u64::MAX - 1, 2), (0, 1)])), None);
    }
}
