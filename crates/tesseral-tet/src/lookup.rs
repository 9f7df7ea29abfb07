//! Which row of the index is a chunk's, for indexes that are not in canonical order.

use tesseral_core::ChunkGrid;

use crate::layout::Layout;

/// What the index says of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Its one row.
    Row(u64),
    /// No row.
    Missing,
    /// Two rows or more: nobody can tell which counts.
    Twice(u64, u64),
}

/// Rows sorted by dataset and position in the grid. Rows that name no chunk of any dataset are left out.
#[derive(Debug)]
pub(crate) struct RowTable(Vec<(u64, u64, u64)>);

impl RowTable {
    pub(crate) fn build(layout: &Layout) -> Self {
        let datasets = layout.head.datasets.iter();
        let grids: Vec<_> = datasets.map(|d| ChunkGrid::new(&d.shape, &d.chunk_shape).ok()).collect();
        let mut table = Vec::with_capacity(layout.rows().len());
        for (number, row) in layout.rows().iter().enumerate() {
            let dataset = row.dataset_id.get();
            let grid = usize::try_from(dataset).ok().and_then(|d| grids.get(d)?.as_ref());
            let Some(grid) = grid else { continue };
            let coords = row.coords(grid.rank());
            if grid.contains(&coords) {
                table.push((dataset, grid.linear(&coords), number as u64));
            }
        }
        table.sort_unstable();
        Self(table)
    }

    pub(crate) fn find(&self, dataset: u64, linear: u64) -> Found {
        let start = self.0.partition_point(|&(d, l, _)| (d, l) < (dataset, linear));
        let mut rows =
            self.0[start..].iter().take_while(|&&(d, l, _)| (d, l) == (dataset, linear)).map(|entry| entry.2);
        match (rows.next(), rows.next()) {
            (None, _) => Found::Missing,
            (Some(row), None) => Found::Row(row),
            (Some(first), Some(second)) => Found::Twice(first, second),
        }
    }
}
