//! An array that is being written.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};
use tesseral_core::{CellLen, Error, Order, Result};
use tesseral_format::{ArraySpec, ColumnData, EncodedChunk, Scratch, WrittenChunks, to_little_endian};
use tesseral_store::{Overwrite, Store, StoreExt};

use super::codecs::Steps;
use super::document;
use super::shards::{ShardShape, ShardedWrite};
use crate::open::join;
use crate::vlen;
use crate::wire::key::KeyEncoding;

/// The most dimensions, as in NumPy.
const DIMENSIONS: usize = 64;

/// How arrays are written.
#[derive(Clone, Debug)]
pub(super) struct HierarchyLayout {
    /// Zarr version, 2 or 3.
    pub version: u8,
    /// Chunks end with a checksum, in v3.
    pub digests: bool,
    pub shards: Option<ShardShape>,
    /// Most bytes of unfinished shards in memory.
    pub memory: u64,
}

/// An array that is being written.
#[derive(Debug)]
pub(super) struct ZarrArrayWrite {
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
    steps: Steps,
    shards: Option<ShardedWrite>,
    pub chunks: WrittenChunks<()>,
}

impl ZarrArrayWrite {
    pub(super) fn new(spec: &ArraySpec, layout: &HierarchyLayout) -> Result<Self> {
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
        let codecs = spec.codecs.first().map_or(&[][..], Vec::as_slice);
        let v3 = layout.version == 3;
        let steps = Steps::new(schema, codecs, layout.digests && v3).map_err(|e| e.in_array(&schema.name))?;
        let chunks = WrittenChunks::new(schema)?;
        let grid = chunks.grid();
        let size = if field.cell == CellLen::Var { None } else { field.cell_size() };
        let shards = match &layout.shards {
            Some(ShardShape::None) => None,
            Some(_) if !v3 => return unsupported("shards in version 2"),
            Some(shape) => shape.resolve(schema, grid.chunk_shape())?,
            None => schema.shard_shape.clone().filter(|_| v3),
        };
        let shape = schema.shape().unwrap_or_default();
        let shards = shards.map(|shard| ShardedWrite::new(shard, &shape, grid, layout.memory)).transpose()?;
        let (document, attributes, keys) = if v3 {
            let shard = shards.as_ref().map(|shards| shards.shape.as_slice());
            (document::array_v3(schema, &steps, shard)?, Map::new(), KeyEncoding::Default('/'))
        } else {
            let (document, attributes) = document::array_v2(schema, &steps)?;
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
            steps,
            shards,
            chunks,
        })
    }

    /// Stores a chunk: as an object, or in its shard.
    pub(super) fn store(&self, coords: &[u64], bytes: &[u8], store: &dyn Store) -> Result<()> {
        self.chunks.claim(coords, ())?;
        let stored = match &self.shards {
            None => store.put(&self.object(coords), bytes, Overwrite::Replace),
            Some(shards) => {
                let spool = join(&self.name, "unfinished shards");
                match shards.add(coords, bytes, store, &spool) {
                    Ok(Some(shard)) => {
                        let object = self.object(&shard.coords);
                        shards.store(shard, &object, store)
                    }
                    other => other.map(drop),
                }
            }
        };
        stored.inspect_err(|_| self.chunks.release(coords))
    }

    /// The object of a chunk or shard.
    fn object(&self, coords: &[u64]) -> String {
        join(&self.name, &self.keys.key(coords))
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
        let raw_len = cells.len();
        let bytes = self.steps.encode(cells, self.chunks.grid().chunk_shape(), scratch)?;
        Ok(EncodedChunk::contiguous(coords, bytes, raw_len))
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
