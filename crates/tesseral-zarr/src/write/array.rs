//! An array that is being written.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value as Json};
use smallvec::smallvec;
use tesseral_codec::checksum::Checksum;
use tesseral_codec::{zlib, zstd};
use tesseral_core::{CellLen, ChunkGrid, Coords, Error, Order, Result, alloc};
use tesseral_format::{ArraySpec, CodecSpec, Column, ColumnData, EncodedChunk, EncodedPart, Role, Scratch};

use super::document::{self, Compression};
use crate::vlen;
use crate::wire::key::KeyEncoding;

/// The most dimensions, as in NumPy.
const DIMENSIONS: usize = 64;

/// An array that is being written.
#[derive(Debug)]
pub(super) struct ArrayWrite {
    pub name: String,
    /// `.zarray`, or `zarr.json`.
    pub document: Map<String, Json>,
    /// `.zattrs`.
    pub attributes: Map<String, Json>,
    grid: ChunkGrid,
    order: Order,
    /// Bytes of a cell; `None` for variable-length cells.
    size: Option<usize>,
    word: usize,
    fill: Vec<u8>,
    keys: KeyEncoding,
    compression: Compression,
    checksum: bool,
    /// Numbers of the chunks that were pushed.
    pushed: Mutex<HashSet<u64>>,
}

fn compression(codecs: &[CodecSpec]) -> Result<Compression> {
    let level = |codec: &CodecSpec, default: i64| {
        i32::try_from(codec.int("level").unwrap_or(default)).unwrap_or(i32::MAX)
    };
    match codecs {
        [] => Ok(Compression::None),
        [codec] => {
            match codec.name.as_str() {
                "raw" | "none" => Ok(Compression::None),
                "zstd" => Ok(Compression::Zstd(level(codec, zstd::DEFAULT_LEVEL.into()).clamp(-131_072, 22))),
                "gzip" => Ok(Compression::Gzip(level(codec, 5).clamp(0, 9))),
                other => Err(Error::unsupported(format!("writing codec {other:?} in Zarr"))
                    .hint("use zstd, gzip or raw")),
            }
        }
        _ => Err(Error::unsupported("several codecs of an array in Zarr").hint("use zstd, gzip or raw")),
    }
}

impl ArrayWrite {
    pub(super) fn new(spec: &ArraySpec, version: u8, digests: bool) -> Result<Self> {
        let schema = &spec.schema;
        let unsupported =
            |what: &str| Err(Error::unsupported(format!("{what} in Zarr")).in_array(&schema.name));
        let [field] = schema.fields.as_slice() else { return unsupported("arrays of several fields") };
        if schema.sparse {
            return unsupported("sparse arrays");
        }
        if field.nullable || field.enumeration.is_some() {
            return unsupported(if field.nullable { "null cells" } else { "enumerations" });
        }
        if schema.dims.len() > DIMENSIONS {
            return unsupported("more than 64 dimensions");
        }
        let compression = compression(spec.codecs.first().map_or(&[][..], Vec::as_slice))?;
        let grid = schema.grid()?;
        let size = if field.cell == CellLen::Var { None } else { field.cell_size() };
        let checksum = digests && version == 3;
        let (document, attributes, keys) = if version == 3 {
            (document::array_v3(schema, compression, checksum)?, Map::new(), KeyEncoding::Default('/'))
        } else {
            let (document, attributes) = document::array_v2(schema, compression)?;
            (document, attributes, KeyEncoding::V2('.'))
        };
        // Cells beyond the edges of the array; readers ignore them.
        let fill = field.fill.as_ref().map(|fill| fill.bytes().to_vec());
        let fill = fill.filter(|fill| Some(fill.len()) == size);
        let fill = fill.unwrap_or_else(|| std::iter::repeat_n(0, size.unwrap_or(0)).collect());
        Ok(Self {
            name: schema.name.clone(),
            document,
            attributes,
            grid,
            order: if schema.cell_order == Order::ColMajor { Order::ColMajor } else { Order::RowMajor },
            size,
            word: field.dtype.word(),
            fill,
            keys,
            compression,
            checksum,
            pushed: Mutex::default(),
        })
    }

