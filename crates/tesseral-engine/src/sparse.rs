//! Reading cells of a sparse array: rows of coordinates and fields.
//!
//! Chunks are fetched and decoded as those of dense arrays are; only the end differs. Column by column, rows outside the ranges
//! are dropped, deletes and the request's condition are judged; the rest is sorted by coordinates, and where an array allows
//! one cell per position the highest layer (within a layer the latest timestamp) stays. A read that would not fit in memory is
//! cut into [slabs](slab) of coordinates that follow one another in the result.
//!
//! Statistics leave out chunks that cannot hold a row of the result, with one care: where positions hold one cell, a chunk that
//! is left out must not uncover an older cell of a chunk that is read.

mod fold;
mod merge;
mod rows;
mod slab;
mod whole;

use std::sync::atomic::{AtomicU64, Ordering as Atomic};

use rayon::prelude::*;
use tesseral_core::{ArraySchema, ChunkStats, Error, Result, Stat};
use tesseral_format::{ChunkPlan, Column, CoordinateRanges, PlannedChunk, Request, Target};

use crate::cells::{Cells, column_layout};
use crate::condition::{self, outlook};
use crate::fetch::{self, Resident};
use crate::handle::Handle;
use crate::options::Options;

pub(crate) use fold::summarize;
use merge::{Merge, Merged};
use rows::Part;
use slab::Slab;
pub(crate) use slab::bounds;

/// Rows are read this many bytes at a time when nothing limits memory.
const SLAB: u64 = 256 << 20;
/// Of the memory allowed, the rows of a slab take a part: sorting and gathering them takes as much again.
const SHARE: u64 = 8;
/// Pairs of chunks that are compared before pruning gives up.
const PAIRS: usize = 4 << 20;

/// Rows of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellBatch {
    /// Number of rows.
    pub rows: usize,
    /// The columns asked for, in that order.
    pub columns: Vec<(Column, Cells)>,
}

impl CellBatch {
    /// No rows of these columns.
    pub fn empty(schema: &ArraySchema, columns: &[Column]) -> Self {
        let cells = |column: Column| {
            column_layout(schema, column)
                .map_or_else(|_| Cells::default(), |(size, nullable)| Cells::new(size, nullable))
        };
        Self { rows: 0, columns: columns.iter().map(|&column| (column, cells(column))).collect() }
    }

    /// Adds the rows of another batch of the same columns.
    pub fn append(&mut self, other: &Self) {
        self.rows += other.rows;
        self.columns.iter_mut().zip(&other.columns).for_each(|((_, ours), (_, theirs))| ours.append(theirs));
    }

    /// Takes the first rows out, as many as there are up to `rows`.
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

    /// Bytes held.
    pub fn held(&self) -> u64 {
        self.columns.iter().map(|(_, cells)| cells.held()).sum()
    }
}

/// In which order rows come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CellOrder {
    /// Sorted by the dimensions in their order, ties by the bytes of the fields in the schema's order.
    #[default]
    Sorted,
    /// As they are found. The same at every run.
    Stored,
}

/// A read of cells, ready to run.
pub(crate) struct Query {
    pub handle: Handle,
    pub options: Options,
    pub request: Request,
    pub ranges: Vec<CoordinateRanges>,
    pub order: CellOrder,
    /// What is read: the columns asked for, then what conditions and deletes look at, then what rows are sorted by.
    pub columns: Vec<Column>,
    pub plan: ChunkPlan,
    pub resident: Option<Resident>,
    /// Every field is read, so that ties can be settled.
    pub ties: bool,
    /// Bytes of a row, about.
    pub row: u64,
}

