//! One array: which chunks serve a request, where their bytes are, and how they are decoded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value as Json};
use tesseral_core::schema::Order;
use tesseral_core::{
    ArraySchema, CellLen, ChunkGrid, Coords, Error, Field, Limits, Region, Result, Scalar, alloc, missing,
};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, OpenOptions, Part, Planned,
    PlannedChunk, Request, Role, Scratch, Uncovered,
};
use tesseral_store::{ByteRange, MemoryStore, ObjectBytes, Rounds, Store, StoreExt};

use crate::chain::{CodecChain, Encoded};
use crate::open::{check_path, join};
use crate::vlen;
use crate::wire::codecs::Stage;
use crate::wire::damaged;
use crate::wire::dtype::{StoredCell, ZarrCellType};
use crate::wire::json;
use crate::wire::key::KeyEncoding;
use crate::wire::node::ArrayMetadata;
use crate::wire::shard::{IndexLayout, ShardIndex};

/// Bytes that looking for a chunk that does not exist, and planning it, counts as.
const ABSENT_COST: u64 = 1024;
/// Number of chunks that are requested in one round.
const TOGETHER: usize = 1 << 16;
/// Size of the shard indexes that an array keeps, in bytes.
const KEPT_INDEXES: usize = 32 << 20;
/// Cells at whose multiples decoding of compressed blocks can start. Anywhere would do, but a short range costs a whole block.
const BLOCK_CELLS: u64 = 4096;

/// An array of an opened hierarchy.
#[derive(Debug)]
pub(crate) struct ZarrArray {
    schema: ArraySchema,
    /// The chunks.
    grid: ChunkGrid,
    /// The stored objects, and the index of each, where they are shards.
    objects: ChunkGrid,
    shards: Option<Shards>,
    chain: CodecChain,
    cells: ZarrCellType,
    fill: Vec<u8>,
    keys: KeyEncoding,
    folder: String,
    store: Arc<dyn Store>,
    limits: Limits,
    /// Absent chunks are an error.
    strict: bool,
    document: Vec<u8>,
}

/// Indexes of the shards that were read.
#[derive(Debug)]
struct Shards {
    layout: IndexLayout,
    /// Chunks along each dimension of a shard.
    counts: Coords,
    /// Chunks of a shard.
    chunks: u64,
    known: Mutex<KnownIndexes>,
}

#[derive(Debug, Default)]
struct KnownIndexes {
    by_shard: HashMap<u64, Option<Arc<ShardIndex>>>,
    bytes: usize,
}

/// The stored bytes of a chunk.
struct Stored {
    object: u32,
    offset: u64,
    len: u64,
}

impl ZarrArray {
    /// The array with this name in a folder of the store.
    pub(crate) fn new(
        name: &str,
        folder: &str,
        metadata: &ArrayMetadata,
        store: &Arc<dyn Store>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let (limits, strict) = (options.limits, options.strict);
        let ArrayMetadata { shape, cells, codecs, .. } = metadata;
        let sharding = codecs.sharding.as_ref();
        let chunk = sharding.map_or(&metadata.chunk, |sharding| &sharding.chunk);
        let (grid, objects) = (ChunkGrid::new(shape, chunk)?, ChunkGrid::new(shape, &metadata.chunk)?);
        let mut stages = codecs.stages.clone();
        let mut col_major = metadata.col_major;
        // A complete reversal of the axes is the other order of cells, which the engine handles.
        if let Some(Stage::Transpose(order)) = stages.first()
            && order.iter().rev().copied().eq(0..shape.len())
        {
            stages.remove(0);
            col_major = true;
        }
        let chain = CodecChain::new(stages, cells.stored_size(), limits);
        let mut schema = ArraySchema::dense(name, cells.dtype, shape, chunk);
        schema.cell_order = if col_major { Order::ColMajor } else { Order::RowMajor };
        schema.shard_shape = sharding.map(|_| metadata.chunk.iter().copied().collect());
        schema.attributes.clone_from(&metadata.attributes);
        for (dim, own) in schema.dims.iter_mut().zip(&metadata.dims) {
            dim.name.clone_from(own);
        }
        schema.fields[0] = Field { cell: cells.cell, codecs: chain.names(), ..Field::new(name, cells.dtype) };
        if metadata.has_fill && cells.cell == CellLen::One {
            let mut bytes = metadata.fill.clone();
            if cfg!(target_endian = "big") {
                bytes.chunks_mut(cells.dtype.word()).for_each(<[u8]>::reverse);
            }
            schema.fields[0].fill = Scalar::from_le_bytes(cells.dtype, &bytes).ok();
        }
        missing::declare(&mut schema);
        let shards = sharding.map(|sharding| {
            let counts: Coords =
                metadata.chunk.iter().zip(chunk).map(|(shard, chunk)| shard / chunk).collect();
            let chunks = Region::from_shape(&counts).cells().unwrap_or(u64::MAX);
            Shards { layout: sharding.index, counts, chunks, known: Mutex::default() }
        });
        Ok(Self {
            schema,
            grid,
            objects,
            shards,
            chain,
            cells: *cells,
            fill: metadata.fill.clone(),
            keys: metadata.keys,
            folder: folder.to_owned(),
            store: Arc::clone(store),
            limits,
            strict,
            document: metadata.document.clone(),
        })
    }

