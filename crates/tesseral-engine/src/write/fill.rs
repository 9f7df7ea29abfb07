//! Writing of arrays by columns: cells are requested chunk by chunk, or stored bytes are copied.

use tesseral_core::{Coords, Error, Order, Region, Result};
use tesseral_format::{ColumnData, EncodedChunk, StoredChunk, StoredForm};

use super::{DeclaredArray, Journal, WriteSession, chunk_at, located, whole_chunks};
use crate::decode::chunk::with_workspace;
use crate::decode::columns::Cells;
use crate::kernel::copy::copy_box;
use crate::options::{Options, Ticker};
use crate::paint::sink::{Strides, row_major};

impl DeclaredArray {
    /// Creates empty columns of all fields.
    pub(crate) fn columns(&self) -> Vec<Cells> {
        self.schema.fields.iter().map(Cells::for_field).collect()
    }

    /// Size of a cell over all fixed-size fields in bytes, including validity.
    pub(crate) fn cell_bytes(&self) -> u64 {
        let field = |f: &tesseral_core::Field| f.cell_size().unwrap_or(0) as u64 + u64::from(f.nullable);
        self.schema.fields.iter().map(field).sum()
    }
}

impl WriteSession {
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Writes an array by calling `cells` for every chunk, with a column per field, on all threads. Columns of fixed-size cells
    /// have the length of the chunk; variable-length cells are appended.
    ///
    /// # Errors
    /// Errors of `cells`; `Io`.
    pub fn fill_columns<F>(&self, array: usize, cells: F) -> Result<()>
    where
        F: Fn(&Region, &mut [Cells]) -> Result<()> + Sync,
    {
        let declared = self.declared(array)?;
        let ticker = self.options.ticker(declared.grid.total());
        self.fill_part(array, &declared.region, &ticker, |region, columns| {
            cells(region, columns).map(|()| None)
        })
    }

    /// Writes the chunks of a region that is aligned to chunks. `cells` returns the stored bytes of a chunk if they can be
    /// copied, otherwise it fills the columns.
    pub(crate) fn fill_part<F>(
        &self,
        array: usize,
        part: &Region,
        ticker: &Ticker<'_>,
        cells: F,
    ) -> Result<()>
    where
        F: Fn(&Region, &mut [Cells]) -> Result<Option<StoredChunk>> + Sync,
    {
        let declared = self.declared(array)?;
        if part.is_empty() {
            return Ok(());
        }
        let boxes = whole_chunks(declared, part).ok_or_else(|| {
            Error::invalid(format!(
                "region {part:?} is not aligned to chunks of {:?}",
                declared.grid.chunk_shape()
            ))
            .in_array(&declared.schema.name)
        })?;
        let order = self.writer.chunk_order(array);
        let total = boxes.cells().unwrap_or(u64::MAX);
        let keep = || declared.columns();
        self.each_chunk_keeping(
            &self.options,
            array,
            total,
            ticker,
            keep,
            |number, columns: &mut Vec<Cells>, turn| {
                let coords = chunk_at(&boxes, order, number);
                let mut write_chunk = || -> Result<()> {
                    let place = |chunk| self.writer.place(array, chunk);
                    if let Some(journal) = &self.journal
                        && let Some(chunk) = journal.find(array, &coords)?
                    {
                        return turn.submit(number, chunk, |chunk| self.writer.place(array, chunk));
                    }
                    let region = declared.cells(&coords)?;
                    let count = region.cells().and_then(|n| usize::try_from(n).ok());
                    let count = count.ok_or_else(|| Error::limit("a chunk", u64::MAX, usize::MAX as u64))?;
                    columns.iter_mut().try_for_each(|column| column.reset(count))?;
                    if let Some(stored) = cells(&region, columns)? {
                        return turn.submit(
                            number,
                            self.writer.push_encoded(array, &coords, &stored)?,
                            place,
                        );
                    }
                    let data: Vec<ColumnData<'_>> = columns.iter().map(Cells::as_data).collect();
                    let chunk = self.encode_columns(array, declared, &coords, &region, &data)?;
                    if let Some(journal) = &self.journal {
                        journal.note(array, &chunk)?;
                    }
                    turn.submit(number, chunk, place)
                };
                write_chunk().map_err(|e| located(e, declared, &coords))
            },
        )
    }

    fn encode_columns<'a>(
        &self,
        array: usize,
        declared: &DeclaredArray,
        coords: &Coords,
        region: &Region,
        columns: &[ColumnData<'a>],
    ) -> Result<EncodedChunk<'a>> {
        super::columns::check(&declared.schema, columns, region.cells())?;
        if declared.schema.cell_order == Order::ColMajor && region.rank() > 1 {
            return self.encode_part(array, declared, coords, region, columns);
        }
        let stats = self.stats(array, declared, columns)?;
        with_workspace(|w| self.writer.encode(array, coords, columns, stats, &mut w.scratch))
    }

    /// Stores encoded chunks in a journal, and reuses those of an earlier attempt.
    pub fn keep(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Returns whether a journal has every chunk of a region, so that its cells need not be read.
    pub(crate) fn recalls(&self, array: usize, part: &Region) -> Result<bool> {
        let (Some(journal), declared) = (&self.journal, self.declared(array)?) else { return Ok(false) };
        let Some(boxes) = whole_chunks(declared, part) else { return Ok(false) };
        let total = boxes.cells().unwrap_or(u64::MAX);
        Ok((0..total).all(|number| journal.has(array, &chunk_at(&boxes, Order::RowMajor, number))))
    }

    /// Size of an array that the writer holds until it is complete, in bytes.
    pub fn buffered_bytes(&self, array: usize) -> u64 {
        self.writer.buffered_bytes(array)
    }

    /// Returns whether stored chunks in this encoding can be copied to an array.
    pub(crate) fn accepts_encoded(&self, array: usize, form: StoredForm) -> bool {
        self.writer.accepts_encoded(array, form)
    }
}

/// Copies the cells of `part` from those of the box `whole` that contains it; both row-major.
pub(crate) fn copy_from_box(
    cells: &[u8],
    whole: &Region,
    size: usize,
    part: &Region,
    out: &mut [u8],
) -> Result<()> {
    let (start, from, to, extents) = placed(whole, size, part);
    let cells = cells.get(start..).ok_or_else(|| Error::internal("a box is outside its cells"))?;
    copy_box(cells, &from, out, &to, &extents, size)
}

/// Copies the cells of `part` into those of the box `whole` that contains it; both row-major.
pub(crate) fn copy_into_box(
    cells: &[u8],
    part: &Region,
    size: usize,
    whole: &Region,
    out: &mut [u8],
) -> Result<()> {
    let (start, to, from, extents) = placed(whole, size, part);
    let out = out.get_mut(start..).ok_or_else(|| Error::internal("a box is outside its cells"))?;
    copy_box(cells, &from, out, &to, &extents, size)
}

/// Placement of a box in another: byte offset, strides of the other and of its own, extents.
fn placed(whole: &Region, size: usize, part: &Region) -> (usize, Strides, Strides, Vec<usize>) {
    // Positions inside a box whose bytes are in memory.
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let strides = row_major(&whole.shape(), size);
    let starts = part.bounds().iter().zip(whole.bounds()).map(|(p, w)| count(p.0.saturating_sub(w.0)));
    let start = starts.zip(&strides).map(|(at, stride)| at.saturating_mul(*stride)).sum();
    let own = row_major(&part.shape(), size);
    let extents = part.shape().iter().map(|&n| count(n)).collect();
    (start, strides, own, extents)
}
