//! Writing: one layer per array, clipped to the array, covering all of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tesseral_core::{
    ArraySchema, Attributes, ChunkGrid, ChunkStats, Coords, Error, HistoryRow, Region, Result,
};
use tesseral_store::{Staged, Store};
use xxhash_rust::xxh3::xxh3_64;

use super::{Chunk, Extent, MAGIC, StoredLayer};
use crate::testing::coding::{self, Coding, ColumnCoding};
use crate::testing::wire::{DirectoryWriter, HEADER, header};
use tesseral_format::{
    ArraySpec, CodecSpec, Column, ColumnData, CreateOptions, EncodedChunk, EncodedPart, Scratch, Writer,
};

/// Writes a layer into a directory.
pub(super) fn put_layer(sink: &mut DirectoryWriter, layer: &StoredLayer) {
    sink.region(&layer.cover);
    sink.u8(match layer.extent {
        Extent::Full => 0,
        Extent::Clipped => 1,
        Extent::Tight => 2,
    });
    for coding in &layer.codings {
        sink.u8(coding.to_bits());
        sink.u32(coding.granule);
    }
    sink.count(layer.chunks.len());
    for chunk in &layer.chunks {
        chunk.coords.iter().for_each(|&c| sink.u64(c));
        sink.optional(chunk.digest.as_ref(), |s, &(start, end, hash)| {
            [start, end, hash].into_iter().for_each(|n| s.u64(n));
        });
        for (parts, stats) in &chunk.fields {
            for &(offset, len) in parts {
                sink.u64(offset);
                sink.u64(len);
            }
            sink.stats(stats);
        }
    }
}

#[derive(Debug)]
struct DeclaredArray {
    schema: ArraySchema,
    grid: ChunkGrid,
    codings: Vec<Coding>,
    layouts: Vec<ColumnCoding>,
}

#[derive(Debug)]
struct PushState {
    end: u64,
    chunks: BTreeMap<(usize, u64), Chunk>,
    /// A write failed: the staged data are incomplete and must not be published.
    truncated: bool,
}

/// A container being written.
#[derive(Debug)]
pub(super) struct LayeredWriter {
    staged: Box<dyn Staged>,
    digests: bool,
    statistics: bool,
    attributes: Attributes,
    arrays: Vec<DeclaredArray>,
    pushed: Mutex<PushState>,
}

impl LayeredWriter {
    pub(super) fn new(store: &dyn Store, options: &CreateOptions) -> Result<Self> {
        Ok(Self {
            staged: store.stage("", options.overwrite)?,
            digests: options.digests,
            statistics: options.statistics,
            attributes: Attributes::new(),
            arrays: Vec::new(),
            pushed: Mutex::new(PushState { end: HEADER, chunks: BTreeMap::new(), truncated: false }),
        })
    }

    fn pushed(&self) -> MutexGuard<'_, PushState> {
        // Every change under the lock is one assignment, so a panic elsewhere leaves the state consistent.
        self.pushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn declared(&self, array: usize) -> Result<&DeclaredArray> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("unknown array {array}")))
    }
}

fn coding(codecs: &[CodecSpec]) -> Result<Coding> {
    let mut out = Coding::PLAIN;
    for codec in codecs {
        match codec.name.as_str() {
            "raw" => {}
            "xor" => {
                let granule = codec.int("granule").unwrap_or(0);
                let granule = u32::try_from(granule).map_err(|_| Error::invalid("granule out of range"))?;
                out = Coding { xor: true, granule, ..out };
            }
            other => return Err(Error::unsupported(format!("unknown codec {other:?}"))),
        }
    }
    Ok(out)
}

