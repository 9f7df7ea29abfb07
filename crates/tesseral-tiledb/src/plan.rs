//! Planning of dense arrays: tiles that serve a request.

use smallvec::SmallVec;
use tesseral_core::{Error, Result};
use tesseral_format::{
    Access, ChunkPlan, Column, Cover, ImpliedBytes, Part, PlannedChunk, Request, Role, Uncovered,
};
use tesseral_store::Rounds;

use crate::array::{TileDbArray, chunk_id};
use crate::box_index::BoxIndex;
use crate::fragment::Fragment;
use crate::metadata_loader::MetadataLoader;

/// Size of the header before the cells of an unfiltered tile of one chunk, in bytes.
pub(crate) const PLAIN_HEADER: u64 = 20;

/// The header of an unfiltered tile: one chunk with equal sizes and without metadata.
pub(crate) fn plain_header(part: &Part) -> Option<ImpliedBytes> {
    let len = u32::try_from(part.len).ok()?.to_le_bytes();
    let mut bytes = SmallVec::from_slice(&1_u64.to_le_bytes());
    bytes.extend_from_slice(&len);
    bytes.extend_from_slice(&len);
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    Some(ImpliedBytes { object: part.object, offset: part.offset.checked_sub(PLAIN_HEADER)?, bytes })
}

/// Plans a request: the selected tiles of every fragment, with later fragments in higher layers.
pub(crate) fn plan(array: &TileDbArray, reader: &MetadataLoader, request: &Request) -> Result<ChunkPlan> {
    let Some(geometry) = &array.geometry else { return Err(Error::internal("the array has no grid")) };
    let Some(selection) = request.selection() else {
        return Err(Error::internal("a request by coordinates"));
    };
    let bounds = selection.bounds();
    // Fragments below one that covers the whole selection are not visible.
    let fragments = array.fragments.get(reader)?;
    let covers = |f: &Fragment| f.placement.as_ref().is_some_and(|p| p.region.contains(&bounds));
    let lowest = fragments.iter().rposition(covers);
    let boxes =
        BoxIndex::new(fragments.iter().enumerate().skip(lowest.unwrap_or(0)).filter_map(|(layer, f)| {
            let scattered = || f.scattered.as_ref().map(|scattered| &scattered.bounds);
            Some((layer, f.placement.as_ref().map(|p| &p.region).or_else(scattered)?))
        }));
    let mut chunks = Vec::new();
    let mut contributing = 0_u32;
    let mut touched_chunks = 0_u64;
    let mut waiting = false;
    for (layer, fragment) in fragments.iter().enumerate().skip(lowest.unwrap_or(0)) {
        let around = match (&fragment.placement, &fragment.scattered) {
            (Some(placement), _) => &placement.region,
            (None, Some(scattered)) => &scattered.bounds,
            (None, None) => continue,
        };
        let Some((part, _)) = selection.clip(around) else { continue };
        contributing += 1;
        let columns = request.columns.iter().map(|&column| match column {
            Column::Field(field) => Ok((column, array.slot(fragment, field)?)),
            _ => Err(Error::internal("a request for coordinates")),
        });
        let columns: SmallVec<[(Column, Option<usize>); 2]> = columns.collect::<Result<_>>()?;
        if Rounds::later(fragment.load_slots(reader, columns.iter().filter_map(|(_, slot)| *slot)))?.is_none()
        {
            waiting = true;
        }
        // Other fragments name what they need in the same round.
        if waiting {
            continue;
        }
        if let Some(scattered) = &fragment.scattered {
            let planned = (layer, fragment);
            let found =
                crate::scatter::plan(array, reader, planned, scattered, selection, &columns, &mut chunks);
            waiting |= Rounds::later(found)?.is_none();
            continue;
        }
        let Some(placement) = &fragment.placement else { continue };
        let touched = geometry.touched(&part)?;
        touched_chunks = touched_chunks.saturating_add(touched.remaining());
        reader.limits.check_plan(touched_chunks)?;
        for coords in touched {
            let outside = || Error::invalid(format!("unknown tile {coords:?}"));
            let number = geometry.number(placement, &coords).ok_or_else(outside)?;
            let tile = geometry.tile(&coords).ok_or_else(outside)?;
            let Some(cover) = tile.intersect(&placement.region) else { continue };
            let cut = geometry.padded_tile(&coords).is_some();
            let whole = !cut && cover == tile && !boxes.overlapped_above(layer, &cover);
            let mut parts = SmallVec::new();
            let mut direct = true;
            for &(column, slot) in &columns {
                direct &= push_parts(array, reader, fragment, column, slot, number, &mut parts)?;
            }
            let access = match direct {
                // Cells before the array are stored with the others; decoding drops them.
                _ if cut => Access::Coded { granule: None },
                true => Access::Direct { swapped: cfg!(target_endian = "big") },
                false => Access::Coded { granule: granule(fragment, columns.iter().map(|(_, slot)| *slot)) },
            };
            chunks.push(PlannedChunk {
                id: chunk_id(layer, number),
                cells: if cut { tile.cells().unwrap_or(u64::MAX) } else { geometry.cells },
                tile: (cover != tile).then(|| Box::new(tile)),
                cover: Cover::Exact(cover),
                layer: u32::try_from(layer).unwrap_or(u32::MAX),
                parts,
                access,
                whole,
            });
        }
    }
    if waiting {
        return Err(Error::pending());
    }
    let all = lowest.is_some() && contributing == 1;
    let uncovered = if all { Uncovered::Impossible } else { Uncovered::Fill };
    Ok(ChunkPlan { chunks, uncovered, deletes: Vec::new() })
}