impl Query {
    pub(crate) fn new(
        handle: &Handle,
        request: &Request,
        order: CellOrder,
        ties: bool,
        options: &Options,
    ) -> Result<Self> {
        let schema = handle.schema();
        let Target::Coordinates(ranges) = &request.target else {
            return Err(Error::invalid("cells of a sparse array are asked for by coordinates"));
        };
        if ranges.len() != schema.dims.len() {
            let detail = format!("{} ranges for {} dimensions", ranges.len(), schema.dims.len());
            return Err(Error::invalid(detail).in_array(&schema.name));
        }
        let mut columns = columns(schema, request, ties)?;
        let plan_of = |columns: &[Column]| {
            let request = Request { columns: columns.to_vec(), ..request.clone() };
            handle.source().plan(&request).map_err(|e| e.in_array(&schema.name))
        };
        let mut plan = plan_of(&columns)?;
        // Deletes look at columns too, which are known only now.
        let planned = columns.len();
        for delete in &plan.deletes {
            condition::columns_of(schema, &delete.condition, &mut columns)?;
        }
        if columns.len() > planned {
            plan = plan_of(&columns)?;
        }
        // Times and deletes take nothing where no chunk has any.
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
            ties,
            row,
        };
        query.prune()?;
        query.resident = fetch::resident(handle, &query.plan.chunks)?;
        Ok(query)
    }

    pub(crate) fn schema(&self) -> &ArraySchema {
        self.handle.schema()
    }

    fn whole(&self) -> Slab {
        Slab::new(&self.ranges, &self.plan.chunks)
    }

    /// Whether cells of these chunks may share a position of which one wins.
    fn settles<'a>(&self, mut chunks: impl Iterator<Item = &'a PlannedChunk>) -> bool {
        if self.schema().allows_duplicates {
            return false;
        }
        let timed = |c: &PlannedChunk| c.column_parts(Column::Timestamp).next().is_some();
        let Some(first) = chunks.next() else { return false };
        timed(first) || chunks.any(|c| c.layer != first.layer || timed(c))
    }

    /// Statistics of a chunk's column. Coordinates lie in the chunk's box.
    pub(crate) fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        if let Column::Dim(d) = column
            && let Some((low, high)) = slab::bounds(chunk).get(usize::from(d))
        {
            let known = self.handle.source().stats(chunk, column);
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
        self.handle.source().stats(chunk, column)
    }

    /// Leaves out chunks in which no cell can meet the condition.
    fn prune(&mut self) -> Result<()> {
        let Some(condition) = &self.request.condition else { return Ok(()) };
        let schema = self.schema();
        let settles = self.settles(self.plan.chunks.iter());
        // 0: may hold rows; 1: holds none, but its cells may hide others; 2: is of no use.
        let mut verdicts = Vec::with_capacity(self.plan.chunks.len());
        for chunk in &self.plan.chunks {
            let stats = |column| Some(self.stats(chunk, column));
            let dims = |column| matches!(column, Column::Dim(_)).then(|| self.stats(chunk, column));
            verdicts.push(if outlook(schema, condition, &stats)?.yes {
                0_u8
            } else if !settles || !outlook(schema, condition, &dims)?.yes {
                // By its coordinates alone: whatever it hides does not meet the condition either.
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

    /// Bytes that a worker holds of one of these chunks: as stored, and the rows of every column.
    fn unit(&self, chunks: &[&PlannedChunk]) -> u64 {
        let one = |chunk: &&PlannedChunk| {
            let stored = if self.resident.is_some() { 0 } else { chunk.stored_bytes() };
            stored.saturating_add(chunk.cells.saturating_mul(self.row))
        };
        chunks.iter().map(one).max().unwrap_or(0)
    }

    /// Reads a slab; `None` when its rows take more than `allowed`, or their ties cannot be settled yet.
    fn read(&self, slab: &Slab, allowed: u64) -> Result<Outcome> {
        let chunks: Vec<&PlannedChunk> = slab.chunks.iter().map(|&c| &self.plan.chunks[c as usize]).collect();
        let settles = self.settles(chunks.iter().copied());
        let held = AtomicU64::new(0);
        let ticker = self.options.ticker(chunks.len() as u64);
        let workers =
            self.options.for_workers(0, self.unit(&chunks)).map_err(|e| e.in_array(&self.schema().name))?;
        if let Some(batch) = whole::read(self, &chunks, slab, settles, allowed, &workers, &ticker)? {
            return Ok(Outcome::Batch(batch));
        }
        let one = |chunk: &&PlannedChunk| -> Result<Part> {
            if held.load(Atomic::Relaxed) > allowed {
                return Ok(Part::default());
            }
            let part = rows::read(self, chunk, slab, settles).map_err(|e| self.handle.locate(chunk, e))?;
            held.fetch_add(part.held(), Atomic::Relaxed);
            ticker.tick()?;
            Ok(part)
        };
        let parts: Vec<Part> = match chunks.as_slice() {
            [chunk] => vec![one(chunk)?],
            _ => workers.run(|| chunks.par_iter().map(one).collect::<Result<_>>())?,
        };
        if held.into_inner() > allowed {
            return Ok(Outcome::TooLarge);
        }
        let merge = Merge { query: self, parts, settles };
        Ok(match workers.run(|| merge.run())? {
            Merged::Batch(batch) => Outcome::Batch(batch),
            Merged::Ties => Outcome::Ties,
        })
    }
}

/// What came of a slab.
enum Outcome {
    Batch(CellBatch),
    TooLarge,
    Ties,
}

/// The columns to read for a request.
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

/// About what a row takes: cells of any length are taken for short ones.
fn row_bytes(schema: &ArraySchema, columns: impl Iterator<Item = Column>) -> Result<u64> {
    let mut bytes = 16;
    for column in columns {
        let (size, nullable) = column_layout(schema, column)?;
        bytes += if size == 0 { 24 } else { size as u64 } + u64::from(nullable);
    }
    Ok(bytes)
}

/// Whether the boxes of two chunks may share a position.
fn overlap(a: &PlannedChunk, b: &PlannedChunk) -> bool {
    use std::cmp::Ordering;
    slab::bounds(a).iter().zip(slab::bounds(b)).all(|(a, b)| {
        a.1.compare(&b.0) != Some(Ordering::Less) && a.0.compare(&b.1) != Some(Ordering::Greater)
    })
}

/// Rows in batches that fit in memory. Fails once, then ends.
pub struct CellStream {
    inner: Inner,
}

enum Inner {
    Sparse { query: Box<Query>, todo: Vec<Slab>, allowed: u64, first: Option<CellBatch> },
    Dense(Box<crate::dense_cells::DenseCells>),
    Done,
}

impl std::fmt::Debug for CellStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CellStream").finish_non_exhaustive()
    }
}

/// Reads cells that a request names: of a sparse array by coordinates, of a dense one by positions, row by row with the columns
/// asked for. Batches come in the order asked for, each within the memory limit.
///
/// # Errors
/// What the plan meets; `InvalidRequest` when the request does not fit the array.
pub fn cells(handle: &Handle, request: &Request, order: CellOrder, options: &Options) -> Result<CellStream> {
    if let Target::Cells(_) = &request.target {
        let dense = crate::dense_cells::DenseCells::new(handle, request, options)?;
        return Ok(CellStream { inner: Inner::Dense(Box::new(dense)) });
    }
    // The first batch is read with the plan: up to then all of it can start again on a newer state.
    handle.restartable(|handle| {
        let mut stream = stream(Query::new(handle, request, order, false, options)?);
        if let Inner::Sparse { query, todo, allowed, first } = &mut stream.inner {
            *first = next_batch(query, todo, *allowed)?;
        }
        Ok(stream)
    })
}

fn stream(query: Query) -> CellStream {
    let allowed = query.options.memory.map_or(SLAB, |memory| (memory / SHARE).clamp(1, SLAB));
    let whole = query.whole();
    CellStream { inner: Inner::Sparse { query: Box::new(query), todo: vec![whole], allowed, first: None } }
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
        if !matches!(next, Some(Ok(_))) {
            self.inner = Inner::Done;
        }
        next
    }
}

