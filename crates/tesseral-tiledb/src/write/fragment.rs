//! Writing of tiles, in order, to the files of a fragment.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tesseral_codec::Contexts;
use tesseral_core::{ChunkStats, Error, Result};
use tesseral_format::{Column, EncodedChunk, EncodedPart, Pending, Role};
use tesseral_store::{Overwrite, Staged, Store, StoreExt, Unpublished, Unsynced};

use super::stats::{self, KeptStats};
use crate::fragment::METADATA;
use crate::metadata_loader::{Key, join};
use crate::model::{FieldChains, StoredSchema};
use crate::wire::datatype::{Datatype, VAR};
use crate::wire::footer::Footer;
use crate::wire::schema::StoredRange;
use crate::wire::section::{ExtremaValues, put_markers, put_numbers};
use crate::wire::{digest_table, generic_tile, name, rtree};

/// Size of a file's write buffer in bytes; data of at least half this size is written directly.
const BLOCK: usize = 1 << 18;

/// Parts of a tile.
type Parts<'a> = SmallVec<[HashedPart<'a>; 1]>;

/// A part of a tile and the digests of its blocks; empty if the fragment has no digests.
#[derive(Debug)]
pub(crate) struct HashedPart<'a> {
    part: EncodedPart<'a>,
    digests: Vec<u64>,
}

impl<'a> HashedPart<'a> {
    pub(crate) fn new(part: EncodedPart<'a>, digests: bool) -> Self {
        let digests = if digests { digest_table::blocks(&part.bytes) } else { Vec::new() };
        Self { part, digests }
    }
}

/// A tile ready to be placed.
#[derive(Debug)]
pub(crate) struct Tile<'a> {
    pub parts: Parts<'a>,
    pub stats: Vec<ChunkStats>,
}

impl<'a> Tile<'a> {
    pub(crate) fn new(chunk: EncodedChunk<'a>, digests: bool) -> Self {
        let parts = chunk.parts.into_iter().map(|part| HashedPart::new(part, digests)).collect();
        Self { parts, stats: chunk.stats }
    }

    /// Converts to an owned tile.
    pub(crate) fn into_owned<'b>(self) -> Tile<'b> {
        let owned =
            |HashedPart { part, digests }| HashedPart { part: EncodedPart::into_owned(part), digests };
        Tile { parts: self.parts.into_iter().map(owned).collect(), stats: self.stats }
    }
}

/// Columns of a fragment other than attributes and dimensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct FragmentFeatures {
    /// Cells have write timestamps.
    pub timestamps: bool,
    /// Cells have delete timestamps and conditions.
    pub deletes: bool,
    /// Deletes that have been applied.
    pub processed: Vec<String>,
}

/// Stored size of tiles, if all are equal and large enough to be written directly.
pub(crate) fn fixed_tile(chains: &FieldChains, cells: u64) -> Option<u64> {
    let bytes = usize::try_from(cells).ok()?.checked_mul(chains.cell)?;
    chains.values.plain_len(bytes).filter(|_| !chains.var && !chains.nullable && bytes >= BLOCK / 2)
}

/// A file being written.
#[derive(Debug)]
struct StagedTileFile {
    object: String,
    staged: Arc<Box<dyn Staged>>,
    buffer: Vec<u8>,
    /// Number of bytes that have been placed.
    placed: u64,
}

impl StagedTileFile {
    fn len(&self) -> u64 {
        self.placed + self.buffer.len() as u64
    }

    fn append<'a>(&mut self, bytes: Cow<'a, [u8]>, pending: &mut Pending<'a>) {
        if bytes.len() < BLOCK / 2 {
            self.buffer.extend_from_slice(&bytes);
            if self.buffer.len() >= BLOCK {
                self.place_buffer(pending);
            }
            return;
        }
        self.place_buffer(pending);
        let offset = self.placed;
        self.placed += bytes.len() as u64;
        pending.push(&self.staged, offset, bytes);
    }

    fn place_buffer(&mut self, pending: &mut Pending<'_>) {
        if !self.buffer.is_empty() {
            let bytes = std::mem::take(&mut self.buffer);
            let offset = self.placed;
            self.placed += bytes.len() as u64;
            pending.push(&self.staged, offset, Cow::Owned(bytes));
        }
    }

    /// Flushes and publishes the file.
    fn publish(mut self) -> Result<()> {
        let mut rest = Pending::default();
        self.place_buffer(&mut rest);
        rest.store()?;
        let staged = Arc::into_inner(self.staged);
        staged.ok_or_else(|| Error::internal("a placed chunk was not written"))?.publish()
    }
}

