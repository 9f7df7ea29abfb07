//! Rows of one chunk: decodes as few columns and rows as the read needs.

use std::cell::OnceCell;
use std::ops::Range;

use tesseral_core::{DType, Error, Result, alloc};
use tesseral_format::{Access, Column, CoordinateRanges, KEPT, PlannedChunk, UNWRITTEN};

use super::partition::{self, Slab};
use super::{CellOrder, CellRead};
use crate::decode::chunk::with_workspace;
use crate::decode::columns::{Cells, column_layout, sort_key, sort_keys};
use crate::fetch::{self, ChunkBytes};
use crate::plan::condition::ConditionRows;

/// Sort keys of the coordinates along one dimension.
pub(super) enum SortKeys {
    Numbers(Vec<u64>),
    Text(Cells),
}

/// Rows of one chunk.
#[derive(Default)]
pub(super) struct ChunkRows {
    pub rows: usize,
    pub layer: u32,
    /// One per dimension; empty if rows are not compared.
    pub keys: Vec<SortKeys>,
    /// Write time of each cell, if the chunk has them.
    pub times: Option<Vec<u64>>,
    /// Visible rows; `None` if all are. Other rows only hide older ones.
    pub alive: Option<Vec<u8>>,
    /// The requested columns; with ties, followed by every other field.
    pub columns: Vec<Cells>,
}

impl ChunkRows {
    pub(super) fn allocated_bytes(&self) -> u64 {
        let keys: u64 = self
            .keys
            .iter()
            .map(|keys| match keys {
                SortKeys::Numbers(keys) => keys.len() as u64 * 8,
                SortKeys::Text(cells) => cells.allocated_bytes(),
            })
            .sum();
        keys + self.columns.iter().map(Cells::allocated_bytes).sum::<u64>()
    }
}

/// A chunk whose columns are decoded on first use.
struct LazyChunk<'a> {
    query: &'a CellRead,
    chunk: &'a PlannedChunk,
    source: &'a ChunkBytes<'a>,
    count: usize,
    decoded: Vec<OnceCell<Cells>>,
    /// Columns of which a range of rows was decoded, with the first row.
    windows: Vec<OnceCell<(u32, Cells)>>,
}

