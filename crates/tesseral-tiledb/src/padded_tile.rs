//! A box of cells inside a larger tile.

use tesseral_core::{Error, Order, Region, Result};

/// The present cells and the tile that contains them.
#[derive(Clone, Debug)]
pub(crate) struct PaddedTile {
    /// The whole tile; cells outside `cells` are padding.
    tile: Region,
    /// The present cells.
    cells: Region,
    order: Order,
}

impl PaddedTile {
    pub(crate) fn new(tile: Region, cells: Region, order: Order) -> Self {
        Self { tile, cells, order }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tile == self.cells
    }

    pub(crate) fn tile_cells(&self) -> Result<usize> {
        let cells = self.tile.cells().and_then(|n| usize::try_from(n).ok());
        cells.ok_or_else(|| Error::limit("the cells of a tile", u64::MAX, usize::MAX as u64))
    }

    /// Calls `run(first cell in the tile, first present cell, length)` for every run of cells that are contiguous in both.
    pub(crate) fn runs(&self, mut run: impl FnMut(usize, usize, usize)) {
        let rank = self.tile.rank();
        // Dimensions from slowest- to fastest-varying.
        let dims: Vec<usize> = match self.order {
            Order::ColMajor => (0..rank).rev().collect(),
            _ => (0..rank).collect(),
        };
        let extent = |region: &Region, d: usize| usize::try_from(region.extent(d)).unwrap_or(0);
        let Some(&fastest) = dims.last() else { return run(0, 0, 1) };
        let len = extent(&self.cells, fastest);
        let offset = |d: usize| usize::try_from(self.cells.start(d) - self.tile.start(d)).unwrap_or(0);
        let mut at = vec![0; rank];
        let mut from = 0;
        loop {
            let to = dims.iter().fold(0, |n, &d| n * extent(&self.tile, d) + offset(d) + at[d]);
            run(to, from, len);
            from += len;
            let mut turned = dims[..rank - 1].iter().rev();
            loop {
                let Some(&d) = turned.next() else { return };
                at[d] += 1;
                if at[d] < extent(&self.cells, d) {
                    break;
                }
                at[d] = 0;
            }
        }
    }
}
