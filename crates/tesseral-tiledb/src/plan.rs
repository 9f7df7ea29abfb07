//! Which tiles of a dense array serve a request.

use smallvec::SmallVec;
use tesseral_core::{Error, Result, Selection};
use tesseral_format::{
    Access, ChunkPlan, Column, Cover, ImpliedBytes, Part, PlannedChunk, Request, Role, Target, Uncovered,
};

use crate::array::{TileDbArray, chunk_id};
use crate::fragment::Fragment;

/// Bytes in front of the cells of an unfiltered tile of one chunk.
pub(crate) const PLAIN_HEADER: u64 = 20;

/// The header in front of the cells of an unfiltered tile: one chunk, as long before as after filters, without metadata.
pub(crate) fn plain_header(part: &Part) -> Option<ImpliedBytes> {
    let len = u32::try_from(part.len).ok()?.to_le_bytes();
    let mut bytes = SmallVec::from_slice(&1_u64.to_le_bytes());
    bytes.extend_from_slice(&len);
    bytes.extend_from_slice(&len);
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    Some(ImpliedBytes { object: part.object, offset: part.offset.checked_sub(PLAIN_HEADER)?, bytes })
}

/// Plans a request: the tiles of every fragment that the selection meets, those of later fragments in higher layers.
pub(crate) fn plan(array: &TileDbArray, request: &Request) -> Result<ChunkPlan> {
    let Some(geometry) = &array.geometry else { return Err(Error::invalid("the array has no grid")) };
    let shape = geometry.shape();
    let selection = check(array, request, &shape)?;
    let bounds = selection.bounds();
    // Whatever lies below a fragment that covers the whole selection cannot be seen.
    let fragments = array.fragments()?;
    let covers = |f: &Fragment| f.placement.as_ref().is_some_and(|p| p.region.contains(&bounds));
    let lowest = fragments.iter().rposition(covers);
    let mut chunks = Vec::new();
    let mut contributing = 0_u32;
    let mut touched_chunks = 0_u64;
    for (layer, fragment) in fragments.iter().enumerate().skip(lowest.unwrap_or(0)) {
        let Some(placement) = &fragment.placement else { continue };
        let Some((part, _)) = selection.clip(&placement.region) else { continue };
        contributing += 1;
        let touched = geometry.touched(&part)?;
        touched_chunks = touched_chunks.saturating_add(touched.remaining());
        array.reader.limits.check_plan(touched_chunks)?;
        let columns = request.columns.iter().map(|&column| match column {
            Column::Field(field) => Ok((column, array.slot(fragment, field)?)),
            _ => Err(Error::invalid("cells of a dense array are read by field")),
        });
        let columns: SmallVec<[(Column, Option<usize>); 2]> = columns.collect::<Result<_>>()?;
        for coords in touched {
            let outside = || Error::invalid(format!("there is no tile {coords:?}"));
            let number = geometry.number(placement, &coords).ok_or_else(outside)?;
            let tile = geometry.tile(&coords).ok_or_else(outside)?;
            let Some(cover) = tile.intersect(&placement.region) else { continue };
            let later = fragments.iter().skip(layer + 1).filter_map(|f| f.placement.as_ref());
            let cut = geometry.cut(&coords).is_some();
            let whole = !cut && cover == tile && later.clone().all(|p| p.region.intersect(&cover).is_none());
            let mut parts = SmallVec::new();
            let mut direct = true;
            for &(column, slot) in &columns {
                direct &= push_parts(array, fragment, column, slot, number, &mut parts)?;
            }
            let access = match direct {
                // Cells in front of the array are stored among the others: decoding leaves them out.
                _ if cut => Access::Coded { granule: None },
                true => Access::Direct { swapped: cfg!(target_endian = "big") },
                false => Access::Coded { granule: granule(fragment, columns.iter().map(|(_, slot)| *slot)) },
            };
            chunks.push(PlannedChunk {
                id: chunk_id(layer, number),
                cells: if cut { tile.cells().unwrap_or(u64::MAX) } else { geometry.cells },
                tile: (cover != tile).then_some(tile),
                cover: Cover::Exact(cover),
                layer: u32::try_from(layer).unwrap_or(u32::MAX),
                parts,
                access,
                whole,
            });
        }
    }
    let all = lowest.is_some() && contributing == 1;
    let uncovered = if all { Uncovered::Impossible } else { Uncovered::Fill };
    Ok(ChunkPlan { chunks, uncovered, deletes: Vec::new() })
}

fn check<'a>(array: &TileDbArray, request: &'a Request, shape: &[u64]) -> Result<&'a Selection> {
    let Target::Cells(selection) = &request.target else {
        return Err(Error::invalid("the array is dense: its cells are selected by position"));
    };
    for column in &request.columns {
        let known = matches!(column, Column::Field(f) if usize::from(*f) < array.schema.fields.len());
        if !known {
            return Err(Error::invalid(format!("a dense array has no {column:?}")));
        }
    }
    let fits = selection.rank() == shape.len()
        && selection.slices().iter().zip(shape).all(|(slice, n)| slice.end <= *n && slice.step > 0);
    if !fits {
        return Err(Error::invalid(format!("the selection does not fit an array of {shape:?}")));
    }
    Ok(selection)
}

/// Cells that are decoded together anyway: a tile is cut into chunks, each filtered by itself. `None` where a column decodes by
/// whole tiles.
pub(crate) fn granule(fragment: &Fragment, slots: impl Iterator<Item = Option<usize>>) -> Option<u64> {
    let of = |slot: Option<usize>| {
        let chains = slot.and_then(|slot| fragment.chains(slot)).filter(|chains| !chains.var)?;
        chains.values.cells_per_chunk()
    };
    slots.map(of).try_fold(u64::MAX, |least, cells| Some(least.min(cells?))).filter(|cells| *cells < u64::MAX)
}

/// Adds the parts of one column of one tile; says whether the one part is nothing but cells.
pub(crate) fn push_parts(
    array: &TileDbArray,
    fragment: &Fragment,
    column: Column,
    slot: Option<usize>,
    tile: u64,
    parts: &mut SmallVec<[Part; 1]>,
) -> Result<bool> {
    let Some(slot) = slot else { return Ok(false) };
    let Some(chains) = fragment.chains(slot) else { return Ok(false) };
    let mut push = |file: usize, role: Role| -> Result<u64> {
        let (offset, len) = fragment.span(&array.reader, file, slot, tile)?;
        parts.push(Part { column, role, object: fragment.object(slot, file), offset, len });
        Ok(len)
    };
    let cells = fragment.cells(tile, array.geometry.as_ref());
    let mut direct = false;
    if chains.var {
        if !chains.values.holds_strings() {
            let stored = push(0, Role::Offsets)?;
            array.reader.limits.check_decoded(cells.saturating_mul(8), stored)?;
        }
        push(1, Role::Values)?;
    } else {
        let len = push(0, Role::Values)?;
        let bytes = cells.checked_mul(chains.cell as u64);
        array.reader.limits.check_decoded(bytes.unwrap_or(u64::MAX), len)?;
        direct = chains.values.is_plain()
            && !chains.nullable
            && bytes.and_then(|b| b.checked_add(PLAIN_HEADER)) == Some(len);
    }
    if chains.nullable {
        push(2, Role::Validity)?;
    }
    if direct && let Some(part) = parts.last_mut() {
        // Only the cells: what is in front of them says nothing that the length has not said already.
        part.offset += PLAIN_HEADER;
        part.len -= PLAIN_HEADER;
    }
    Ok(direct)
}
