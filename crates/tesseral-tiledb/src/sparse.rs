//! Planning of sparse arrays: tiles that serve a request.

use smallvec::SmallVec;
use tesseral_core::{Error, Result, Scalar};
use tesseral_format::{
    Access, ChunkPlan, Column, CoordinateRanges, Cover, Delete, Part, PlannedChunk, Request, Role, Target,
    Uncovered,
};
use tesseral_store::Rounds;

use crate::array::{TileDbArray, chunk_id};
use crate::fragment::{Bounds, Fragment};
use crate::global_order::GlobalOrder;
use crate::metadata_loader::MetadataLoader;
use crate::plan::{granule, push_parts};
use crate::wire::schema::StoredRange;

impl TileDbArray {
    /// Returns whether cells must be compared by write time, because one fragment contains several.
    fn needs_times(&self, fragments: &[Fragment]) -> bool {
        let several = fragments.iter().any(|f| f.footer.timestamps);
        several && (!self.schema.allows_duplicates || !self.deletes.is_empty())
    }

    /// Returns whether a fragment contains cells written outside the requested time range.
    pub(crate) fn cuts_times(&self, fragment: &Fragment) -> bool {
        let entry = &fragment.entry;
        fragment.footer.timestamps && (entry.start < self.range.start || entry.end > self.range.end)
    }
}

/// Plans a request: the tiles whose box intersects the ranges.
pub(crate) fn plan(array: &TileDbArray, reader: &MetadataLoader, request: &Request) -> Result<ChunkPlan> {
    let Target::Coordinates(ranges) = &request.target else {
        return Err(Error::internal("a request by position"));
    };
    let fragments = array.fragments.get(reader)?;
    let with_times = array.needs_times(fragments);
    let others = FragmentBounds::new(array, fragments);
    let mut chunks = Vec::new();
    let mut waiting = false;
    for (layer, fragment) in fragments.iter().enumerate() {
        if fragment.tiles == 0 {
            continue;
        }
        let slots: Vec<(Column, Option<usize>)> = request
            .columns
            .iter()
            .map(|&column| Ok((column, slot(array, fragment, column)?)))
            .collect::<Result<_>>()?;
        let stored = |column: &Column| matches!(column, Column::Field(_) | Column::Dim(_));
        let granule = granule(fragment, slots.iter().filter(|(c, _)| stored(c)).map(|(_, slot)| *slot));
        // Timestamp and delete columns do not support random access.
        let granule =
            granule.filter(|_| !with_times && !fragment.footer.timestamps && !fragment.footer.deletes);
        let loaded = Rounds::later(fragment.load_slots(reader, slots.iter().filter_map(|(_, slot)| *slot)))?;
        let boxes = Rounds::later(fragment.boxes(reader))?;
        // Other fragments name what they need in the same round.
        let (Some(()), Some(boxes), false) = (loaded, boxes, waiting) else {
            waiting = true;
            continue;
        };
        let order = GlobalOrder::new(&fragment.schema.wire, ranges);
        for (number, cover) in boxes.iter().enumerate() {
            if !cover.iter().zip(ranges).all(|(b, r)| meets(b, r)) {
                continue;
            }
            if order.as_ref().is_some_and(|order| !order.may_hold(boxes, number)) {
                continue;
            }
            let tile = number as u64;
            reader.limits.check_plan(chunks.len() as u64 + 1)?;
            let mut parts = SmallVec::new();
            for &(column, slot) in &slots {
                match column {
                    Column::Field(_) | Column::Dim(_) => {
                        push_parts(array, reader, fragment, column, slot, tile, &mut parts)?;
                    }
                    Column::Timestamp if with_times => {
                        // Cells of a fragment with one timestamp store no bytes; the part represents the column.
                        let slot = slot.unwrap_or_else(|| fragment.dim_slot(0));
                        push_times(reader, fragment, column, Role::Values, slot, tile, &mut parts)?;
                    }
                    Column::Timestamp => {}
                    Column::DeletedBy => {
                        if let Some(slot) = fragment.delete_slot() {
                            push_times(reader, fragment, column, Role::Values, slot, tile, &mut parts)?;
                        }
                        if let (true, Some(slot)) = (array.cuts_times(fragment), fragment.time_slot()) {
                            push_times(reader, fragment, column, Role::Mask, slot, tile, &mut parts)?;
                        }
                    }
                }
            }
            let shown = !fragment.footer.timestamps && !fragment.footer.deletes && array.deletes.is_empty();
            chunks.push(PlannedChunk {
                id: chunk_id(layer, tile),
                cover: Cover::Bounds(cover.clone()),
                tile: None,
                layer: if with_times { 0 } else { u32::try_from(layer).unwrap_or(u32::MAX) },
                cells: fragment.cells(tile, None),
                parts,
                access: Access::Coded { granule },
                whole: shown && others.none(layer, cover, array),
            });
        }
    }
    if waiting {
        return Err(Error::pending());
    }
    let deletes = array.deletes.iter().map(|delete| {
        let older = fragments.iter().take_while(|f| f.entry.start <= delete.timestamp).count();
        let layer = if with_times { 1 } else { u32::try_from(older).unwrap_or(u32::MAX) };
        Ok(Delete { timestamp: delete.timestamp, condition: delete.condition()?, layer })
    });
    let deletes = if chunks.is_empty() { Vec::new() } else { deletes.collect::<Result<_>>()? };
    Ok(ChunkPlan { chunks, uncovered: Uncovered::Fill, deletes })
}

