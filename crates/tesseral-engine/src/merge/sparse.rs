//! Reading of sparse arrays: rows of coordinates and fields.
//!
//! Chunks are fetched and decoded like those of dense arrays. Column by column, rows outside the ranges are dropped, deletes
//! and the request's condition are evaluated; the rest is sorted by coordinates, and if an array allows one cell per position,
//! the highest layer (within a layer the latest timestamp) wins. A read that exceeds the memory is divided into
//! [slabs](partition) of consecutive coordinates.
//!
//! Statistics prune chunks that cannot contain a row of the result, with one exception: if duplicates are not allowed, pruning
//! a chunk must not expose an older cell of a chunk that is read.

mod fast_path;
mod merge;
mod partition;
mod rows;

use std::sync::atomic::{AtomicU64, Ordering as Atomic};

use rayon::prelude::*;
use tesseral_core::{Advice, ArraySchema, ChunkStats, Error, Result, Stat};
use tesseral_format::{ChunkPlan, Column, CoordinateRanges, PlannedChunk, Request, Target};

use crate::decode::columns::{Cells, column_layout};
use crate::fetch::ahead::{self, ReadAhead};
use crate::fetch::{self, Resident};
use crate::handle::Handle;
use crate::missing::column_validity;
use crate::options::Options;
use crate::plan::condition::{self, condition_bounds};

use merge::{Merge, MergeResult};
use partition::Slab;
pub(crate) use partition::bounds;
use rows::ChunkRows;

/// Default size of a batch in bytes.
const SLAB: u64 = 256 << 20;
/// Rows of a slab take a fraction of the memory limit: sorting and gathering them takes as much again.
const SHARE: u64 = 8;
/// Maximum number of pairs of chunks that are compared for pruning.
const PAIRS: usize = 4 << 20;

/// Rows of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellBatch {
    /// Number of rows.
    pub rows: usize,
    /// The requested columns, in order.
    pub columns: Vec<(Column, Cells)>,
}

impl CellBatch {
    /// Marks missing cells as null; `written` has 0 for rows of unwritten cells.
    pub(crate) fn mark_missing(&mut self, schema: &ArraySchema, written: Option<&[u8]>) -> Result<()> {
        for (column, cells) in &mut self.columns {
            let Column::Field(f) = *column else { continue };
            let Some(field) = schema.fields.get(usize::from(f)) else { continue };
            let validity = column_validity(field, cells, written).map(std::borrow::Cow::into_owned);
            if let Some(validity) = validity {
                *cells = std::mem::take(cells).with_validity(validity)?;
            }
        }
        Ok(())
    }

    /// No rows of these columns.
    pub fn empty(schema: &ArraySchema, columns: &[Column]) -> Self {
        let cells = |column: Column| {
            column_layout(schema, column)
                .map_or_else(|_| Cells::default(), |(size, nullable)| Cells::new(size, nullable))
        };
        Self { rows: 0, columns: columns.iter().map(|&column| (column, cells(column))).collect() }
    }

    /// Appends the rows of another batch of the same columns.
    pub fn append(&mut self, other: &Self) {
        self.rows += other.rows;
        self.columns.iter_mut().zip(&other.columns).for_each(|((_, ours), (_, theirs))| ours.append(theirs));
    }

    /// Removes and returns the first rows, at most `rows`.
    pub fn split_to(&mut self, rows: usize) -> Self {
        let rows = rows.min(self.rows);
        let part = |batch: &Self, range: std::ops::Range<usize>| Self {
            rows: range.len(),
            columns: batch.columns.iter().map(|(c, cells)| (*c, cells.part(range.clone()))).collect(),
        };
        let first = part(self, 0..rows);
        *self = part(self, rows..self.rows);
        first
    }

    /// Allocated size in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.columns.iter().map(|(_, cells)| cells.allocated_bytes()).sum()
    }
}

/// Order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CellOrder {
    /// Sorted by the dimensions, ties by the bytes of the fields in schema order.
    #[default]
    Sorted,
    /// In the order in which they are found. Deterministic.
    Stored,
}

