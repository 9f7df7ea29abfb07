//! Implementation of [`ArraySource`].

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_codec::filter::Filter;
use tesseral_core::{ArraySchema, Attributes, ChunkStats, Coords, Error, HistoryRow, Result};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, Column, ColumnMut, DigestSpans, ImpliedBytes, NonEmpty, Part, Planned,
    PlannedChunk, Request, Role, Scratch, TimeRange, Totals,
};
use tesseral_store::{Rounds, StoreExt};

use crate::chunk_tables::ChunkTables;
use crate::deletes::StoredDelete;
use crate::directory::FragmentEntry;
use crate::fragment::{Fragment, MAX_TILES};
use crate::fragments::Fragments;
use crate::geometry::Geometry;
use crate::metadata_loader::MetadataLoader;
use crate::model::StoredSchema;
use crate::outline::Outline;
use crate::padded_tile::PaddedTile;
use crate::portion::FragmentBox;
use crate::scatter::CellRun;
use crate::wire::chunk_table::ChunkTable;

/// Maximum size in bytes of digest blocks that are read for the chunk lengths in them; tiles with larger blocks are read
/// completely.
const LARGE_BLOCK: u64 = 1 << 20;

/// An opened array.
#[derive(Debug)]
pub(crate) struct TileDbArray {
    pub reader: Arc<MetadataLoader>,
    pub schema: ArraySchema,
    pub current: Arc<StoredSchema>,
    /// The grid of a dense array.
    pub geometry: Option<Geometry>,
    pub fragments: Fragments,
    /// Boxes of very many fragments, once they were requested.
    pub places: OnceLock<Vec<FragmentBox>>,
    /// Totals over the footers of all fragments, once they were requested.
    pub outline: OnceLock<Outline>,
    /// Committed fragments that others replace.
    pub hidden: Vec<FragmentEntry>,
    /// Folder of the array in the store.
    pub prefix: String,
    pub deletes: Vec<StoredDelete>,
    pub range: TimeRange,
    /// Attributes of the source file, if they are stored separately.
    pub file_attributes: Option<Attributes>,
    pub history: Vec<HistoryRow>,
    /// Cached offsets of the chunks of large tiles.
    pub tables: ChunkTables,
}

/// Chunk id: fragment and tile.
pub(crate) fn chunk_id(fragment: usize, tile: u64) -> u64 {
    fragment as u64 * MAX_TILES + tile
}

impl TileDbArray {
    /// Visible fragments, lowest layer first.
    pub(crate) fn fragments(&self) -> Result<&[Fragment]> {
        self.fragments.get(&self.reader)
    }

    /// Totals over the footers of all fragments. The footers are read once and not kept for it: there may be a hundred thousand.
    pub(crate) fn outline(&self) -> Result<&Outline> {
        if let Some(outline) = self.outline.get() {
            return Ok(outline);
        }
        let mut outline = Outline::new(self);
        self.fragments.visit(&self.reader, |fragment| {
            outline.add(self, fragment);
            Ok(())
        })?;
        Ok(self.outline.get_or_init(|| outline))
    }

    /// Folders of uncommitted fragments.
    pub(crate) fn uncommitted(&self) -> Result<Vec<String>> {
        crate::directory::uncommitted(&self.reader, &self.prefix)
    }

    /// Returns the fragment and tile of a chunk.
    pub(crate) fn locate(&self, id: u64) -> Result<(&Fragment, u64)> {
        let unknown = || Error::invalid(format!("unknown chunk {id}"));
        let fragments = self.fragments()?;
        let fragment =
            usize::try_from(id / MAX_TILES).ok().and_then(|i| fragments.get(i)).ok_or_else(unknown)?;
        let number = id % MAX_TILES;
        let tile = match &fragment.scattered {
            Some(scattered) => scattered.run(number).map(|run| run.tile),
            None => Some(number),
        };
        let tile = tile.filter(|tile| *tile < fragment.tiles).ok_or_else(unknown)?;
        Ok((fragment, tile))
    }

