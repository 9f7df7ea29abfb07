//! Division of large chunks into pieces that are read and decoded separately: for parallelism, and so that no chunk must be in
//! memory completely.
//!
//! Resident bytes are shared between pieces. Others are fetched piece by piece: the engine computes the byte range of a piece of a
//! direct chunk, the format that of a coded one ([`ArraySource::narrow`](tesseral_format::ArraySource::narrow)).

use std::ops::Range;

use tesseral_core::{ChunkGrid, Coords, DType, Order, Region, Result, Selection, Slice};
use tesseral_format::{Access, Column, Cover, Part, PlannedChunk, Request, Target};

use crate::decode::chunk::locate_selection;
use crate::decode::columns::column_layout;
use crate::fetch;
use crate::handle::Handle;
use crate::options::Options;
use crate::paint::dense::PreparedRead;
use crate::plan::groups::Groups;

/// Size of the cells of a piece in bytes.
const PIECE: u64 = 4 << 20;
/// Chunks larger than this fraction of the memory limit are divided.
const LARGE: u64 = 8;
/// Minimum size in bytes of chunks that are divided, for any limit.
const SMALL: u64 = 1 << 20;

/// Returns whether metadata determine the result for a chunk, of which all or some cells are selected, so that it is not
/// decoded.
pub(crate) type Known<'a> = &'a dyn Fn(&PlannedChunk, bool) -> Result<bool>;

