//! Sparse fragments of dense arrays: before version 5, cells could be written one by one.
//!
//! Their coordinates are read for the plan. Cells that are next to one another in the array and in a tile of the fragment are a
//! chunk, which lies above the fragments before it; cells between chunks are unchanged.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{Coords, Error, Order, Region, Result, Selection, alloc};
use tesseral_format::{Access, Column, ColumnMut, Cover, PlannedChunk, Scratch};
use tesseral_store::{Rounds, StoreExt};

use crate::array::{TileDbArray, chunk_id};
use crate::decode::decode_tile;
use crate::fragment::{Fragment, MAX_TILES};
use crate::geometry::Geometry;
use crate::metadata_loader::MetadataLoader;
use crate::plan::push_parts;
use crate::write::cell_of;

/// The cells of a sparse fragment of a dense array.
#[derive(Debug)]
pub(crate) struct ScatteredCells {
    /// The smallest box around them.
    pub bounds: Region,
    runs: OnceLock<Vec<CellRun>>,
}

/// Cells that are next to one another in the array and in a tile of the fragment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellRun {
    /// The tile of the fragment.
    pub tile: u64,
    /// Index of the first cell in it.
    first: u64,
    /// Positions in the array.
    region: Region,
}

impl ScatteredCells {
    pub(crate) fn new(bounds: Region) -> Self {
        Self { bounds, runs: OnceLock::new() }
    }

    /// The run with a number, once a plan has read the coordinates.
    pub(crate) fn run(&self, number: u64) -> Option<&CellRun> {
        self.runs.get()?.get(usize::try_from(number).ok()?)
    }

    /// All runs, in the order of the fragment.
    fn runs(&self, array: &TileDbArray, reader: &MetadataLoader, fragment: &Fragment) -> Result<&[CellRun]> {
        if let Some(runs) = self.runs.get() {
            return Ok(runs);
        }
        let Some(geometry) = &array.geometry else { return Err(Error::internal("the array has no grid")) };
        reader.limits.check_plan(fragment.total_cells())?;
        let (mut runs, mut waiting) = (Vec::new(), false);
        for tile in 0..fragment.tiles {
            // All tiles are read in one round.
            match Rounds::later(coordinates(array, reader, fragment, tile))? {
                Some(columns) if !waiting => {
                    add_runs(geometry, (tile, fragment.cells(tile, None)), &columns, &mut runs);
                }
                Some(_) => {}
                None => waiting = true,
            }
        }
        if waiting {
            return Err(Error::pending());
        }
        if runs.len() as u64 >= MAX_TILES {
            return Err(Error::limit("the cells of a fragment", runs.len() as u64, MAX_TILES));
        }
        Ok(self.runs.get_or_init(|| runs))
    }
}

/// The bytes of the coordinates of a tile, by dimension.
fn coordinates(
    array: &TileDbArray,
    reader: &MetadataLoader,
    fragment: &Fragment,
    tile: u64,
) -> Result<Vec<Vec<u8>>> {
    let cells = fragment.cells(tile, None);
    let mut columns = Vec::new();
    for (d, dim) in fragment.schema.wire.dims.iter().enumerate() {
        let column = Column::Dim(u16::try_from(d).map_err(|_| Error::internal("too many dimensions"))?);
        let mut parts = SmallVec::new();
        push_parts(array, reader, fragment, column, Some(fragment.dim_slot(d)), tile, &mut parts)?;
        let stored: Vec<Bytes> = parts
            .iter()
            .map(|part| {
                let end = part.offset.saturating_add(part.len);
                reader.store.read(fragment.object_name(part.object), part.offset..end)
            })
            .collect::<Result<_>>()?;
        let size = usize::try_from(cells).ok().and_then(|cells| cells.checked_mul(dim.datatype.size()));
        let size = size.ok_or_else(|| Error::limit("a chunk's cells", cells, u64::MAX))?;
        let mut values = alloc::zeroed("coordinates", size)?;
        let chunk = PlannedChunk {
            id: 0,
            cover: Cover::Exact(Region::from_shape(&[cells])),
            tile: None,
            layer: 0,
            cells,
            parts,
            access: Access::Coded { granule: None },
            whole: false,
        };
        let out = ColumnMut::Fixed { values: &mut values, validity: None };
        let scratch = &mut Scratch::default();
        decode_tile(array, fragment, tile, &chunk, column, &stored, 0..cells, out, scratch)?;
        columns.push(values);
    }
    Ok(columns)
}