    /// The run of cells that a chunk of a sparse fragment of a dense array is.
    pub(crate) fn run(&self, id: u64) -> Option<(&Fragment, &CellRun)> {
        let fragment = self.fragments().ok()?.get(usize::try_from(id / MAX_TILES).ok()?)?;
        Some((fragment, fragment.scattered.as_ref()?.run(id % MAX_TILES)?))
    }

    /// Returns the slot of a field in a fragment's own schema; `None` if it was added later.
    pub(crate) fn slot(&self, fragment: &Fragment, field: u16) -> Result<Option<usize>> {
        let missing =
            || Error::invalid(format!("field index {field} is out of bounds")).in_array(&self.schema.name);
        let wanted = self.current.wire.attributes.get(usize::from(field)).ok_or_else(missing)?;
        let Some(slot) = fragment.schema.wire.attribute(&wanted.name) else { return Ok(None) };
        let stored = &fragment.schema.wire.attributes[slot];
        if (stored.datatype, stored.values, stored.nullable)
            != (wanted.datatype, wanted.values, wanted.nullable)
        {
            let feature = format!("attribute {:?}, whose type changed between fragments", wanted.name);
            return Err(Error::unsupported(feature).in_array(&self.schema.name));
        }
        Ok(Some(slot))
    }

    /// Returns the cells of a tile that are part of the array, for a tile that begins before the array.
    pub(crate) fn padded_tile(&self, fragment: &Fragment, tile: u64) -> Option<PaddedTile> {
        let geometry = self.geometry.as_ref().filter(|geometry| !geometry.is_aligned())?;
        geometry.padded_tile(&geometry.coords(fragment.placement.as_ref()?, tile))
    }

    /// Returns the byte range of the whole tile of which `part` can be a piece.
    pub(crate) fn whole_part(&self, id: u64, part: &Part) -> Result<Part> {
        let (fragment, tile) = self.locate(id)?;
        let slot = match part.column {
            Column::Field(field) => self.slot(fragment, field)?,
            Column::Dim(d) => Some(fragment.dim_slot(usize::from(d))),
            Column::Timestamp | Column::DeletedBy => None,
        };
        let file = match part.role {
            Role::Values => 0,
            Role::Validity => 2,
            // Not narrowed.
            Role::Offsets | Role::Mask => return Ok(*part),
        };
        let Some(slot) = slot.filter(|slot| fragment.chains(*slot).is_some_and(|chains| !chains.var)) else {
            return Ok(*part);
        };
        let (offset, len) = fragment.span(&self.reader, file, slot, tile)?;
        Ok(Part { offset, len, ..*part })
    }

    /// Returns the offsets of the chunks of a tile's file part.
    pub(crate) fn chunk_table(&self, id: u64, whole: &Part) -> Result<Arc<ChunkTable>> {
        let (fragment, tile) = self.locate(id)?;
        let digests = fragment
            .slot_file(whole.object)
            .and_then(|(slot, file)| fragment.tile_digests(file, slot, tile))
            .filter(|span| span.range == (whole.offset..whole.offset.saturating_add(whole.len)));
        self.tables.get(&*self.reader.store, self.fragments.object(whole.object), whole, digests.as_ref())
    }

