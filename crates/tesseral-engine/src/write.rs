//! Writing of a container: chunks are encoded in parallel, stored in canonical order, and published atomically.

mod cells;
mod columns;
mod fill;
mod journal;
mod order;
pub(crate) mod transfer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use tesseral_core::{
    ArraySchema, Attributes, ChunkGrid, ChunkStats, Coords, Error, HistoryRow, Order, Region, Result, Stat,
    alloc,
};
use tesseral_format::{ArraySpec, ColumnData, EncodedChunk, Groups, Pending, Writer};

use crate::decode::chunk::with_workspace;
use crate::kernel::copy::copy_box;
use crate::options::{Options, Ticker};
use crate::paint::sink::row_major;
use crate::reduce::kernel::summary::Summary;

pub use self::cells::InputOrder;
use self::cells::PendingCells;
pub(crate) use self::columns::runs;
pub(crate) use self::fill::{copy_from_box, copy_into_box};
pub use self::journal::Journal;

/// A container being written.
#[derive(Debug)]
pub struct WriteSession {
    writer: Box<dyn Writer>,
    arrays: Vec<DeclaredArray>,
    options: Options,
    journal: Option<Journal>,
}

#[derive(Debug)]
pub(crate) struct DeclaredArray {
    pub(crate) schema: ArraySchema,
    /// The chunk grid; unused for a sparse array.
    pub(crate) grid: ChunkGrid,
    /// The written region.
    region: Region,
    /// Size of a cell in bytes, if there is one fixed-size field.
    size: Option<usize>,
    /// Pending cells of a sparse array.
    tail: Mutex<PendingCells>,
}

impl DeclaredArray {
    fn new(schema: &ArraySchema, region: Option<Region>) -> Result<Self> {
        let size = match schema.fields.as_slice() {
            [field] if !field.nullable && !schema.sparse => field.cell_size(),
            _ => None,
        };
        let grid = if schema.sparse { ChunkGrid::new(&[], &[])? } else { schema.grid()?.counted()? };
        let region = region.unwrap_or_else(|| Region::from_shape(grid.shape()));
        Ok(Self { schema: schema.clone(), grid, region, size, tail: Mutex::default() })
    }

    /// The written cells of a chunk.
    fn cells(&self, coords: &[u64]) -> Result<Region> {
        let whole = self.grid.contains(coords).then(|| self.grid.region(coords));
        whole.and_then(|whole| whole.intersect(&self.region)).ok_or_else(|| {
            Error::invalid(format!(
                "chunk coordinates {coords:?} are out of bounds for a grid of {:?}",
                self.grid.counts()
            ))
        })
    }

    fn size(&self) -> Result<usize> {
        self.size.ok_or_else(|| Error::unsupported("writing variable-length cells as contiguous bytes"))
    }
}

impl WriteSession {
    /// Creates a writer around a format's writer.
    pub fn new(writer: Box<dyn Writer>, options: Options) -> Self {
        Self { writer, arrays: Vec::new(), options, journal: None }
    }