impl LazyChunk<'_> {
    fn cells(&self, column: Column) -> Result<&Cells> {
        let place = self.column_index(column)?;
        if let Some(cells) = self.decoded[place].get() {
            return Ok(cells);
        }
        let cells = self.decode(column, 0..self.chunk.cells)?;
        Ok(self.decoded[place].get_or_init(|| cells))
    }

    fn column_index(&self, column: Column) -> Result<usize> {
        let place = self.query.columns.iter().position(|c| *c == column);
        place.ok_or_else(|| Error::internal(format!("column {column:?} was not planned")))
    }

    /// Cells of a column that contain at least the picked rows, and the index of the first. Later picks are subsets of earlier
    /// ones, so decoded cells stay valid.
    fn window(&self, column: Column, picked: Option<&[u32]>) -> Result<(u32, &Cells)> {
        let place = self.column_index(column)?;
        if let (None, Some((first, cells))) = (self.decoded[place].get(), self.windows[place].get()) {
            return Ok((*first, cells));
        }
        let run = match (self.decoded[place].get(), picked) {
            (None, Some(rows)) => self.run(column, rows)?,
            _ => None,
        };
        let Some(run) = run else { return self.cells(column).map(|cells| (0, cells)) };
        let cells = self.decode(column, run.start.into()..run.end.into())?;
        let (first, cells) = self.windows[place].get_or_init(|| (run.start, cells));
        Ok((*first, cells))
    }

    /// Range of rows to decode, if it is cheaper than the whole chunk.
    fn run(&self, column: Column, rows: &[u32]) -> Result<Option<Range<u32>>> {
        let (size, _) = column_layout(self.query.schema(), column)?;
        let (Access::Coded { granule: Some(granule) }, Some(first), Some(last)) =
            (self.chunk.access, rows.first(), rows.last())
        else {
            return Ok(None);
        };
        let (Ok(granule), Ok(count)) = (u32::try_from(granule), u32::try_from(self.count)) else {
            return Ok(None);
        };
        let granule = granule.max(1);
        let run = first / granule * granule..(last / granule + 1).saturating_mul(granule).min(count);
        Ok((size > 0 && run.len() < self.count).then_some(run))
    }

    fn decode(&self, column: Column, run: Range<u64>) -> Result<Cells> {
        let handle = &self.query.handle;
        let (size, nullable) = column_layout(handle.schema(), column)?;
        if self.lacks(column) {
            // A chunk without timestamps has none.
            return Ok(Cells::from_fixed(8, alloc::zeroed("timestamps", self.count * 8)?, None));
        }
        let parts = self.source.column(handle, self.chunk, column)?;
        crate::plan::expansion::check_chunk(handle, self.chunk, self.count.saturating_mul(size.max(1)))?;
        let mut cells = Cells::new(size, nullable);
        // At most the number of rows of the chunk, which fits 32 bits.
        let count = usize::try_from(run.end - run.start).unwrap_or(usize::MAX);
        cells.decode_with(count, |out| {
            with_workspace(|w| handle.source().decode(self.chunk, column, &parts, run, out, &mut w.scratch))
        })?;
        Ok(cells)
    }

    /// Returns whether a column is optional and missing in this chunk.
    fn lacks(&self, column: Column) -> bool {
        let optional = matches!(column, Column::Timestamp | Column::DeletedBy);
        optional && self.chunk.column_parts(column).next().is_none()
    }

    fn numbers(&self, column: Column) -> Result<Option<Vec<u64>>> {
        if self.lacks(column) {
            return Ok(None);
        }
        let (words, _) = self.cells(column)?.data().as_chunks::<8>();
        Ok(Some(words.iter().map(|word| u64::from_ne_bytes(*word)).collect()))
    }

    /// The cells of rows; without a copy if nothing else needs them.
    fn select_rows(&mut self, column: Column, picked: Option<&[u32]>) -> Result<Cells> {
        let Some(rows) = picked else {
            self.cells(column)?;
            let place = self.column_index(column)?;
            return Ok(self.decoded[place].take().unwrap_or_default());
        };
        Ok(match self.window(column, picked)? {
            (0, cells) => cells.pick(rows),
            (first, cells) => cells.pick(&rows.iter().map(|row| row - first).collect::<Vec<_>>()),
        })
    }
}

/// Rows of a chunk that are in a slab. If duplicates must be resolved, invisible rows are kept because they hide older ones;
/// otherwise they are dropped.
pub(super) fn read(query: &CellRead, chunk: &PlannedChunk, slab: &Slab, settles: bool) -> Result<ChunkRows> {
    with_source(query, chunk, |source| read_from(query, chunk, slab, settles, source))
}