/// Metadata of one slot of a fragment.
#[derive(Debug)]
struct MetadataColumn {
    column: Option<Column>,
    stem: String,
    datatype: Datatype,
    /// Values per cell, for the size of minima.
    values: u32,
    kept: KeptStats,
    nullable: bool,
    /// Size of every tile, if all are equal: offsets are then known in advance.
    fixed: Option<u64>,
    files: [Option<StagedTileFile>; 3],
    /// Tile offsets: values or offsets, variable-length data, validity.
    offsets: [Vec<u64>; 3],
    /// Digests of their blocks.
    digests: [Vec<u64>; 3],
    var_sizes: Vec<u64>,
    mins: ExtremaValues,
    maxs: ExtremaValues,
    sums: Vec<u64>,
    nulls: Vec<u64>,
    total: ChunkStats,
}

impl MetadataColumn {
    fn new(column: Option<Column>, stem: String, datatype: Datatype, values: u32, kept: KeptStats) -> Self {
        Self {
            column,
            stem,
            datatype,
            values,
            kept,
            nullable: false,
            fixed: None,
            files: [None, None, None],
            offsets: Default::default(),
            digests: Default::default(),
            var_sizes: Vec::new(),
            mins: ExtremaValues::default(),
            maxs: ExtremaValues::default(),
            sums: Vec::new(),
            nulls: Vec::new(),
            total: ChunkStats::default(),
        }
    }

    /// Size of a stored minimum in bytes; `None` if variable-length.
    fn size(&self) -> Option<usize> {
        (self.values != VAR).then(|| self.datatype.size() * self.values as usize)
    }

    /// Stores the digests of a fixed-size tile, in any order of tiles.
    fn put_digests(&mut self, tile: u64, digests: &[u64]) {
        // Bounded by the digests that are retained anyway.
        let start = usize::try_from(tile).unwrap_or(usize::MAX).saturating_mul(digests.len());
        let kept = &mut self.digests[0];
        if kept.len() < start.saturating_add(digests.len()) {
            kept.resize(start + digests.len(), 0);
        }
        kept[start..start + digests.len()].copy_from_slice(digests);
    }

    fn push_stats(&mut self, stats: &ChunkStats) {
        if self.kept.extrema {
            for (values, stat) in [(&mut self.mins, &stats.min), (&mut self.maxs, &stats.max)] {
                let bytes = stat.exact().map(tesseral_core::Scalar::bytes);
                if self.values == VAR {
                    values.push_var(bytes.unwrap_or_default());
                } else {
                    let zeros = vec![0; self.datatype.size() * self.values as usize];
                    values.push_fixed(bytes.unwrap_or(&zeros));
                }
            }
        }
        if self.kept.sum {
            self.sums.push(stats::sum_bits(self.datatype, stats.sum.exact()));
        }
        if self.nullable {
            self.nulls.push(*stats.nulls.exact().unwrap_or(&0));
        }
        stats::merge(self.datatype, &mut self.total, stats);
    }
}

/// Writer of a fragment. Tiles are placed in order.
#[derive(Debug)]
pub(crate) struct FragmentWriter {
    store: Arc<dyn Store>,
    /// The store of the files of the fragment.
    files: Arc<dyn Store>,
    prefix: String,
    /// Name of the fragment, used by its commit.
    pub name: String,
    folder: String,
    schema: Arc<StoredSchema>,
    schema_name: String,
    key: Option<Key>,
    extras: FragmentFeatures,
    slots: Vec<MetadataColumn>,
    tiles: u64,
    boxes: Vec<Vec<StoredRange>>,
    published: Vec<String>,
    committed: bool,
    /// Removes the folder if the process must end before all files are complete.
    unpublished: Option<Unpublished>,
    /// Files and folders of the fragment, which are made durable together before a commit can name them.
    unsynced: Option<Arc<Unsynced>>,
}