impl PreparedRead {
    /// As [`new`](Self::new), for folds: an array of one large resident chunk is divided too, by its shape and the memory limit
    /// only. Chunks whose result is `known` from metadata are not divided for their size.
    pub(crate) fn divided(
        handle: &Handle,
        request: &Request,
        options: &Options,
        known: Known<'_>,
    ) -> Result<Self> {
        let mut prepared = Self::planned(handle, request, options)?;
        if prepared.resident.is_none() {
            if let Some(memory) = options.memory {
                prepared.divide(handle, request, memory, known)?;
            }
            return Ok(prepared);
        }
        let ([chunk], schema) = (prepared.plan.chunks.as_slice(), handle.schema()) else {
            return Ok(prepared);
        };
        let stats = handle.stats(chunk, Column::Field(prepared.field));
        // Statistics of a whole chunk do not apply to a piece.
        // Constant chunks are not decoded.
        let constant = crate::reduce::visit::constant(handle, chunk, prepared.field).is_some();
        if constant || !parted(chunk) || stats.nulls.exact().is_some() {
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
        // The number of pieces depends on the declared cells.
        crate::plan::expansion::check_total(handle, request)?;
        let mut extents = shape.clone();
        extents[d] = rows;
        let grid = ChunkGrid::new(&shape, &extents)?;
        let pieces = grid.touched(&prepared.selection).map(|coords| PlannedChunk {
            cover: Cover::Exact(grid.region(&coords)),
            tile: Some(Box::new(region.clone())),
            whole: false,
            ..chunk.clone()
        });
        prepared.plan.chunks = pieces.collect();
        prepared.share();
        prepared.groups = Groups::new(&grid, &prepared.plan, &prepared.selection)?;
        prepared.resident = fetch::resident(handle, &prepared.plan.chunks)?;
        Ok(prepared)
    }

    /// Divides chunks that are large compared to the memory limit, and computes the memory of a worker.
    pub(crate) fn divide(
        &mut self,
        handle: &Handle,
        request: &Request,
        memory: u64,
        known: Known<'_>,
    ) -> Result<()> {
        let mut read = Vec::new();
        for (chunk, number) in self.plan.chunks.iter().zip(0_u32..) {
            if !known(chunk, self.takes_all(chunk))? {
                read.push(number);
            }
        }
        let large = (memory / LARGE).max(SMALL);
        let oversized = |number: &u32| self.need(handle, &self.plan.chunks[*number as usize]) > large;
        if read.iter().any(oversized) && self.divide_chunks(handle, request, memory, large)? {
            read = (0_u32..).take(self.plan.chunks.len()).collect();
        }
        let chunks = || read.iter().map(|number| &self.plan.chunks[*number as usize]);
        let stored = chunks().map(PlannedChunk::stored_bytes);
        let all = stored.clone().fold(0, u64::saturating_add);
        let fetched = stored.max().unwrap_or(0).max(self.merged.min(all));
        let decoded = chunks().map(|chunk| self.decoded_bytes(handle, chunk)).max().unwrap_or(0);
        // Overlapping chunks are painted before they are folded.
        let painted = if self.groups.apart() {
            0
        } else {
            let part = |chunk: &PlannedChunk| {
                let cells = chunk.cover.region().and_then(|cover| self.selection.cells_in(cover));
                cells.unwrap_or(u64::MAX).saturating_mul(self.size as u64)
            };
            chunks().map(part).max().unwrap_or(0)
        };
        self.unit = fetched.saturating_add(decoded).saturating_add(painted);
        Ok(())
    }

    /// Returns whether every cell of a chunk is selected and nothing overlaps it.
    fn takes_all(&self, chunk: &PlannedChunk) -> bool {
        let cells = chunk.cover.region().and_then(|cover| self.selection.cells_in(cover));
        chunk.whole && cells == Some(chunk.cells)
    }

    /// Memory of a chunk while its cells are used.
    fn need(&self, handle: &Handle, chunk: &PlannedChunk) -> u64 {
        chunk.stored_bytes().saturating_add(self.decoded_bytes(handle, chunk))
    }

    /// Size of the cells that are decoded for the selected part of a chunk; 0 if they are used as stored.
    fn decoded_bytes(&self, handle: &Handle, chunk: &PlannedChunk) -> u64 {
        let schema = handle.schema();
        let field = &schema.fields[usize::from(self.field)];
        let (Access::Coded { granule }, Some(tile)) = (chunk.access, chunk.tile_region()) else { return 0 };
        let part = chunk.cover.region().and_then(|cover| self.selection.clip(cover));
        let cells = match (granule, part) {
            (_, None) => 0,
            (Some(granule), Some((part, _))) => {
                let run = aligned(&locate_selection(tile, schema.cell_order, 1, &part).cells, granule, tile);
                run.end - run.start
            }
            (None, Some(_)) => tile.cells().unwrap_or(u64::MAX),
        };
        // There is a buffer between two codecs.
        let copies = if field.codecs.len() > 1 { 2 } else { 1 };
        cells.saturating_mul(self.size as u64 * copies + u64::from(field.nullable))
    }

    /// Divides every chunk; does nothing if a large one cannot be divided.
    fn divide_chunks(&mut self, handle: &Handle, request: &Request, memory: u64, large: u64) -> Result<bool> {
        let (schema, column) = (handle.schema(), Column::Field(self.field));
        for chunk in &self.plan.chunks {
            if self.need(handle, chunk) > large && !is_narrow(handle, chunk, column)? {
                return Ok(false);
            }
        }
        // The number of pieces depends on the declared cells.
        crate::plan::expansion::check_total(handle, request)?;
        let grid = schema.grid()?;
        let extents = piece_extents(&grid, schema.cell_order, piece_bytes(memory) / self.size as u64);
        let bounds = self.selection.bounds();
        let (chunks, groups) =
            self.groups.refined(&self.plan, &self.selection, &extents, |chunk, part| {
                let seen = chunk.cover.region().and_then(|cover| cover.intersect(part)?.intersect(&bounds));
                seen.map(|seen| cut_piece(handle, chunk, column, self.size, seen)).transpose()
            })?;
        (self.plan.chunks, self.groups) = (chunks, groups);
        self.share();
        Ok(true)
    }
}

/// Extents of boxes of at most `cells` that are runs of a tile's cells, if tiles are as wide as the grid's.
fn piece_extents(grid: &ChunkGrid, order: Order, cells: u64) -> Coords {
    let mut extents: Coords =
        grid.chunk_shape().iter().zip(grid.shape()).map(|(chunk, n)| (*chunk).min(*n).max(1)).collect();
    let rank = extents.len();
    let mut room = cells.max(1);
    for i in 0..rank {
        // The fastest-varying dimension first.
        let d = if order == Order::ColMajor { i } else { rank - 1 - i };
        extents[d] = extents[d].min(room);
        room = if extents[d] < grid.chunk_shape()[d].min(grid.shape()[d]) {
            1
        } else {
            (room / extents[d]).max(1)
        };
    }
    extents
}

/// Returns whether pieces of a chunk can be fetched separately.
fn is_narrow(handle: &Handle, chunk: &PlannedChunk, column: Column) -> Result<bool> {
    match chunk.access {
        Access::Direct { .. } => Ok(true),
        Access::Coded { granule: Some(granule) } => {
            let Some(tile) = chunk.tile_region() else { return Ok(false) };
            let run = aligned(&(0..1), granule, tile);
            Ok(handle.source().narrow(chunk, column, &run)?.is_some())
        }
        Access::Coded { granule: None } => Ok(false),
    }
}

/// Memory of checking a chunk: stored and decoded, or of a piece if it is checked in pieces.
pub(crate) fn check_bytes(
    handle: &Handle,
    chunk: &PlannedChunk,
    decode: bool,
    memory: Option<u64>,
) -> Result<u64> {
    let Some(memory) = memory else { return Ok(0) };
    if !decode {
        return Ok(0);
    }
    let mut columns: Vec<Column> = chunk.parts.iter().map(|part| part.column).collect();
    columns.dedup();
    if let [column] = columns.as_slice()
        && cell_runs(handle, chunk, *column, memory)?.is_some()
    {
        return Ok(piece_bytes(memory).saturating_mul(3));
    }
    let mut decoded = 0;
    for column in columns {
        decoded = decoded.max(column_bytes(handle, chunk, column)?);
    }
    Ok(chunk.stored_bytes().saturating_add(decoded))
}

/// Decoded size of one column of a chunk in bytes.
fn column_bytes(handle: &Handle, chunk: &PlannedChunk, column: Column) -> Result<u64> {
    if matches!(column, Column::Field(f) if handle.schema().fields[usize::from(f)].dtype == DType::Bitmask) {
        return Ok(chunk.cells.div_ceil(8));
    }
    let (size, nullable) = column_layout(handle.schema(), column)?;
    Ok(match size {
        0 => handle.source().describe(chunk).raw_len.max(chunk.cells.saturating_mul(8)),
        _ => chunk.cells.saturating_mul(size as u64 + u64::from(nullable)),
    })
}

/// Bytes of a piece.
fn piece_bytes(memory: u64) -> u64 {
    PIECE.min(memory / 16).max(SMALL / 16)
}

/// A piece of a chunk and the cells to decode from it.
pub(crate) type CellRun = (Result<PlannedChunk>, Range<u64>);

/// All cells of a chunk as consecutive pieces; `None` if it is small compared to the memory limit or cannot be divided.
pub(crate) fn cell_runs<'a>(
    handle: &'a Handle,
    chunk: &'a PlannedChunk,
    column: Column,
    memory: u64,
) -> Result<Option<impl Iterator<Item = CellRun> + 'a>> {
    let need = chunk.stored_bytes().saturating_add(column_bytes(handle, chunk, column)?);
    let direct = match (chunk.access, chunk.parts.as_slice()) {
        (Access::Direct { .. }, [part]) if chunk.cells > 0 && part.len.is_multiple_of(chunk.cells) => {
            Some((*part, part.len / chunk.cells))
        }
        _ => None,
    };
    let tile = chunk.tile_region().filter(|tile| tile.cells() == Some(chunk.cells));
    let granule = match chunk.access {
        Access::Coded { granule: Some(granule) } => granule.max(1),
        _ => 1,
    };
    if !oversized(need, memory)
        || (direct.is_none() && (tile.is_none() || !is_narrow(handle, chunk, column)?))
    {
        return Ok(None);
    }
    let each = (piece_bytes(memory).saturating_mul(chunk.cells) / need.max(1)).max(1);
    let each = each.next_multiple_of(granule);
    let runs = (0..chunk.cells).step_by(usize::try_from(each).unwrap_or(usize::MAX)).map(move |start| {
        let cells = start..chunk.cells.min(start.saturating_add(each));
        match direct {
            Some((part, size)) => {
                let len = cells.end - cells.start;
                let part = Part { offset: part.offset + start * size, len: len * size, ..part };
                let parts = [part].into_iter().collect();
                let tile = Some(Box::new(Region::from_shape(&[len])));
                (Ok(PlannedChunk { parts, tile, cells: len, whole: false, ..chunk.clone() }), 0..len)
            }
            None => {
                let parts = handle.source().narrow(chunk, column, &cells);
                let piece = parts.map(|parts| PlannedChunk {
                    parts: parts.unwrap_or_else(|| chunk.parts.clone()),
                    whole: false,
                    ..chunk.clone()
                });
                (piece, cells)
            }
        }
    });
    Ok(Some(runs))
}

