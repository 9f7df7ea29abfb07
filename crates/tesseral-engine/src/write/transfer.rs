//! Transfer of cells into an array being written, by a [`RechunkPlan`].

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use rayon::prelude::*;
use tesseral_core::{ChunkGrid, Coords, Error, Region, Result, Selection, alloc};
use tesseral_format::{Request, StoredChunk, StoredForm};

use crate::decode::columns::Cells;
use crate::decode::variable_length::read_var;
use crate::fetch::{self, ChunkBytes};
use crate::handle::Handle;
use crate::options::{Options, Ticker};
use crate::paint::dense;
use crate::plan::rechunk::{RechunkPlan, TransferMethod};
use crate::write::{WriteSession, copy_from_box, copy_into_box};

/// Source of the cells of a new array.
pub trait CellSource: Sync {
    /// Reads the cells of a region into the columns, one per field, row-major, with the given options.
    ///
    /// # Errors
    /// Errors of reading.
    fn read(&self, region: &Region, columns: &mut [Cells], options: &Options) -> Result<()>;

    /// Returns the stored bytes of exactly that region in an encoding that the writer `accepts_encoded`, after verifying their
    /// digest.
    ///
    /// # Errors
    /// Errors of reading.
    fn stored(
        &self,
        region: &Region,
        accepts_encoded: &dyn Fn(StoredForm) -> bool,
    ) -> Result<Option<StoredChunk>> {
        let _ = (region, accepts_encoded);
        Ok(None)
    }
}

/// Writes an array from a source. `scratch` is called for a file if the plan has two passes.
///
/// # Errors
/// Errors of the source and the writer; `Io`.
pub fn transfer(
    session: &WriteSession,
    array: usize,
    source: &dyn CellSource,
    plan: &RechunkPlan,
    scratch: impl FnOnce() -> Result<File>,
) -> Result<()> {
    let declared = session.declared(array)?;
    let grid = &declared.grid;
    if grid.shape() != &plan.grids.shape[..] || grid.chunk_shape() != &plan.grids.to[..] {
        return Err(Error::internal("the plan belongs to another array").in_array(&declared.schema.name));
    }
    let mover = ChunkTransfer { session, array, source };
    match &plan.way {
        TransferMethod::PerChunk => mover.chunks(&Region::from_shape(grid.shape())),
        TransferMethod::PerBlock { block } => mover.blocks(block),
        TransferMethod::ScratchFile { read, write } => mover.through_scratch_file(read, write, &scratch()?),
    }
}

/// Writes a region of whole chunks of an array from a source, chunk by chunk.
///
/// # Errors
/// `InvalidRequest` if the region divides a chunk; errors of the source and the writer.
pub fn transfer_box(
    session: &WriteSession,
    array: usize,
    region: &Region,
    source: &dyn CellSource,
) -> Result<()> {
    ChunkTransfer { session, array, source }.chunks(region)
}

struct ChunkTransfer<'a> {
    session: &'a WriteSession,
    array: usize,
    source: &'a dyn CellSource,
}