/// Adds the runs of the cells of a tile. Cells outside the array are dropped.
fn add_runs(geometry: &Geometry, (tile, cells): (u64, u64), columns: &[Vec<u8>], runs: &mut Vec<CellRun>) {
    let along = if geometry.cell_order == Order::RowMajor { columns.len().saturating_sub(1) } else { 0 };
    let extents = geometry.chunk_shape();
    for cell in 0..cells {
        let Some(at) = geometry.position(columns, cell) else { continue };
        if let Some(last) = runs.last_mut()
            && last.tile == tile
            && last.first + last.region.shape()[along] == cell
            && follows(&last.region, &at, along, extents[along])
        {
            let mut bounds = last.region.bounds().to_vec();
            bounds[along].1 += 1;
            last.region = Region::new(bounds);
            continue;
        }
        let region = Region::new(at.iter().map(|&position| (position, position + 1)));
        runs.push(CellRun { tile, first: cell, region });
    }
}

/// Whether a position is the next one after a run, in the same tile of the grid.
fn follows(run: &Region, at: &Coords, along: usize, extent: u64) -> bool {
    let next = |(d, (&(start, end), &at)): (usize, (&(u64, u64), &u64))| match d == along {
        true => at == end && at / extent == start / extent,
        false => at == start,
    };
    run.bounds().iter().zip(at).enumerate().all(next)
}

/// Adds the chunks of a sparse fragment that a selection touches.
pub(crate) fn plan(
    array: &TileDbArray,
    reader: &MetadataLoader,
    (layer, fragment): (usize, &Fragment),
    scattered: &ScatteredCells,
    selection: &Selection,
    columns: &[(Column, Option<usize>)],
    chunks: &mut Vec<PlannedChunk>,
) -> Result<()> {
    for (number, run) in scattered.runs(array, reader, fragment)?.iter().enumerate() {
        if selection.clip(&run.region).is_none() {
            continue;
        }
        reader.limits.check_plan(chunks.len() as u64 + 1)?;
        let mut parts = SmallVec::new();
        for &(column, slot) in columns {
            push_parts(array, reader, fragment, column, slot, run.tile, &mut parts)?;
        }
        chunks.push(PlannedChunk {
            id: chunk_id(layer, number as u64),
            cells: run.region.cells().unwrap_or(u64::MAX),
            cover: Cover::Exact(run.region.clone()),
            tile: None,
            layer: u32::try_from(layer).unwrap_or(u32::MAX),
            parts,
            access: Access::Coded { granule: None },
            whole: false,
        });
    }
    Ok(())
}

/// Decodes one column of a run: the whole tile, of which the cells of the run are kept.
#[allow(clippy::too_many_arguments)]
pub(crate) fn decode(
    array: &TileDbArray,
    fragment: &Fragment,
    run: &CellRun,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    cells: &Range<u64>,
    out: ColumnMut<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let stored = fragment.cells(run.tile, None);
    let at = |n: u64| usize::try_from(n).map_err(|_| Error::limit("a chunk's cells", n, usize::MAX as u64));
    let (first, end) = (at(run.first + cells.start)?, at(run.first + cells.end)?);
    if end as u64 > stored {
        return Err(Error::internal("a run exceeds its tile"));
    }
    let whole = PlannedChunk { cells: stored, ..chunk.clone() };
    let mut decode = |out: ColumnMut<'_>| {
        decode_tile(array, fragment, run.tile, &whole, column, parts, 0..stored, out, scratch)
    };
    match out {
        ColumnMut::Fixed { values, validity } => {
            let size = values.len().checked_div(end - first).unwrap_or(0);
            if size * (end - first) != values.len() {
                return Err(Error::internal(format!("a buffer of {} bytes for the cells", values.len())));
            }
            let bytes = at(stored)?.saturating_mul(size);
            let held = parts.iter().map(|part| part.len() as u64).sum();
            array.reader.limits.check_decoded(bytes as u64, held)?;
            let mut all = alloc::zeroed("a decoded tile", bytes)?;
            let mut valid =
                validity.as_ref().map(|_| alloc::zeroed("a decoded tile", at(stored)?)).transpose()?;
            decode(ColumnMut::Fixed { values: &mut all, validity: valid.as_deref_mut() })?;
            values.copy_from_slice(&all[first * size..end * size]);
            if let (Some(valid), Some(validity)) = (&valid, validity) {
                validity.copy_from_slice(&valid[first..end]);
            }
        }
        ColumnMut::Var { offsets, data, validity } => {
            let (mut ends, mut all) = (Vec::new(), Vec::new());
            let mut valid =
                validity.as_ref().map(|_| alloc::zeroed("a decoded tile", at(stored)?)).transpose()?;
            decode(ColumnMut::Var { offsets: &mut ends, data: &mut all, validity: valid.as_deref_mut() })?;
            for cell in first..end {
                data.extend_from_slice(cell_of(&ends, &all, cell));
                offsets.push(data.len() as u64);
            }
            if let (Some(valid), Some(validity)) = (&valid, validity) {
                validity.copy_from_slice(&valid[first..end]);
            }
        }
    }
    Ok(())
}
