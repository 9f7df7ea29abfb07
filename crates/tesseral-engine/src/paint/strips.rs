//! Painting of direct chunks, strip by strip of the result.
//!
//! A chunk touches many parts of a large result. Painting chunk after chunk, each page and cache line of the result is loaded
//! once per chunk that touches it, and new memory is zeroed long before it is painted. A strip is a run of the result that fits
//! a core's cache: it is painted completely from every chunk that touches it. Strips are consecutive slices of the result, so
//! threads share nothing.

use std::ops::Range;

use rayon::prelude::*;
use smallvec::SmallVec;
use tesseral_core::{Error, Result, Selection};
use tesseral_format::{Access, PlannedChunk};

use crate::decode::chunk::ChunkCells;
use crate::fetch::ChunkBytes;
use crate::handle::Handle;
use crate::kernel::copy::Walk;
use crate::options::Options;
use crate::paint::dense::PreparedRead;
use crate::paint::sink::row_major;
use crate::plan::blocks::Blocks;

/// Size of a strip in bytes: half a core's L2 cache; the rest is for the input.
const STRIP: u64 = 1 << 20;
/// Minimum size of a result in bytes: smaller ones stay in the caches.
const LARGE: u64 = 8 << 20;
/// Minimum average size of a copy in bytes for which strips are worthwhile.
const VISIT: u64 = 4 << 10;

/// A run of the result and the chunks that touch it.
struct Strip<'a> {
    selection: Selection,
    chunks: Range<usize>,
    out: &'a mut [u8],
}

/// Paints the result if it is large and consists of direct resident chunks; returns whether it did.
pub(crate) fn paint(
    handle: &Handle,
    prepared: &PreparedRead,
    values: &mut [u8],
    options: &Options,
) -> Result<bool> {
    let PreparedRead { plan, groups, selection, field, size, bytes, resident, .. } = prepared;
    let plain =
        |chunk: &PlannedChunk| matches!(chunk.access, Access::Direct { swapped } if !swapped || *size == 1);
    let (Some(resident), Ok(true)) = (resident, usize::try_from(*bytes).map(|n| n == values.len())) else {
        return Ok(false);
    };
    let nullable = handle.schema().fields[usize::from(*field)].nullable;
    if *bytes < LARGE || nullable || !groups.apart() || !plan.chunks.iter().all(plain) {
        return Ok(false);
    }
    let Some(strips) = divide_into_strips(&plan.chunks, selection, *size, values) else { return Ok(false) };
    let source = ChunkBytes::Resident(resident);
    let ticker = options.ticker(strips.len() as u64);
    options.run(|| {
        // Each chunk is part of many strips: its digests are verified once before.
        plan.chunks.par_iter().try_for_each(|chunk| -> Result<()> {
            options.cancel.check()?;
            let check = || match chunk.cover.region().and_then(|cover| selection.clip(cover)) {
                Some((part, _)) => {
                    let cells = ChunkCells::new(handle, chunk, *field, *size)?;
                    source.plain(handle, chunk, cells.column, || cells.touched(&part)).map(drop)
                }
                None => Ok(()),
            };
            check().map_err(|e| handle.locate(chunk, e))?;
            prepared.count_used(handle, chunk.stored_bytes());
            Ok(())
        })?;
        strips.into_par_iter().try_for_each(|strip| {
            let Strip { selection, chunks, out } = strip;
            for chunk in &plan.chunks[chunks] {
                paint_chunk(handle, chunk, *field, *size, &source, &selection, out)
                    .map_err(|e| handle.locate(chunk, e))?;
            }
            prepared.count_used(handle, out.len() as u64);
            ticker.tick()
        })
    })?;
    Ok(true)
}

/// Divides the result into strips; `None` if they are not worthwhile.
fn divide_into_strips<'a>(
    chunks: &[PlannedChunk],
    selection: &Selection,
    size: usize,
    mut values: &'a mut [u8],
) -> Option<Vec<Strip<'a>>> {
    let (mut strips, mut visits) = (Vec::new(), 0_u64);
    let all = values.len() as u64;
    for part in Blocks::new(selection, &[], STRIP / size as u64) {
        let len = part.cells().and_then(|n| usize::try_from(n).ok())?.checked_mul(size)?;
        let (out, rest) = std::mem::take(&mut values).split_at_mut_checked(len)?;
        values = rest;
        let touched = touched(chunks, &part);
        visits += touched.len() as u64;
        strips.push(Strip { selection: part, chunks: touched, out });
    }
    (values.is_empty() && visits.saturating_mul(VISIT) <= all).then_some(strips)
}