    /// Creates a writer to an existing array, as number 0; all of it, or a region of a dense one.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn appending(
        writer: Box<dyn Writer>,
        schema: &ArraySchema,
        region: Option<Region>,
        options: Options,
    ) -> Result<Self> {
        let arrays = vec![DeclaredArray::new(schema, region).map_err(|e| e.in_array(&schema.name))?];
        Ok(Self { writer, arrays, options, journal: None })
    }

    /// Creates an array.
    ///
    /// # Errors
    /// `Unsupported` if the format cannot store it; `InvalidRequest`.
    pub fn add(&mut self, spec: &ArraySpec) -> Result<usize> {
        let name = &spec.schema.name;
        let declared = DeclaredArray::new(&spec.schema, None).map_err(|e| e.in_array(name))?;
        let array = self.writer.begin(spec).map_err(|e| e.in_array(name))?;
        self.arrays.push(declared);
        Ok(array)
    }

    /// Changes the options of later chunks.
    pub(crate) fn limit_workers(&mut self, limit: impl FnOnce(&Options) -> Result<Options>) -> Result<()> {
        self.options = limit(&self.options)?;
        Ok(())
    }

    /// Schema of a created array.
    ///
    /// # Errors
    /// `InvalidRequest` if the number is unknown.
    pub fn schema(&self, array: usize) -> Result<&ArraySchema> {
        self.declared(array).map(|declared| &declared.schema)
    }

    pub(crate) fn declared(&self, array: usize) -> Result<&DeclaredArray> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("unknown array number {array}")))
    }

    /// Writes the cells of one chunk, row-major over its box. Any order, any thread.
    ///
    /// # Errors
    /// `InvalidRequest` if the cells do not match the chunk or it is a duplicate; `Io`.
    pub fn write_chunk(&self, array: usize, coords: &[u64], cells: &[u8]) -> Result<()> {
        let declared = self.declared(array)?;
        self.store(array, declared, coords, cells).map_err(|e| located(e, declared, coords))
    }

    fn store(&self, array: usize, declared: &DeclaredArray, coords: &[u64], cells: &[u8]) -> Result<()> {
        let expected = chunk_bytes(declared, coords)?;
        if expected != cells.len() {
            return Err(Error::invalid(format!(
                "expected {expected} bytes for the chunk, found {}",
                cells.len()
            )));
        }
        let chunk = self.encode(array, declared, coords, cells)?;
        self.writer.push(array, chunk)
    }

    fn encode<'a>(
        &self,
        array: usize,
        declared: &DeclaredArray,
        coords: &[u64],
        cells: &'a [u8],
    ) -> Result<EncodedChunk<'a>> {
        if declared.schema.cell_order == Order::ColMajor && declared.grid.rank() > 1 {
            let column = ColumnData::Fixed { values: cells, validity: None };
            return self.encode_part(array, declared, coords, &declared.cells(coords)?, &[column]);
        }
        let stats = match self.writer.wants_stats(array) {
            true => vec![self.statistics(array, &declared.schema.fields[0], cells, None)?],
            false => Vec::new(),
        };
        let column = ColumnData::Fixed { values: cells, validity: None };
        with_workspace(|w| self.writer.encode(array, coords, &[column], stats, &mut w.scratch))
    }

    /// Writes an array by calling `cells` for every chunk, on all threads.
    ///
    /// Memory is one chunk per thread, and as many encoded ones that wait for their turn.
    ///
    /// # Errors
    /// Errors of `cells`; `Io`.
    pub fn fill<F>(&self, array: usize, cells: F) -> Result<()>
    where
        F: Fn(&Region, &mut [u8]) -> Result<()> + Sync,
    {
        let declared = self.declared(array)?;
        self.fill_chunks(array, declared, declared.grid.total(), |number| declared.grid.coords(number), cells)
    }

    /// Writes `total` chunks, starting with `chunk(0)`, in that order if the format requires it.
    fn fill_chunks<F>(
        &self,
        array: usize,
        declared: &DeclaredArray,
        total: u64,
        chunk: impl Fn(u64) -> Coords + Sync,
        cells: F,
    ) -> Result<()>
    where
        F: Fn(&Region, &mut [u8]) -> Result<()> + Sync,
    {
        self.each_chunk(array, total, |number, buffer, turn| {
            let coords = chunk(number);
            let mut write_chunk = || -> Result<()> {
                let bytes = chunk_bytes(declared, &coords)?;
                alloc::scratch("the cells of a chunk", buffer, bytes)?;
                cells(&declared.cells(&coords)?, &mut buffer[..bytes])?;
                let chunk = self.encode(array, declared, &coords, &buffer[..bytes])?;
                turn.submit(number, chunk, |chunk| self.writer.place(array, chunk))
            };
            write_chunk().map_err(|e| located(e, declared, &coords))
        })
    }

    /// Calls `one(number, spare buffer, turn)` for `total` chunks, on all threads.
    fn each_chunk(
        &self,
        array: usize,
        total: u64,
        one: impl Fn(u64, &mut Vec<u8>, &ChunkSequencer) -> Result<()> + Sync,
    ) -> Result<()> {
        self.each_chunk_on(&self.options, array, total, one)
    }

    /// As [`each_chunk`](Self::each_chunk), with other options.
    fn each_chunk_on(
        &self,
        options: &Options,
        array: usize,
        total: u64,
        one: impl Fn(u64, &mut Vec<u8>, &ChunkSequencer) -> Result<()> + Sync,
    ) -> Result<()> {
        self.each_chunk_keeping(options, array, total, &self.options.ticker(total), Vec::new, one)
    }

    /// Calls `one(number, state of the thread, turn)` for `total` chunks, on all threads.
    fn each_chunk_keeping<K>(
        &self,
        options: &Options,
        array: usize,
        total: u64,
        ticker: &Ticker<'_>,
        keep: impl Fn() -> K + Sync,
        one: impl Fn(u64, &mut K, &ChunkSequencer) -> Result<()> + Sync,
    ) -> Result<()> {
        let turn = ChunkSequencer::new(self.writer.needs_order(array));
        let claimed = AtomicU64::new(0);
        let work = || -> Result<()> {
            let mut kept = keep();
            loop {
                let number = claimed.fetch_add(1, Ordering::Relaxed);
                if number >= total {
                    return Ok(());
                }
                if let Err(error) = one(number, &mut kept, &turn).and_then(|()| ticker.tick()) {
                    turn.fail();
                    return Err(error);
                }
            }
        };
        options.run(|| {
            // Chunk numbers are claimed in order, so a chunk never waits for one that no thread works on.
            let threads = rayon::current_num_threads();
            let mut results: Vec<Result<()>> = Vec::new();
            results.resize_with(threads, || Ok(()));
            rayon::scope(|scope| {
                for result in &mut results {
                    let work = &work;
                    scope.spawn(move |_| *result = work());
                }
            });
            // A thread that stopped because another failed returns `Cancelled`: return the cause first.
            let cancelled = |e: &Error| matches!(e.kind(), tesseral_core::ErrorKind::Cancelled);
            let mut errors: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
            errors.sort_by_key(cancelled);
            errors.into_iter().next().map_or(Ok(()), Err)
        })
    }

    /// Writes an array from cells in memory, row-major over the array.
    ///
    /// # Errors
    /// `InvalidRequest` if the number of cells differs; `Io`.
    pub fn write(&self, array: usize, cells: &[u8]) -> Result<()> {
        let declared = self.declared(array)?;
        let region = declared.region.clone();
        let size = declared.size.and_then(|size| region.cells()?.checked_mul(size as u64));
        let whole = region == Region::from_shape(declared.grid.shape()) && size == Some(cells.len() as u64);
        if whole && declared.schema.cell_order == Order::RowMajor && self.journal.is_none() {
            let ticker = self.options.ticker(declared.grid.total());
            self.options.cancel.check()?;
            let pushed = self.writer.push_all(array, cells, self.options.threads());
            if pushed.map_err(|e| e.in_array(&declared.schema.name))? {
                return (0..declared.grid.total()).try_for_each(|_| ticker.tick());
            }
        }
        self.write_region(array, &region, cells)
    }

    /// Writes a region of whole chunks from cells in memory, row-major over the region, which is aligned to chunks or ends with
    /// the array.
    ///
    /// # Errors
    /// `InvalidRequest` if the number of cells differs, the region divides a chunk, or a chunk is a duplicate; `Io`.
    pub fn write_region(&self, array: usize, region: &Region, cells: &[u8]) -> Result<()> {
        let declared = self.declared(array)?;
        let refuse = |detail| Err(Error::invalid(detail).in_array(&declared.schema.name));
        let size = declared.size().map_err(|e| e.in_array(&declared.schema.name))?;
        let expected = region.cells().and_then(|n| n.checked_mul(size as u64));
        if expected != Some(cells.len() as u64) {
            let wanted = expected.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string());
            return refuse(format!("expected {wanted} bytes of cells, found {}", cells.len()));
        }
        let Some(boxes) = whole_chunks(declared, region) else {
            return refuse(format!(
                "region {region:?} is not aligned to chunks of {:?}",
                declared.grid.chunk_shape()
            ));
        };
        let from = row_major(&region.shape(), size);
        let total = boxes.cells().unwrap_or(u64::MAX);
        let order = self.writer.chunk_order(array);
        let chunk = |number: u64| chunk_at(&boxes, order, number);
        self.fill_chunks(array, declared, total, chunk, |part, out| {
            let to = row_major(&part.shape(), size);
            // Positions inside the box, whose bytes are in memory.
            let start: usize =
                (0..part.rank()).map(|d| (part.start(d) - region.start(d)) as usize * from[d]).sum();
            let extents: Vec<usize> = part.shape().iter().map(|&n| n as usize).collect();
            copy_box(&cells[start..], &from, out, &to, &extents, size)
        })
    }

    /// Sets attributes of the container.
    ///
    /// # Errors
    /// `Unsupported` if the format cannot store one.
    pub fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.writer.set_attributes(attributes)
    }

    /// Sets attributes of a group of the container.
    ///
    /// # Errors
    /// `Unsupported` if the format cannot store it.
    pub fn set_group(&mut self, path: &str, attributes: Attributes) -> Result<()> {
        self.writer.set_group(path, attributes)
    }

    /// Sets attributes of several groups at once.
    ///
    /// # Errors
    /// As [`set_group`](Self::set_group).
    pub fn set_groups(&mut self, groups: Groups) -> Result<()> {
        self.writer.set_groups(groups)
    }

    /// Adds a row to the history.
    ///
    /// # Errors
    /// `Unsupported` if the format has no history.
    pub fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.writer.add_history(row)
    }

    /// Replaces the inputs of the last row of the history by others of the same length; returns false if the format has stored them.
    pub fn set_parents(&mut self, parents: &[String]) -> bool {
        self.writer.set_parents(parents)
    }

    /// Ends a part of the container, such as a message. Arrays that are created afterwards belong to the next one and are
    /// numbered from 0.
    ///
    /// # Errors
    /// `Unsupported` by formats of one part; `InvalidRequest` if a chunk is missing; `Io`.
    pub fn finish_part(&mut self) -> Result<()> {
        self.flush_arrays()?;
        self.arrays.clear();
        self.writer.finish_part()
    }

    /// Publishes the container atomically.
    ///
    /// # Errors
    /// `InvalidRequest` if a chunk is missing; `Io`.
    pub fn commit(self) -> Result<()> {
        self.flush_arrays()?;
        self.writer.commit()
    }

    fn flush_arrays(&self) -> Result<()> {
        self.options.cancel.check()?;
        (0..self.arrays.len()).try_for_each(|array| self.flush_cells(array))
    }
}