impl ChunkTransfer<'_> {
    /// Options of a read inside a parallel loop.
    fn sequential(&self) -> Options {
        self.session.options().clone().sequential().without_progress()
    }

    /// Options of a read that uses all threads.
    fn parallel(&self) -> Options {
        self.session.options().clone().without_progress()
    }

    fn chunks(&self, part: &Region) -> Result<()> {
        let grid = &self.session.declared(self.array)?.grid;
        let options = self.sequential();
        let accepts_encoded = |form| self.session.accepts_encoded(self.array, form);
        let ticker = self.session.options().ticker(grid.total());
        self.session.fill_part(self.array, part, &ticker, |region, columns| {
            if let Some(stored) = self.source.stored(region, &accepts_encoded)? {
                return Ok(Some(stored));
            }
            self.source.read(region, columns, &options)?;
            Ok(None)
        })
    }

    fn blocks(&self, block: &[u64]) -> Result<()> {
        let declared = self.session.declared(self.array)?;
        let blocks = ChunkGrid::new(declared.grid.shape(), block)?;
        let ticker = self.session.options().ticker(declared.grid.total());
        let mut columns = declared.columns();
        for number in 0..blocks.total() {
            let region = blocks.region(&blocks.coords(number));
            if !self.session.recalls(self.array, &region)? {
                reset(&mut columns, &region)?;
                self.source.read(&region, &mut columns, &self.parallel())?;
            }
            self.store(&region, &columns, &ticker)?;
        }
        Ok(())
    }

    /// Encodes and stores the chunks of a block whose cells are in memory.
    fn store(&self, block: &Region, cells: &[Cells], ticker: &Ticker<'_>) -> Result<()> {
        self.session.fill_part(self.array, block, ticker, |region, columns| {
            for (from, to) in cells.iter().zip(columns) {
                cut_column(from, block, region, to)?;
            }
            Ok(None)
        })
    }

    fn through_scratch_file(&self, read: &[u64], write: &[u64], scratch: &File) -> Result<()> {
        let declared = self.session.declared(self.array)?;
        let cell = declared.cell_bytes();
        let (reads, writes) =
            (ChunkGrid::new(declared.grid.shape(), read)?, ChunkGrid::new(declared.grid.shape(), write)?);
        let pieces = ScratchLayout { reads: &reads, writes: &writes, cell };
        let ticker = self.session.options().ticker(declared.grid.total() + reads.total());
        let mut columns = declared.columns();
        for number in 0..reads.total() {
            let region = reads.region(&reads.coords(number));
            reset(&mut columns, &region)?;
            self.source.read(&region, &mut columns, &self.parallel())?;
            self.session.options().run(|| pieces.store(&region, &columns, scratch))?;
            ticker.tick()?;
        }
        for number in 0..writes.total() {
            let coords = writes.coords(number);
            let region = writes.region(&coords);
            reset(&mut columns, &region)?;
            pieces.load(&coords, &region, &mut columns, scratch)?;
            self.store(&region, &columns, &ticker)?;
        }
        Ok(())
    }
}

fn cells_of(region: &Region) -> Result<usize> {
    let cells = region.cells().and_then(|n| usize::try_from(n).ok());
    cells.ok_or_else(|| Error::limit("a block", u64::MAX, usize::MAX as u64))
}

fn reset(columns: &mut [Cells], region: &Region) -> Result<()> {
    let count = cells_of(region)?;
    columns.iter_mut().try_for_each(|column| column.reset(count))
}

/// The cells of a part of a block.
fn cut_column(from: &Cells, block: &Region, part: &Region, to: &mut Cells) -> Result<()> {
    let size = from.size();
    if size > 0 {
        let (values, validity) = to.parts_mut();
        copy_from_box(from.data(), block, size, part, values)?;
        if let (Some(to), Some(from)) = (validity, from.validity()) {
            copy_from_box(from, block, 1, part, to)?;
        }
        return Ok(());
    }
    let extents = block.shape();
    let offsets: Coords = part.bounds().iter().zip(block.bounds()).map(|(p, b)| p.0 - b.0).collect();
    let inner = ChunkGrid::new(&part.shape(), &Coords::from_elem(1, part.rank()))?;
    for number in 0..inner.total() {
        let at = inner.coords(number);
        let linear = at.iter().zip(&offsets).zip(&extents).fold(0, |sum, ((i, o), n)| sum * n + i + o);
        // A cell of a block in memory.
        let i = usize::try_from(linear).unwrap_or(usize::MAX);
        to.push(from.get(i), from.is_valid(i));
    }
    Ok(())
}

/// Layout of a scratch file with the intersections of the blocks of two grids: by write block, inside by read block. Offsets
/// are not stored; they follow from the grids.
struct ScratchLayout<'a> {
    reads: &'a ChunkGrid,
    writes: &'a ChunkGrid,
    cell: u64,
}

/// Number of cells of all boxes before `part` if `whole` is divided by the grid of `part`: boxes that equal it before dimension
/// `d` and are below it there form one box each.
fn cells_before(whole: &Region, part: &Region) -> u64 {
    (0..whole.rank())
        .map(|d| {
            let before: u64 = (0..d).map(|k| part.extent(k)).product();
            let after: u64 = (d + 1..whole.rank()).map(|k| whole.extent(k)).product();
            before * (part.start(d) - whole.start(d)) * after
        })
        .sum()
}

