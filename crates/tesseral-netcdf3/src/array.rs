//! The cells of a variable as an array: contiguous chunks, or chunks of records that are interleaved with other variables.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkGrid, Coords, Dimension, Error, Limits, Region, Result, missing};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Part, Planned, PlannedChunk, Request,
    Scratch, Totals, contiguous_chunk_shape, first_cell,
};
use tesseral_store::Rounds;

use crate::header::{Header, NetCdf3Variable, UNNAMED};

/// Approximate size in bytes of chunks of several interleaved records.
const RECORDS_CHUNK: u64 = 64 << 10;
/// Maximum number of interleaved records of a chunk.
const RECORDS: u64 = 1024;

/// The array of a variable.
#[derive(Debug)]
pub(crate) struct NetCdf3Array {
    schema: ArraySchema,
    grid: ChunkGrid,
    limits: Limits,
    object: String,
    /// Bytes per cell.
    size: u64,
    /// Offset of the first cell.
    begin: u64,
    /// Distance in bytes of consecutive records; `None` if the cells are contiguous.
    stride: Option<u64>,
    /// Length of the file.
    file_len: u64,
}

/// Records of a file: their number and size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    pub count: u64,
    pub size: u64,
}

/// Bytes of a variable, or of one record of it; `None` beyond `u64`.
fn slab(header: &Header, variable: &NetCdf3Variable) -> Option<u64> {
    let dims = if header.is_record(variable) { &variable.dims[1..] } else { &variable.dims };
    let size = variable.dtype.size().unwrap_or(1) as u64;
    dims.iter().try_fold(size, |bytes, dim| bytes.checked_mul(header.dims[*dim].len))
}

impl Records {
    /// The records of a file of `len` bytes.
    pub(crate) fn from_header(header: &Header, len: u64, object: &str) -> Result<Self> {
        let beyond = || Error::corrupt("variables", object, None, "a record exceeds 2^64 bytes");
        let own: Vec<&NetCdf3Variable> = header.variables.iter().filter(|v| header.is_record(v)).collect();
        // The slabs of a single record variable are not padded.
        let padding = if own.len() == 1 { 1 } else { 4 };
        let mut size = 0_u64;
        for variable in &own {
            let slab = slab(header, variable).and_then(|bytes| bytes.checked_next_multiple_of(padding));
            size = slab.and_then(|bytes| size.checked_add(bytes)).ok_or_else(beyond)?;
        }
        let implied = || {
            let begin = own.iter().map(|variable| variable.begin).min().unwrap_or(len);
            len.saturating_sub(begin) / size.max(1)
        };
        Ok(Self { count: header.records.unwrap_or_else(implied), size })
    }
}

impl NetCdf3Array {
    /// The array of a variable in a file of `file_len` bytes.
    pub(crate) fn new(
        header: &Header,
        variable: &NetCdf3Variable,
        records: Records,
        file_len: u64,
        object: &str,
        limits: Limits,
    ) -> Result<Self> {
        let record = header.is_record(variable);
        let extent = |dim: &usize| match header.dims[*dim].len {
            0 => records.count,
            len => len,
        };
        let shape: Coords = variable.dims.iter().map(extent).collect();
        let size = variable.dtype.size().unwrap_or(1) as u64;
        let row = slab(header, variable);
        let stride = Some(records.size).filter(|stride| record && row != Some(*stride));
        let chunk = match (stride, row) {
            (None, _) => contiguous_chunk_shape(&shape, size),
            (Some(_), Some(row)) if row < RECORDS_CHUNK => {
                let mut chunk = shape.clone();
                chunk[0] = (RECORDS_CHUNK / row.max(1)).clamp(1, RECORDS).min(shape[0].max(1));
                chunk
            }
            (Some(_), _) => std::iter::once(1).chain(contiguous_chunk_shape(&shape[1..], size)).collect(),
        };
        let mut schema = ArraySchema::dense(&variable.name, variable.dtype, &shape, &chunk);
        let named = |dim: &usize| {
            let name = header.dims[*dim].name.as_str();
            let len = name.strip_prefix(UNNAMED).and_then(|len| len.parse::<u64>().ok());
            if len.is_some() && len == Some(header.dims[*dim].len) { "" } else { name }
        };
        let dimension = |dim: &usize| Dimension {
            unlimited: header.dims[*dim].len == 0,
            ..Dimension::new(named(dim), extent(dim))
        };
        schema.dims = variable.dims.iter().map(dimension).collect();
        schema.attributes = variable.attributes.clone();
        missing::declare(&mut schema);
        let beyond =
            |e: Error| Error::corrupt("variables", object, None, e.to_string()).in_array(&variable.name);
        let grid = schema.grid().map_err(beyond)?;
        let object = object.to_owned();
        Ok(Self { schema, grid, limits, object, size, begin: variable.begin, stride, file_len })
    }