/// A planned read of cells.
pub(crate) struct CellRead {
    pub handle: Handle,
    pub options: Options,
    pub request: Request,
    pub ranges: Vec<CoordinateRanges>,
    pub order: CellOrder,
    /// Columns to read: the requested ones, then those of conditions and deletes, then sort columns.
    pub columns: Vec<Column>,
    pub plan: ChunkPlan,
    pub resident: Option<Resident>,
    /// Reads that are under way before their bytes are needed.
    pub ahead: Option<ReadAhead>,
    /// Whether every field is read, so that ties can be resolved.
    pub ties: bool,
    /// Approximate size of a row in bytes.
    pub row: u64,
}

impl CellRead {
    pub(crate) fn new(
        handle: &Handle,
        request: &Request,
        order: CellOrder,
        ties: bool,
        options: &Options,
    ) -> Result<Self> {
        let schema = handle.schema();
        let Target::Coordinates(ranges) = &request.target else {
            return Err(Error::invalid("cells of a sparse array are requested by coordinates"));
        };
        if ranges.len() != schema.dims.len() {
            let detail = format!("{} ranges for {} dimensions", ranges.len(), schema.dims.len());
            return Err(Error::invalid(detail).in_array(&schema.name));
        }
        let mut columns = columns(schema, request, ties)?;
        let plan_of = |columns: &[Column]| {
            let request = Request { columns: columns.to_vec(), ..request.clone() };
            handle.plan(&request)
        };
        let mut plan = plan_of(&columns)?;
        // Deletes refer to columns too, which are known only now.
        let planned = columns.len();
        for delete in &plan.deletes {
            condition::columns_of(schema, &delete.condition, &mut columns)?;
        }
        if columns.len() > planned {
            plan = plan_of(&columns)?;
        }
        // Timestamp and delete columns need no memory if no chunk has them.
        let held = |column: &Column| match column {
            Column::Timestamp | Column::DeletedBy => {
                plan.chunks.iter().any(|chunk| chunk.column_parts(*column).next().is_some())
            }
            Column::Field(_) | Column::Dim(_) => true,
        };
        let row = row_bytes(schema, columns.iter().copied().filter(held))?;
        let mut query = Self {
            handle: handle.clone(),
            options: options.clone(),
            request: request.clone(),
            ranges: ranges.clone(),
            order,
            columns,
            plan,
            resident: None,
            ahead: None,
            ties,
            row,
        };
        query.prune()?;
        query.resident = fetch::resident(handle, &query.plan.chunks)?;
        if query.resident.is_none() && handle.store().profile().parallel > 1 {
            let units: Vec<_> =
                query.plan.chunks.iter().map(|chunk| fetch::chunk_batch(handle, chunk)).collect();
            let budget = ahead::budget(options.memory);
            ahead::announce(handle, units.iter(), budget, options.planned_reads.as_deref());
            query.ahead = ReadAhead::start(handle, units.iter(), budget);
        }
        Ok(query)
    }

    pub(crate) fn schema(&self) -> &ArraySchema {
        self.handle.schema()
    }

    fn whole(&self) -> Slab {
        Slab::new(&self.ranges, &self.plan.chunks)
    }

    /// Whether all cells of a chunk are visible and in the requested ranges.
    pub(crate) fn includes(&self) -> impl Fn(&PlannedChunk) -> bool + use<> {
        let (limits, dims) = (self.whole().limits, self.schema().dims.len());
        move |chunk| chunk.whole && (0..dims).all(|d| partition::inside(chunk, d, &limits[d]))
    }