/// Boxes of other fragments.
struct FragmentBounds {
    /// Fragments with cells and their boxes; `None` if there are too many to compare with every tile.
    boxes: Option<Vec<(usize, Bounds)>>,
}

impl FragmentBounds {
    fn new(array: &TileDbArray, fragments: &[Fragment]) -> Self {
        /// Maximum number of fragments that are compared with every tile.
        const COMPARED: usize = 64;
        let fragments = fragments.iter().enumerate().filter(|(_, fragment)| fragment.tiles > 0);
        if array.schema.allows_duplicates || fragments.clone().count() > COMPARED {
            return Self { boxes: None };
        }
        let ends = |ranges: &[StoredRange]| -> Option<Bounds> {
            let dims = array.schema.dims.iter().zip(ranges);
            let end = |dtype, bytes: &[u8]| Scalar::from_le_bytes(dtype, bytes).ok();
            dims.map(|(dim, (low, high))| Some((end(dim.dtype, low)?, end(dim.dtype, high)?))).collect()
        };
        let boxes =
            fragments.map(|(layer, f)| f.footer.domain.as_deref().and_then(ends).map(|ends| (layer, ends)));
        Self { boxes: boxes.collect() }
    }

    /// Returns whether no other fragment has a cell at a position of a tile, or duplicates are allowed.
    fn none(&self, layer: usize, tile: &[(Scalar, Scalar)], array: &TileDbArray) -> bool {
        use std::cmp::Ordering::Less;
        if array.schema.allows_duplicates {
            return true;
        }
        let Some(boxes) = &self.boxes else { return false };
        let apart = |(a, b): (&(Scalar, Scalar), &(Scalar, Scalar))| {
            a.1.compare(&b.0) == Some(Less) || b.1.compare(&a.0) == Some(Less)
        };
        boxes.iter().all(|(other, domain)| *other == layer || tile.iter().zip(domain).any(apart))
    }
}

fn slot(array: &TileDbArray, fragment: &Fragment, column: Column) -> Result<Option<usize>> {
    match column {
        Column::Field(field) => array.slot(fragment, field),
        Column::Dim(d) if usize::from(d) < array.schema.dims.len() => {
            Ok(Some(fragment.dim_slot(usize::from(d))))
        }
        Column::Dim(d) => Err(Error::invalid(format!("dimension index {d} is out of bounds"))),
        Column::Timestamp => Ok(fragment.time_slot()),
        Column::DeletedBy => Ok(None),
    }
}

fn push_times(
    reader: &MetadataLoader,
    fragment: &Fragment,
    column: Column,
    role: Role,
    slot: usize,
    tile: u64,
    parts: &mut SmallVec<[Part; 1]>,
) -> Result<()> {
    let (offset, len) = fragment.span(reader, 0, slot, tile)?;
    reader.limits.check_decoded(fragment.cells(tile, None).saturating_mul(8), len)?;
    parts.push(Part { column, role, object: fragment.object(slot, 0), offset, len });
    Ok(())
}

/// Returns whether a box can contain a coordinate of one of the ranges. Incomparable values count as contained.
pub(crate) fn meets((low, high): &(Scalar, Scalar), ranges: &CoordinateRanges) -> bool {
    use std::cmp::Ordering;
    let apart = |(from, to): &(Scalar, Scalar)| {
        high.compare(from) == Some(Ordering::Less) || low.compare(to) == Some(Ordering::Greater)
    };
    ranges.is_empty() || !ranges.iter().all(apart)
}