fn located(error: Error, declared: &DeclaredArray, coords: &[u64]) -> Error {
    error.in_array(&declared.schema.name).in_chunk(coords)
}

/// The chunks of a region; `None` if it exceeds the array or divides a chunk.
fn whole_chunks(declared: &DeclaredArray, region: &Region) -> Option<Region> {
    let DeclaredArray { grid, region: all, .. } = declared;
    if region.rank() != grid.rank() || !all.contains(region) || region.is_empty() {
        return None;
    }
    let along = |d: usize| {
        let (start, end) = region.bounds()[d];
        let chunk = grid.chunk_shape()[d];
        let whole = (start == all.start(d) || start.is_multiple_of(chunk))
            && (end == all.end(d) || end.is_multiple_of(chunk));
        whole.then(|| (start / chunk, end.div_ceil(chunk)))
    };
    (0..region.rank()).map(along).collect::<Option<Vec<_>>>().map(Region::new)
}

/// Grid coordinates of a chunk of a box of chunks, by its index in an order.
fn chunk_at(boxes: &Region, order: Order, mut number: u64) -> Coords {
    let mut coords: Coords = boxes.bounds().iter().map(|b| b.0).collect();
    let rank = coords.len();
    for i in 0..rank {
        let d = if order == Order::ColMajor { i } else { rank - 1 - i };
        coords[d] += number % boxes.extent(d);
        number /= boxes.extent(d);
    }
    coords
}

