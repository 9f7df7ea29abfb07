//! An array that is being written.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};
use smallvec::smallvec;
use tesseral_codec::checksum::Checksum;
use tesseral_codec::{zlib, zstd};
use tesseral_core::{CellLen, Coords, Error, Order, Result};
use tesseral_format::{
    ArraySpec, CodecSpec, Column, ColumnData, EncodedChunk, EncodedPart, Role, Scratch, WrittenChunks,
    to_little_endian,
};

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
    order: Order,
    /// Bytes of a cell; `None` for variable-length cells.
    size: Option<usize>,
    word: usize,
    fill: Vec<u8>,
    keys: KeyEncoding,
    compression: Compression,
    checksum: bool,
    pub chunks: WrittenChunks<()>,
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
        let chunks = WrittenChunks::new(schema)?;
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
            order: if schema.cell_order == Order::ColMajor { Order::ColMajor } else { Order::RowMajor },
            size,
            word: field.dtype.word(),
            fill,
            keys,
            compression,
            checksum,
            chunks,
        })
    }

    /// The object of a chunk.
    pub(super) fn key(&self, coords: &[u64]) -> String {
        self.keys.key(coords)
    }

    pub(super) fn encode<'a>(
        &self,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        self.chunks.check(coords)?;
        let cells = match (columns, self.size) {
            ([ColumnData::Fixed { values, validity: None }], Some(_)) => {
                to_little_endian(self.chunks.whole(coords, values, &self.fill, self.order)?, self.word)
            }
            ([ColumnData::Var { offsets, data, validity: None }], None) => {
                Cow::Owned(self.variable_length(coords, offsets, data)?)
            }
            _ => return Err(self.chunks.invalid(coords, "the columns do not match the array")),
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

    /// Variable-length cells of a complete chunk; empty ones beyond the array.
    fn variable_length(&self, coords: &[u64], offsets: &[u64], data: &[u8]) -> Result<Vec<u8>> {
        let cells = self.chunks.variable_length(coords, offsets, data)?;
        // Positions are moved as cells would be, counted from 1.
        let numbers: Vec<u8> = (1..=cells.len() as u64).flat_map(u64::to_le_bytes).collect();
        let moved = self.chunks.whole(coords, &numbers, &[0; 8], self.order)?;
        let cell = |number: &[u8; 8]| {
            let number = usize::try_from(u64::from_le_bytes(*number)).unwrap_or(0);
            number.checked_sub(1).and_then(|number| cells.get(number)).copied().unwrap_or_default()
        };
        let mut out = Vec::new();
        vlen::encode(moved.as_chunks::<8>().0.iter().map(cell), &mut out)?;
        Ok(out)
    }
}
