//! Chunks of a dense array that is being written: which of them are stored, and their cells as whole chunks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ColumnData;
use tesseral_core::{ArraySchema, ChunkGrid, Error, Order, Result, alloc};

/// The chunks of an array that were written, each with what its format keeps of it.
#[derive(Debug)]
pub struct WrittenChunks<T> {
    name: String,
    grid: ChunkGrid,
    chunks: Mutex<HashMap<u64, T>>,
}

impl<T> WrittenChunks<T> {
    /// Creates a list without chunks.
    ///
    /// # Errors
    /// `InvalidRequest` when the array has no chunk grid.
    pub fn new(schema: &ArraySchema) -> Result<Self> {
        Ok(Self { name: schema.name.clone(), grid: schema.grid()?, chunks: Mutex::default() })
    }

    /// The chunk grid of the array.
    pub fn grid(&self) -> &ChunkGrid {
        &self.grid
    }

    fn chunks(&self) -> MutexGuard<'_, HashMap<u64, T>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error about a chunk of the array.
    pub fn invalid(&self, coords: &[u64], what: impl Into<String>) -> Error {
        Error::invalid(what).in_array(&self.name).in_chunk(coords)
    }

    /// Returns an error if there is no chunk at these coordinates.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn check(&self, coords: &[u64]) -> Result<()> {
        if self.grid.contains(coords) {
            return Ok(());
        }
        Err(self.invalid(coords, "the chunk is outside the grid"))
    }

    /// Adds a chunk that is about to be stored.
    ///
    /// # Errors
    /// `InvalidRequest` if it is outside the grid or was written before.
    pub fn claim(&self, coords: &[u64], kept: T) -> Result<()> {
        self.check(coords)?;
        match self.chunks().entry(self.grid.linear(coords)) {
            std::collections::hash_map::Entry::Occupied(_) => {
                Err(self.invalid(coords, "the chunk was written before"))
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(kept);
                Ok(())
            }
        }
    }

    /// Undoes [`claim`](Self::claim) for a chunk that could not be stored.
    pub fn release(&self, coords: &[u64]) {
        self.chunks().remove(&self.grid.linear(coords));
    }

    /// Returns an error with the first missing chunk.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn check_complete(&self) -> Result<()> {
        let (total, chunks) = (self.grid.total(), self.chunks());
        if chunks.len() as u64 == total {
            return Ok(());
        }
        let missing = (0..total).find(|number| !chunks.contains_key(number)).unwrap_or(0);
        let detail = format!("{} of {total} chunks are missing", total - chunks.len() as u64);
        Err(self.invalid(&self.grid.coords(missing), detail))
    }

    /// Numbers of the chunks in row-major order, with what was kept of each.
    pub fn sorted(&self) -> Vec<(u64, T)>
    where
        T: Clone,
    {
        let mut sorted: Vec<(u64, T)> = self.chunks().iter().map(|(n, kept)| (*n, kept.clone())).collect();
        sorted.sort_unstable_by_key(|(number, _)| *number);
        sorted
    }

    /// Returns the cells of a chunk of one field of fixed-size cells without nulls, each of `size` bytes.
    ///
    /// # Errors
    /// `InvalidRequest` if there is no such chunk, or if the columns do not match it.
    pub fn fixed<'a>(&self, coords: &[u64], columns: &[ColumnData<'a>], size: u64) -> Result<&'a [u8]> {
        self.check(coords)?;
        let [ColumnData::Fixed { values, validity: None }] = columns else {
            return Err(self.invalid(coords, "expected one column of fixed-size cells"));
        };
        let cells = self.grid.region(coords).cells().unwrap_or(u64::MAX);
        if cells.checked_mul(size) != Some(values.len() as u64) {
            return Err(self.invalid(coords, "the values do not match the shape of the chunk"));
        }
        Ok(values)
    }

    /// Returns the cells of a chunk, at the edges of the array as a whole chunk with `fill` in the cells beyond it. Every cell
    /// has the size of `fill`.
    ///
    /// # Errors
    /// `InvalidRequest` if the values do not match the shape of the chunk.
    pub fn whole<'a>(
        &self,
        coords: &[u64],
        values: &'a [u8],
        fill: &[u8],
        order: Order,
    ) -> Result<Cow<'a, [u8]>> {
        let region = self.grid.region(coords);
        let (extents, tile, size) = (region.shape(), self.grid.chunk_shape(), fill.len());
        if bytes(&extents, size) != Some(values.len()) {
            let detail = format!("{} bytes do not hold the cells of {:?}", values.len(), extents);
            return Err(self.invalid(coords, detail));
        }
        if extents.as_slice() == tile {
            return Ok(Cow::Borrowed(values));
        }
        let len = bytes(tile, size).ok_or_else(|| Error::limit("a chunk", u64::MAX, usize::MAX as u64))?;
        let mut whole = alloc::zeroed::<u8>("a chunk", len)?;
        if fill.iter().any(|byte| *byte != 0) {
            whole.chunks_exact_mut(size).for_each(|cell| cell.copy_from_slice(fill));
        }
        copy_box(values, &extents, tile, size, order, &mut whole);
        Ok(Cow::Owned(whole))
    }

    /// Returns the variable-length cells of a chunk.
    ///
    /// # Errors
    /// `InvalidRequest` if offsets and data are not those of the chunk.
    pub fn variable_length<'a>(
        &self,
        coords: &[u64],
        offsets: &[u64],
        data: &'a [u8],
    ) -> Result<Vec<&'a [u8]>> {
        let invalid = || self.invalid(coords, "the offsets do not match the data");
        if bytes(&self.grid.region(coords).shape(), 1) != Some(offsets.len()) {
            return Err(invalid());
        }
        let mut start = 0;
        let mut cells = alloc::with_capacity("text cells", offsets.len())?;
        for end in offsets {
            let range = usize::try_from(start).ok().zip(usize::try_from(*end).ok());
            cells.push(range.and_then(|(start, end)| data.get(start..end)).ok_or_else(invalid)?);
            start = *end;
        }
        Ok(cells)
    }
}

