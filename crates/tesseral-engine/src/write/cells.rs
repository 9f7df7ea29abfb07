//! Writing of sparse cells: sorted in the order of the format, divided into chunks, encoded in parallel.

use std::ops::Range;
use std::sync::PoisonError;

use tesseral_core::{CellLen, Error, Result};
use tesseral_format::ColumnData;

use super::columns::{OwnedColumn, cell_count_text, cells_of};
use super::{DeclaredArray, WriteSession, order};
use crate::decode::chunk::with_workspace;

/// Order of input cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputOrder {
    /// Unsorted: one call contains all cells of the write.
    Unordered,
    /// Sorted in the order of the format, over any number of calls: supports writes larger than memory.
    Stored,
    /// Unsorted, over any number of calls, each of which is stored as a separate run; runs must not share positions unless
    /// duplicates are allowed.
    Runs,
}

/// Pending cells, and the number of chunks before them.
#[derive(Debug, Default)]
pub(super) struct PendingCells {
    columns: Vec<OwnedColumn>,
    cells: usize,
    chunks: u64,
    /// Unsorted cells were written: no more can follow.
    closed: bool,
}

/// Size of a cell of each column in bytes: dimensions, then fields.
fn sizes(declared: &DeclaredArray) -> Vec<Option<usize>> {
    let var = |dtype: tesseral_core::DType| dtype.class() == tesseral_core::dtype::Class::Text;
    let dims = declared.schema.dims.iter().map(|d| if var(d.dtype) { None } else { d.dtype.size() });
    let fields = declared.schema.fields.iter();
    dims.chain(fields.map(|f| if f.cell == CellLen::Var { None } else { f.cell_size() })).collect()
}

