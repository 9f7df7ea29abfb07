//! Merging of rows of several chunks: sorted, deduplicated if required, and gathered column by column.
//!
//! Coordinates are mapped to unsigned numbers of the same order. If those of all dimensions fit into 64 bits together, as
//! usual, rows are sorted by one number each; otherwise they are compared dimension by dimension.

use std::cmp::Ordering;

use rayon::prelude::*;
use tesseral_core::{Error, Result};
use tesseral_format::Column;

use super::rows::{ChunkRows, SortKeys, extra_fields};
use super::{CellBatch, CellOrder, CellRead};
use crate::decode::columns::Cells;

/// A row: sort key, index of its part, index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    key: u64,
    part: u32,
    at: u32,
}

pub(super) enum MergeResult {
    Batch(CellBatch),
    /// Several cells at one position, and not every field was read to order them.
    Ties,
}

pub(super) struct Merge<'a> {
    pub query: &'a CellRead,
    pub parts: Vec<ChunkRows>,
    /// Duplicates are resolved: the newest is kept.
    pub settles: bool,
}

impl Merge<'_> {
    pub(super) fn run(mut self) -> Result<MergeResult> {
        self.parts.retain(|part| part.rows > 0);
        let total: usize = self.parts.iter().map(|part| part.rows).sum();
        if total > u32::MAX as usize {
            return Err(Error::limit("rows", total as u64, u64::from(u32::MAX)));
        }
        if !self.settles && self.query.order == CellOrder::Stored {
            return Ok(MergeResult::Batch(self.join(total)));
        }
        let packing = KeyPacking::new(&self.parts);
        let mut rows = self.list(packing.as_ref(), total);
        let ordered = |a: &RowKey, b: &RowKey| packing.is_some() && a.key < b.key;
        if rows.is_sorted_by(ordered) {
            // Ascending keys: already sorted, and no duplicates.
            if self.parts.iter().all(|part| part.alive.is_none()) {
                return Ok(MergeResult::Batch(self.join(total)));
            }
        } else {
            match &packing {
                Some(_) => rows.par_sort_unstable(),
                None => rows.par_sort_unstable_by(|a, b| self.compare(a, b).then_with(|| a.cmp(b))),
            }
            let same = |a: &RowKey, b: &RowKey| match &packing {
                Some(_) => a.key == b.key,
                None => self.compare(a, b).is_eq(),
            };
            if self.settles {
                self.newest(&mut rows, same);
            } else if rows.is_sorted_by(|a, b| !same(a, b)) {
                // No ties.
            } else if self.query.ties || self.all_fields_asked() {
                self.settle_ties(&mut rows, same);
            } else {
                return Ok(MergeResult::Ties);
            }
        }
        rows.retain(|row| {
            self.parts[row.part as usize].alive.as_ref().is_none_or(|alive| alive[row.at as usize] != 0)
        });
        Ok(MergeResult::Batch(self.gather(rows)))
    }

    fn list(&self, packing: Option<&KeyPacking>, total: usize) -> Vec<RowKey> {
        let mut rows = Vec::with_capacity(total);
        for (number, part) in (0_u32..).zip(&self.parts) {
            match packing {
                Some(packing) => {
                    rows.extend((0_u32..).zip(packing.keys(part)).map(|(at, key)| RowKey {
                        key,
                        part: number,
                        at,
                    }));
                }
                // The first dimension, or its prefix, decides most comparisons.
                None => rows.extend((0_u32..).take(part.rows).map(|at| {
                    let key = part.keys.first().map_or(0, |keys| leading(keys, at));
                    RowKey { key, part: number, at }
                })),
            }
        }
        rows
    }

    fn compare(&self, a: &RowKey, b: &RowKey) -> Ordering {
        let leading = a.key.cmp(&b.key);
        if leading.is_ne() {
            return leading;
        }
        let (left, right) = (&self.parts[a.part as usize].keys, &self.parts[b.part as usize].keys);
        for pair in left.iter().zip(right) {
            let order = match pair {
                (SortKeys::Numbers(x), SortKeys::Numbers(y)) => x[a.at as usize].cmp(&y[b.at as usize]),
                (SortKeys::Text(x), SortKeys::Text(y)) => x.get(a.at as usize).cmp(y.get(b.at as usize)),
                _ => Ordering::Equal,
            };
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }

    /// Keeps the newest row of each position: highest layer, then latest timestamp, then last stored.
    fn newest(&self, rows: &mut Vec<RowKey>, same: impl Fn(&RowKey, &RowKey) -> bool) {
        let age = |row: &RowKey| {
            let part = &self.parts[row.part as usize];
            let time = part.times.as_ref().map_or(0, |times| times[row.at as usize]);
            (part.layer, time, row.part, row.at)
        };
        rows.dedup_by(|later, kept| {
            let equal = same(later, kept);
            if equal && age(later) > age(kept) {
                *kept = *later;
            }
            equal
        });
    }

    fn all_fields_asked(&self) -> bool {
        extra_fields(self.query) == 0
    }

    /// Sorts rows of one position by the bytes of their fields in schema order, nulls as zeros; then by validity.
    fn settle_ties(&self, rows: &mut [RowKey], same: impl Fn(&RowKey, &RowKey) -> bool) {
        let places: Vec<usize> = (0_u16..)
            .take(self.query.schema().fields.len())
            .filter_map(|f| self.query.columns.iter().position(|c| *c == Column::Field(f)))
            .collect();
        let zeros = |cells: &Cells, at: usize| vec![0; cells.get(at).len().min(cells.fixed_size())];
        let key = |row: &RowKey| -> (Vec<Vec<u8>>, Vec<bool>) {
            let cells = places.iter().map(|&p| &self.parts[row.part as usize].columns[p]);
            let at = row.at as usize;
            cells
                .map(|c| (if c.is_valid(at) { c.get(at).to_vec() } else { zeros(c, at) }, c.is_valid(at)))
                .unzip()
        };
        for tied in rows.chunk_by_mut(|a, b| same(a, b)).filter(|tied| tied.len() > 1) {
            tied.sort_by_cached_key(key);
        }
    }

    /// Concatenates all rows. Inputs are dropped column by column: only one column is in memory twice.
    fn join(mut self, total: usize) -> CellBatch {
        let asked = &self.query.request.columns;
        if let [one] = self.parts.as_mut_slice() {
            let columns = std::mem::take(&mut one.columns);
            return CellBatch { rows: total, columns: asked.iter().copied().zip(columns).collect() };
        }
        let mut batch = CellBatch::empty(self.query.schema(), asked);
        batch.rows = total;
        if self.parts.is_empty() {
            return batch;
        }
        for (place, (_, joined)) in batch.columns.iter_mut().enumerate() {
            let columns = self.parts.iter_mut().map(|part| std::mem::take(&mut part.columns[place]));
            *joined = Cells::concat(columns.collect());
        }
        batch
    }

    /// Gathers these rows. Inputs are dropped before more is allocated.
    fn gather(mut self, rows: Vec<RowKey>) -> CellBatch {
        if self.parts.is_empty() {
            return CellBatch::empty(self.query.schema(), &self.query.request.columns);
        }
        self.parts.iter_mut().for_each(|part| part.keys = Vec::new());
        let places: Vec<(u32, u32)> = rows.into_iter().map(|row| (row.part, row.at)).collect();
        let asked = self.query.request.columns.iter().copied().enumerate();
        let columns = asked.map(|(place, column)| {
            let cells: Vec<Cells> =
                self.parts.iter_mut().map(|part| std::mem::take(&mut part.columns[place])).collect();
            (column, Cells::interleave(&cells.iter().collect::<Vec<_>>(), &places))
        });
        let columns = columns.collect();
        CellBatch { rows: places.len(), columns }
    }
}