/// The chunks that a strip touches. A strip has single positions of its first dimensions, a run of the next and all of the
/// others, and chunks are in row-major order: those it touches are consecutive.
fn touched(chunks: &[PlannedChunk], strip: &Selection) -> Range<usize> {
    let bounds = strip.bounds();
    let before = |chunk: &PlannedChunk| {
        let cover = chunk.cover.region()?;
        // The first dimension in which chunk and strip do not intersect decides.
        let apart = (0..bounds.rank())
            .find(|&d| cover.end(d) <= bounds.start(d) || cover.start(d) >= bounds.end(d))?;
        Some(cover.end(apart) <= bounds.start(apart))
    };
    let start = chunks.partition_point(|chunk| before(chunk) == Some(true));
    let end = start + chunks[start..].partition_point(|chunk| before(chunk).is_none());
    start..end
}

fn paint_chunk(
    handle: &Handle,
    chunk: &PlannedChunk,
    field: u16,
    size: usize,
    source: &ChunkBytes<'_>,
    strip: &Selection,
    out: &mut [u8],
) -> Result<()> {
    let Some((part, region)) = chunk.cover.region().and_then(|cover| strip.clip(cover)) else {
        return Ok(());
    };
    let cells = ChunkCells::new(handle, chunk, field, size)?;
    let plain = source.plain(handle, chunk, cells.column, || cells.touched(&part))?;
    let direct = cells
        .direct(plain.ok_or_else(|| Error::internal("expected a direct chunk with one part"))?, &part)?;
    let strides = row_major(&strip.shape(), size);
    // Within the strip, whose bytes are a slice.
    let addressable = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let extents: SmallVec<[usize; 4]> = region.shape().iter().map(|&n| addressable(n)).collect();
    let start: usize = region.bounds().iter().zip(&strides).map(|(b, s)| addressable(b.0) * s).sum();
    let walk = Walk::new(&direct.placement.strides, &strides, &extents, size)?;
    let outside = || Error::internal("a copy exceeds its strip");
    let from = direct.values.get(direct.placement.start..).ok_or_else(outside)?;
    walk.copy(from, out.get_mut(start..).ok_or_else(outside)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::{ChunkGrid, Slice};
    use tesseral_format::Cover;

    fn planned(grid: &ChunkGrid, selection: &Selection) -> Vec<PlannedChunk> {
        let chunk = |coords: tesseral_core::Coords| PlannedChunk {
            id: grid.linear(&coords),
            cover: Cover::Exact(grid.region(&coords)),
            tile: None,
            layer: 0,
            cells: 0,
            parts: SmallVec::new(),
            access: Access::Direct { swapped: false },
            whole: true,
        };
        grid.touched(selection).map(chunk).collect()
    }

    #[test]
    fn a_strip_finds_exactly_the_chunks_it_touches() {
        let shape = [7, 9, 11];
        for chunk in [[2, 3, 4], [7, 1, 5], [1, 9, 2], [3, 4, 11]] {
            let grid = ChunkGrid::new(&shape, &chunk).unwrap();
            for step in 1..4 {
                let slices = [Slice::new(1, 6), Slice { start: 0, end: 9, step }, Slice::new(2, 11)];
                let selection = Selection::new(slices, &shape).unwrap();
                let chunks = planned(&grid, &selection);
                for cells in [1, 5, 9, 20, 60, 200, 1000] {
                    for strip in Blocks::new(&selection, &[], cells) {
                        let found: Vec<u64> = chunks[touched(&chunks, &strip)].iter().map(|c| c.id).collect();
                        let mut wanted: Vec<u64> = Vec::new();
                        for chunk in &chunks {
                            if chunk
                                .cover
                                .region()
                                .is_some_and(|cover| strip.bounds().intersect(cover).is_some())
                            {
                                wanted.push(chunk.id);
                            }
                        }
                        assert_eq!(found, wanted, "{chunk:?} {strip:?}");
                    }
                }
            }
        }
    }
}
