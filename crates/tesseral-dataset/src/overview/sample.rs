//! Samples of large selections: evenly spread chunks.

use tesseral_core::{Error, Result, Selection, Slice};
use tesseral_format::Access;

use crate::Array;

/// Minimum cost of reading a block in bytes, because requests and plans take time too.
const BLOCK: u64 = 16 << 10;
/// Bytes that reading one cell of uncompressed chunks touches: a page of a file.
const PAGE: u64 = 4 << 10;

/// Positions to read along each drawn dimension, in ascending order: the whole slice, if everything fits the bytes.
pub(super) fn slices(
    array: &Array,
    selection: &Selection,
    dims: &[usize],
    bytes: u64,
) -> Result<Vec<Vec<Slice>>> {
    let whole = || dims.iter().map(|d| vec![selection.slices()[*d]]).collect::<Vec<_>>();
    let schema = array.schema();
    let field = array.selected_field();
    let size = field.cell_size().unwrap_or(1).max(1) as u64;
    let Some(shape) = schema.shape() else { return Ok(whole()) };
    let chunk = schema.grid().map_or_else(|_| shape.clone(), |grid| grid.chunk_shape().into());
    let product = |extents: &mut dyn Iterator<Item = u64>| extents.fold(1_u64, u64::saturating_mul);
    let chunk_bytes = product(&mut chunk.iter().copied()).saturating_mul(size);
    let touched = |d: usize, extent: u64| {
        let slice = selection.slices()[d];
        if slice.count() == 0 { 0 } else { (slice.tight_end() - 1) / extent - slice.start / extent + 1 }
    };
    let chunks = product(&mut (0..shape.len()).map(|d| touched(d, chunk[d].max(1))));
    // Cells of uncompressed chunks are read one by one: blocks of them can be smaller than a chunk.
    let direct = field.codecs.is_empty() && reads_ranges(array, selection)?;
    let last = shape.len().saturating_sub(1);
    let extent = |d: &usize| match direct {
        false => chunk[*d].max(1),
        true if *d == last => (BLOCK / size).clamp(1, chunk[*d].max(1)),
        true => 1,
    };
    let extents: Vec<u64> = dims.iter().map(extent).collect();
    let along_last = dims.iter().zip(&extents).find(|(d, _)| **d == last).map_or(1, |(_, extent)| *extent);
    let cost = if direct { along_last.saturating_mul(size).max(PAGE) } else { chunk_bytes.max(BLOCK) };
    let counts: Vec<u64> = dims.iter().zip(&extents).map(|(d, extent)| touched(*d, *extent)).collect();
    let total = product(&mut counts.iter().copied()).saturating_mul(cost);
    if total.min(chunks.saturating_mul(chunk_bytes)) <= bytes {
        return Ok(whole());
    }
    let mut room = (bytes / cost.max(1)).max(1);
    let mut kept = vec![1_u64; counts.len()];
    // The shortest axis first: what it does not need is left to the other one.
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|axis| counts[*axis]);
    for (done, axis) in order.iter().enumerate() {
        let share = if order.len() - done > 1 { room.isqrt() } else { room };
        kept[*axis] = counts[*axis].min(share.max(1));
        room /= kept[*axis].max(1);
    }
    let axes = dims.iter().enumerate();
    axes.map(|(axis, d)| spread(selection.slices()[*d], extents[axis], counts[axis], kept[axis]))
        .collect::<Result<_>>()
        .map_err(|e| e.in_array(array.name()))
}

/// Whether cells are read without the rest of their chunk, as the first one shows.
fn reads_ranges(array: &Array, selection: &Selection) -> Result<bool> {
    let first = selection.slices().iter().map(|slice| Slice::new(slice.start, slice.start.saturating_add(1)));
    let bounds: Vec<u64> = selection.slices().iter().map(|slice| slice.end).collect();
    if selection.slices().iter().any(|slice| slice.count() == 0) {
        return Ok(true);
    }
    let request = array.request(&Selection::new(first, &bounds)?);
    let plan = array.handle().guarded(|| array.handle().plan(&request))?;
    Ok(plan.chunks.iter().all(|chunk| chunk.access != Access::Coded { granule: None }))
}

/// The bytes to decode: fewer if much less is stored, as a small sample shows.
pub(super) fn allowed(array: &Array, selection: &Selection, dims: &[usize], bytes: u64) -> Result<u64> {
    let free = array.handle().limits().total_expansion;
    let size = array.selected_field().cell_size().unwrap_or(1).max(1) as u64;
    let wanted = selection.cells().unwrap_or(u64::MAX).saturating_mul(size);
    if wanted.min(bytes) <= free {
        return Ok(bytes);
    }
    let few = slices(array, selection, dims, free)?;
    let parts: Vec<_> = boxes(selection, dims, &few)?.iter().map(|part| array.request(part)).collect();
    Ok(bytes.min(tesseral_engine::allowed_bytes(array.handle(), selection, &parts)?))
}

