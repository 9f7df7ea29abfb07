//! One large chunk cut into pieces that are decoded by themselves: for threads to share, and never whole in memory.

use tesseral_core::{ChunkGrid, Order, Result, Selection, Slice};
use tesseral_format::{Access, Column, Cover, PlannedChunk, Request, Target};

use crate::dense::Prepared;
use crate::fetch;
use crate::handle::Handle;
use crate::options::Options;
use crate::overlay::Groups;

/// Bytes of cells in a piece.
const PIECE: u64 = 4 << 20;

impl Prepared {
    /// As [`new`](Self::new), for folds: an array of one large chunk comes in pieces, cut by its shape and the memory limit alone.
    pub(crate) fn divided(handle: &Handle, request: &Request, options: &Options) -> Result<Self> {
        let mut prepared = Self::new(handle, request)?;
        let ([chunk], schema) = (prepared.plan.chunks.as_slice(), handle.schema()) else {
            return Ok(prepared);
        };
        let stats = handle.source().stats(chunk, Column::Field(prepared.field));
        // What statistics can tell of a whole chunk they cannot tell of a piece.
        // Nothing is decoded of equal cells.
        let constant = crate::visit::constant(handle, chunk, prepared.field).is_some();
        if constant || !parted(chunk) || prepared.resident.is_none() || stats.nulls.exact().is_some() {
            return Ok(prepared);
        }
        let (Some(shape), Some(region), Order::RowMajor) =
            (schema.shape(), chunk.cover.region(), schema.cell_order)
        else {
            return Ok(prepared);
        };
        let piece = options.memory.map_or(PIECE, |memory| PIECE.min(memory / 16)).max(1);
        let Some(d) = shape.iter().position(|n| *n > 1) else { return Ok(prepared) };
        let row =
            region.shape()[d + 1..].iter().fold(prepared.size as u64, |n, extent| n.saturating_mul(*extent));
        let rows = (piece / row.max(1)).max(1);
        if region.shape() != shape || chunk.tile.is_some() || rows.saturating_mul(2) > shape[d] {
            return Ok(prepared);
        }
        // Pieces are as many as the claimed cells make.
        crate::claims::check_total(handle, request)?;
        let mut extents = shape.clone();
        extents[d] = rows;
        let grid = ChunkGrid::new(&shape, &extents)?;
        let pieces = grid.touched(&prepared.selection).map(|coords| PlannedChunk {
            cover: Cover::Exact(grid.region(&coords)),
            tile: Some(region.clone()),
            whole: false,
            ..chunk.clone()
        });
        prepared.plan.chunks = pieces.collect();
        prepared.share();
        prepared.groups = Groups::new(&grid, &prepared.plan, &prepared.selection)?;
        prepared.resident = fetch::resident(handle, &prepared.plan.chunks)?;
        Ok(prepared)
    }
}

/// Whether cells of a chunk are decoded without those before and after them. Cells that come by the thousand cost as much as the
/// chunk when they are asked for one by one.
fn parted(chunk: &PlannedChunk) -> bool {
    matches!(chunk.access, Access::Direct { .. } | Access::Coded { granule: Some(..=64) })
}

/// Whether parts of a chunk are read without the rest of it, judged by the first one of a selection.
///
/// # Errors
/// What the plan meets.
pub fn divisible(handle: &Handle, request: &Request) -> Result<bool> {
    let Some(selection) = request.selection().filter(|selection| selection.cells() != Some(0)) else {
        return Ok(false);
    };
    let slices = selection.slices().iter().map(|s| Slice::new(s.start, s.start + 1));
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    let target = Target::Cells(Selection::new(slices, &bounds)?);
    handle.restartable(|handle| {
        let chunks = handle.source().plan(&Request { target: target.clone(), ..request.clone() })?.chunks;
        // Bytes that are not in reach are fetched by whole chunks.
        Ok(!chunks.is_empty() && chunks.iter().all(parted) && fetch::resident(handle, &chunks)?.is_some())
    })
}
