//! Pruning of sparse tiles by the global order of cells.
//!
//! The cells of a fragment are sorted by the space tiles of the domain, and divided into data tiles of `capacity` cells. A data
//! tile that spans the end of one row of space tiles and the start of the next has a box as wide as the domain, although it
//! contains cells at both edges only. The adjacent data tiles give tighter bounds: no cell of a tile precedes the last one of
//! the previous tile or follows the first one of the next.

use smallvec::SmallVec;
use tesseral_core::Scalar;
use tesseral_format::CoordinateRanges;

use crate::fragment::Bounds;
use crate::geometry::integer;
use crate::wire::schema::{CellLayout, Schema};

/// A space tile: its indexes along the dimensions, slowest-varying first.
type DomainTile = SmallVec<[i128; 4]>;

/// Order of cells, and the space tiles that a read requests.
pub(crate) struct GlobalOrder {
    /// Index, first coordinate and tile extent of each dimension, slowest-varying first.
    dims: SmallVec<[(usize, i128, i128); 4]>,
    /// First and last requested space tile along each of them.
    asked: SmallVec<[(i128, i128); 4]>,
}

impl GlobalOrder {
    /// `None` if cells are sorted in another way, or no tile can be pruned.
    pub(crate) fn new(schema: &Schema, ranges: &[CoordinateRanges]) -> Option<Self> {
        if schema.cell_order == CellLayout::Hilbert || schema.tile_order == CellLayout::Hilbert {
            return None;
        }
        let mut dims = SmallVec::new();
        for (d, dim) in schema.dims.iter().enumerate() {
            let low = integer(dim.datatype, &dim.domain.as_ref()?.0)?;
            let extent = integer(dim.datatype, dim.extent.as_ref()?).filter(|extent| *extent > 0)?;
            dims.push((d, low, extent));
        }
        if schema.tile_order == CellLayout::ColMajor {
            dims.reverse();
        }
        let mut order = Self { dims, asked: SmallVec::new() };
        for &(d, low, extent) in &order.dims {
            let ends = ranges.get(d)?;
            let first = ends.iter().map(|(from, _)| from.as_i128()).collect::<Option<Vec<_>>>()?;
            let last = ends.iter().map(|(_, to)| to.as_i128()).collect::<Option<Vec<_>>>()?;
            let tile = |at: &i128| at.saturating_sub(low).div_euclid(extent);
            let first = first.iter().min().map_or(i128::MIN, tile);
            order.asked.push((first, last.iter().max().map_or(i128::MAX, tile)));
        }
        order.asked.iter().any(|ends| *ends != (i128::MIN, i128::MAX)).then_some(order)
    }

    /// First and last space tile that a box touches along each dimension.
    fn tiles(&self, bounds: &Bounds) -> Option<SmallVec<[(i128, i128); 4]>> {
        let tile = |end: &Scalar, low: i128, extent: i128| {
            Some(end.as_i128()?.saturating_sub(low).div_euclid(extent))
        };
        let ends = self.dims.iter().map(|&(d, low, extent)| {
            let (from, to) = bounds.get(d)?;
            Some((tile(from, low, extent)?, tile(to, low, extent)?))
        });
        ends.collect()
    }

    /// Returns whether a tile of a fragment can contain a requested cell. `boxes` are those of all its tiles, in order.
    pub(crate) fn may_hold(&self, boxes: &[Bounds], tile: usize) -> bool {
        self.reaches(boxes, tile).unwrap_or(true)
    }

    /// `None` if it cannot be decided.
    fn reaches(&self, boxes: &[Bounds], tile: usize) -> Option<bool> {
        let own = self.tiles(boxes.get(tile)?)?;
        let before = tile.checked_sub(1).and_then(|i| boxes.get(i)).and_then(|b| self.tiles(b));
        let after = boxes.get(tile + 1).and_then(|b| self.tiles(b));
        let first: DomainTile = own.iter().map(|ends| ends.0).collect();
        let last: DomainTile = own.iter().map(|ends| ends.1).collect();
        let first = before.map_or(first.clone(), |b| first.max(reached(&b, |ends| (ends.1, ends.0))));
        let last = after.map_or(last.clone(), |b| last.min(reached(&b, |ends| (ends.0, ends.1))));
        let wanted: SmallVec<[(i128, i128); 4]> = own
            .iter()
            .zip(&self.asked)
            .map(|(own, asked)| (own.0.max(asked.0), own.1.min(asked.1)))
            .collect();
        if wanted.iter().any(|ends| ends.0 > ends.1) {
            return Some(false);
        }
        Some(next(&wanted, &first).is_some_and(|place| place <= last))
    }
}