    /// Returns whether cells of these chunks can share a position, of which one wins.
    fn settles<'a>(&self, mut chunks: impl Iterator<Item = &'a PlannedChunk>) -> bool {
        if self.schema().allows_duplicates {
            return false;
        }
        let timed = |c: &PlannedChunk| c.column_parts(Column::Timestamp).next().is_some();
        let Some(first) = chunks.next() else { return false };
        timed(first) || chunks.any(|c| c.layer != first.layer || timed(c))
    }

    /// Statistics of a chunk's column. Coordinates are inside the chunk's box.
    pub(crate) fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        if let Column::Dim(d) = column
            && let Some((low, high)) = partition::bounds(chunk).get(usize::from(d))
        {
            let known = self.handle.stats(chunk, column);
            if known.min.bound().is_some() {
                return known;
            }
            return ChunkStats {
                nulls: Stat::Exact(0),
                nans: Stat::Exact(0),
                min: Stat::Bound(low.clone()),
                max: Stat::Bound(high.clone()),
                ..ChunkStats::unknown(chunk.cells)
            };
        }
        self.handle.stats(chunk, column)
    }

    /// Prunes chunks in which no cell can match the condition.
    fn prune(&mut self) -> Result<()> {
        let Some(condition) = &self.request.condition else { return Ok(()) };
        let schema = self.schema();
        let mut columns = Vec::new();
        condition::columns_of(schema, condition, &mut columns)?;
        self.handle.load_stats(&self.plan.chunks, &columns)?;
        let settles = self.settles(self.plan.chunks.iter());
        // 0: can contain rows; 1: contains none, but its cells can hide others; 2: not needed.
        let mut verdicts = Vec::with_capacity(self.plan.chunks.len());
        for chunk in &self.plan.chunks {
            let stats = |column| Some(self.stats(chunk, column));
            let dims = |column| matches!(column, Column::Dim(_)).then(|| self.stats(chunk, column));
            verdicts.push(if condition_bounds(schema, condition, &stats)?.yes {
                0_u8
            } else if !settles || !condition_bounds(schema, condition, &dims)?.yes {
                // By its coordinates alone: the cells it hides do not match the condition either.
                2
            } else {
                1
            });
        }
        let keep: Vec<bool> = {
            let read: Vec<&PlannedChunk> =
                self.plan.chunks.iter().zip(&verdicts).filter(|(_, v)| **v == 0).map(|(c, _)| c).collect();
            let unsure = verdicts.iter().filter(|v| **v == 1).count();
            let many = unsure.saturating_mul(read.len()) > PAIRS;
            let hides = |chunk: &PlannedChunk| many || read.iter().any(|other| overlap(chunk, other));
            self.plan.chunks.iter().zip(&verdicts).map(|(c, v)| *v == 0 || (*v == 1 && hides(c))).collect()
        };
        let mut keep = keep.into_iter();
        self.plan.chunks.retain(|_| keep.next().unwrap_or(true));
        Ok(())
    }

    /// Memory of a worker for one of these chunks: stored bytes, and the rows of every column.
    fn unit(&self, chunks: &[&PlannedChunk]) -> u64 {
        let read_chunk = |chunk: &&PlannedChunk| {
            let stored = if self.resident.is_some() { 0 } else { chunk.stored_bytes() };
            stored.saturating_add(chunk.cells.saturating_mul(self.row))
        };
        chunks.iter().map(read_chunk).max().unwrap_or(0)
    }

    /// Reads a slab; `None` if its rows exceed `allowed`, or ties cannot be resolved yet.
    fn read(&self, slab: &Slab, allowed: u64) -> Result<SlabResult> {
        let chunks: Vec<&PlannedChunk> = slab.chunks.iter().map(|&c| &self.plan.chunks[c as usize]).collect();
        let settles = self.settles(chunks.iter().copied());
        let held = AtomicU64::new(0);
        let ticker = self.options.ticker(chunks.len() as u64);
        let workers =
            self.options.for_workers(0, self.unit(&chunks)).map_err(|e| e.in_array(&self.schema().name))?;
        if let Some(batch) = fast_path::read(self, &chunks, slab, settles, allowed, &workers, &ticker)? {
            return Ok(SlabResult::Batch(batch));
        }
        let read_chunk = |chunk: &&PlannedChunk| -> Result<ChunkRows> {
            if held.load(Atomic::Relaxed) > allowed {
                return Ok(ChunkRows::default());
            }
            let part = rows::read(self, chunk, slab, settles).map_err(|e| self.handle.locate(chunk, e))?;
            held.fetch_add(part.allocated_bytes(), Atomic::Relaxed);
            ticker.tick()?;
            Ok(part)
        };
        let parts: Vec<ChunkRows> = match chunks.as_slice() {
            [chunk] => vec![read_chunk(chunk)?],
            _ => workers.run(|| chunks.par_iter().map(read_chunk).collect::<Result<_>>())?,
        };
        if held.into_inner() > allowed {
            return Ok(SlabResult::TooLarge);
        }
        let merge = Merge { query: self, parts, settles };
        Ok(match workers.run(|| merge.run())? {
            MergeResult::Batch(batch) => SlabResult::Batch(batch),
            MergeResult::Ties => SlabResult::Ties,
        })
    }
}