impl Writer for LayeredWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let schema = spec.schema.clone();
        if schema.sparse {
            return Err(Error::unsupported("sparse arrays").in_array(&schema.name));
        }
        // Features that the directory cannot represent are rejected before any cells are written.
        DirectoryWriter::default().schema(&schema)?;
        let grid = schema.grid()?;
        if spec.codecs.len() != schema.fields.len() || schema.fields.is_empty() {
            return Err(Error::invalid("expected one list of codecs per field, and at least one field"));
        }
        if self.arrays.iter().any(|array| array.schema.name == schema.name) {
            return Err(Error::invalid("duplicate array name").in_array(&schema.name));
        }
        let codings = spec.codecs.iter().map(|c| coding(c)).collect::<Result<_>>()?;
        let layouts = schema.fields.iter().map(ColumnCoding::from_field).collect();
        self.arrays.push(DeclaredArray { schema, grid, codings, layouts });
        Ok(self.arrays.len() - 1)
    }

    fn wants_stats(&self, _array: usize) -> bool {
        self.statistics
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        _scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let declared = self.declared(array)?;
        let cells = declared.grid.region(coords).cells().filter(|_| declared.grid.contains(coords));
        let cells = cells.ok_or_else(|| Error::invalid("chunk outside the grid").in_chunk(coords))?;
        if columns.len() != declared.layouts.len() || !(stats.is_empty() || stats.len() == columns.len()) {
            return Err(
                Error::invalid("expected one column, and one statistic or none, per field").in_chunk(coords)
            );
        }
        let mut parts = smallvec::SmallVec::new();
        for (i, data) in columns.iter().enumerate() {
            let stored = coding::encode(declared.codings[i], declared.layouts[i], cells, *data);
            for (role, bytes) in stored.map_err(|e| e.in_chunk(coords))? {
                let raw_len = bytes.len() as u64;
                parts.push(EncodedPart { column: Column::Field(i as u16), role, bytes, raw_len, codec: 0 });
            }
        }
        Ok(EncodedChunk { coords: Coords::from_slice(coords), parts, stats })
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let declared = self.declared(array)?;
        if !declared.grid.contains(&chunk.coords) {
            return Err(Error::invalid("chunk outside the grid").in_chunk(&chunk.coords));
        }
        let cells = declared.grid.region(&chunk.coords).cells().unwrap_or(0);
        let bytes: Vec<u8> = chunk.parts.iter().flat_map(|part| Cow::as_ref(&part.bytes)).copied().collect();
        let key = (array, declared.grid.linear(&chunk.coords));
        let mut pushed = self.pushed();
        if pushed.chunks.contains_key(&key) {
            let duplicate = Error::invalid("duplicate chunk");
            return Err(duplicate.in_array(&declared.schema.name).in_chunk(&chunk.coords));
        }
        let start = pushed.end;
        let mut at = start;
        let mut fields = Vec::with_capacity(declared.layouts.len());
        for i in 0..declared.layouts.len() {
            let mut parts = Vec::new();
            for part in chunk.parts.iter().filter(|part| part.column == Column::Field(i as u16)) {
                parts.push((at, part.bytes.len() as u64));
                at += part.bytes.len() as u64;
            }
            let stats = chunk.stats.get(i).cloned().unwrap_or_else(|| ChunkStats::unknown(cells));
            fields.push((parts, stats));
        }
        let digest = self.digests.then(|| (start, at, xxh3_64(&bytes)));
        pushed.chunks.insert(key, Chunk { coords: chunk.coords, digest, fields });
        pushed.end = at;
        drop(pushed);
        self.staged.write_at(start, &bytes).inspect_err(|_| self.pushed().truncated = true)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        DirectoryWriter::default().attributes(&attributes)?;
        self.attributes = attributes;
        Ok(())
    }

    fn add_history(&mut self, _row: HistoryRow) -> Result<()> {
        Err(Error::unsupported("history of layered test arrays"))
    }

    fn commit(self: Box<Self>) -> Result<()> {
        let this = *self;
        let mut pushed = this.pushed.into_inner().unwrap_or_else(PoisonError::into_inner);
        if pushed.truncated {
            return Err(Error::invalid("writing a chunk failed"));
        }
        let mut sink = DirectoryWriter::default();
        sink.attributes(&this.attributes)?;
        sink.count(this.arrays.len());
        for (number, declared) in this.arrays.into_iter().enumerate() {
            sink.schema(&declared.schema)?;
            sink.count(1);
            let mut chunks = Vec::new();
            for linear in 0..declared.grid.total() {
                let chunk = pushed.chunks.remove(&(number, linear)).ok_or_else(|| {
                    let missing = Error::invalid("missing chunk").in_array(&declared.schema.name);
                    missing.in_chunk(&declared.grid.coords(linear))
                })?;
                chunks.push(chunk);
            }
            let cover = Region::from_shape(declared.grid.shape());
            put_layer(
                &mut sink,
                &StoredLayer { cover, extent: Extent::Clipped, codings: declared.codings, chunks },
            );
        }
        this.staged.write_at(pushed.end, &sink.0)?;
        this.staged.write_at(0, &header(MAGIC, pushed.end, &sink.0))?;
        this.staged.publish()
    }
}
