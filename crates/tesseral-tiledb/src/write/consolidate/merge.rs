//! Merging of sparse fragments in global order; all versions of a cell are kept with their write time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use smallvec::SmallVec;
use tesseral_codec::filter::FilterContext;
use tesseral_core::{CellLen, ChunkStats, Error, Result};
use tesseral_format::{
    Access, ArraySource, CellKeys, Column, ColumnData, Cover, DuplicatePolicy, EncodedPart, PlannedChunk,
    Role, Scratch,
};

use super::dense::{TileCells as ColumnCells, read};
use super::{ArraySnapshot, commit, fragment_destination};
use crate::array::{TileDbArray, chunk_id};
use crate::fragment::Fragment;
use crate::plan::push_parts;
use crate::wire::datatype::Datatype;
use crate::wire::primitive::le64;
use crate::write::array::{dims, encode_columns, fields};
use crate::write::fragment::{FragmentFeatures, FragmentWriter, HashedPart};
use crate::write::order;
use crate::write::sparse::bounds;
use crate::write::stats::{self, KeptStats};

/// One tile of one fragment, and the index of its next cell.
struct TileCursor {
    fragment: usize,
    tile: u64,
    columns: Vec<ColumnCells>,
    /// Write time of each cell, delete time and delete condition.
    times: [Vec<u64>; 3],
    order: CellKeys<'static>,
    at: usize,
}

/// Type of each column.
struct ColumnLayouts {
    columns: Vec<Column>,
    sizes: Vec<Option<usize>>,
    nullable: Vec<bool>,
}

fn layout(array: &TileDbArray) -> ColumnLayouts {
    let schema = array.schema();
    let wire = &array.current.wire;
    let number = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let mut out = ColumnLayouts { columns: Vec::new(), sizes: Vec::new(), nullable: Vec::new() };
    for (d, dim) in wire.dims.iter().enumerate() {
        out.columns.push(Column::Dim(number(d)));
        out.sizes.push((!dim.var).then(|| dim.datatype.size()));
        out.nullable.push(false);
    }
    for (f, attribute) in wire.attributes.iter().enumerate() {
        out.columns.push(Column::Field(number(f)));
        out.sizes.push((schema.fields[f].cell != CellLen::Var).then(|| attribute.cell_size()));
        out.nullable.push(attribute.nullable);
    }
    out
}

fn load(
    array: &TileDbArray,
    layout: &ColumnLayouts,
    fragment: usize,
    tile: u64,
    scratch: &mut Scratch,
) -> Result<TileCursor> {
    let source = &array.fragments()?[fragment];
    let cells = source.cells(tile, None);
    let mut parts = SmallVec::new();
    for column in &layout.columns {
        let slot = match *column {
            Column::Field(f) => array.slot(source, f)?,
            Column::Dim(d) => Some(source.dim_slot(usize::from(d))),
            _ => None,
        };
        push_parts(array, &array.reader, source, *column, slot, tile, &mut parts)?;
    }
    let chunk = PlannedChunk {
        id: chunk_id(fragment, tile),
        cover: Cover::Bounds(Box::default()),
        tile: None,
        layer: 0,
        cells,
        parts,
        access: Access::Coded { granule: None },
        whole: false,
    };
    let mut columns = Vec::new();
    for ((column, size), nullable) in layout.columns.iter().zip(&layout.sizes).zip(&layout.nullable) {
        columns.push(read(array, &chunk, *column, *size, *nullable, scratch)?);
    }
    let data: Vec<ColumnData<'_>> = columns.iter().map(ColumnCells::data).collect();
    let (keys, len) = order::keys(&array.current.wire, &data)?;
    let order = CellKeys { keys, cells: len, duplicate_policy: DuplicatePolicy::KeepAll }.into_owned();
    let count = usize::try_from(cells).unwrap_or(usize::MAX);
    let written = match source.time_slot() {
        Some(slot) => numbers(array, source, slot, tile, count, scratch)?,
        None => vec![source.entry.start; count],
    };
    let (removed, by) = match source.delete_slot() {
        Some(slot) => (
            numbers(array, source, slot, tile, count, scratch)?,
            numbers(array, source, slot + 1, tile, count, scratch)?,
        ),
        None => (Vec::new(), Vec::new()),
    };
    Ok(TileCursor { fragment, tile, columns, times: [written, removed, by], order, at: 0 })
}

/// Timestamps or condition numbers of a tile.
fn numbers(
    array: &TileDbArray,
    fragment: &Fragment,
    slot: usize,
    tile: u64,
    count: usize,
    scratch: &mut Scratch,
) -> Result<Vec<u64>> {
    let object = array.object(fragment.object(slot, 0));
    let bytes = fragment.read_tile(&array.reader, &object, (slot, 0), tile)?;
    let size = count.checked_mul(8).ok_or_else(|| Error::limit("a tile", count as u64, u64::MAX))?;
    let mut out = vec![0; size];
    let rules = array.reader.rules(fragment.schema.wire.version);
    fragment.schema.times.decode_into(&bytes, &mut out, &rules, &mut scratch.contexts)?;
    Ok(out.chunks_exact(8).map(le64).collect())
}

/// Orders by the position of the next cell, newest first. The greatest cursor has the next cell.
impl Ord for TileCursor {
    fn cmp(&self, other: &Self) -> Ordering {
        let newest = |c: &Self| (c.times[0][c.at], c.fragment);
        let position = other.order.compare_with(other.at, &self.order, self.at);
        position.then_with(|| newest(self).cmp(&newest(other)))
    }
}

impl PartialOrd for TileCursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TileCursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TileCursor {}