/// Result of a slab.
enum SlabResult {
    Batch(CellBatch),
    TooLarge,
    Ties,
}

/// Columns to read for a request.
fn columns(schema: &ArraySchema, request: &Request, ties: bool) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |column: Column| {
        if !columns.contains(&column) {
            columns.push(column);
        }
    };
    request.columns.iter().copied().for_each(&mut add);
    if ties {
        (0..).take(schema.fields.len()).map(Column::Field).for_each(&mut add);
    }
    (0..).take(schema.dims.len()).map(Column::Dim).for_each(&mut add);
    add(Column::Timestamp);
    add(Column::DeletedBy);
    if let Some(condition) = &request.condition {
        condition::columns_of(schema, condition, &mut columns)?;
    }
    Ok(columns)
}

/// Approximate size of a row; variable-length cells are assumed to be short.
fn row_bytes(schema: &ArraySchema, columns: impl Iterator<Item = Column>) -> Result<u64> {
    let mut bytes = 16;
    for column in columns {
        let (size, nullable) = column_layout(schema, column)?;
        bytes += if size == 0 { 24 } else { size as u64 } + u64::from(nullable);
    }
    Ok(bytes)
}

/// Returns whether the boxes of two chunks can share a position.
fn overlap(a: &PlannedChunk, b: &PlannedChunk) -> bool {
    use std::cmp::Ordering;
    partition::bounds(a).iter().zip(partition::bounds(b)).all(|(a, b)| {
        a.1.compare(&b.0) != Some(Ordering::Less) && a.0.compare(&b.1) != Some(Ordering::Greater)
    })
}

/// Rows in batches within the memory limit. Ends after the first error.
pub struct CellStream {
    inner: Inner,
    /// Missing cells are returned as nulls.
    valid: bool,
}

enum Inner {
    Sparse { query: Box<CellRead>, todo: Vec<Slab>, allowed: u64, first: Option<CellBatch> },
    Dense(Box<crate::merge::dense_rows::DenseCells>),
    Done,
}

impl std::fmt::Debug for CellStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CellStream").finish_non_exhaustive()
    }
}

/// Reads the requested cells as rows: of a sparse array by coordinates, of a dense one by positions. Batches are in the
/// requested order, each within the memory limit.
///
/// # Errors
/// Errors of the plan; `InvalidRequest` if the request does not match the array.
pub fn cells(handle: &Handle, request: &Request, order: CellOrder, options: &Options) -> Result<CellStream> {
    if let Target::Cells(_) = &request.target {
        let dense = crate::merge::dense_rows::DenseCells::new(handle, request, options)?;
        return Ok(CellStream { inner: Inner::Dense(Box::new(dense)), valid: false });
    }
    // The first batch is read with the plan: until then everything can restart on a newer state.
    handle.operate(options, |handle| {
        let mut stream = stream(CellRead::new(handle, request, order, false, options)?);
        if let Inner::Sparse { query, todo, allowed, first } = &mut stream.inner {
            *first = next_batch(query, todo, *allowed)?;
        }
        Ok(stream)
    })
}

/// As [`cells`], with missing cells as nulls.
///
/// # Errors
/// As [`cells`].
pub fn valid_cells(
    handle: &Handle,
    request: &Request,
    order: CellOrder,
    options: &Options,
) -> Result<CellStream> {
    let mut stream = cells(handle, request, order, options)?;
    stream.valid = true;
    if let Inner::Dense(dense) = &mut stream.inner {
        dense.mark_missing();
    }
    Ok(stream)
}

pub(crate) fn stream(query: CellRead) -> CellStream {
    let allowed = query.options.memory.map_or(SLAB, |memory| (memory / SHARE).clamp(1, SLAB));
    let whole = query.whole();
    let inner = Inner::Sparse { query: Box::new(query), todo: vec![whole], allowed, first: None };
    CellStream { inner, valid: false }
}

