//! Chunks of cells that a file stores contiguously, in row-major order and without chunks of its own.

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

#[cfg(test)]
mod tests {
    use tesseral_core::{ChunkGrid, Selection};

    use super::*;

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