    fn pushed(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.pushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the object of a chunk that is about to be stored.
    pub(super) fn claim(&self, coords: &[u64]) -> Result<String> {
        let invalid = |what: &str| Error::invalid(what).in_array(&self.name).in_chunk(coords);
        if !self.grid.contains(coords) {
            return Err(invalid("the chunk is outside the grid"));
        }
        if !self.pushed().insert(self.grid.linear(coords)) {
            return Err(invalid("the chunk was written before"));
        }
        Ok(self.keys.key(coords))
    }

    /// Undoes [`claim`](Self::claim) for a chunk that could not be stored.
    pub(super) fn release(&self, coords: &[u64]) {
        self.pushed().remove(&self.grid.linear(coords));
    }

    /// Returns an error with the first missing chunk.
    pub(super) fn check_complete(&self) -> Result<()> {
        let (total, pushed) = (self.grid.total(), self.pushed());
        if pushed.len() as u64 == total {
            return Ok(());
        }
        let missing = (0..total).find(|number| !pushed.contains(number)).unwrap_or(0);
        let detail = format!("{} of {total} chunks are missing", total - pushed.len() as u64);
        Err(Error::invalid(detail).in_array(&self.name).in_chunk(&self.grid.coords(missing)))
    }

    pub(super) fn encode<'a>(
        &self,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let invalid = |what: &str| Error::invalid(what).in_array(&self.name).in_chunk(coords);
        if !self.grid.contains(coords) {
            return Err(invalid("the chunk is outside the grid"));
        }
        let cells = match (columns, self.size) {
            ([ColumnData::Fixed { values, validity: None }], Some(size)) => {
                self.padded(coords, values, size)?
            }
            ([ColumnData::Var { offsets, data, validity: None }], None) => {
                Cow::Owned(self.variable_length(coords, offsets, data)?)
            }
            _ => return Err(invalid("the columns do not match the array")),
        };
        let raw_len = cells.len() as u64;
        let mut bytes = match self.compression {
            Compression::None => cells,
            Compression::Zstd(level) => {
                let mut out = scratch.spare.pop().unwrap_or_default();
                zstd::encode(&cells, level, &mut out, &mut scratch.contexts)?;
                out.into()
            }
            Compression::Gzip(level) => {
                let mut out = scratch.spare.pop().unwrap_or_default();
                zlib::encode_gzip(&cells, level, &mut out)?;
                out.into()
            }
        };
        if self.checksum {
            let sum = Checksum::Crc32c.compute(&bytes);
            bytes.to_mut().extend(sum.to_le_bytes());
        }
        let part = EncodedPart { column: Column::Field(0), role: Role::Values, bytes, raw_len, codec: 0 };
        Ok(EncodedChunk { coords: Coords::from_slice(coords), parts: smallvec![part], stats: Vec::new() })
    }