impl WriteSession {
    /// Writes cells of a sparse array: one column per dimension, then one per field, all of the same length.
    ///
    /// # Errors
    /// `InvalidRequest` for cells outside the domain, at duplicate positions or not in the declared order; `Io`.
    pub fn write_cells(
        &self,
        array: usize,
        columns: &[ColumnData<'_>],
        input_order: InputOrder,
    ) -> Result<()> {
        let declared = self.declared(array)?;
        self.take_cells(array, declared, columns, input_order).map_err(|e| e.in_array(&declared.schema.name))
    }

    fn take_cells(
        &self,
        array: usize,
        declared: &DeclaredArray,
        columns: &[ColumnData<'_>],
        input_order: InputOrder,
    ) -> Result<()> {
        let sizes = sizes(declared);
        let counts: Vec<_> = columns.iter().zip(&sizes).map(|(c, size)| cells_of(c, *size)).collect();
        let cells = counts.first().copied().flatten();
        let Some(cells) =
            cells.filter(|_| columns.len() == sizes.len() && counts.iter().all(|n| *n == cells))
        else {
            let counted: Vec<String> = counts.into_iter().map(cell_count_text).collect();
            let detail =
                format!("{} columns for {} of the array: {}", columns.len(), sizes.len(), counted.join(", "));
            return Err(Error::invalid(detail));
        };
        let mut tail = declared.tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.closed || (input_order != InputOrder::Stored && (tail.cells > 0 || tail.chunks > 0)) {
            return Err(Error::invalid("unsorted cells must be written by one call"));
        }
        if cells == 0 {
            return Ok(());
        }
        if input_order != InputOrder::Stored {
            tail.closed = input_order == InputOrder::Unordered;
            let rows =
                self.options.run(|| order::of_cells(self.writer.as_ref(), array, columns, &sizes, cells))?;
            let pick = |range: Range<usize>| -> Vec<OwnedColumn> {
                let each = columns.iter().zip(&sizes);
                each.map(|(c, size)| OwnedColumn::pick(c, size.unwrap_or(1), &rows[range.clone()])).collect()
            };
            self.emit(array, 0, rows.len(), rows.len().div_ceil(self.chunk_cells(array)), pick)?;
            return if input_order == InputOrder::Runs { self.writer.finish_run(array) } else { Ok(()) };
        }
        let more = gather(columns, &sizes, 0..cells);
        if tail.columns.is_empty() {
            tail.columns = more;
        } else {
            tail.columns.iter_mut().zip(more).for_each(|(mine, more)| mine.append(more));
        }
        tail.cells += cells;
        let all: Vec<ColumnData<'_>> = tail.columns.iter().map(OwnedColumn::data).collect();
        order::check(&self.writer.cell_keys(array, &all)?)?;
        drop(all);
        self.emit_tail(array, &mut tail, &sizes, false)
    }

    /// Number of cells of a chunk.
    fn chunk_cells(&self, array: usize) -> usize {
        let chunk = self.writer.chunk_cells(array).and_then(|n| usize::try_from(n).ok());
        chunk.filter(|n| *n > 0).unwrap_or(usize::MAX)
    }

    /// Stores pending cells as a last, shorter chunk.
    pub(super) fn flush_cells(&self, array: usize) -> Result<()> {
        let declared = self.declared(array)?;
        let mut tail = declared.tail.lock().unwrap_or_else(PoisonError::into_inner);
        self.emit_tail(array, &mut tail, &sizes(declared), true)
            .map_err(|e| e.in_array(&declared.schema.name))
    }

    /// Encodes whole chunks and keeps the rest; at least one cell, for comparison with later ones.
    fn emit_tail(
        &self,
        array: usize,
        tail: &mut PendingCells,
        sizes: &[Option<usize>],
        last: bool,
    ) -> Result<()> {
        let chunk = self.chunk_cells(array);
        let total = if last { tail.cells.div_ceil(chunk) } else { tail.cells.saturating_sub(1) / chunk };
        if total == 0 {
            return Ok(());
        }
        let columns: Vec<ColumnData<'_>> = tail.columns.iter().map(OwnedColumn::data).collect();
        self.emit(array, tail.chunks, tail.cells, total, |range| gather(&columns, sizes, range))?;
        let done = total.saturating_mul(chunk).min(tail.cells);
        let rest = gather(&columns, sizes, done..tail.cells);
        drop(columns);
        tail.columns = if done == tail.cells { Vec::new() } else { rest };
        tail.cells -= done;
        tail.chunks += total as u64;
        Ok(())
    }

    /// Encodes and stores `total` chunks of the `cells` in order, numbered from `first`.
    fn emit(
        &self,
        array: usize,
        first: u64,
        cells: usize,
        total: usize,
        gather: impl Fn(Range<usize>) -> Vec<OwnedColumn> + Sync,
    ) -> Result<()> {
        let chunk = self.chunk_cells(array);
        // A worker gathers the cells of a chunk and encodes them.
        let row: usize = sizes(self.declared(array)?).iter().map(|size| size.unwrap_or(24)).sum();
        let unit = (chunk.min(cells) as u64).saturating_mul(row as u64).saturating_mul(2);
        let workers = self.options.for_workers(0, unit)?;
        self.each_chunk_on(&workers, array, total as u64, |number, _, turn| {
            let start = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(chunk);
            let gathered = gather(start..start.saturating_add(chunk).min(cells));
            let part: Vec<ColumnData<'_>> = gathered.iter().map(OwnedColumn::data).collect();
            let coords = [first + number];
            let encoded =
                with_workspace(|w| self.writer.encode(array, &coords, &part, Vec::new(), &mut w.scratch))?;
            turn.submit(number, encoded, |chunk| self.writer.place(array, chunk))
        })
    }
}

/// A range of cells of columns.
fn gather(columns: &[ColumnData<'_>], sizes: &[Option<usize>], range: Range<usize>) -> Vec<OwnedColumn> {
    let runs = [(range.start, range.len())];
    columns.iter().zip(sizes).map(|(c, size)| OwnedColumn::gather(c, size.unwrap_or(1), &runs)).collect()
}
