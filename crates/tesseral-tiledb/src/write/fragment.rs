//! Tiles in order to the files of a fragment.

use std::sync::Arc;

use tesseral_codec::Contexts;
use tesseral_core::{ChunkStats, Error, Result};
use tesseral_format::{Column, EncodedPart, Role};
use tesseral_store::{Overwrite, Staged, Store, StoreExt};

use super::stats::{self, Kept};
use crate::fragment::METADATA;
use crate::model::StoredSchema;
use crate::reader::join;
use crate::wire::datatype::{Datatype, VAR};
use crate::wire::footer::Footer;
use crate::wire::schema::Range;
use crate::wire::section::{Values, put_markers, put_numbers};
use crate::wire::{generic_tile, rtree};

/// How much of a file is gathered before it is written.
const BLOCK: usize = 1 << 18;

/// What a fragment holds beside attributes and dimensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// Cells carry the time they were written.
    pub timestamps: bool,
    /// Cells carry the time and condition of their removal.
    pub deletes: bool,
    /// Deletes that were worked in.
    pub processed: Vec<String>,
}

/// A file being written.
#[derive(Debug)]
struct File {
    object: String,
    staged: Box<dyn Staged>,
    buffer: Vec<u8>,
    flushed: u64,
}

impl File {
    fn len(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > BLOCK {
            self.flush()?;
        }
        if bytes.len() > BLOCK {
            self.staged.write_at(self.flushed, bytes)?;
            self.flushed += bytes.len() as u64;
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.staged.write_at(self.flushed, &self.buffer)?;
            self.flushed += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// One entry of every list of a fragment's metadata.
#[derive(Debug)]
struct Slot {
    column: Option<Column>,
    stem: String,
    datatype: Datatype,
    /// Values per cell, for the size of minima.
    values: u32,
    kept: Kept,
    nullable: bool,
    files: [Option<File>; 3],
    /// Where tiles begin: values or offsets, bytes of any length, validity.
    offsets: [Vec<u64>; 3],
    var_sizes: Vec<u64>,
    mins: Values,
    maxs: Values,
    sums: Vec<u64>,
    nulls: Vec<u64>,
    total: ChunkStats,
}

impl Slot {
    fn new(column: Option<Column>, stem: String, datatype: Datatype, values: u32, kept: Kept) -> Self {
        Self {
            column,
            stem,
            datatype,
            values,
            kept,
            nullable: false,
            files: [None, None, None],
            offsets: Default::default(),
            var_sizes: Vec::new(),
            mins: Values::default(),
            maxs: Values::default(),
            sums: Vec::new(),
            nulls: Vec::new(),
            total: ChunkStats::default(),
        }
    }

    /// Bytes of a stored minimum; none when they have any length.
    fn size(&self) -> Option<usize> {
        (self.values != VAR).then(|| self.datatype.size() * self.values as usize)
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

/// A fragment being written. Tiles come in the order of their numbers.
#[derive(Debug)]
pub(crate) struct FragmentWriter {
    store: Arc<dyn Store>,
    prefix: String,
    /// Its name, by which it is committed.
    pub name: String,
    folder: String,
    schema: Arc<StoredSchema>,
    schema_name: String,
    key: Option<[u8; 32]>,
    extras: Extras,
    slots: Vec<Slot>,
    tiles: u64,
    boxes: Vec<Vec<Range>>,
    published: Vec<String>,
    committed: bool,
}

impl FragmentWriter {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        prefix: &str,
        name: String,
        schema: Arc<StoredSchema>,
        schema_name: String,
        key: Option<[u8; 32]>,
        extras: Extras,
    ) -> Self {
        let folder = join(&join(prefix, "__fragments"), &name);
        let wire = &schema.wire;
        let mut slots = Vec::new();
        for (column, (i, a)) in (0_u16..).zip(wire.attributes.iter().enumerate()) {
            let kept = Kept::of_attribute(a.datatype, a.values);
            let mut slot =
                Slot::new(Some(Column::Field(column)), format!("a{i}"), a.datatype, a.values, kept);
            slot.nullable = a.nullable;
            slots.push(slot);
        }
        let none = Kept { extrema: false, sum: false };
        slots.push(Slot::new(None, String::new(), Datatype::UINT8, 1, none));
        for (column, (j, d)) in (0_u16..).zip(wire.dims.iter().enumerate()) {
            let kept = if wire.sparse { Kept::of_dim(d.datatype, d.var) } else { none };
            let values = if d.var { VAR } else { 1 };
            let column = wire.sparse.then_some(Column::Dim(column));
            slots.push(Slot::new(column, format!("d{j}"), d.datatype, values, kept));
        }
        let times = Kept { extrema: true, sum: true };
        let mut time = |column, stem: &str| {
            slots.push(Slot::new(column, stem.to_owned(), Datatype::UINT64, 1, times));
        };
        if extras.timestamps {
            time(Some(Column::Timestamp), "t");
        }
        if extras.deletes {
            time(Some(Column::DeletedBy), "dt");
            time(None, "dci");
        }
        Self {
            store,
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
        }
    }

    /// Tiles so far.
    pub(crate) fn tiles(&self) -> u64 {
        self.tiles
    }

    /// Adds the next tile: its parts, and the statistics of its columns; for sparse fragments its box.
    pub(crate) fn push(
        &mut self,
        parts: &[EncodedPart<'_>],
        stats: &[(Column, ChunkStats)],
        around: Option<Vec<Range>>,
    ) -> Result<()> {
        for slot in &mut self.slots {
            let files = slot.files.iter().zip(&mut slot.offsets);
            files.for_each(|(file, offsets)| offsets.push(file.as_ref().map_or(0, File::len)));
            slot.var_sizes.push(0);
        }
        for part in parts {
            let number = self.slots.iter().position(|s| s.column == Some(part.column));
            let number = number.ok_or_else(|| Error::invalid(format!("no {:?} to write", part.column)))?;
            self.append(number, part)?;
        }
        for (column, stats) in stats {
            if let Some(slot) = self.slots.iter_mut().find(|s| s.column == Some(*column)) {
                slot.push_stats(stats);
            }
        }
        self.boxes.extend(around);
        self.tiles += 1;
        Ok(())
    }

    /// Adds the condition numbers of the tile that was pushed last.
    pub(crate) fn push_conditions(&mut self, bytes: &[u8], stats: &ChunkStats) -> Result<()> {
        let number = self.slots.len() - 1;
        let part = EncodedPart {
            column: Column::DeletedBy,
            role: Role::Values,
            bytes: bytes.into(),
            raw_len: 0,
            codec: 0,
        };
        self.append(number, &part)?;
        self.slots[number].push_stats(stats);
        Ok(())
    }

    fn append(&mut self, number: usize, part: &EncodedPart<'_>) -> Result<()> {
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
        let file = match &mut slot.files[file] {
            Some(file) => file,
            empty => {
                let ending = ["", "_var", "_validity"][file];
                let object = join(&self.folder, &format!("{}{ending}.tdb", slot.stem));
                let staged = self.store.stage(&object, Overwrite::Refuse)?;
                empty.insert(File { object, staged, buffer: Vec::new(), flushed: 0 })
            }
        };
        file.append(&part.bytes)
    }

    /// Publishes the files. `domain` is the smallest box around the cells; `last` the cells of the last tile, of every tile
    /// of a dense fragment.
    pub(crate) fn finish(&mut self, domain: Option<Vec<Range>>, last: u64) -> Result<()> {
        let mut sizes: [Vec<u64>; 3] = Default::default();
        for slot in &mut self.slots {
            for (size, file) in sizes.iter_mut().zip(&mut slot.files) {
                let Some(mut file) = file.take() else {
                    size.push(0);
                    continue;
                };
                file.flush()?;
                size.push(file.len());
                self.published.push(file.object);
                file.staged.publish()?;
            }
        }
        let metadata = self.metadata(sizes, domain, last)?;
        let object = join(&self.folder, METADATA);
        self.published.push(object.clone());
        self.store.put(&object, &metadata, Overwrite::Refuse)
    }

    /// Makes the fragment count.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let object = join(&join(&self.prefix, "__commits"), &format!("{}.wrt", self.name));
        let put = self.store.put(&object, &[], Overwrite::Refuse);
        // A commit that failed at its very end may be there all the same: then the files must stay.
        self.committed = put.is_ok() || self.store.exists(&object).unwrap_or(true);
        put
    }

    fn metadata(&self, files: [Vec<u64>; 3], domain: Option<Vec<Range>>, last: u64) -> Result<Vec<u8>> {
        let wire = &self.schema.wire;
        let mut out = Vec::new();
        let mut contexts = Contexts::default();
        let mut section = |payload: &[u8]| -> Result<u64> {
            let at = out.len() as u64;
            generic_tile::write(wire.version, payload, self.key.as_ref(), &mut out, &mut contexts)?;
            Ok(at)
        };
        let mut payload = Vec::new();
        rtree::write(&self.boxes, &wire.dims, &mut payload);
        let rtree = section(&payload)?;
        let mut list = |write: &dyn Fn(&Slot, &mut Vec<u8>)| -> Result<Vec<u64>> {
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
        };
        footer.write(wire, &mut out)?;
        Ok(out)
    }

    /// The smallest box around all tiles.
    pub(crate) fn domain(&self) -> Option<Vec<Range>> {
        (!self.boxes.is_empty()).then(|| rtree::union(&self.boxes, &self.schema.wire.dims))
    }
}

/// Statistics of a slot over the whole fragment.
fn put_total(slot: &Slot, out: &mut Vec<u8>) {
    use crate::wire::cursor::{put_bytes64, put_u64};
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
            // Files of a fragment that nobody committed are never read; what cannot be removed here is only in the way.
            for object in self.published.drain(..) {
                let _ = self.store.remove(&object);
            }
            let _ = self.store.remove(&self.folder);
        }
    }
}