/// A range of a tile's cells, widened to granules.
pub(crate) fn aligned(cells: &Range<u64>, granule: u64, tile: &Region) -> Range<u64> {
    let (granule, all) = (granule.max(1), tile.cells().unwrap_or(u64::MAX));
    let end = cells.end.div_ceil(granule).saturating_mul(granule).min(all);
    (cells.start / granule * granule).min(end)..end
}

/// The piece of a chunk that contains a box of its cells.
fn cut_piece(
    handle: &Handle,
    chunk: &PlannedChunk,
    column: Column,
    size: usize,
    cover: Region,
) -> Result<PlannedChunk> {
    let order = handle.schema().cell_order;
    let piece = PlannedChunk { whole: false, ..chunk.clone() };
    let Some(tile) = chunk.tile_region() else { return Ok(piece) };
    match (chunk.access, chunk.parts.as_slice()) {
        (Access::Direct { .. }, [part])
            if tile.cells().and_then(|n| n.checked_mul(size as u64)) == Some(part.len) =>
        {
            let run = whole_rows(tile, &cover, order);
            let cells = run.cells().unwrap_or(u64::MAX);
            let mut part = *part;
            part.offset += locate_selection(tile, order, size, &Selection::from_region(&run)).start as u64;
            part.len = cells.saturating_mul(size as u64);
            let parts = [part].into_iter().collect();
            Ok(PlannedChunk { cover: Cover::Exact(cover), tile: Some(Box::new(run)), cells, parts, ..piece })
        }
        (Access::Coded { granule: Some(granule) }, _) => {
            let cells = locate_selection(tile, order, size, &Selection::from_region(&cover)).cells;
            let parts = handle.source().narrow(chunk, column, &aligned(&cells, granule, tile))?;
            let parts = parts.unwrap_or_else(|| chunk.parts.clone());
            Ok(PlannedChunk {
                cover: Cover::Exact(cover),
                tile: Some(Box::new(tile.clone())),
                parts,
                ..piece
            })
        }
        // As stored: an error is reported when it is read.
        _ => Ok(PlannedChunk { cover: Cover::Exact(cover), tile: Some(Box::new(tile.clone())), ..piece }),
    }
}