    /// Byte ranges of the cells of a chunk, one per record if they are interleaved.
    fn ranges(&self, region: &Region) -> Option<SmallVec<[Range<u64>; 1]>> {
        let range = |origin: u64, shape: &[u64], region: &Region| {
            let start = first_cell(shape, region)?.checked_mul(self.size)?.checked_add(origin)?;
            let end = region.cells()?.checked_mul(self.size)?.checked_add(start)?;
            (end <= self.file_len).then_some(start..end)
        };
        let Some(stride) = self.stride else {
            return Some([range(self.begin, self.grid.shape(), region)?].into_iter().collect());
        };
        let (first, rest) = region.bounds().split_first()?;
        let rest = Region::new(rest.iter().copied());
        let record = |record: u64| {
            let origin = record.checked_mul(stride)?.checked_add(self.begin)?;
            range(origin, &self.grid.shape()[1..], &rest)
        };
        (first.0..first.1).map(record).collect()
    }

    fn chunk(&self, id: u64, region: Region, columns: &[Column]) -> Result<PlannedChunk> {
        let cells = region.cells().unwrap_or(u64::MAX);
        self.limits.check_chunk(cells.saturating_mul(self.size))?;
        let ranges = self.ranges(&region).ok_or_else(|| {
            let expected = cells.saturating_mul(self.size);
            let found = self.file_len.saturating_sub(self.begin).min(expected.saturating_sub(1));
            Error::truncated("a chunk", &self.object, self.begin, expected, found)
        })?;
        let swapped = cfg!(target_endian = "little") && self.schema.fields[0].dtype.word() > 1;
        let access = match ranges.len() {
            1 => Access::Direct { swapped },
            _ => Access::Coded { granule: None },
        };
        let parts = |column: &Column| {
            let column = *column;
            ranges.iter().map(move |range| Part::values(column, 0, range))
        };
        Ok(PlannedChunk::exact(id, region, columns.iter().flat_map(parts).collect(), access))
    }
}

impl ArraySource for NetCdf3Array {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let plan = ChunkPlan::of_grid(&self.grid, request, &self.limits, |id, region| {
            self.chunk(id, region, &request.columns)
        });
        plan.map(Planned::Ready).map_err(|e| e.in_array(&self.schema.name))
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let cells = self.grid.shape().iter().try_fold(self.size, |bytes, n| bytes.checked_mul(*n));
        Ok(Some(Totals {
            chunks: self.grid.total(),
            stored_bytes: cells.unwrap_or(u64::MAX),
            digests: false,
        }))
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let bytes = chunk.cells.saturating_mul(self.size);
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: bytes,
            stored_len: bytes,
            codec: "raw".to_owned(),
            offset: chunk.parts.first().map_or(self.begin, |part| part.offset),
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
        let ColumnMut::Fixed { values, validity: None } = out else {
            return Err(Error::internal("a NetCDF chunk decodes into one column of fixed-size cells"));
        };
        let offset = |cell: u64| cell.checked_mul(self.size).and_then(|at| usize::try_from(at).ok());
        let copied = match parts {
            [part] => offset(cells.start)
                .zip(offset(cells.end))
                .and_then(|(start, end)| part.get(start..end))
                .filter(|run| run.len() == values.len())
                .map(|run| values.copy_from_slice(run)),
            _ => (parts.iter().map(Bytes::len).sum::<usize>() == values.len() && cells == (0..chunk.cells))
                .then(|| {
                    let mut rest = &mut *values;
                    for part in parts {
                        let (head, tail) = rest.split_at_mut(part.len());
                        head.copy_from_slice(part);
                        rest = tail;
                    }
                }),
        };
        if copied.is_none() {
            let stored: usize = parts.iter().map(Bytes::len).sum();
            let detail =
                format!("truncated chunk: {stored} bytes do not hold cells {cells:?} of {}", chunk.cells);
            return Err(Error::corrupt("chunk", &self.object, self.begin, detail));
        }
        let word = self.schema.fields[0].dtype.word();
        if cfg!(target_endian = "little") && word > 1 {
            values.chunks_exact_mut(word).for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}