/// Bytes of a box of cells.
fn bytes(shape: &[u64], size: usize) -> Option<usize> {
    let bytes = shape.iter().try_fold(size as u64, |n, extent| n.checked_mul(*extent))?;
    usize::try_from(bytes).ok()
}

/// Copies a box of cells to the start of a larger one, run by run along the fastest axis.
fn copy_box(src: &[u8], extents: &[u64], tile: &[u64], size: usize, order: Order, dst: &mut [u8]) {
    // Both fit: the boxes are in memory.
    #[allow(clippy::cast_possible_truncation)]
    let axes = |shape: &[u64]| -> Vec<usize> {
        let axes = shape.iter().map(|n| *n as usize);
        // Slowest axis first.
        if order == Order::ColMajor { axes.rev().collect() } else { axes.collect() }
    };
    let (extents, tile) = (axes(extents), axes(tile));
    let Some(run) = extents.last().map(|n| n * size).filter(|run| *run > 0) else { return };
    let mut at: Vec<usize> = extents.iter().map(|_| 0).collect();
    for cells in src.chunks_exact(run) {
        let cell = at.iter().zip(&tile).fold(0, |linear, (at, n)| linear * n + at);
        dst[cell * size..cell * size + run].copy_from_slice(cells);
        for axis in (0..extents.len() - 1).rev() {
            at[axis] += 1;
            if at[axis] < extents[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}

/// Swaps the bytes of words of native cells on machines whose order is not little-endian.
pub fn to_little_endian(mut cells: Cow<'_, [u8]>, word: usize) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "big") && word > 1 {
        cells.to_mut().chunks_exact_mut(word).for_each(<[u8]>::reverse);
    }
    cells
}

#[cfg(test)]
mod tests {
    use tesseral_core::DType;

    use super::*;

    fn chunks() -> WrittenChunks<u8> {
        WrittenChunks::new(&ArraySchema::dense("a", DType::UInt8, &[3, 3], &[2, 2])).unwrap()
    }

    #[test]
    fn every_chunk_is_written_once() {
        let chunks = chunks();
        assert!(chunks.claim(&[2, 0], 0).is_err());
        for (n, coords) in [[1, 1], [0, 0], [1, 0]].iter().enumerate() {
            chunks.claim(coords, u8::try_from(n).unwrap()).unwrap();
            assert!(chunks.claim(coords, 9).is_err());
        }
        assert!(chunks.check_complete().is_err());
        chunks.claim(&[0, 1], 3).unwrap();
        chunks.check_complete().unwrap();
        assert_eq!(chunks.sorted(), [(0, 1), (1, 3), (2, 2), (3, 0)]);
        chunks.release(&[0, 1]);
        assert!(chunks.check_complete().is_err());
    }

    #[test]
    fn chunks_at_the_edges_are_padded() {
        let chunks = chunks();
        assert!(matches!(chunks.whole(&[0, 0], &[1, 2, 3, 4], &[0], Order::RowMajor), Ok(Cow::Borrowed(_))));
        assert_eq!(*chunks.whole(&[0, 1], &[1, 2], &[9], Order::RowMajor).unwrap(), [1, 9, 2, 9]);
        assert_eq!(*chunks.whole(&[0, 1], &[1, 2], &[9], Order::ColMajor).unwrap(), [1, 2, 9, 9]);
        assert!(chunks.whole(&[0, 1], &[1, 2, 3], &[9], Order::RowMajor).is_err());
        assert_eq!(chunks.variable_length(&[1, 0], &[1, 3], b"abc").unwrap(), [&b"a"[..], b"bc"]);
        assert!(chunks.variable_length(&[1, 0], &[1, 4], b"abc").is_err());
        assert!(chunks.variable_length(&[1, 1], &[1, 3], b"abc").is_err());
        let column = |values| [ColumnData::Fixed { values, validity: None }];
        assert_eq!(chunks.fixed(&[1, 0], &column(&[5, 6]), 1).unwrap(), [5, 6]);
        assert!(
            chunks.fixed(&[1, 0], &column(&[5, 6]), 2).is_err()
                && chunks.fixed(&[2, 0], &column(&[]), 1).is_err()
        );
        let nullable = [ColumnData::Fixed { values: &[5, 6], validity: Some(&[1, 1]) }];
        assert!(chunks.fixed(&[1, 0], &nullable, 1).is_err() && chunks.fixed(&[1, 0], &[], 1).is_err());
    }
}