    /// Returns the byte ranges of the chunks that contain a range of cells, for each part of a column.
    fn narrow_parts(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        let Column::Field(field) = column else { return Ok(None) };
        let (fragment, tile) = self.locate(chunk.id)?;
        if fragment.scattered.is_some() {
            return Ok(None);
        }
        let chains = self.slot(fragment, field)?.and_then(|slot| fragment.chains(slot));
        let Some(chains) = chains.filter(|chains| !chains.var) else { return Ok(None) };
        let held_whole = fragment.digest_block().is_some_and(|block| block > LARGE_BLOCK);
        if held_whole || self.padded_tile(fragment, tile).is_some() {
            return Ok(None);
        }
        let mut narrowed = SmallVec::new();
        for (_, part) in chunk.column_parts(column) {
            let size = match part.role {
                Role::Values => chains.cell as u64,
                Role::Validity => 1,
                Role::Offsets | Role::Mask => return Ok(None),
            };
            let whole = self.whole_part(chunk.id, part)?;
            let bytes = cells.start.saturating_mul(size)..cells.end.saturating_mul(size);
            let table = self.chunk_table(chunk.id, &whole)?;
            let expected = chunk.cells.saturating_mul(size);
            if table.unfiltered() != expected {
                let object = self.reader.store.describe(self.fragments.object(whole.object));
                let detail = format!(
                    "expected {expected} bytes of cells, found {} bytes in its chunks",
                    table.unfiltered()
                );
                return Err(Error::corrupt("a tile", object, whole.offset, detail));
            }
            let span = table.span(&bytes);
            // Validity is small compared to the values: often a single chunk.
            match span {
                Some(span) => {
                    narrowed.push(Part { offset: span.start, len: span.end - span.start, ..whole });
                }
                None if part.role == Role::Validity => narrowed.push(whole),
                None => return Ok(None),
            }
        }
        Ok(Some(narrowed))
    }

    pub(crate) fn coords_of(&self, chunk: &PlannedChunk) -> Coords {
        let Ok((fragment, tile)) = self.locate(chunk.id) else { return Coords::new() };
        match (&self.geometry, &fragment.placement) {
            (Some(geometry), Some(placement)) => geometry.coords(placement, tile),
            _ => Coords::from_slice(&[chunk.id / MAX_TILES, tile]),
        }
    }
}