fn next_batch(query: &mut Query, todo: &mut Vec<Slab>, allowed: u64) -> Result<Option<CellBatch>> {
    while let Some(slab) = todo.pop() {
        if slab.chunks.is_empty() {
            continue;
        }
        #[allow(clippy::cast_precision_loss)]
        let fits = slab.estimate(&query.plan.chunks, query.row) <= allowed as f64;
        let parts = if fits { None } else { slab.split_smaller(&query.plan.chunks, query.row) };
        if let Some((first, second)) = parts {
            todo.push(second);
            todo.push(first);
            continue;
        }
        match query.read(&slab, allowed.saturating_mul(2))? {
            Outcome::Batch(batch) if batch.rows == 0 => {}
            Outcome::Batch(batch) => return Ok(Some(batch)),
            Outcome::Ties => {
                // From here on with every field.
                let Query { handle, request, order, options, .. } = &*query;
                *query = Query::new(handle, request, *order, true, options)?;
                todo.push(slab);
            }
            Outcome::TooLarge => match slab.split(&query.plan.chunks, query.row) {
                Some((first, second)) => {
                    todo.push(second);
                    todo.push(first);
                }
                None => {
                    let outcome = query.read(&slab, u64::MAX)?;
                    let Outcome::Batch(batch) = outcome else {
                        return Err(Error::invalid("cells of one position that cannot be sorted"));
                    };
                    query
                        .options
                        .check_memory("the cells of one position", batch.held().saturating_mul(2))?;
                    return Ok(Some(batch));
                }
            },
        }
    }
    Ok(None)
}

/// Reads all cells in the request's ranges at once, sorted by the dimensions in their order, ties by the bytes of the fields.
///
/// # Errors
/// What the plan, the store and the decoders meet; `Limit` when the rows pass the memory limit.
pub fn read_cells(handle: &Handle, request: &Request, options: &Options) -> Result<CellBatch> {
    handle.restartable(|handle| read_sorted(handle, request, options))
}

fn read_sorted(handle: &Handle, request: &Request, options: &Options) -> Result<CellBatch> {
    let mut query = Query::new(handle, request, CellOrder::Sorted, false, options)?;
    let allowed = options.memory.map_or(u64::MAX, |memory| memory / 2);
    let slab = query.whole();
    let mut outcome = query.read(&slab, allowed)?;
    if matches!(outcome, Outcome::Ties) {
        query = Query::new(handle, request, CellOrder::Sorted, true, options)?;
        outcome = query.read(&query.whole(), allowed)?;
    }
    match outcome {
        Outcome::Batch(batch) => Ok(batch),
        Outcome::TooLarge => {
            let memory = options.memory.unwrap_or(u64::MAX);
            Err(Error::limit("the rows", memory.saturating_add(1), memory)
                .hint("select less, raise the memory limit, or read batch by batch")
                .in_array(&query.schema().name))
        }
        Outcome::Ties => Err(Error::invalid("cells that cannot be sorted")),
    }
}
