//! The cells of a file as an array: chunks along the slowest dimension, each a contiguous byte range.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::schema::Order;
use tesseral_core::{ArraySchema, ChunkGrid, ChunkStats, Error, Limits, Result, numpy};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, DigestSpans, Part, Planned,
    PlannedChunk, Request, Role, Scratch, Totals, Uncovered,
};
use tesseral_store::Rounds;

use crate::header::NpyHeader;

/// The approximate chunk size: the read size where files are not memory-mapped.
const CHUNK: u64 = 4 << 20;

/// The maximum number of dimensions in NumPy.
const DIMENSIONS: usize = 64;

/// The array of an opened file.
#[derive(Debug)]
pub(crate) struct NpyArray {
    schema: ArraySchema,
    grid: ChunkGrid,
    limits: Limits,
    swapped: bool,
    /// Bytes per cell.
    size: u64,
    /// The offset of the first cell.
    cells: u64,
}

impl NpyArray {
    /// The array of a file of `len` bytes whose cells begin at offset `cells`.
    pub(crate) fn new(
        name: &str,
        header: &NpyHeader,
        cells: u64,
        len: u64,
        object: &str,
        limits: Limits,
    ) -> Result<Self> {
        let Some((dtype, cell, big)) = numpy::parse_descr(&header.descr) else {
            return Err(Error::unsupported(format!("dtype {:?} in {object}", header.descr)));
        };
        if header.shape.len() > DIMENSIONS {
            let detail = format!("{} dimensions exceed NumPy's maximum of {DIMENSIONS}", header.shape.len());
            return Err(Error::corrupt("header", object, None, detail));
        }
        let mut schema = ArraySchema::dense(name, dtype, &header.shape, &header.shape);
        schema.fields[0].cell = cell;
        let size = schema.fields[0].cell_size().unwrap_or(1) as u64;
        let expected = header.shape.iter().try_fold(size, |n, extent| n.checked_mul(*extent));
        let expected = expected.and_then(|bytes| bytes.checked_add(cells));
        if expected != Some(len) {
            let expected = expected.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string());
            let detail = format!("file length mismatch: expected {expected} bytes, found {len}");
            return Err(Error::corrupt("cells", object, cells, detail));
        }
        let mut chunk: Vec<u64> = header.shape.iter().map(|n| (*n).max(1)).collect();
        let slowest = if header.fortran { chunk.len().checked_sub(1) } else { Some(0) };
        if let Some(extent) = slowest.and_then(|d| chunk.get_mut(d)) {
            let row = (len - cells) / *extent;
            *extent = (*extent).min((CHUNK / row.max(1)).max(1));
        }
        schema.chunk_shape = Some(chunk.iter().copied().collect());
        if header.fortran && header.shape.len() > 1 {
            schema.cell_order = Order::ColMajor;
        }
        let grid = schema.grid()?.counted()?;
        let swapped = big != cfg!(target_endian = "big") && dtype.word() > 1;
        Ok(Self { schema, grid, limits, swapped, size, cells })
    }

    /// The byte range of a chunk. Chunks are contiguous in the file, because only one dimension has several.
    fn span(&self, number: u64) -> Range<u64> {
        let cells = |coords: &[u64]| self.grid.region(coords).cells().unwrap_or(0);
        let before = number * cells(&self.grid.coords(0));
        let start = self.cells + before * self.size;
        start..start + cells(&self.grid.coords(number)) * self.size
    }
}

impl ArraySource for NpyArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn object(&self, _number: u32) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        if self.grid.total() == 0 {
            return Ok(Planned::Ready(ChunkPlan {
                chunks: Vec::new(),
                uncovered: Uncovered::Impossible,
                deletes: Vec::new(),
            }));
        }
        let touched = self.grid.touched(selection);
        self.limits.check_plan(touched.remaining())?;
        let mut chunks = Vec::new();
        for coords in touched {
            let (id, region) = (self.grid.linear(&coords), self.grid.region(&coords));
            let Range { start, end } = self.span(id);
            self.limits.check_chunk(end - start)?;
            let part = |column: &Column| Part {
                column: *column,
                role: Role::Values,
                object: 0,
                offset: start,
                len: end - start,
            };
            chunks.push(PlannedChunk {
                id,
                tile: None,
                layer: 0,
                cells: region.cells().unwrap_or(0),
                parts: request.columns.iter().map(part).collect(),
                access: Access::Direct { swapped: self.swapped },
                cover: Cover::Exact(region),
                whole: true,
            });
        }
        Ok(Planned::Ready(ChunkPlan { chunks, uncovered: Uncovered::Impossible, deletes: Vec::new() }))
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let chunks = self.grid.total();
        let stored_bytes = if chunks == 0 { 0 } else { self.span(chunks - 1).end - self.cells };
        Ok(Some(Totals { chunks, stored_bytes, digests: false }))
    }

    fn stats(&self, chunk: &PlannedChunk, _column: Column) -> ChunkStats {
        ChunkStats::unknown(chunk.cells)
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let bytes = chunk.cells * self.size;
        let offset = self.span(chunk.id).start;
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: bytes,
            stored_len: bytes,
            codec: "raw".to_owned(),
            offset,
        }
    }

    fn digests(&self, _chunk: &PlannedChunk) -> DigestSpans<'_> {
        DigestSpans::new()
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        _column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        let (ColumnMut::Fixed { values, validity: None }, [part]) = (out, parts) else {
            return Err(Error::internal("a .npy chunk decodes into one column of fixed-size cells"));
        };
        let byte_offset = |cell: u64| usize::try_from(cell.checked_mul(self.size)?).ok();
        let run = byte_offset(cells.start)
            .zip(byte_offset(cells.end))
            .and_then(|(start, end)| part.get(start..end));
        let Some(run) = run.filter(|run| run.len() == values.len()) else {
            let detail = format!(
                "truncated chunk: {} bytes do not hold cells {cells:?} of {}",
                part.len(),
                chunk.cells
            );
            return Err(Error::corrupt("chunk", "", self.span(chunk.id).start, detail));
        };
        values.copy_from_slice(run);
        if self.swapped {
            let word = self.schema.fields[0].dtype.word();
            values.chunks_exact_mut(word.max(1)).for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}