/// The smallest box that contains `part` and is one run of the tile's cells.
fn whole_rows(tile: &Region, part: &Region, order: Order) -> Region {
    let rank = tile.rank();
    let slow = |d: usize| if order == Order::ColMajor { rank - 1 - d } else { d };
    let first = (0..rank).map(slow).position(|d| part.extent(d) > 1).unwrap_or(rank);
    Region::new((0..rank).map(|d| {
        let behind = slow(d) > first;
        if behind { (tile.start(d), tile.end(d)) } else { (part.start(d), part.end(d)) }
    }))
}

/// Returns whether ranges of cells of a chunk can be decoded independently at low cost. With large granules, single ranges cost
/// as much as the chunk.
fn parted(chunk: &PlannedChunk) -> bool {
    matches!(chunk.access, Access::Direct { .. } | Access::Coded { granule: Some(..=64) })
}

/// Returns whether parts of a chunk can be read separately, according to the first one of a selection.
///
/// # Errors
/// Errors of the plan.
pub fn divisible(handle: &Handle, request: &Request) -> Result<bool> {
    first_chunks(handle, request, |handle, chunks| {
        // Others are fetched as whole chunks, unless they are oversized.
        Ok(chunks.iter().all(parted) && fetch::resident(handle, chunks)?.is_some())
    })
}

/// Returns whether chunks of this size are too large for a memory limit, so that they are divided if possible.
pub fn oversized(bytes: u64, memory: u64) -> bool {
    bytes > (memory / LARGE).max(SMALL)
}

/// Returns whether pieces of a chunk can be fetched and decoded separately, possibly with adjacent cells; evaluated like
/// [`divisible`]. Worthwhile only if chunks are [`oversized`].
///
/// # Errors
/// Errors of the plan.
pub fn narrowable(handle: &Handle, request: &Request) -> Result<bool> {
    first_chunks(handle, request, |handle, chunks| {
        Ok(fetch::resident(handle, chunks)?.is_none() && all_narrow(handle, request, chunks)?)
    })
}

fn all_narrow(handle: &Handle, request: &Request, chunks: &[PlannedChunk]) -> Result<bool> {
    for column in &request.columns {
        for chunk in chunks {
            if !is_narrow(handle, chunk, *column)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Evaluates the chunks of the first cell of a selection.
fn first_chunks(
    handle: &Handle,
    request: &Request,
    accept: impl Fn(&Handle, &[PlannedChunk]) -> Result<bool>,
) -> Result<bool> {
    let Some(selection) = request.selection().filter(|selection| selection.cells() != Some(0)) else {
        return Ok(false);
    };
    let slices = selection.slices().iter().map(|s| Slice::new(s.start, s.start + 1));
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    let target = Target::Cells(Selection::new(slices, &bounds)?);
    handle.restartable(|handle| {
        let chunks = handle.plan(&Request { target: target.clone(), ..request.clone() })?.chunks;
        if chunks.is_empty() { Ok(false) } else { accept(handle, &chunks) }
    })
}