/// Sort key of a row's first coordinate, or the first bytes of a text.
fn leading(keys: &SortKeys, at: u32) -> u64 {
    match keys {
        SortKeys::Numbers(keys) => keys[at as usize],
        SortKeys::Text(cells) => {
            let cell = cells.get(at as usize);
            let mut bytes = [0; 8];
            let len = cell.len().min(8);
            bytes[..len].copy_from_slice(&cell[..len]);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Packing of the coordinates of all dimensions into one number: each relative to its minimum.
struct KeyPacking {
    /// Minimum key and shift of each dimension.
    places: Vec<(u64, u32)>,
}

impl KeyPacking {
    fn new(parts: &[ChunkRows]) -> Option<Self> {
        let dims = parts.first()?.keys.len();
        let mut ranges = vec![(u64::MAX, 0_u64); dims];
        for part in parts {
            for (range, keys) in ranges.iter_mut().zip(&part.keys) {
                let SortKeys::Numbers(keys) = keys else { return None };
                for &key in keys {
                    *range = (range.0.min(key), range.1.max(key));
                }
            }
        }
        let mut places = vec![(0, 0); dims];
        let mut used = 0;
        for (place, (low, high)) in places.iter_mut().zip(&ranges).rev() {
            *place = (*low, used);
            used += 64 - high.checked_sub(*low)?.leading_zeros();
        }
        (used <= 64).then_some(Self { places })
    }

    fn keys(&self, part: &ChunkRows) -> Vec<u64> {
        let mut out = vec![0; part.rows];
        for (&(low, shift), keys) in self.places.iter().zip(&part.keys) {
            // All parts have numeric coordinates. A shift of 64 occurs only with a dimension of one coordinate.
            if let (SortKeys::Numbers(keys), true) = (keys, shift < 64) {
                out.iter_mut().zip(keys).for_each(|(out, key)| *out |= (key - low) << shift);
            }
        }
        out
    }
}
