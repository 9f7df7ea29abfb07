//! Lookup of chunk rows for indexes that are not in canonical order.

use tesseral_core::ChunkGrid;

use crate::layout::FileLayout;

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexLookup {
    /// Exactly one row.
    Row(u64),
    /// No row.
    Missing,
    /// Two or more rows: the chunk is ambiguous.
    Duplicate(u64, u64),
}

/// Rows sorted by dataset and grid position. Rows outside every grid are excluded.
#[derive(Debug)]
pub(crate) struct RowTable(Vec<(u64, u64, u64)>);

impl RowTable {
    pub(crate) fn build(layout: &FileLayout) -> Self {
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

    pub(crate) fn find(&self, dataset: u64, linear: u64) -> IndexLookup {
        let start = self.0.partition_point(|&(d, l, _)| (d, l) < (dataset, linear));
        let mut rows =
            self.0[start..].iter().take_while(|&&(d, l, _)| (d, l) == (dataset, linear)).map(|entry| entry.2);
        match (rows.next(), rows.next()) {
            (None, _) => IndexLookup::Missing,
            (Some(row), None) => IndexLookup::Row(row),
            (Some(first), Some(second)) => IndexLookup::Duplicate(first, second),
        }
    }
}
