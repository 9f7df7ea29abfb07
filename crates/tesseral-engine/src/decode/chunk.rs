//! Cells of one chunk: borrowed from its bytes if they are direct, otherwise decoded.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;
use tesseral_core::schema::Field;
use tesseral_core::{Error, Order, Region, Result, Selection, alloc};
use tesseral_format::{Access, Column, ColumnMut, PlannedChunk, Scratch};

use crate::fetch::{ByteRuns, PartBytes};
use crate::handle::Handle;
use crate::paint::sink::Strides;

/// Label of allocations in limit errors.
const CHUNK: &str = "a decoded chunk";

/// Per-thread state between chunks.
#[derive(Default)]
pub(crate) struct Workspace {
    pub scratch: Scratch,
    values: Vec<u8>,
    validity: Vec<u8>,
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// Bytes of buffers that a thread keeps for its next chunk. Larger ones would take as much again on every thread.
const KEPT: usize = 16 << 20;

impl Workspace {
    fn release_large(&mut self) {
        let Self { scratch: Scratch { buffers: [first, second], .. }, values, validity } = self;
        let buffers = [first, second, values, validity];
        if buffers.iter().map(|buffer| buffer.capacity()).fold(0, usize::saturating_add) > KEPT {
            buffers.into_iter().for_each(|buffer| *buffer = Vec::new());
        }
    }
}

/// Runs with the scratch buffers of this thread. A nested call gets new ones.
pub(crate) fn with_workspace<T>(work: impl FnOnce(&mut Workspace) -> T) -> T {
    WORKSPACE.with(|cell| match cell.try_borrow_mut() {
        Ok(mut workspace) => {
            let out = work(&mut workspace);
            workspace.release_large();
            out
        }
        Err(_) => work(&mut Workspace::default()),
    })
}

/// Byte strides of a tile in its cell order.
fn tile_strides(tile: &Region, order: Order, size: usize) -> Strides {
    let rank = tile.rank();
    let mut strides = Strides::from_elem(size, rank);
    let extent = |d: usize| usize::try_from(tile.extent(d)).unwrap_or(usize::MAX);
    match order {
        Order::ColMajor => {
            for d in 1..rank {
                strides[d] = strides[d - 1].saturating_mul(extent(d - 1));
            }
        }
        _ => {
            for d in (1..rank).rev() {
                strides[d - 1] = strides[d].saturating_mul(extent(d));
            }
        }
    }
    strides
}

/// Placement of a selection in a tile: byte offset of its first cell, byte strides of selected cells, range of cells.
pub(crate) struct Placement {
    pub start: usize,
    pub strides: Strides,
    /// First and one past the last touched cell, in the tile's order.
    pub cells: Range<u64>,
}

pub(crate) fn locate_selection(tile: &Region, order: Order, size: usize, part: &Selection) -> Placement {
    let mut strides = tile_strides(tile, order, size);
    let (mut first, mut last) = (0_usize, 0_usize);
    for (d, slice) in part.slices().iter().enumerate() {
        // The part is inside the tile, whose bytes are addressable.
        let skip = usize::try_from(slice.start - tile.start(d)).unwrap_or(usize::MAX);
        let steps = usize::try_from(slice.count().saturating_sub(1)).unwrap_or(usize::MAX);
        let step = usize::try_from(slice.step).unwrap_or(usize::MAX);
        first = first.saturating_add(skip.saturating_mul(strides[d]));
        strides[d] = strides[d].saturating_mul(step);
        last = last.saturating_add(steps.saturating_mul(strides[d]));
    }
    let cells = (first / size) as u64..((first.saturating_add(last)) / size) as u64 + 1;
    Placement { start: first, strides, cells }
}

/// Cells of a tile, or of a range of it, with the placement of the selection.
pub(crate) struct Decoded<'a> {
    pub values: &'a [u8],
    pub validity: Option<&'a [u8]>,
    pub placement: Placement,
    /// Numbers must be byte-swapped.
    pub swapped: bool,
}