    /// Restores an array that only decodes.
    pub(crate) fn from_recipe(recipe: &[u8], options: &OpenOptions) -> Result<Self> {
        const OBJECT: &str = "a recipe";
        let folder = recipe.split(|byte| *byte == 0).next().unwrap_or_default();
        let document = recipe.get(folder.len() + 1..).unwrap_or_default();
        let folder = std::str::from_utf8(folder).map_err(|_| damaged(OBJECT, "the folder is not text"))?;
        check_path(folder, OBJECT, options.limits.depth)?;
        let document = json::parse(document, OBJECT)?;
        let metadata = match document.get("zarr_format").and_then(Json::as_u64) {
            Some(2) => ArrayMetadata::parse_v2(&document, Map::new(), OBJECT)?,
            _ => ArrayMetadata::parse_v3(document, OBJECT)?,
        };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(OBJECT));
        Self::new(folder, folder, &metadata, &store, options)
    }

    fn key(&self, object: u64) -> String {
        join(&self.folder, &self.keys.key(&self.objects.coords(object)))
    }

    /// Index of a shard; `None` if the shard does not exist.
    fn index(&self, shards: &Shards, shard: u64, rounds: &Rounds) -> Result<Option<Arc<ShardIndex>>> {
        let lock = || shards.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().by_shard.get(&shard) {
            return Ok(known.clone());
        }
        let key = self.key(shard);
        let size = shards.layout.len(shards.chunks).unwrap_or(u64::MAX);
        self.limits.check_metadata(size)?;
        // The first bytes are requested by their number at most, too: a shard can be shorter than its index.
        let part = if shards.layout.at_start { ByteRange::Prefix(size) } else { ByteRange::Suffix(size) };
        let found = rounds.read_existing(&[(&key, part)])?.pop().flatten();
        let index = match found {
            None => None,
            Some(ObjectBytes { len, bytes, .. }) => {
                let object = self.store.describe(&key);
                if len < size {
                    return Err(Error::truncated("shard index", &object, 0, size, len));
                }
                Some(Arc::new(ShardIndex::parse(&bytes, shards.layout, shards.chunks, len, &object)?))
            }
        };
        let mut known = lock();
        let bytes = index.as_ref().map_or(0, |index| index.bytes()) + size_of::<(u64, usize)>();
        if known.bytes.saturating_add(bytes) > KEPT_INDEXES {
            *known = KnownIndexes::default();
        }
        known.bytes += bytes;
        known.by_shard.insert(shard, index.clone());
        Ok(index)
    }

    /// The bytes of a chunk; `None` if it holds the fill value.
    fn stored(&self, coords: &[u64], rounds: &Rounds) -> Result<Option<Stored>> {
        let number = |object: u64| {
            u32::try_from(object).map_err(|_| {
                Error::limit("the objects of an array", self.objects.total(), u64::from(u32::MAX))
            })
        };
        let Some(shards) = &self.shards else {
            let object = self.objects.linear(coords);
            let len = rounds.len_if_exists(&self.key(object))?;
            return len.map(|len| Ok(Stored { object: number(object)?, offset: 0, len })).transpose();
        };
        let shard: Coords = coords.iter().zip(&shards.counts).map(|(c, n)| c / n).collect();
        let inside = coords.iter().zip(&shards.counts).fold(0, |linear, (c, n)| linear * n + c % n);
        let object = self.objects.linear(&shard);
        let Some((offset, len)) = self.index(shards, object, rounds)?.and_then(|index| index.get(inside))
        else {
            return Ok(None);
        };
        Ok(Some(Stored { object: number(object)?, offset, len }))
    }

    /// The box of cells that a chunk stores: complete, also at the edges of the array.
    fn tile(&self, coords: &[u64]) -> Region {
        Region::new(coords.iter().zip(self.grid.chunk_shape()).map(|(c, n)| (c * n, c * n + n)))
    }

    fn access(&self) -> Access {
        let big = match self.chain.stages() {
            [] => false,
            [Stage::Swap(_)] => true,
            _ => {
                let ranges = self.chain.decodes_ranges() && matches!(self.cells.stored, StoredCell::Elements);
                return Access::Coded { granule: ranges.then_some(BLOCK_CELLS) };
            }
        };
        match self.cells.stored {
            StoredCell::Elements => {
                Access::Direct { swapped: big != cfg!(target_endian = "big") && self.cells.word() > 1 }
            }
            StoredCell::Utf32(_) | StoredCell::Var => Access::Coded { granule: None },
        }
    }

    fn planned(&self, coords: &[u64], columns: &[Column], rounds: &Rounds) -> Result<PlannedChunk> {
        let (id, cover) = (self.grid.linear(coords), self.grid.region(coords));
        let stored =
            self.stored(coords, rounds).map_err(|e| e.in_array(&self.schema.name).in_chunk(coords))?;
        let Some(Stored { object, offset, len }) = stored else {
            if self.strict {
                let error =
                    Error::corrupt("chunk", self.store.describe(&self.folder), None, "the chunk is absent");
                return Err(error.in_array(&self.schema.name).in_chunk(coords));
            }
            return Ok(PlannedChunk {
                id,
                cells: cover.cells().unwrap_or(u64::MAX),
                cover: Cover::Exact(cover),
                tile: None,
                layer: 0,
                parts: smallvec::SmallVec::new(),
                access: Access::Coded { granule: Some(1) },
                whole: true,
            });
        };
        let tile = self.tile(coords);
        let cells = tile.cells();
        let bytes = self.cells.stored_size().map(|size| cells?.checked_mul(size as u64)).unwrap_or(cells);
        self.limits.check_chunk(bytes.unwrap_or(u64::MAX)).map_err(|e| e.in_array(&self.schema.name))?;
        let access = self.access();
        if matches!(access, Access::Direct { .. }) && bytes != Some(len) {
            let object = self.store.describe(&self.key(object.into()));
            let expected = bytes.unwrap_or(u64::MAX);
            let detail = format!("length mismatch: expected {expected} bytes, found {len}");
            let error = Error::corrupt("chunk", object, offset, detail);
            return Err(error.in_array(&self.schema.name).in_chunk(coords));
        }
        let part = |column: &Column| Part { column: *column, role: Role::Values, object, offset, len };
        let whole = tile == cover;
        Ok(PlannedChunk {
            id,
            cover: Cover::Exact(cover),
            tile: (!whole).then(|| Box::new(tile)),
            layer: 0,
            cells: cells.unwrap_or(u64::MAX),
            parts: columns.iter().map(part).collect(),
            access,
            whole,
        })
    }

    fn chunk_plan(&self, request: &Request, rounds: &Rounds) -> Result<ChunkPlan> {
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        let mut chunks = Vec::new();
        if self.grid.total() > 0 {
            let touched = self.grid.touched(selection);
            self.limits.check_plan(touched.remaining())?;
            // A shape can declare any number of unwritten chunks, and each is requested.
            let (mut absent, mut stored, mut waiting) = (0_u64, 0_u64, 0_usize);
            for coords in touched {
                let Some(chunk) = Rounds::later(self.planned(&coords, &request.columns, rounds))? else {
                    waiting += 1;
                    if waiting == TOGETHER {
                        break;
                    }
                    continue;
                };
                stored = stored.saturating_add(chunk.stored_bytes());
                if chunk.parts.is_empty() {
                    absent += 1;
                    let checked = self.limits.check_total("unwritten chunks", absent * ABSENT_COST, stored);
                    checked.map_err(|e| e.in_array(&self.schema.name))?;
                }
                chunks.push(chunk);
            }
        }
        rounds.complete()?;
        Ok(ChunkPlan { chunks, uncovered: Uncovered::Impossible, deletes: Vec::new() })
    }

    /// Fills cells with the fill value.
    fn decode_fill(&self, cells: &Range<u64>, out: ColumnMut<'_>) -> Result<()> {
        let count = usize::try_from(cells.end.saturating_sub(cells.start)).unwrap_or(usize::MAX);
        match out {
            ColumnMut::Fixed { values, .. } if self.fill.iter().all(|byte| *byte == 0) => values.fill(0),
            ColumnMut::Fixed { values, .. } => {
                let size = self.cells.stored_size().unwrap_or(1).max(self.fill.len());
                for cell in values.chunks_exact_mut(size) {
                    let (start, padding) = cell.split_at_mut(self.fill.len());
                    start.copy_from_slice(&self.fill);
                    padding.fill(0);
                }
            }
            ColumnMut::Var { offsets, data, .. } => {
                let bytes = count.checked_mul(self.fill.len());
                let bytes = bytes.ok_or_else(|| Error::limit("text cells", u64::MAX, u64::MAX))?;
                alloc::reserve("text cells", offsets, count)?;
                alloc::reserve("text cells", data, bytes)?;
                for _ in 0..count {
                    data.extend_from_slice(&self.fill);
                    offsets.push(data.len() as u64);
                }
            }
        }
        Ok(())
    }

    fn decode_chunk(
        &self,
        chunk: &PlannedChunk,
        bytes: &[u8],
        cells: &Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let shape = chunk.tile_region().map(Region::shape).unwrap_or_default();
        let encoded = Encoded { bytes, shape: &shape };
        let size = self.cells.stored_size();
        match out {
            ColumnMut::Fixed { values, .. } => {
                let size = size.ok_or_else(|| Error::internal("fixed-size cells without a size"))?;
                if cells.start == 0 && cells.end == chunk.cells {
                    self.chain.decode_into(&encoded, values, scratch)?;
                } else {
                    let at = |cell: u64| usize::try_from(cell).ok()?.checked_mul(size);
                    let (total, run) = (at(chunk.cells), at(cells.start).zip(at(cells.end)));
                    let (total, (start, end)) =
                        total.zip(run).ok_or_else(|| Error::internal("cells beyond the address space"))?;
                    if self.chain.decodes_ranges() {
                        self.chain.decode_range(bytes, total, start, values, scratch)?;
                    } else {
                        // Other compressed chunks are not divided.
                        let run = bytes.get(start..end).unwrap_or_default();
                        let shape = [cells.end.saturating_sub(cells.start)];
                        self.chain.decode_into(&Encoded { bytes: run, shape: &shape }, values, scratch)?;
                    }
                }
                if cfg!(target_endian = "big") {
                    values.chunks_exact_mut(self.cells.word().max(1)).for_each(<[u8]>::reverse);
                }
                Ok(())
            }
            ColumnMut::Var { offsets, data, .. } => {
                let len = size.map(|size| usize::try_from(chunk.cells).ok()?.checked_mul(size));
                if len == Some(None) {
                    return Err(Error::limit("a decoded chunk", chunk.cells, usize::MAX as u64));
                }
                let dtype = self.cells.dtype;
                self.chain.decode_with(&encoded, len.flatten(), scratch, &mut |bytes| match size {
                    None => vlen::decode(bytes, dtype, chunk.cells, offsets, data),
                    Some(size) => vlen::decode_utf32(bytes, size, offsets, data),
                })
            }
        }
    }
}

