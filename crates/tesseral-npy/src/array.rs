//! The cells of a file as an array: chunks along the slowest dimension, each a contiguous byte range.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_codec::zlib;
use tesseral_core::schema::Order;
use tesseral_core::{ArraySchema, Attributes, ChunkGrid, Error, Limits, Result, alloc, missing, numpy};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Part, Planned, PlannedChunk, Request,
    Scratch, Totals,
};
use tesseral_store::Rounds;

use crate::header::{FIRST, MAX_LEN, NpyHeader};

/// The approximate chunk size: the read size where files are not memory-mapped.
const CHUNK: u64 = 4 << 20;

/// The maximum number of dimensions in NumPy.
const DIMENSIONS: usize = 64;

/// Location of the cells of an array.
#[derive(Clone, Debug)]
pub(crate) struct CellsPlace {
    /// Bytes of the object: of the cells, or of the deflate stream that holds header and cells.
    pub(crate) range: Range<u64>,
    pub(crate) packed: Option<PackedCells>,
}

/// A deflate stream of header and cells.
#[derive(Clone, Debug)]
pub(crate) struct PackedCells {
    /// Bytes of the header.
    pub(crate) head: u64,
    /// Bytes of header and cells.
    pub(crate) len: u64,
    /// Their CRC-32.
    pub(crate) crc: u32,
}

/// The array of an opened file.
#[derive(Debug)]
pub(crate) struct NpyArray {
    schema: ArraySchema,
    grid: ChunkGrid,
    limits: Limits,
    swapped: bool,
    /// Bytes per cell.
    size: u64,
    place: CellsPlace,
    object: String,
}

impl NpyArray {
    /// The array of a file whose cells are at a place.
    pub(crate) fn new(
        name: &str,
        header: &NpyHeader,
        place: CellsPlace,
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
        let (before, len) = match &place.packed {
            None => (place.range.start, place.range.end),
            Some(packed) => (packed.head, packed.len),
        };
        let expected = expected.and_then(|bytes| bytes.checked_add(before));
        if expected != Some(len) {
            let expected = expected.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string());
            let detail = format!("file length mismatch: expected {expected} bytes, found {len}");
            return Err(Error::corrupt("cells", object, place.range.start, detail));
        }
        let mut chunk: Vec<u64> = header.shape.iter().map(|n| (*n).max(1)).collect();
        let slowest = if header.fortran { chunk.len().checked_sub(1) } else { Some(0) };
        // A deflate stream is decoded as a whole.
        if let (Some(extent), None) = (slowest.and_then(|d| chunk.get_mut(d)), &place.packed) {
            let row = (len - before) / *extent;
            *extent = (*extent).min((CHUNK / row.max(1)).max(1));
        }
        schema.chunk_shape = Some(chunk.iter().copied().collect());
        if header.fortran && header.shape.len() > 1 {
            schema.cell_order = Order::ColMajor;
        }
        let grid = schema.grid()?.counted()?;
        let swapped = big != cfg!(target_endian = "big") && dtype.word() > 1;
        if place.packed.is_some() {
            schema.fields[0].codecs = vec!["deflate".to_owned()];
        }
        Ok(Self { schema, grid, limits, swapped, size, place, object: object.to_owned() })
    }

    /// Names the dimensions, as far as names are given, and adds attributes.
    pub(crate) fn describe_as(&mut self, dims: Option<&Vec<serde_json::Value>>, attributes: Attributes) {
        for (dim, name) in self.schema.dims.iter_mut().zip(dims.into_iter().flatten()) {
            name.as_str().unwrap_or_default().clone_into(&mut dim.name);
        }
        self.schema.attributes = attributes;
        missing::declare(&mut self.schema);
    }

    /// Bytes of the object that hold its cells.
    pub(crate) fn stored_len(&self) -> u64 {
        self.place.range.end - self.place.range.start
    }

    /// The byte range of a chunk. Chunks are contiguous in the file, because only one dimension has several.
    fn span(&self, number: u64) -> Range<u64> {
        if self.place.packed.is_some() {
            return self.place.range.clone();
        }
        let cells = |coords: &[u64]| self.grid.region(coords).cells().unwrap_or(0);
        let before = number * cells(&self.grid.coords(0));
        let start = self.place.range.start + before * self.size;
        start..start + cells(&self.grid.coords(number)) * self.size
    }

    fn to_native(&self, values: &mut [u8]) {
        if self.swapped {
            let word = self.schema.fields[0].dtype.word();
            values.chunks_exact_mut(word.max(1)).for_each(<[u8]>::reverse);
        }
    }

    /// Decodes a stream of header and cells, and compares their CRC-32.
    fn inflate(&self, packed: &PackedCells, part: &Bytes, whole: bool, values: &mut [u8]) -> Result<()> {
        if !whole {
            return Err(Error::internal("a deflate stream is decoded as a whole"));
        }
        let start = self.place.range.start;
        let head = usize::try_from(packed.head).ok().filter(|head| *head as u64 <= MAX_LEN + FIRST);
        let head = head.ok_or_else(|| Error::internal("a header beyond its limit"))?;
        let mut header = alloc::zeroed::<u8>("the header of a member", head)?;
        zlib::inflate_into(part, &mut header, values)
            .map_err(|e| Error::corrupt("chunk", &self.object, start, e.to_string()))?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header);
        crc.update(values);
        let computed = crc.finalize();
        if computed != packed.crc {
            let detail = format!("checksum mismatch: expected {:08x}, computed {computed:08x}", packed.crc);
            return Err(Error::corrupt("chunk", &self.object, start, detail));
        }
        Ok(())
    }
}

impl ArraySource for NpyArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let plan = ChunkPlan::of_grid(&self.grid, request, &self.limits, |id, region| {
            let span = self.span(id);
            let access = match &self.place.packed {
                None => Access::Direct { swapped: self.swapped },
                Some(packed) => {
                    self.limits.check_decoded(packed.len, span.end - span.start)?;
                    Access::Coded { granule: None }
                }
            };
            self.limits.check_chunk(span.end - span.start)?;
            let parts = request.columns.iter().map(|column| Part::values(*column, 0, &span)).collect();
            Ok(PlannedChunk::exact(id, region, parts, access))
        });
        plan.map(Planned::Ready)
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let chunks = self.grid.total();
        let stored_bytes = if chunks == 0 { 0 } else { self.stored_len() };
        Ok(Some(Totals { chunks, stored_bytes, digests: false }))
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let bytes = chunk.cells * self.size;
        let Range { start: offset, end } = self.span(chunk.id);
        let codec = if self.place.packed.is_some() { "deflate" } else { "raw" };
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: bytes,
            stored_len: end - offset,
            codec: codec.to_owned(),
            offset,
        }
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
        if let Some(packed) = &self.place.packed {
            self.inflate(packed, part, cells == (0..chunk.cells), values)?;
            self.to_native(values);
            return Ok(());
        }
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
        self.to_native(values);
        Ok(())
    }
}