/// A chunk of one fixed-size field, ready to be decoded.
pub(crate) struct ChunkCells<'a> {
    pub handle: &'a Handle,
    pub chunk: &'a PlannedChunk,
    pub column: Column,
    pub size: usize,
    pub nullable: bool,
    /// Size of one number in bytes.
    pub word: usize,
    pub order: Order,
    pub tile: &'a Region,
    pub tile_cells: u64,
    shared: bool,
}

/// Minimum size in bytes of a chunk that is decoded by several threads.
const SHARED_FROM: usize = 1 << 20;

impl<'a> ChunkCells<'a> {
    pub(crate) fn new(handle: &'a Handle, chunk: &'a PlannedChunk, field: u16, size: usize) -> Result<Self> {
        let schema = handle.schema();
        let tile = chunk.tile_region().ok_or_else(|| Error::internal("a sparse chunk in a dense read"))?;
        let tile_cells = tile
            .cells()
            .filter(|n| n.checked_mul(size as u64).is_some_and(|n| usize::try_from(n).is_ok()))
            .ok_or_else(|| Error::limit("a chunk", u64::MAX, usize::MAX as u64))?;
        let Field { nullable, dtype, .. } = &schema.fields[usize::from(field)];
        let (nullable, word, order) = (*nullable, dtype.word(), schema.cell_order);
        Ok(Self {
            handle,
            chunk,
            column: Column::Field(field),
            size,
            nullable,
            word,
            order,
            tile,
            tile_cells,
            shared: false,
        })
    }

    /// Several threads can decode pieces of it, because there is no other work.
    pub(crate) fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// Stored bytes of the selected cells.
    pub(crate) fn touched(&self, part: &Selection) -> ByteRuns {
        let placement = locate_selection(self.tile, self.order, self.size, part);
        let counts = part.slices().iter().map(|slice| slice.count());
        let steps = counts.zip(&placement.strides).map(|(count, stride)| (count, *stride as u64));
        ByteRuns::new(placement.start as u64, self.size as u64, steps)
    }