/// Runs with the bytes of a chunk: borrowed if resident, otherwise read.
pub(super) fn with_source<T>(
    query: &CellRead,
    chunk: &PlannedChunk,
    work: impl FnOnce(&ChunkBytes<'_>) -> Result<T>,
) -> Result<T> {
    if let Some(resident) = &query.resident {
        return work(&ChunkBytes::Resident(resident));
    }
    let batch = fetch::chunk_batch(&query.handle, chunk);
    let fetched = match query.ahead.as_ref().and_then(|ahead| ahead.take(&batch)) {
        Some(fetched) => fetched?,
        None => fetch::fetch(&query.handle, &batch)?,
    };
    work(&ChunkBytes::Fetched(&fetched))
}

fn read_from(
    query: &CellRead,
    chunk: &PlannedChunk,
    slab: &Slab,
    settles: bool,
    source: &ChunkBytes<'_>,
) -> Result<ChunkRows> {
    let schema = query.schema();
    // Rows have 32-bit indexes below.
    let count = u32::try_from(chunk.cells)
        .map_err(|_| Error::limit("a chunk's cells", chunk.cells, u64::from(u32::MAX)))?;
    let decoded = query.columns.iter().map(|_| OnceCell::new()).collect();
    let windows = query.columns.iter().map(|_| OnceCell::new()).collect();
    let mut open = LazyChunk { query, chunk, source, count: count as usize, decoded, windows };

    let mut picked: Option<Vec<u32>> = None;
    for (d, limits) in slab.limits.iter().enumerate() {
        if let Some(ranges) = limits
            && !partition::inside(chunk, d, limits)
        {
            let column = Column::Dim(u16::try_from(d).unwrap_or(u16::MAX));
            let window = open.window(column, picked.as_deref())?;
            narrow(schema.dims[d].dtype, window, ranges, &mut picked);
            if picked.as_ref().is_some_and(Vec::is_empty) {
                return Ok(ChunkRows::default());
            }
        }
    }
    let mut dead: Option<Vec<u8>> = None;
    if let Some(removed) = open.numbers(Column::DeletedBy)? {
        // A cell written outside the time range hides no older one; a deleted cell does.
        keep(&mut picked, open.count, |row| removed[row] != UNWRITTEN);
        dead = Some(test_rows(picked.as_deref(), open.count, |row| removed[row] != KEPT));
    }
    let times = open.numbers(Column::Timestamp)?;
    if picked.as_ref().is_none_or(|rows| !rows.is_empty()) {
        matching_rows(&open, picked.as_deref(), times.as_deref(), &mut dead)?;
    }
    let mut alive = dead.filter(|dead| dead.contains(&1)).map(|mut dead| {
        dead.iter_mut().for_each(|byte| *byte ^= 1);
        dead
    });
    if !settles && let Some(alive) = alive.take() {
        picked = Some(match picked.take() {
            Some(rows) => marked(rows.into_iter(), &alive),
            None => marked(0..count, &alive),
        });
    }
    let rows = picked.as_ref().map_or(open.count, Vec::len);
    if rows == 0 {
        return Ok(ChunkRows::default());
    }
    let mut part = ChunkRows { rows, layer: chunk.layer, alive, ..ChunkRows::default() };
    if settles || query.order == CellOrder::Sorted {
        for (dim, d) in schema.dims.iter().zip(0_u16..) {
            let (first, cells) = open.window(Column::Dim(d), picked.as_deref())?;
            part.keys.push(match (sort_keys(dim.dtype, cells), &picked) {
                (Some(keys), None) => SortKeys::Numbers(keys),
                (Some(keys), Some(rows)) => {
                    SortKeys::Numbers(rows.iter().map(|&row| keys[(row - first) as usize]).collect())
                }
                // Text is decoded completely.
                (None, None) => SortKeys::Text(cells.clone()),
                (None, Some(rows)) => SortKeys::Text(cells.pick(rows)),
            });
        }
    }
    part.times = times.map(|times| match &picked {
        None => times,
        Some(rows) => rows.iter().map(|&row| times[row as usize]).collect(),
    });
    let asked = query.request.columns.len();
    let wanted = if query.ties { asked + extra_fields(query) } else { asked };
    for place in 0..wanted {
        part.columns.push(open.select_rows(query.columns[place], picked.as_deref())?);
    }
    Ok(part)
}

/// Fields that are read only to resolve ties.
pub(super) fn extra_fields(query: &CellRead) -> usize {
    let asked = query.request.columns.iter().filter(|c| matches!(c, Column::Field(_))).count();
    query.schema().fields.len().saturating_sub(asked)
}

/// Marks rows that a stored delete removed or that fail the request's condition.
fn matching_rows(
    open: &LazyChunk<'_>,
    picked: Option<&[u32]>,
    times: Option<&[u64]>,
    dead: &mut Option<Vec<u8>>,
) -> Result<()> {
    let query = open.query;
    let column = |column: Column| open.cells(column);
    let rows = ConditionRows {
        schema: query.schema(),
        count: open.count,
        picked,
        column: &column,
        absent: &|_| false,
        written: None,
        stored: false,
    };
    // For a delete, a field that was added after the cells is null.
    let later = |column: Column| {
        matches!(column, Column::Field(_)) && open.chunk.column_parts(column).next().is_none()
    };
    let stored = ConditionRows { absent: &later, stored: true, ..rows };
    let mut mark = |mask: Vec<u8>| match dead {
        None => *dead = Some(mask),
        Some(dead) => dead.iter_mut().zip(mask).for_each(|(a, b)| *a |= b),
    };
    for delete in &query.plan.deletes {
        // A delete applies to cells written up to its timestamp: by the cell's timestamp if it has one, else by layer.
        let reached = match times {
            None if open.chunk.layer >= delete.layer => continue,
            None => None,
            Some(times) => Some(test_rows(picked, open.count, |row| times[row] <= delete.timestamp)),
        };
        let mut mask = stored.mask(&delete.condition)?;
        if let Some(reached) = reached {
            mask.iter_mut().zip(reached).for_each(|(a, b)| *a &= b);
        }
        mark(mask);
    }
    if let Some(condition) = &query.request.condition {
        let mut mask = rows.mask(condition)?;
        mask.iter_mut().for_each(|byte| *byte ^= 1);
        mark(mask);
    }
    Ok(())
}

fn test_rows(picked: Option<&[u32]>, count: usize, holds: impl Fn(usize) -> bool) -> Vec<u8> {
    match picked {
        Some(rows) => rows.iter().map(|&row| u8::from(holds(row as usize))).collect(),
        None => (0..count).map(|row| u8::from(holds(row))).collect(),
    }
}

/// Indexes of the marked rows. Written branch-free, because marks are unpredictable.
fn marked(rows: impl Iterator<Item = u32>, marks: &[u8]) -> Vec<u32> {
    let mut out = vec![0; marks.len()];
    let mut kept = 0;
    for (row, mark) in rows.zip(marks) {
        out[kept] = row;
        kept += usize::from(*mark != 0);
    }
    out.truncate(kept);
    out
}

/// Drops picked rows; rows are not listed while none is dropped.
fn keep(picked: &mut Option<Vec<u32>>, count: usize, holds: impl Fn(usize) -> bool) {
    match picked {
        Some(rows) => rows.retain(|&row| holds(row as usize)),
        None => {
            let rows = (0_u32..).take(count);
            let kept: Vec<u32> = rows.filter(|&row| holds(row as usize)).collect();
            if kept.len() < count {
                *picked = Some(kept);
            }
        }
    }
}

/// Keeps rows whose coordinate is in one of the ranges. If rows are picked already, the cells can begin at a later row.
fn narrow(
    dtype: DType,
    (first, cells): (u32, &Cells),
    ranges: &CoordinateRanges,
    picked: &mut Option<Vec<u32>>,
) {
    let (first, count) = (first as usize, cells.len());
    let native = ranges.iter().map(|(low, high)| {
        let key = |end: &tesseral_core::Scalar| {
            (end.dtype() == dtype).then(|| sort_key(dtype, end.bytes())).flatten()
        };
        Some((key(low)?, key(high)?))
    });
    if let Some(native) = native.collect::<Option<Vec<(u64, u64)>>>()
        && let Some(keys) = sort_keys(dtype, cells)
    {
        return match native.as_slice() {
            [(low, high)] => keep(picked, count, |row| (*low..=*high).contains(&keys[row - first])),
            many => {
                keep(picked, count, |row| many.iter().any(|(a, b)| (*a..=*b).contains(&keys[row - first])))
            }
        };
    }
    keep(picked, count, |row| {
        let Ok(value) = tesseral_core::Scalar::from_le_bytes(dtype, cells.get(row - first)) else {
            return false;
        };
        ranges.iter().any(|(low, high)| {
            value.compare(low).is_some_and(std::cmp::Ordering::is_ge)
                && value.compare(high).is_some_and(std::cmp::Ordering::is_le)
        })
    });
}