fn chunk_bytes(declared: &DeclaredArray, coords: &[u64]) -> Result<usize> {
    let cells = declared.cells(coords)?.cells().unwrap_or(u64::MAX);
    let bytes = cells.checked_mul(declared.size()? as u64).and_then(|n| usize::try_from(n).ok());
    bytes.ok_or_else(|| Error::limit("a chunk", cells, usize::MAX as u64))
}

/// Converts a summary to chunk statistics.
pub(crate) fn chunk_stats(summary: &Summary) -> ChunkStats {
    fn known<T>(value: Option<T>) -> Stat<T> {
        value.map_or(Stat::Absent, Stat::Exact)
    }
    ChunkStats {
        cells: summary.count(),
        nulls: Stat::Exact(summary.nulls()),
        nans: Stat::Exact(summary.nans()),
        min: known(summary.min()),
        max: known(summary.max()),
        sum: known(summary.sum()),
        partial_sum: summary.partial_sum(),
        missing: Vec::new(),
    }
}

/// Orders encoded chunks. A chunk whose turn it is is placed immediately; others wait, at most one per thread.
struct ChunkSequencer {
    ordered: bool,
    state: Mutex<SequencerState>,
    changed: Condvar,
}

#[derive(Default)]
struct SequencerState {
    next: u64,
    chunks: BTreeMap<u64, EncodedChunk<'static>>,
    failed: bool,
}

impl ChunkSequencer {
    fn new(ordered: bool) -> Self {
        Self { ordered, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Places a chunk, and those that waited for it, and then writes them: only placing is sequential.
    fn submit<'a>(
        &self,
        number: u64,
        chunk: EncodedChunk<'a>,
        place: impl Fn(EncodedChunk<'a>) -> Result<Pending<'a>>,
    ) -> Result<()> {
        if !self.ordered {
            let pending = place(chunk)?;
            return with_workspace(|w| pending.store_into(&mut w.scratch));
        }
        let most = 2 * rayon::current_num_threads() as u64;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.failed && number >= state.next + most {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.failed {
            return Err(Error::cancelled());
        }
        if number != state.next {
            state.chunks.insert(number, chunk.into_owned());
            return Ok(());
        }
        let mut pending = place(chunk)?;
        state.next += 1;
        loop {
            let next = state.next;
            let Some(chunk) = state.chunks.remove(&next) else { break };
            pending.extend(place(chunk.into_owned())?);
            state.next += 1;
        }
        drop(state);
        self.changed.notify_all();
        with_workspace(|w| pending.store_into(&mut w.scratch))
    }

    fn fail(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
        self.changed.notify_all();
    }
}