    /// Placement of the selection in the stored cells, for a direct chunk.
    pub(crate) fn direct<'b>(&self, values: &'b [u8], part: &Selection) -> Result<Decoded<'b>> {
        let expected = self.tile_cells * self.size as u64;
        if values.len() as u64 != expected {
            let detail = format!(
                "{} cells of {} bytes require {expected} bytes, the chunk has {}",
                self.tile_cells,
                self.size,
                values.len()
            );
            return Err(Error::corrupt("a chunk", self.handle.store().location(), None, detail));
        }
        let swapped = matches!(self.chunk.access, Access::Direct { swapped: true }) && self.size > 1;
        let placement = locate_selection(self.tile, self.order, self.size, part);
        Ok(Decoded { values, validity: None, placement, swapped })
    }

    /// Alignment at which decoding can start in the middle; `parts` are the stored bytes, where they are known.
    fn granule(&self, parts: Option<&PartBytes>) -> Option<u64> {
        let granule = match self.chunk.access {
            Access::Coded { granule: None } => {
                self.handle.source().stored_granule(self.chunk, self.column, parts?)
            }
            Access::Coded { granule } => granule,
            Access::Direct { .. } => None,
        };
        granule.filter(|granule| *granule > 0)
    }

    /// Range of cells to decode so that it contains `placement`.
    fn run(&self, placement: &Placement, granule: Option<u64>) -> Range<u64> {
        match granule {
            Some(granule) => {
                let start = placement.cells.start / granule * granule;
                let end = placement.cells.end.div_ceil(granule).saturating_mul(granule);
                start..end.min(self.tile_cells)
            }
            _ => 0..self.tile_cells,
        }
    }

    /// Byte range of the chunk's object that decoding the selection reads; `None` if it can be any of its part.
    pub(crate) fn needed(&self, part: &Selection) -> Option<Range<u64>> {
        let [stored] = self.chunk.parts.as_slice() else { return None };
        let run = self.run(&locate_selection(self.tile, self.order, self.size, part), self.granule(None));
        let Range { start, end } = self.handle.source().run_bytes(self.chunk, &run)?;
        Some(stored.offset.saturating_add(start)..stored.offset.saturating_add(end))
    }

    /// Decodes the cells of the selection into the thread's buffers.
    pub(crate) fn decode<'b>(
        &self,
        parts: &PartBytes,
        part: &Selection,
        workspace: &'b mut Workspace,
    ) -> Result<Decoded<'b>> {
        let mut placement = locate_selection(self.tile, self.order, self.size, part);
        let all = placement.cells == (0..self.tile_cells);
        let run = self.run(&placement, if all { None } else { self.granule(Some(parts)) });
        // At most the tile's cells, whose bytes are addressable.
        let cells = (run.end - run.start) as usize;
        let Workspace { scratch, values, validity } = workspace;
        crate::plan::expansion::check_chunk(self.handle, self.chunk, cells * self.size)?;
        let values = alloc::scratch(CHUNK, values, cells * self.size)?;
        let validity = if self.nullable { Some(alloc::scratch(CHUNK, validity, cells)?) } else { None };
        self.decode_into(parts, run.clone(), values, validity, scratch)?;
        {
            placement.start -= run.start as usize * self.size;
        }
        let validity = self.nullable.then(|| &workspace.validity[..cells]);
        Ok(Decoded { values: &workspace.values[..cells * self.size], validity, placement, swapped: false })
    }

    /// Decodes the whole tile into its destination.
    pub(crate) fn decode_whole(
        &self,
        parts: &PartBytes,
        values: &mut [u8],
        validity: Option<&mut [u8]>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.decode_into(parts, 0..self.tile_cells, values, validity, scratch)
    }

    fn decode_into(
        &self,
        parts: &PartBytes,
        run: Range<u64>,
        values: &mut [u8],
        validity: Option<&mut [u8]>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let divided = self.shared && validity.is_none() && values.len() >= SHARED_FROM;
        match divided.then(|| self.granule(Some(parts))).flatten() {
            Some(granule) => self.decode_pieces(parts, &run, granule, values),
            None => self.decode_run(parts, run, values, validity, scratch),
        }
    }

    /// Decodes a range that is aligned to a granule, one piece per thread.
    fn decode_pieces(
        &self,
        parts: &PartBytes,
        run: &Range<u64>,
        granule: u64,
        values: &mut [u8],
    ) -> Result<()> {
        let threads = rayon::current_num_threads() as u64;
        let each = (run.end - run.start).div_ceil(threads).next_multiple_of(granule);
        // At most the tile's cells and a granule.
        let bytes = usize::try_from(each).unwrap_or(usize::MAX).saturating_mul(self.size);
        values.par_chunks_mut(bytes).enumerate().try_for_each(|(number, values)| {
            let start = run.start + number as u64 * each;
            let piece = start..run.end.min(start + each);
            with_workspace(|workspace| self.decode_run(parts, piece, values, None, &mut workspace.scratch))
        })
    }

    fn decode_run(
        &self,
        parts: &PartBytes,
        run: Range<u64>,
        values: &mut [u8],
        validity: Option<&mut [u8]>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let out = ColumnMut::Fixed { values, validity };
        self.handle.source().decode(self.chunk, self.column, parts, run, out, scratch)
    }

    /// Returns whether `part` is all cells of the tile, in the tile's order.
    pub(crate) fn is_whole(&self, part: &Selection) -> bool {
        part.is_box()
            && &part.bounds() == self.tile
            && (self.order == Order::RowMajor
                || self.tile.bounds().iter().filter(|b| b.1 - b.0 > 1).count() <= 1)
    }
}