/// `kept` of `count` blocks along an axis, evenly spread.
fn spread(slice: Slice, extent: u64, count: u64, kept: u64) -> Result<Vec<Slice>> {
    if kept >= count {
        return Ok(vec![slice]);
    }
    let overflow = || Error::invalid("the positions of a selection are too large");
    if extent == 1 {
        let step = slice.count().div_ceil(kept.max(1)).max(1);
        return Ok(vec![Slice { step: slice.step.checked_mul(step).ok_or_else(overflow)?, ..slice }]);
    }
    let first = slice.start / extent;
    let mut out = Vec::new();
    for i in 0..kept {
        // The middle of the blocks that it represents.
        let block = (2 * u128::from(i) + 1) * u128::from(count) / (2 * u128::from(kept));
        let block = first + u64::try_from(block).map_err(|_| overflow())?;
        let start = block.checked_mul(extent).ok_or_else(overflow)?;
        let (part, _) = slice.clip(start, start.saturating_add(extent));
        if part.count() > 0 {
            out.push(part);
        }
    }
    Ok(if out.is_empty() { vec![slice] } else { out })
}

/// The boxes of all combinations of samples.
pub(super) fn boxes(selection: &Selection, dims: &[usize], sampled: &[Vec<Slice>]) -> Result<Vec<Selection>> {
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    let (rows, columns) = (sampled.first().map_or(1, Vec::len), sampled.get(1).map_or(1, Vec::len));
    let mut out = Vec::with_capacity(rows.saturating_mul(columns).min(1 << 16));
    for row in 0..rows {
        for column in 0..columns {
            let mut slices = selection.slices().to_vec();
            for ((d, list), at) in dims.iter().zip(sampled).zip([row, column]) {
                slices[*d] = list[at];
            }
            out.push(Selection::new(slices, &bounds)?);
        }
    }
    Ok(out)
}

/// For each point along an axis, the nearest one that a sample belongs to.
pub(super) fn nearest(slices: &[Slice], whole: Slice, points: usize) -> Vec<usize> {
    if slices == [whole] {
        return (0..points).collect();
    }
    let (count, all) = (u128::from(whole.count().max(1)), points as u128);
    let mut covered: Vec<usize> = Vec::new();
    for slice in slices {
        let first = u128::from((slice.start - whole.start) / whole.step);
        let step = u128::from((slice.step / whole.step).max(1));
        let end = first + u128::from(slice.count()) * step;
        let mut at = first;
        while at < end {
            let point = at * all / count;
            let index = usize::try_from(point).unwrap_or(usize::MAX).min(points.saturating_sub(1));
            if covered.last() != Some(&index) {
                covered.push(index);
            }
            // The next sampled position of another point.
            let next = ((point + 1) * count).div_ceil(all.max(1)).max(at + 1);
            at = first + (next - first).div_ceil(step) * step;
        }
    }
    (0..points)
        .map(|point| {
            let after = covered.partition_point(|c| *c < point);
            let around = [after.checked_sub(1), Some(after)].into_iter().flatten();
            let known = around.filter_map(|i| covered.get(i));
            known.min_by_key(|c| c.abs_diff(point)).copied().unwrap_or(point)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_and_inside() {
        let slice = Slice { start: 5, end: 1005, step: 1 };
        let found = spread(slice, 100, 11, 3).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|s| s.start >= 5 && s.tight_end() <= 1005 && s.count() <= 100));
        assert!(found.windows(2).all(|pair| pair[0].tight_end() <= pair[1].start));
        assert_eq!(spread(slice, 100, 11, 11).unwrap(), [slice]);
        let [stepped] = spread(slice, 1, 1000, 10).unwrap()[..] else { panic!() };
        assert_eq!((stepped.step, stepped.count()), (100, 10));
    }

    #[test]
    fn every_point_has_a_sample_nearby() {
        let whole = Slice { start: 0, end: 1000, step: 1 };
        assert_eq!(nearest(&[whole], whole, 4), [0, 1, 2, 3]);
        let parts = [Slice::new(100, 200), Slice::new(700, 800)];
        assert_eq!(nearest(&parts, whole, 10), [1, 1, 1, 1, 1, 7, 7, 7, 7, 7]);
        let stepped = [Slice { start: 0, end: 1000, step: 300 }];
        assert_eq!(nearest(&stepped, whole, 10), [0, 0, 3, 3, 3, 6, 6, 6, 9, 9]);
    }
}
