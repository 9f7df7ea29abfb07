//! Which tiles of a sparse array serve a request.

use smallvec::SmallVec;
use tesseral_core::{Error, Result, Scalar};
use tesseral_format::{
    Access, ChunkPlan, Column, CoordinateRanges, Cover, Delete, Part, PlannedChunk, Request, Role, Target,
    Uncovered,
};

use crate::array::{TileDbArray, chunk_id};
use crate::fragment::Fragment;
use crate::plan::push_parts;
use crate::wire::schema::Range;

impl TileDbArray {
    /// Whether cells have to be compared by the time they were written: one fragment holds several times.
    pub(crate) fn needs_times(&self) -> bool {
        let several = self.fragments.iter().any(|f| f.footer.timestamps);
        several && (!self.schema.allows_duplicates || !self.deletes.is_empty())
    }

    /// Whether a fragment holds cells that were written outside the times that are read.
    pub(crate) fn cuts_times(&self, fragment: &Fragment) -> bool {
        let entry = &fragment.entry;
        fragment.footer.timestamps && (entry.start < self.range.start || entry.end > self.range.end)
    }
}

/// Plans a request: the tiles whose box meets the ranges.
pub(crate) fn plan(array: &TileDbArray, request: &Request) -> Result<ChunkPlan> {
    let Target::Coordinates(ranges) = &request.target else {
        return Err(Error::invalid("the array is sparse: its cells are selected by coordinates"));
    };
    if ranges.len() != array.schema.dims.len() {
        return Err(Error::invalid(format!(
            "{} ranges for {} dimensions",
            ranges.len(),
            array.schema.dims.len()
        )));
    }
    let with_times = array.needs_times();
    let alone = array.fragments.iter().filter(|f| f.tiles > 0).count() <= 1;
    let mut chunks = Vec::new();
    for (layer, fragment) in array.fragments.iter().enumerate() {
        if fragment.tiles == 0 {
            continue;
        }
        let slots: Vec<(Column, Option<usize>)> = request
            .columns
            .iter()
            .map(|&column| Ok((column, slot(array, fragment, column)?)))
            .collect::<Result<_>>()?;
        let boxes = fragment.boxes(&array.reader)?;
        for (tile, ranges_of_tile) in (0_u64..).zip(boxes) {
            let cover = bounds(array, ranges_of_tile)?;
            if !cover.iter().zip(ranges).all(|(b, r)| meets(b, r)) {
                continue;
            }
            array.reader.limits.check_plan(chunks.len() as u64 + 1)?;
            let mut parts = SmallVec::new();
            for &(column, slot) in &slots {
                match column {
                    Column::Field(_) | Column::Dim(_) => {
                        push_parts(array, fragment, column, slot, tile, &mut parts)?;
                    }
                    Column::Timestamp if with_times => {
                        // Cells of a fragment of one time need no bytes; the part stands for the column.
                        let slot = slot.unwrap_or_else(|| fragment.dim_slot(0));
                        push_times(array, fragment, column, Role::Values, slot, tile, &mut parts)?;
                    }
                    Column::Timestamp => {}
                    Column::DeletedBy => {
                        if let Some(slot) = fragment.delete_slot() {
                            push_times(array, fragment, column, Role::Values, slot, tile, &mut parts)?;
                        }
                        if let (true, Some(slot)) = (array.cuts_times(fragment), fragment.time_slot()) {
                            push_times(array, fragment, column, Role::Mask, slot, tile, &mut parts)?;
                        }
                    }
                }
            }
            let shown = !fragment.footer.timestamps && !fragment.footer.deletes && array.deletes.is_empty();
            chunks.push(PlannedChunk {
                id: chunk_id(layer, tile),
                cover: Cover::Bounds(cover),
                tile: None,
                layer: if with_times { 0 } else { u32::try_from(layer).unwrap_or(u32::MAX) },
                cells: fragment.cells(tile, None),
                parts,
                access: Access::Coded { granule: None },
                whole: shown && (alone || array.schema.allows_duplicates),
            });
        }
    }
    let deletes = array.deletes.iter().map(|delete| {
        let older = array.fragments.iter().take_while(|f| f.entry.start <= delete.timestamp).count();
        let layer = if with_times { 1 } else { u32::try_from(older).unwrap_or(u32::MAX) };
        Ok(Delete { timestamp: delete.timestamp, condition: delete.condition()?, layer })
    });
    let deletes = if chunks.is_empty() { Vec::new() } else { deletes.collect::<Result<_>>()? };
    Ok(ChunkPlan { chunks, uncovered: Uncovered::Fill, deletes })
}

fn slot(array: &TileDbArray, fragment: &Fragment, column: Column) -> Result<Option<usize>> {
    match column {
        Column::Field(field) => array.slot(fragment, field),
        Column::Dim(d) if usize::from(d) < array.schema.dims.len() => {
            Ok(Some(fragment.dim_slot(usize::from(d))))
        }
        Column::Dim(d) => Err(Error::invalid(format!("there is no dimension number {d}"))),
        Column::Timestamp => Ok(fragment.time_slot()),
        Column::DeletedBy => Ok(None),
    }
}

fn push_times(
    array: &TileDbArray,
    fragment: &Fragment,
    column: Column,
    role: Role,
    slot: usize,
    tile: u64,
    parts: &mut SmallVec<[Part; 1]>,
) -> Result<()> {
    let (offset, len) = fragment.span(&array.reader, 0, slot, tile)?;
    array.reader.limits.check_chunk(fragment.cells(tile, None).saturating_mul(8))?;
    parts.push(Part { column, role, object: fragment.object(slot, 0), offset, len });
    Ok(())
}

/// The box of a tile in coordinates.
fn bounds(array: &TileDbArray, ranges: &[Range]) -> Result<Box<[(Scalar, Scalar)]>> {
    let dims = array.schema.dims.iter().zip(ranges);
    dims.map(|(dim, (low, high))| {
        Ok((Scalar::from_le_bytes(dim.dtype, low)?, Scalar::from_le_bytes(dim.dtype, high)?))
    })
    .collect()
}

/// Whether a box may hold a coordinate of one of the ranges. What cannot be compared may.
fn meets((low, high): &(Scalar, Scalar), ranges: &CoordinateRanges) -> bool {
    use std::cmp::Ordering;
    let apart = |(from, to): &(Scalar, Scalar)| {
        high.compare(from) == Some(Ordering::Less) || low.compare(to) == Some(Ordering::Greater)
    };
    ranges.is_empty() || !ranges.iter().all(apart)
}