impl ScratchLayout<'_> {
    fn offset(&self, write: &Region, piece: &Region) -> u64 {
        let whole = Region::from_shape(self.writes.shape());
        (cells_before(&whole, write) + cells_before(write, piece)) * self.cell
    }

    /// Divides the cells of a read block into pieces and writes each to its offset.
    fn store(&self, block: &Region, columns: &[Cells], scratch: &File) -> Result<()> {
        let touched: Vec<Coords> = self.writes.touched(&Selection::from_region(block)).collect();
        touched.par_iter().try_for_each_init(Vec::new, |buffer: &mut Vec<u8>, coords| {
            let write = self.writes.region(coords);
            let Some(piece) = write.intersect(block) else { return Ok(()) };
            let count = cells_of(&piece)?;
            let mut at = self.offset(&write, &piece);
            let mut put = |cells: &[u8], size: usize| -> Result<()> {
                alloc::resize("a piece of a block", buffer, count * size, 0)?;
                copy_from_box(cells, block, size, &piece, buffer)?;
                scratch.write_all_at(buffer, at).map_err(io("write"))?;
                at += buffer.len() as u64;
                Ok(())
            };
            for column in columns {
                put(column.data(), column.size())?;
                column.validity().map_or(Ok(()), |validity| put(validity, 1))?;
            }
            Ok(())
        })
    }

    /// Gathers the pieces of a write block.
    fn load(&self, coords: &Coords, block: &Region, columns: &mut [Cells], scratch: &File) -> Result<()> {
        let write = self.writes.region(coords);
        let mut buffer = Vec::new();
        for coords in self.reads.touched(&Selection::from_region(block)) {
            let Some(piece) = self.reads.region(&coords).intersect(block) else { continue };
            let count = cells_of(&piece)?;
            let mut at = self.offset(&write, &piece);
            let mut get = |cells: &mut [u8], size: usize| -> Result<()> {
                alloc::resize("a piece of a block", &mut buffer, count * size, 0)?;
                scratch.read_exact_at(&mut buffer, at).map_err(io("read"))?;
                at += buffer.len() as u64;
                copy_into_box(&buffer, &piece, size, block, cells)
            };
            for column in columns.iter_mut() {
                let size = column.size();
                let (values, validity) = column.parts_mut();
                get(values, size)?;
                validity.map_or(Ok(()), |validity| get(validity, 1))?;
            }
        }
        Ok(())
    }
}

fn io(op: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::io(op, "the scratch file", e)
}

/// Reads a selection of one field of a dense array into a column of any cell type.
///
/// # Errors
/// As [`read`](crate::read).
pub fn read_column(handle: &Handle, request: &Request, column: &mut Cells, options: &Options) -> Result<()> {
    if column.size() == 0 {
        *column = read_var(handle, request, options)?;
        return Ok(());
    }
    let (values, validity) = column.parts_mut();
    dense::read_into(handle, request, values, validity, options)
}

/// Returns the stored bytes of the only chunk of a region, if their encoding is `adopted` and a digest verifies them. Without a
/// digest they must be decoded.
///
/// # Errors
/// Errors of the plan and the store; `Corrupt` on a digest mismatch.
pub fn read_stored(
    handle: &Handle,
    region: &Region,
    adopted: &dyn Fn(StoredForm) -> bool,
) -> Result<Option<StoredChunk>> {
    handle.restartable(|handle| read_encoded(handle, region, adopted))
}

fn read_encoded(
    handle: &Handle,
    region: &Region,
    adopted: &dyn Fn(StoredForm) -> bool,
) -> Result<Option<StoredChunk>> {
    let request = Request::cells(Selection::from_region(region), 0);
    let plan = handle.plan(&request)?;
    let [chunk] = plan.chunks.as_slice() else { return Ok(None) };
    let form = handle.source().stored_form(chunk).filter(|form| adopted(*form));
    let (Some(form), [_]) = (form, chunk.parts.as_slice()) else { return Ok(None) };
    let whole = chunk.whole && chunk.cover.region() == Some(region) && chunk.tile.is_none();
    if !whole || !plan.deletes.is_empty() || !handle.is_guarded(chunk) {
        return Ok(None);
    }
    let column = request.columns[0];
    let resident = fetch::resident(handle, &plan.chunks)?;
    let parts = match &resident {
        Some(resident) => ChunkBytes::Resident(resident).column(handle, chunk, column),
        None => {
            let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
            ChunkBytes::Fetched(&fetched).column(handle, chunk, column)
        }
    };
    let mut parts = parts.map_err(|e| handle.locate(chunk, e))?;
    let raw_len = handle.source().describe(chunk).raw_len;
    let stats = handle.source().stats(chunk, column);
    // They are written after this operation has ended.
    Ok(parts.pop().map(|bytes| StoredChunk { form, bytes: Bytes::copy_from_slice(&bytes), raw_len, stats }))
}
