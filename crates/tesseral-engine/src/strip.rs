//! Painting chunks whose bytes are the cells, strip by strip of the result.
//!
//! A chunk touches many places of a large result; painting chunk after chunk, each page and cache line of the result comes
//! and goes once per chunk that touches it, and memory fresh from the kernel is cleared long before it is painted. A strip
//! is a run of the result that fits a core's cache: it is painted from every chunk that touches it, then left for good.
//! Strips are slices of the result that follow one another, so threads share nothing.

use std::ops::Range;

use rayon::prelude::*;
use smallvec::SmallVec;
use tesseral_core::{Error, Result, Selection};
use tesseral_format::{Access, PlannedChunk};

use crate::budget::Blocks;
use crate::chunk::ChunkCells;
use crate::dense::Prepared;
use crate::fetch::Source;
use crate::handle::Handle;
use crate::kernel::copy::Walk;
use crate::options::Options;
use crate::sink::row_major;

/// Bytes of a strip: half a core's second-level cache, the rest is for what is read.
const STRIP: u64 = 1 << 20;
/// Smaller results do not leave the caches anyway.
const LARGE: u64 = 8 << 20;
/// Visits of a chunk that copy less than this on average cost more than they save.
const VISIT: u64 = 4 << 10;

/// A run of the result and the chunks that touch it.
struct Strip<'a> {
    selection: Selection,
    chunks: Range<usize>,
    out: &'a mut [u8],
}

/// Paints the result if it is large and made of plain chunks in reach; says whether it did.
pub(crate) fn paint(
    handle: &Handle,
    prepared: &Prepared,
    values: &mut [u8],
    options: &Options,
) -> Result<bool> {
    let Prepared { plan, groups, selection, field, size, bytes, resident, .. } = prepared;
    let plain =
        |chunk: &PlannedChunk| matches!(chunk.access, Access::Direct { swapped } if !swapped || *size == 1);
    let (Some(resident), Ok(true)) = (resident, usize::try_from(*bytes).map(|n| n == values.len())) else {
        return Ok(false);
    };
    let nullable = handle.schema().fields[usize::from(*field)].nullable;
    if *bytes < LARGE || nullable || !groups.apart() || !plan.chunks.iter().all(plain) {
        return Ok(false);
    }
    let Some(strips) = cut(&plan.chunks, selection, *size, values) else { return Ok(false) };
    let source = Source::Resident(resident);
    let ticker = options.ticker(strips.len() as u64);
    options.run(|| {
        // Each chunk is met in many strips: its digests are checked before, once.
        plan.chunks.par_iter().try_for_each(|chunk| {
            options.cancel.check()?;
            let check = || match chunk.cover.region().and_then(|cover| selection.clip(cover)) {
                Some((part, _)) => {
                    let cells = ChunkCells::new(handle, chunk, *field, *size)?;
                    source.plain(handle, chunk, cells.column, || cells.touched(&part)).map(drop)
                }
                None => Ok(()),
            };
            check().map_err(|e| handle.locate(chunk, e))
        })?;
        strips.into_par_iter().try_for_each(|strip| {
            let Strip { selection, chunks, out } = strip;
            for chunk in &plan.chunks[chunks] {
                paint_chunk(handle, chunk, *field, *size, &source, &selection, out)
                    .map_err(|e| handle.locate(chunk, e))?;
            }
            ticker.tick()
        })
    })?;
    Ok(true)
}

/// Cuts the result into strips; `None` where they would not pay.
fn cut<'a>(
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

/// The chunks that a strip touches. A strip takes single positions of its first dimensions, a run of the next and all of
/// the others, and chunks come in row-major order: those it touches follow one another.
fn touched(chunks: &[PlannedChunk], strip: &Selection) -> Range<usize> {
    let bounds = strip.bounds();
    let before = |chunk: &PlannedChunk| {
        let cover = chunk.cover.region()?;
        // The first dimension in which chunk and strip do not meet decides.
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
    source: &Source<'_>,
    strip: &Selection,
    out: &mut [u8],
) -> Result<()> {
    let Some((part, region)) = chunk.cover.region().and_then(|cover| strip.clip(cover)) else {
        return Ok(());
    };
    let cells = ChunkCells::new(handle, chunk, field, size)?;
    let plain = source.plain(handle, chunk, cells.column, || cells.touched(&part))?;
    let direct =
        cells.direct(plain.ok_or_else(|| Error::invalid("a chunk of one plain part was planned"))?, &part)?;
    let strides = row_major(&strip.shape(), size);
    // Within the strip, whose bytes are a slice.
    let addressable = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let extents: SmallVec<[usize; 4]> = region.shape().iter().map(|&n| addressable(n)).collect();
    let start: usize = region.bounds().iter().zip(&strides).map(|(b, s)| addressable(b.0) * s).sum();
    let walk = Walk::new(&direct.placement.strides, &strides, &extents, size)?;
    let outside = || Error::invalid("a copy leaves its strip");
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