    /// Little-endian cells of a complete chunk: at the edges of the array, with fill values beyond it.
    fn padded<'a>(&self, coords: &[u64], values: &'a [u8], size: usize) -> Result<Cow<'a, [u8]>> {
        let region = self.grid.region(coords);
        let (extents, tile) = (region.shape(), self.grid.chunk_shape());
        let bytes = |shape: &[u64]| {
            let bytes = shape.iter().try_fold(size as u64, |n, extent| n.checked_mul(*extent));
            bytes.and_then(|bytes| usize::try_from(bytes).ok())
        };
        if bytes(&extents) != Some(values.len()) {
            let detail = format!("{} bytes do not hold the cells of {:?}", values.len(), extents);
            return Err(Error::invalid(detail).in_array(&self.name).in_chunk(coords));
        }
        let mut out = Cow::Borrowed(values);
        if extents.as_slice() != tile {
            let len = bytes(tile).ok_or_else(|| Error::limit("a chunk", u64::MAX, usize::MAX as u64))?;
            let mut whole = alloc::zeroed::<u8>("a chunk", len)?;
            if self.fill.iter().any(|byte| *byte != 0) {
                whole.chunks_exact_mut(size).for_each(|cell| cell.copy_from_slice(&self.fill));
            }
            copy_box(values, &extents, tile, size, self.order, &mut whole);
            out = Cow::Owned(whole);
        }
        if cfg!(target_endian = "big") && self.word > 1 {
            out.to_mut().chunks_exact_mut(self.word).for_each(<[u8]>::reverse);
        }
        Ok(out)
    }

    /// Variable-length cells of a complete chunk; empty ones beyond the array.
    fn variable_length(&self, coords: &[u64], offsets: &[u64], data: &[u8]) -> Result<Vec<u8>> {
        let invalid =
            || Error::invalid("the offsets do not match the data").in_array(&self.name).in_chunk(coords);
        let (extents, tile) = (self.grid.region(coords).shape(), self.grid.chunk_shape());
        let count = |shape: &[u64]| {
            let cells = shape.iter().try_fold(1_u64, |n, extent| n.checked_mul(*extent));
            cells.and_then(|cells| usize::try_from(cells).ok())
        };
        if count(&extents) != Some(offsets.len()) {
            return Err(invalid());
        }
        let mut start = 0;
        let mut cells = alloc::with_capacity("text cells", offsets.len())?;
        for end in offsets {
            let range = usize::try_from(start).ok().zip(usize::try_from(*end).ok());
            cells.push(range.and_then(|(start, end)| data.get(start..end)).ok_or_else(invalid)?);
            start = *end;
        }
        let mut out = Vec::new();
        if extents.as_slice() == tile {
            vlen::encode(cells.into_iter(), &mut out)?;
        } else {
            // Positions are moved as numbers of one byte each would be.
            let len = count(tile).ok_or_else(|| Error::limit("a chunk", u64::MAX, usize::MAX as u64))?;
            let numbers: Vec<u8> = (1..=cells.len() as u64).flat_map(u64::to_le_bytes).collect();
            let mut moved = alloc::zeroed::<u8>("a chunk", len.saturating_mul(8))?;
            copy_box(&numbers, &extents, tile, 8, self.order, &mut moved);
            let cell = |number: &[u8; 8]| {
                let number = usize::try_from(u64::from_le_bytes(*number)).unwrap_or(0);
                number.checked_sub(1).and_then(|number| cells.get(number)).copied().unwrap_or_default()
            };
            vlen::encode(moved.as_chunks::<8>().0.iter().map(cell), &mut out)?;
        }
        Ok(out)
    }
}

/// Copies a box of cells to the start of a larger one, run by run along the fastest axis.
fn copy_box(src: &[u8], extents: &[u64], tile: &[u64], size: usize, order: Order, dst: &mut [u8]) {
    // Both fit: the boxes are in memory.
    #[allow(clippy::cast_possible_truncation)]
    let axes = |shape: &[u64]| -> Vec<usize> {
        let axes = shape.iter().map(|n| *n as usize);
        // Slowest axis first.
        if order == Order::ColMajor { axes.rev().collect() } else { axes.collect() }
    };
    let (extents, tile) = (axes(extents), axes(tile));
    let Some(run) = extents.last().map(|n| n * size).filter(|run| *run > 0) else { return };
    let mut at: Vec<usize> = extents.iter().map(|_| 0).collect();
    for cells in src.chunks_exact(run) {
        let cell = at.iter().zip(&tile).fold(0, |linear, (at, n)| linear * n + at);
        dst[cell * size..cell * size + run].copy_from_slice(cells);
        for axis in (0..extents.len() - 1).rev() {
            at[axis] += 1;
            if at[axis] < extents[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}