impl ArraySource for TileDbArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn object(&self, number: u32) -> Cow<'_, str> {
        self.fragments.object(number).into()
    }

    fn needs(&self, object: &str) -> bool {
        // All other metadata is read when an array is opened, which detects missing files.
        let inside = object.strip_prefix(&self.prefix).unwrap_or_default();
        inside.split('/').any(|part| self.fragments.contains(part))
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        let reader = self.reader.through(rounds);
        let plan = if self.schema.sparse {
            crate::sparse::plan(self, &reader, request)
        } else {
            crate::plan::plan(self, &reader, request)
        };
        Planned::from_rounds(plan.map_err(|e| e.in_array(&self.schema.name)), rounds)
    }

    fn divide(&self, request: &Request) -> Result<Vec<Request>> {
        self.parts_of(request).map_err(|e| e.in_array(&self.schema.name))
    }

    fn portion(&self, request: &Request) -> Result<Option<Arc<dyn ArraySource>>> {
        let portion = self.portion_for(request).map_err(|e| e.in_array(&self.schema.name))?;
        Ok(portion.map(|portion| Arc::new(portion) as Arc<dyn ArraySource>))
    }

    fn totals(&self, everything: &Request) -> Result<Option<Totals>> {
        let outline = self.outline()?;
        let mut totals = Totals { chunks: outline.tiles, stored_bytes: 0, digests: outline.digests };
        for column in &everything.columns {
            let bytes = match *column {
                Column::Field(field) => match outline.fields.get(usize::from(field)) {
                    Some(Some(bytes)) => *bytes,
                    // The fragment whose schema differs is part of the error.
                    _ => {
                        self.fragments.visit(&self.reader, |f| self.slot(f, field).map(drop))?;
                        0
                    }
                },
                Column::Dim(dim) => outline.dims.get(usize::from(dim)).copied().unwrap_or(0),
                Column::Timestamp | Column::DeletedBy => 0,
            };
            totals.stored_bytes = totals.stored_bytes.saturating_add(bytes);
        }
        Ok(Some(totals))
    }

    fn non_empty_domain(&self) -> Result<Option<Option<NonEmpty>>> {
        self.outline().map(|outline| Some(outline.domain.clone())).map_err(|e| e.in_array(&self.schema.name))
    }

    fn load_stats(&self, chunks: &[PlannedChunk], columns: &[Column], rounds: &Arc<Rounds>) -> Result<()> {
        crate::stats::load(self, &self.reader.through(rounds), chunks, columns);
        rounds.complete()
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        crate::stats::stats(self, chunk, column)
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let (codec, size) = match chunk.parts.first().map(|part| part.column) {
            Some(Column::Field(f)) => {
                let field = self.schema.fields.get(usize::from(f));
                let size = field.and_then(tesseral_core::Field::cell_size).unwrap_or(0);
                (field.map(|f| f.codecs.join("+")).unwrap_or_default(), size)
            }
            Some(Column::Dim(d)) => {
                let dim = self.current.dims.get(usize::from(d));
                let names: Vec<&str> =
                    dim.into_iter().flat_map(|c| c.values.filters()).map(|f| f.name()).collect();
                (names.join("+"), dim.filter(|c| !c.var).map_or(0, |c| c.cell))
            }
            Some(_) => ("times".to_owned(), 8),
            None => (String::new(), 0),
        };
        let raw_len = chunk.cells.saturating_mul(size as u64);
        ChunkInfo {
            coords: self.coords_of(chunk),
            raw_len,
            stored_len: chunk.stored_bytes(),
            codec: if codec.is_empty() { "raw".to_owned() } else { codec },
            offset: chunk.parts.first().map_or(0, |part| part.offset),
        }
    }

    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        let Ok((fragment, tile)) = self.locate(chunk.id) else { return DigestSpans::new() };
        let span = |part: &Part| {
            let (slot, file) = fragment.slot_file(part.object)?;
            fragment.tile_digests(file, slot, tile).filter(|_| part.len > 0)
        };
        chunk.parts.iter().filter_map(span).collect()
    }

    fn run_bytes(&self, chunk: &PlannedChunk, cells: &Range<u64>) -> Option<Range<u64>> {
        let [part] = chunk.parts.as_slice() else { return None };
        let (fragment, tile) = self.locate(chunk.id).ok()?;
        let Column::Field(field) = part.column else { return None };
        let chains = fragment.chains(self.slot(fragment, field).ok()??)?;
        if chains.var
            || chains.nullable
            || fragment.scattered.is_some()
            || self.padded_tile(fragment, tile).is_some()
        {
            return None;
        }
        let bytes = |n: u64| usize::try_from(n).ok()?.checked_mul(chains.cell);
        let run = bytes(cells.start)?..bytes(cells.end)?;
        // The offset of a piece within the tile does not follow from its length.
        let whole = self.whole_part(chunk.id, part).ok()?;
        if (whole.offset, whole.len) != (part.offset, part.len) {
            return None;
        }
        let span = chains.values.plain_span(part.len, bytes(chunk.cells)?, &run)?;
        Some(span.start as u64..span.end as u64)
    }

    fn implied_bytes(&self, chunk: &PlannedChunk) -> SmallVec<[ImpliedBytes; 1]> {
        match (chunk.access, chunk.parts.as_slice()) {
            (Access::Direct { .. }, [part]) => crate::plan::plain_header(part).into_iter().collect(),
            _ => SmallVec::new(),
        }
    }

    fn narrow(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        self.narrow_parts(chunk, column, cells).map_err(|e| e.in_array(&self.schema.name))
    }

    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        let Ok((fragment, _)) = self.locate(chunk.id) else { return 0 };
        let checked = |part: &&Part| {
            let slot = match part.column {
                Column::Field(field) => self.slot(fragment, field).ok().flatten(),
                Column::Dim(d) => Some(fragment.dim_slot(usize::from(d))),
                Column::Timestamp | Column::DeletedBy => None,
            };
            let chain = slot.and_then(|slot| fragment.chains(slot)).map(|chains| match part.role {
                Role::Offsets => &chains.offsets,
                Role::Validity => &chains.validity,
                _ => &chains.values,
            });
            let chain = chain.unwrap_or(&fragment.schema.times);
            chain.filters().any(|f| matches!(f, Filter::Md5 | Filter::Sha256 | Filter::Aes256Gcm))
        };
        chunk.parts.iter().filter(checked).map(|part| part.len).fold(0, u64::saturating_add)
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        crate::decode::decode(self, chunk, column, parts, cells, out, scratch)
            .map_err(|e| e.in_array(&self.schema.name).in_chunk(&self.coords_of(chunk)))
    }
}