impl Iterator for CellStream {
    type Item = Result<CellBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.inner {
            Inner::Sparse { first, .. } if first.is_some() => first.take().map(Ok),
            Inner::Sparse { query, todo, allowed, .. } => {
                let handle = query.handle.clone();
                handle.guarded(|| next_batch(query, todo, *allowed)).transpose()
            }
            Inner::Dense(cells) => {
                let handle = cells.handle().clone();
                handle.guarded(|| cells.next().transpose()).transpose()
            }
            Inner::Done => None,
        };
        let next = match (next, &self.inner) {
            (Some(Ok(mut batch)), Inner::Sparse { query, .. }) if self.valid => {
                Some(batch.mark_missing(query.schema(), None).map(|()| batch))
            }
            (next, _) => next,
        };
        if !matches!(next, Some(Ok(_))) {
            self.inner = Inner::Done;
        }
        next
    }
}

fn next_batch(query: &mut CellRead, todo: &mut Vec<Slab>, allowed: u64) -> Result<Option<CellBatch>> {
    while let Some(slab) = todo.pop() {
        if slab.chunks.is_empty() {
            continue;
        }
        let fits = slab.estimate(&query.plan.chunks, query.row) <= allowed as f64;
        let parts = if fits { None } else { slab.split_smaller(&query.plan.chunks, query.row) };
        if let Some((first, second)) = parts {
            todo.push(second);
            todo.push(first);
            continue;
        }
        match query.read(&slab, allowed.saturating_mul(2))? {
            SlabResult::Batch(batch) if batch.rows == 0 => {}
            SlabResult::Batch(batch) => return Ok(Some(batch)),
            SlabResult::Ties => {
                // From here on with every field.
                let CellRead { handle, request, order, options, .. } = &*query;
                *query = CellRead::new(handle, request, *order, true, options)?;
                todo.push(slab);
            }
            SlabResult::TooLarge => match slab.split(&query.plan.chunks, query.row) {
                Some((first, second)) => {
                    todo.push(second);
                    todo.push(first);
                }
                None => {
                    let outcome = query.read(&slab, u64::MAX)?;
                    let SlabResult::Batch(batch) = outcome else {
                        return Err(Error::internal("cells of one position cannot be sorted"));
                    };
                    query.options.check_memory(
                        "the cells of one position",
                        batch.allocated_bytes().saturating_mul(2),
                    )?;
                    return Ok(Some(batch));
                }
            },
        }
    }
    Ok(None)
}

/// Reads all requested cells, sorted by the dimensions, ties by the bytes of the fields.
///
/// # Errors
/// Errors of the plan, the store and the decoders; `Limit` if the rows exceed the memory limit.
pub fn read_cells(handle: &Handle, request: &Request, options: &Options) -> Result<CellBatch> {
    handle.operate(options, |handle| read_sorted(handle, request, options))
}

/// As [`read_cells`], with missing cells as nulls.
///
/// # Errors
/// As [`read_cells`].
pub fn read_valid_cells(handle: &Handle, request: &Request, options: &Options) -> Result<CellBatch> {
    let mut batch = read_cells(handle, request, options)?;
    batch.mark_missing(handle.schema(), None)?;
    Ok(batch)
}

fn read_sorted(handle: &Handle, request: &Request, options: &Options) -> Result<CellBatch> {
    let mut query = CellRead::new(handle, request, CellOrder::Sorted, false, options)?;
    let allowed = options.memory.map_or(u64::MAX, |memory| memory / 2);
    let slab = query.whole();
    let mut outcome = query.read(&slab, allowed)?;
    if matches!(outcome, SlabResult::Ties) {
        query = CellRead::new(handle, request, CellOrder::Sorted, true, options)?;
        outcome = query.read(&query.whole(), allowed)?;
    }
    match outcome {
        SlabResult::Batch(batch) => Ok(batch),
        SlabResult::TooLarge => {
            let memory = options.memory.unwrap_or(u64::MAX);
            Err(Error::limit("the rows", memory.saturating_add(1), memory)
                .hint(Advice::SelectLess.or(Advice::RaiseMemory).or("read batch by batch"))
                .in_array(&query.schema().name))
        }
        SlabResult::Ties => Err(Error::internal("cells cannot be sorted")),
    }
}