/// Returns the number of cells that are decoded together: a tile is divided into chunks that are filtered independently. `None`
/// if a column does not support random access.
pub(crate) fn granule(fragment: &Fragment, slots: impl Iterator<Item = Option<usize>>) -> Option<u64> {
    let slot_cells = |slot: Option<usize>| {
        let chains =
            slot.and_then(|slot| fragment.chains(slot)).filter(|chains| !chains.var && !chains.zipped)?;
        chains.values.cells_per_chunk()
    };
    slots
        .map(slot_cells)
        .try_fold(u64::MAX, |least, cells| Some(least.min(cells?)))
        .filter(|cells| *cells < u64::MAX)
}

/// Adds the parts of one column of one tile; returns whether the only part consists of cells.
pub(crate) fn push_parts(
    array: &TileDbArray,
    reader: &MetadataLoader,
    fragment: &Fragment,
    column: Column,
    slot: Option<usize>,
    tile: u64,
    parts: &mut SmallVec<[Part; 1]>,
) -> Result<bool> {
    let Some(slot) = slot else { return Ok(false) };
    let Some(chains) = fragment.chains(slot) else { return Ok(false) };
    let mut push = |file: usize, role: Role| -> Result<u64> {
        let (offset, len) = fragment.span(reader, file, slot, tile)?;
        parts.push(Part { column, role, object: fragment.object(slot, file), offset, len });
        Ok(len)
    };
    let cells = fragment.cells(tile, array.geometry.as_ref());
    let mut direct = false;
    if chains.var {
        if !chains.values.holds_strings() {
            let stored = push(0, Role::Offsets)?;
            reader.limits.check_decoded(cells.saturating_mul(8), stored)?;
        }
        push(1, Role::Values)?;
    } else {
        let len = push(0, Role::Values)?;
        let bytes = cells.checked_mul(chains.cell as u64);
        reader.limits.check_decoded(bytes.unwrap_or(u64::MAX), len)?;
        direct = chains.values.is_plain()
            && !chains.nullable
            && !chains.zipped
            && bytes.and_then(|b| b.checked_add(PLAIN_HEADER)) == Some(len);
    }
    if chains.nullable {
        push(2, Role::Validity)?;
    }
    if direct && let Some(part) = parts.last_mut() {
        // Skip the header: it adds nothing to the known length.
        part.offset += PLAIN_HEADER;
        part.len -= PLAIN_HEADER;
    }
    Ok(direct)
}