impl ArraySource for ZarrArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn object(&self, number: u32) -> Cow<'_, str> {
        self.key(number.into()).into()
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        Planned::from_rounds(self.chunk_plan(request, rounds), rounds)
    }

    fn recipe(&self) -> Option<Vec<u8>> {
        let mut out = self.folder.clone().into_bytes();
        out.push(0);
        out.extend(&self.document);
        Some(out)
    }

    fn constant(&self, chunk: &PlannedChunk, _column: Column) -> Option<Vec<u8>> {
        let size =
            self.cells.stored_size().filter(|_| chunk.parts.is_empty() && self.cells.cell != CellLen::Var)?;
        let mut cell = alloc::zeroed("a fill value", size).ok()?;
        cell.get_mut(..self.fill.len())?.copy_from_slice(&self.fill);
        Some(cell)
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let size = self.cells.stored_size().unwrap_or(0) as u64;
        let names = self.chain.names();
        let codec = match chunk.parts.first() {
            None => "fill".to_owned(),
            Some(_) if names.is_empty() => "raw".to_owned(),
            Some(_) => names.join("+"),
        };
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: chunk.cells.saturating_mul(size),
            stored_len: chunk.parts.first().map_or(0, |part| part.len),
            codec,
            offset: chunk.parts.first().map_or(0, |part| part.offset),
        }
    }

    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        let covered = matches!(self.chain.stages().last(), Some(Stage::Check(..)));
        if covered { chunk.stored_bytes() } else { 0 }
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        _column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let coords = || self.grid.coords(chunk.id);
        match parts {
            [] => self.decode_fill(&cells, out),
            [bytes] => self
                .decode_chunk(chunk, bytes, &cells, out, scratch)
                .map_err(|e| e.in_array(&self.schema.name).in_chunk(&coords())),
            _ => Err(Error::internal("a Zarr chunk has one part")),
        }
    }
}
