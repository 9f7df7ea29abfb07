//! Objects whose payload is their cells: contiguous chunks are written to their final place as they arrive, instead of collecting all cells.
//! The hash of the object is computed in the order of the cells, so that chunks that arrive early are retained.

use std::collections::BTreeMap;

use tesseral_core::{ChunkGrid, Region, Result, alloc};
use tesseral_store::Staged;

use crate::encode::{Stages, has_specials};
use crate::spool::SpooledFrame;
use crate::wire::block_hashes::{BodyHasher, ObjectHashes};
use crate::wire::frame::HEADER_LEN;
use crate::wire::object::frame_ends;

/// How the chunks of an object are stored.
#[derive(Debug, Default)]
pub(crate) enum ChunkStream {
    /// No chunk has arrived.
    #[default]
    Unknown,
    /// They are collected or spooled.
    Off,
    /// They are written as they arrive.
    On(Box<ObjectStream>),
}

/// An object that is being written.
pub(crate) struct ObjectStream {
    /// Offset of the frame in the file.
    at: u64,
    /// Number of bytes hashed.
    hashed: u64,
    hasher: Option<BodyHasher>,
    /// Written chunks that are not hashed, by their offset in the payload.
    early: BTreeMap<u64, Vec<u8>>,
    /// Written chunks, by their index in the grid.
    pub done: Vec<bool>,
    /// Number of chunks that are missing.
    pub left: usize,
}

impl std::fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectStream").field("at", &self.at).field("left", &self.left).finish_non_exhaustive()
    }
}

/// Returns whether every chunk of a grid is one run of the row-major cells, and none is all of them.
pub(crate) fn is_contiguous(grid: &ChunkGrid) -> bool {
    let (chunk, shape) = (grid.chunk_shape(), grid.shape());
    let divided = (0..shape.len()).rev().find(|&d| chunk[d] < shape[d]);
    divided.is_some_and(|divided| chunk[..divided].iter().all(|extent| *extent == 1))
}

/// Index of the first cell of a contiguous chunk.
fn first_cell(region: &Region, shape: &[u64]) -> u64 {
    shape.iter().enumerate().fold(0, |sum, (d, extent)| sum * extent + region.start(d))
}

impl ObjectStream {
    pub(crate) fn new(at: u64, chunks: usize, len: u64, hashes: ObjectHashes) -> Result<Self> {
        let done = alloc::filled("chunks", false, chunks)?;
        Ok(Self { at, hashed: 0, hasher: hashes.hasher(len), early: BTreeMap::new(), done, left: chunks })
    }

    /// Writes a chunk. Returns false if it has cells that masks name: then the payload is not the cells.
    pub(crate) fn push(
        &mut self,
        staged: &dyn Staged,
        stages: &Stages,
        (linear, region): (usize, &Region),
        cells: &[u8],
    ) -> Result<bool> {
        let descriptor = stages.descriptor();
        if has_specials(descriptor.dtype, cells) {
            return Ok(false);
        }
        let offset = first_cell(region, &descriptor.shape) * descriptor.dtype.size().unwrap_or(1) as u64;
        staged.write_at(self.at + HEADER_LEN + offset, cells)?;
        self.done[linear] = true;
        self.left -= 1;
        let Some(hasher) = &mut self.hasher else { return Ok(true) };
        if offset != self.hashed {
            self.early.insert(offset, cells.to_vec());
            return Ok(true);
        }
        hasher.update(cells);
        self.hashed += cells.len() as u64;
        while let Some(cells) = self.early.remove(&self.hashed) {
            hasher.update(&cells);
            self.hashed += cells.len() as u64;
        }
        Ok(true)
    }

    /// Writes what surrounds the payload.
    pub(crate) fn finish(self, staged: &dyn Staged, stages: &Stages, len: u64) -> Result<SpooledFrame> {
        let cbor = stages.descriptor().to_bytes();
        let hashed = self.hasher.is_some();
        let (hash, blocks) = self.hasher.map_or((0, None), |mut hasher| {
            hasher.update(&cbor);
            hasher.finish()
        });
        let (head, tail, length) = frame_ends(&cbor, len, hash, hashed);
        staged.write_at(self.at, &head)?;
        let end = self.at + HEADER_LEN + len;
        staged.write_at(end, &tail)?;
        Ok(SpooledFrame { end: end + tail.len() as u64, length, hash, blocks })
    }

    /// Reads the cells that were written.
    pub(crate) fn read_back(
        &self,
        staged: &dyn Staged,
        grid: &ChunkGrid,
        size: u64,
        cells: &mut [u8],
    ) -> Result<()> {
        for (linear, _) in self.done.iter().enumerate().filter(|(_, done)| **done) {
            let region = grid.region(&grid.coords(linear as u64));
            let offset = first_cell(&region, grid.shape()) * size;
            let len = region.cells().unwrap_or(0) * size;
            // Inside the cells, which are in memory.
            let part = &mut cells[offset as usize..(offset + len) as usize];
            staged.read_at(self.at + HEADER_LEN + offset, part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_grids_divide_one_dimension_behind_single_rows() {
        let grid = |shape: &[u64], chunk: &[u64]| is_contiguous(&ChunkGrid::new(shape, chunk).unwrap());
        assert!(
            grid(&[10, 4], &[3, 4])
                && grid(&[10, 4], &[1, 3])
                && grid(&[10], &[4])
                && grid(&[1, 10, 4], &[1, 3, 4])
        );
        assert!(!grid(&[10, 4], &[2, 3]) && !grid(&[10, 4], &[10, 4]) && !grid(&[10, 4], &[10, 3]));
    }
}