impl FragmentWriter {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        prefix: &str,
        name: String,
        schema: Arc<StoredSchema>,
        schema_name: String,
        key: Option<Key>,
        extras: FragmentFeatures,
    ) -> Self {
        let folder = join(&join(prefix, "__fragments"), &name);
        let wire = &schema.wire;
        let mut slots = Vec::new();
        for (column, (i, a)) in (0_u16..).zip(wire.attributes.iter().enumerate()) {
            let kept = KeptStats::of_attribute(a.datatype, a.values);
            let mut slot =
                MetadataColumn::new(Some(Column::Field(column)), format!("a{i}"), a.datatype, a.values, kept);
            slot.nullable = a.nullable;
            slots.push(slot);
        }
        let none = KeptStats { extrema: false, sum: false };
        slots.push(MetadataColumn::new(None, String::new(), Datatype::UINT8, 1, none));
        for (column, (j, d)) in (0_u16..).zip(wire.dims.iter().enumerate()) {
            let kept = if wire.sparse { KeptStats::of_dim(d.datatype, d.var) } else { none };
            let values = if d.var { VAR } else { 1 };
            let column = wire.sparse.then_some(Column::Dim(column));
            slots.push(MetadataColumn::new(column, format!("d{j}"), d.datatype, values, kept));
        }
        let times = KeptStats { extrema: true, sum: true };
        let mut time = |column, stem: &str| {
            slots.push(MetadataColumn::new(column, stem.to_owned(), Datatype::UINT64, 1, times));
        };
        if extras.timestamps {
            time(Some(Column::Timestamp), "t");
        }
        if extras.deletes {
            time(Some(Column::DeletedBy), "dt");
            time(None, "dci");
        }
        let unpublished = store.unpublished(&folder);
        let (files, unsynced) = match store.deferred() {
            Some((files, unsynced)) => (files, Some(unsynced)),
            None => (Arc::clone(&store), None),
        };
        Self {
            store,
            files,
            prefix: prefix.to_owned(),
            name,
            folder,
            schema,
            schema_name,
            key,
            extras,
            slots,
            tiles: 0,
            boxes: Vec::new(),
            published: Vec::new(),
            committed: false,
            unpublished,
            unsynced,
        }
    }

    /// Sets the number of cells of all tiles, including edge tiles.
    pub(crate) fn with_fixed_tiles(mut self, cells: u64) -> Self {
        for (slot, chains) in self.slots.iter_mut().zip(&self.schema.attributes) {
            slot.fixed = fixed_tile(chains, cells);
        }
        self
    }

    /// Writes the parts of a tile whose offset does not depend on previous tiles.
    pub(crate) fn place_fixed<'a>(&mut self, tile: u64, parts: &mut Parts<'a>) -> Result<Pending<'a>> {
        let mut pending = Pending::default();
        for number in 0..self.slots.len() {
            let Some((len, column)) = self.slots[number].fixed.zip(self.slots[number].column) else {
                continue;
            };
            let start = tile.checked_mul(len).ok_or_else(|| Error::limit("a file", u64::MAX, u64::MAX))?;
            let staged = Arc::clone(&self.file(number, 0)?.staged);
            let mut at = start;
            let (own, others): (Parts<'a>, Parts<'a>) =
                std::mem::take(parts).into_iter().partition(|hashed| hashed.part.column == column);
            *parts = others;
            for HashedPart { part, digests } in own {
                let offset = at;
                at += part.bytes.len() as u64;
                pending.push(&staged, offset, part.bytes);
                self.slots[number].put_digests(tile, &digests);
            }
            if at - start != len {
                return Err(Error::internal(format!("expected a tile of {len} bytes, found {}", at - start)));
            }
        }
        Ok(pending)
    }

    /// Number of tiles so far.
    pub(crate) fn tiles(&self) -> u64 {
        self.tiles
    }

    /// Places the next tile: its parts, and the statistics of its columns; for sparse fragments its box.
    pub(crate) fn place<'a>(
        &mut self,
        parts: impl IntoIterator<Item = HashedPart<'a>>,
        stats: &[(Column, ChunkStats)],
        around: Option<Vec<StoredRange>>,
    ) -> Result<Pending<'a>> {
        let mut pending = Pending::default();
        for slot in &mut self.slots {
            let files = slot.files.iter().zip(&mut slot.offsets);
            files.for_each(|(file, offsets)| offsets.push(file.as_ref().map_or(0, StagedTileFile::len)));
            slot.var_sizes.push(0);
            if let (Some(len), Some(file)) = (slot.fixed, &mut slot.files[0]) {
                file.placed += len;
            }
        }
        for hashed in parts {
            let column = hashed.part.column;
            let number = self.slots.iter().position(|s| s.column == Some(column));
            let number = number.ok_or_else(|| Error::invalid(format!("missing column {column:?}")))?;
            self.append(number, hashed, &mut pending)?;
        }
        for (column, stats) in stats {
            if let Some(slot) = self.slots.iter_mut().find(|s| s.column == Some(*column)) {
                slot.push_stats(stats);
            }
        }
        self.boxes.extend(around);
        self.tiles += 1;
        Ok(pending)
    }

    /// Adds the condition numbers of the last placed tile.
    pub(crate) fn place_conditions<'a>(&mut self, bytes: Vec<u8>, stats: &ChunkStats) -> Result<Pending<'a>> {
        let number = self.slots.len() - 1;
        let part = EncodedPart {
            column: Column::DeletedBy,
            role: Role::Values,
            bytes: bytes.into(),
            raw_len: 0,
            codec: 0,
        };
        let mut pending = Pending::default();
        self.append(number, HashedPart::new(part, name::carries_digest(&self.name)), &mut pending)?;
        self.slots[number].push_stats(stats);
        Ok(pending)
    }

    fn append<'a>(
        &mut self,
        number: usize,
        HashedPart { part, digests }: HashedPart<'a>,
        pending: &mut Pending<'a>,
    ) -> Result<()> {
        let slot = &mut self.slots[number];
        let var = slot.size().is_none();
        let file = match part.role {
            Role::Validity => 2,
            Role::Values if var => 1,
            _ => 0,
        };
        if file == 1
            && let Some(size) = slot.var_sizes.last_mut()
        {
            *size = part.raw_len;
        }
        slot.digests[file].extend(digests);
        self.file(number, file)?.append(part.bytes, pending);
        Ok(())
    }

    /// Returns one of a slot's three files, creating it on first use.
    fn file(&mut self, number: usize, file: usize) -> Result<&mut StagedTileFile> {
        let slot = &mut self.slots[number];
        match &mut slot.files[file] {
            Some(file) => Ok(file),
            empty => {
                let ending = ["", "_var", "_validity"][file];
                let object = join(&self.folder, &format!("{}{ending}.tdb", slot.stem));
                let staged = Arc::new(self.files.stage(&object, Overwrite::Refuse)?);
                Ok(empty.insert(StagedTileFile { object, staged, buffer: Vec::new(), placed: 0 }))
            }
        }
    }

    /// Publishes the files. `domain` is the smallest box around the cells; `last` is the number of cells of the last tile, or
    /// of every tile of a dense fragment.
    pub(crate) fn finish(&mut self, domain: Option<Vec<StoredRange>>, last: u64) -> Result<()> {
        let mut sizes: [Vec<u64>; 3] = Default::default();
        for slot in &mut self.slots {
            for (size, file) in sizes.iter_mut().zip(&mut slot.files) {
                let Some(file) = file.take() else {
                    size.push(0);
                    continue;
                };
                size.push(file.len());
                self.published.push(file.object.clone());
                file.publish()?;
            }
        }
        let metadata = self.metadata(sizes, domain, last)?;
        let object = join(&self.folder, METADATA);
        self.published.push(object.clone());
        self.files.put(&object, &metadata, Overwrite::Refuse)?;
        if let Some(unsynced) = &self.unsynced {
            unsynced.settle()?;
        }
        // From here on a commit can name it, so it must not be removed.
        self.unpublished = None;
        Ok(())
    }

    /// Commits the fragment.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let object = join(&join(&self.prefix, "__commits"), &format!("{}.wrt", self.name));
        let put = self.store.put(&object, &[], Overwrite::Refuse);
        // A commit that returned an error can be visible nevertheless: the files must stay.
        self.keep(put.is_ok() || self.store.exists(&object).unwrap_or(true));
        put
    }

    /// Sets whether the fragment can be committed, by any commit: its files are then kept.
    pub(crate) fn keep(&mut self, counts: bool) {
        self.committed |= counts;
    }

    fn metadata(&self, files: [Vec<u64>; 3], domain: Option<Vec<StoredRange>>, last: u64) -> Result<Vec<u8>> {
        let wire = &self.schema.wire;
        let mut out = Vec::new();
        let mut contexts = Contexts::default();
        let mut section = |payload: &[u8]| -> Result<u64> {
            let at = out.len() as u64;
            generic_tile::write(wire.version, payload, self.key.as_deref(), &mut out, &mut contexts)?;
            Ok(at)
        };
        let mut payload = Vec::new();
        rtree::write(&self.boxes, &wire.dims, &mut payload);
        let rtree = section(&payload)?;
        let mut list = |write: &dyn Fn(&MetadataColumn, &mut Vec<u8>)| -> Result<Vec<u64>> {
            let each = self.slots.iter().map(|slot| {
                payload.clear();
                write(slot, &mut payload);
                section(&payload)
            });
            each.collect()
        };
        let mut lists = vec![
            list(&|slot, out| put_numbers(&slot.offsets[0], out))?,
            list(&|slot, out| put_numbers(&slot.offsets[1], out))?,
            list(&|slot, out| put_numbers(&slot.var_sizes, out))?,
            list(&|slot, out| put_numbers(&slot.offsets[2], out))?,
        ];
        if wire.version >= 11 {
            lists.push(list(&|slot, out| slot.mins.write(out))?);
            lists.push(list(&|slot, out| slot.maxs.write(out))?);
            lists.push(list(&|slot, out| put_numbers(&slot.sums, out))?);
            lists.push(list(&|slot, out| put_numbers(&slot.nulls, out))?);
        }
        payload.clear();
        self.slots.iter().for_each(|slot| put_total(slot, &mut payload));
        let statistics = section(&payload)?;
        payload.clear();
        put_markers(&self.extras.processed, &mut payload);
        let conditions = if wire.version >= 16 { Some(section(&payload)?) } else { None };
        let footer = Footer {
            version: wire.version,
            schema: self.schema_name.clone(),
            dense: !wire.sparse,
            domain,
            tiles: if wire.sparse { self.tiles } else { 0 },
            last_tile_cells: last,
            timestamps: self.extras.timestamps,
            deletes: self.extras.deletes,
            files,
            rtree,
            lists,
            statistics: Some(statistics),
            conditions,
            loaded: None,
        };
        if !name::carries_digest(&self.name) {
            footer.write(wire, &mut out)?;
            return Ok(out);
        }
        let mut stored = Vec::new();
        footer.write(wire, &mut stored)?;
        let each = self.slots.iter().flat_map(|slot| &slot.digests);
        let files: Vec<(u32, &[u64])> = (0..).zip(each.map(Vec::as_slice)).collect();
        let files: Vec<_> = files.into_iter().filter(|(_, digests)| !digests.is_empty()).collect();
        digest_table::write(&self.name, &mut footer.offsets().collect(), &files, &stored, &mut out)?;
        Ok(out)
    }

    /// The smallest box around all tiles.
    pub(crate) fn domain(&self) -> Option<Vec<StoredRange>> {
        (!self.boxes.is_empty()).then(|| rtree::union(&self.boxes, &self.schema.wire.dims))
    }
}

/// Statistics of a slot over the whole fragment.
fn put_total(slot: &MetadataColumn, out: &mut Vec<u8>) {
    use crate::wire::primitive::{put_bytes64, put_u64};
    for stat in [&slot.total.min, &slot.total.max] {
        let zeros = slot.size().filter(|_| slot.kept.extrema).map_or(Vec::new(), |size| vec![0; size]);
        let known = stat.exact().filter(|_| slot.kept.extrema);
        put_bytes64(known.map_or(&zeros[..], tesseral_core::Scalar::bytes), out);
    }
    let sum = slot.total.sum.exact().filter(|_| slot.kept.sum);
    put_u64(stats::sum_bits(slot.datatype, sum), out);
    put_u64(if slot.nullable { *slot.total.nulls.exact().unwrap_or(&0) } else { 0 }, out);
}

impl Drop for FragmentWriter {
    fn drop(&mut self) {
        if !self.committed {
            // Files of an uncommitted fragment are never read, so failing to remove them is harmless.
            for object in self.published.drain(..) {
                let _ = self.store.remove(&object);
            }
            let _ = self.store.remove(&self.folder);
        }
    }
}
