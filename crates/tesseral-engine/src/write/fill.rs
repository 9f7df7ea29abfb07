//! Arrays filled column by column: cells asked for chunk by chunk, or stored bytes taken over.

use tesseral_core::{Coords, Error, Order, Region, Result};
use tesseral_format::{ColumnData, EncodedChunk, StoredChunk, StoredForm};

use super::{Declared, Journal, WriteSession, chunk_at, located, whole_chunks};
use crate::cells::Cells;
use crate::chunk::with_workspace;
use crate::kernel::copy::copy_box;
use crate::options::{Options, Ticker};
use crate::sink::{Strides, row_major};

impl Declared {
    /// No cells of any field.
    pub(crate) fn columns(&self) -> Vec<Cells> {
        self.schema.fields.iter().map(Cells::of).collect()
    }

    /// Bytes that a cell takes over all fields of one size, validity included.
    pub(crate) fn cell_bytes(&self) -> u64 {
        let field = |f: &tesseral_core::Field| f.cell_size().unwrap_or(0) as u64 + u64::from(f.nullable);
        self.schema.fields.iter().map(field).sum()
    }
}

impl WriteSession {
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Fills an array by asking for the cells of every chunk, a column per field, on all threads, each chunk once. Columns of
    /// cells of one size come as long as the chunk takes; cells of any length are pushed.
    ///
    /// # Errors
    /// What `cells` returns; `Io`.
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

    /// Fills the chunks of a box that begins where a chunk begins and ends where one ends. `cells` gives a chunk as its stored
    /// bytes where those can be taken over as they are, else it puts its cells into the columns.
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
            Error::invalid(format!("{part:?} cuts a chunk of {:?}", declared.grid.chunk_shape()))
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
                let mut one = || -> Result<()> {
                    let place = |chunk| self.writer.place(array, chunk);
                    if let Some(journal) = &self.journal
                        && let Some(chunk) = journal.find(array, &coords)?
                    {
                        return turn.take(number, chunk, |chunk| self.writer.place(array, chunk));
                    }
                    let region = declared.cells(&coords)?;
                    let count = region.cells().and_then(|n| usize::try_from(n).ok());
                    let count = count.ok_or_else(|| Error::limit("a chunk", u64::MAX, usize::MAX as u64))?;
                    columns.iter_mut().try_for_each(|column| column.reset(count))?;
                    if let Some(stored) = cells(&region, columns)? {
                        return turn.take(number, self.writer.adopt(array, &coords, &stored)?, place);
                    }
                    let data: Vec<ColumnData<'_>> = columns.iter().map(Cells::as_data).collect();
                    let chunk = self.encode_columns(array, declared, &coords, &region, &data)?;
                    if let Some(journal) = &self.journal {
                        journal.note(array, &chunk)?;
                    }
                    turn.take(number, chunk, place)
                };
                one().map_err(|e| located(e, declared, &coords))
            },
        )
    }

    fn encode_columns<'a>(
        &self,
        array: usize,
        declared: &Declared,
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

    /// Keeps encoded chunks in a journal, and takes those that it has from an earlier try.
    pub fn keep(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Whether a journal has every chunk of a box, so that its cells need not be read.
    pub(crate) fn recalls(&self, array: usize, part: &Region) -> Result<bool> {
        let (Some(journal), declared) = (&self.journal, self.declared(array)?) else { return Ok(false) };
        let Some(boxes) = whole_chunks(declared, part) else { return Ok(false) };
        let total = boxes.cells().unwrap_or(u64::MAX);
        Ok((0..total).all(|number| journal.has(array, &chunk_at(&boxes, Order::RowMajor, number))))
    }

    /// Bytes of an array that the writer holds until all of it is there.
    pub fn gathers(&self, array: usize) -> u64 {
        self.writer.gathers(array)
    }

    /// Whether chunks in this stored form can be taken over by an array as they are.
    pub(crate) fn adopts(&self, array: usize, form: StoredForm) -> bool {
        self.writer.adopts(array, form)
    }
}

/// Copies the cells of `part` out of those of the box `whole` that holds it; both lie row-major.
pub(crate) fn cut(cells: &[u8], whole: &Region, size: usize, part: &Region, out: &mut [u8]) -> Result<()> {
    let (start, from, to, extents) = placed(whole, size, part);
    let cells = cells.get(start..).ok_or_else(|| Error::invalid("a box lies outside its cells"))?;
    copy_box(cells, &from, out, &to, &extents, size)
}

/// Copies the cells of `part` to their place among those of the box `whole` that holds it; both lie row-major.
pub(crate) fn paste(cells: &[u8], part: &Region, size: usize, whole: &Region, out: &mut [u8]) -> Result<()> {
    let (start, to, from, extents) = placed(whole, size, part);
    let out = out.get_mut(start..).ok_or_else(|| Error::invalid("a box lies outside its cells"))?;
    copy_box(cells, &from, out, &to, &extents, size)
}

/// Where a box lies in another: byte offset, strides of the other and of its own, extents.
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