/// Returns a position that the cells of a box reach with certainty: boxes are tight, so a cell is at the far end of the first
/// dimension, and if that is one tile deep, a cell is at the far end of the second, and so on. Unknown indexes use the near
/// end. `ends` returns the far and the near end.
fn reached(tiles: &[(i128, i128)], ends: impl Fn(&(i128, i128)) -> (i128, i128)) -> DomainTile {
    let mut certain = true;
    let tile_end = |tile: &(i128, i128)| {
        let (far, near) = ends(tile);
        let known = certain;
        certain &= far == near;
        if known { far } else { near }
    };
    tiles.iter().map(tile_end).collect()
}

/// Returns the first position of a box that does not precede `from`.
fn next(wanted: &[(i128, i128)], from: &[i128]) -> Option<DomainTile> {
    let mut place = DomainTile::from_slice(from);
    for d in 0..wanted.len() {
        let (low, high) = wanted[d];
        if from[d] < low {
            (d..wanted.len()).for_each(|e| place[e] = wanted[e].0);
            return Some(place);
        }
        if from[d] > high {
            // Advance along the last dimension before this one that is not at its end.
            let turned = (0..d).rev().find(|&e| from[e] < wanted[e].1)?;
            place[turned] += 1;
            (turned + 1..wanted.len()).for_each(|e| place[e] = wanted[e].0);
            return Some(place);
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For random fragments, no tile with a requested cell is pruned, and some others are.
    #[test]
    fn only_tiles_without_a_requested_cell_are_pruned() {
        let mut state = 3_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((state >> 33) % below).unwrap()
        };
        let mut spared = 0;
        for case in 0..400 {
            let extents = [1 + random(6), 1 + random(6)];
            let reversed = case % 2 == 1;
            let dims: [usize; 2] = if reversed { [1, 0] } else { [0, 1] };
            let mut cells: Vec<[i64; 2]> = (0..80).map(|_| [random(30) - 7, random(30) - 7]).collect();
            let place = |cell: &[i64; 2]| dims.map(|d| (cell[d] + 7).div_euclid(extents[d]));
            cells.sort_by_key(|cell| (place(cell), *cell));
            let tiles: Vec<&[[i64; 2]]> = cells.chunks(9).collect();
            let around = |tile: &&[[i64; 2]]| -> Bounds {
                let end = |d: usize| {
                    let low = tile.iter().map(|c| c[d]).min().unwrap();
                    let high = tile.iter().map(|c| c[d]).max().unwrap();
                    (Scalar::from_element(low), Scalar::from_element(high))
                };
                Box::new([end(0), end(1)])
            };
            let boxes: Vec<Bounds> = tiles.iter().map(around).collect();
            let asked: [(i64, i64); 2] = std::array::from_fn(|_| {
                let from = random(30) - 7;
                (from, from + random(9))
            });
            let tile = |at: i64, d: usize| i128::from((at + 7).div_euclid(extents[d]));
            let order = GlobalOrder {
                dims: dims.iter().map(|&d| (d, -7, i128::from(extents[d]))).collect(),
                asked: dims.iter().map(|&d| (tile(asked[d].0, d), tile(asked[d].1, d))).collect(),
            };
            for (i, cells) in tiles.iter().enumerate() {
                let inside = |c: &[i64; 2]| (0..2).all(|d| (asked[d].0..=asked[d].1).contains(&c[d]));
                let meets = (0..2).all(|d| {
                    let (low, high) = &boxes[i][d];
                    low.as_i128() <= Some(asked[d].1.into()) && high.as_i128() >= Some(asked[d].0.into())
                });
                let kept = order.may_hold(&boxes, i);
                assert!(kept || !cells.iter().any(inside), "case {case}, tile {i}");
                spared += usize::from(meets && !kept);
            }
        }
        assert!(spared > 50, "{spared}");
    }
}