/// Cells of the current output tile.
struct OutputTile<'a> {
    opened: &'a ArraySnapshot,
    array: &'a TileDbArray,
    fragment: FragmentWriter,
    columns: Vec<ColumnCells>,
    times: [Vec<u64>; 3],
    deletes: bool,
    last: u64,
    scratch: Scratch,
}

impl OutputTile<'_> {
    fn flush(&mut self) -> Result<()> {
        let cells = self.times[0].len() as u64;
        if cells == 0 {
            return Ok(());
        }
        let schema = Arc::clone(&self.opened.opening.current);
        let key = self.opened.reader.key;
        let mut targets = dims(&schema);
        targets.extend(fields(&schema));
        let data: Vec<ColumnData<'_>> = self.columns.iter().map(ColumnCells::data).collect();
        let (mut parts, mut stats) =
            encode_columns(&schema, &targets, &data, cells, None, key.as_deref(), &mut self.scratch)?;
        let around = schema.wire.dims.iter().zip(&data);
        let around = around.map(|(dim, column)| bounds(dim.datatype, column).unwrap_or_default()).collect();
        let (written, of_written) = self.encode_times(0)?;
        parts.push(part(Column::Timestamp, written));
        stats.push((Column::Timestamp, of_written));
        if self.deletes {
            let (removed, of_removed) = self.encode_times(1)?;
            parts.push(part(Column::DeletedBy, removed));
            stats.push((Column::DeletedBy, of_removed));
        }
        let hashed = parts.into_iter().map(|part| HashedPart::new(part, self.opened.digests));
        self.fragment.place(hashed, &stats, Some(around))?.store()?;
        if self.deletes {
            let (by, of_by) = self.encode_times(2)?;
            self.fragment.place_conditions(by, &of_by)?.store()?;
        }
        self.last = cells;
        self.columns.iter_mut().for_each(|c| *c = c.like());
        self.times.iter_mut().for_each(Vec::clear);
        Ok(())
    }

    fn encode_times(&mut self, which: usize) -> Result<(Vec<u8>, ChunkStats)> {
        let schema = &self.opened.opening.current;
        let bytes: Vec<u8> = self.times[which].iter().flat_map(|n| n.to_le_bytes()).collect();
        let kept = KeptStats { extrema: true, sum: true };
        let stats = stats::fixed(Datatype::UINT64, 1, kept, &bytes, None)?;
        let key = self.opened.reader.key;
        let rules = FilterContext { version: schema.wire.version, verify: true, key: key.as_deref() };
        let mut out = Vec::new();
        schema.times.encode(&bytes, &mut out, &rules, &mut self.scratch.contexts)?;
        Ok((out, stats))
    }

    fn push(&mut self, cursor: &TileCursor, sizes: &[Option<usize>]) -> Result<()> {
        for ((to, from), size) in self.columns.iter_mut().zip(&cursor.columns).zip(sizes) {
            to.push(from, cursor.at, size.unwrap_or(1));
        }
        for (to, from) in self.times.iter_mut().zip(&cursor.times) {
            to.push(from.get(cursor.at).copied().unwrap_or(u64::MAX));
        }
        if self.times[0].len() as u64 == self.array.current.wire.capacity {
            self.flush()?;
        }
        Ok(())
    }
}

fn part<'a>(column: Column, bytes: Vec<u8>) -> EncodedPart<'a> {
    EncodedPart { column, role: Role::Values, bytes: bytes.into(), raw_len: 0, codec: 0 }
}

/// Writes one fragment with the cells of all of them. Memory holds one tile of each input, and one output tile.
pub(super) fn merge(opened: &ArraySnapshot, array: &TileDbArray) -> Result<String> {
    let place = fragment_destination(opened, array)?;
    let layout = layout(array);
    let fragments = array.fragments()?;
    let deletes = fragments.iter().any(|f| f.footer.deletes);
    let processed = match fragments.first() {
        Some(first) => first.processed(&opened.reader)?,
        None => Vec::new(),
    };
    let fragment = FragmentWriter::new(
        Arc::clone(&opened.store),
        "",
        opened.versioned(place.timestamp, place.end),
        Arc::clone(&opened.opening.current),
        place.schema_name.clone(),
        place.key,
        FragmentFeatures { timestamps: true, deletes, processed },
    );
    let empty = layout.sizes.iter().zip(&layout.nullable).map(|(size, nullable)| ColumnCells {
        var: size.is_none(),
        validity: nullable.then(Vec::new),
        ..ColumnCells::default()
    });
    let mut out = OutputTile {
        opened,
        array,
        fragment,
        columns: empty.collect(),
        times: Default::default(),
        deletes,
        last: 0,
        scratch: Scratch::default(),
    };
    let mut scratch = Scratch::default();
    let mut cursors = BinaryHeap::new();
    for (number, fragment) in fragments.iter().enumerate() {
        if fragment.tiles > 0 {
            cursors.push(load(array, &layout, number, 0, &mut scratch)?);
        }
    }
    loop {
        let done = {
            let Some(mut first) = cursors.peek_mut() else { break };
            out.push(&first, &layout.sizes)?;
            if first.at + 1 < first.order.cells {
                first.at += 1;
                continue;
            }
            PeekMut::pop(first)
        };
        let (number, tile) = (done.fragment, done.tile + 1);
        if tile < fragments[number].tiles {
            cursors.push(load(array, &layout, number, tile, &mut scratch)?);
        }
    }
    out.flush()?;
    let domain = out.fragment.domain();
    out.fragment.finish(domain, out.last)?;
    commit(opened, array, out.fragment)
}
