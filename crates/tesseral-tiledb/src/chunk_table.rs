//! Where the chunks of a filtered tile begin, so that a run of its cells is read without the others.
//!
//! Where the fragment carries digests, the blocks that hold the lengths are compared with theirs before the lengths are used: a
//! wrong length would move every cell behind it.
//!
//! ```text
//! tile    u64 number of chunks | chunk …
//! chunk   u32 bytes before filtering | u32 filtered bytes | u32 metadata bytes | metadata | filtered bytes
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tesseral_core::{Error, Result};
use tesseral_format::{DigestSpan, Part};
use tesseral_store::{Store, StoreExt};

use crate::fragment::check_blocks;

/// Tables of tiles that are kept.
const KEPT: usize = 64;
/// Bytes of the count in front of the chunks, and of the lengths in front of each.
const COUNT: u64 = 8;
const LENGTHS: u64 = 12;

/// The chunks of one tile. Each entry is where a chunk begins: its first unfiltered byte, and where it lies in the file.
#[derive(Debug)]
pub(crate) struct ChunkTable {
    starts: Vec<(u64, u64)>,
    /// Unfiltered bytes in all, and the end of the last chunk in the file.
    end: (u64, u64),
}

impl ChunkTable {
    /// Reads the lengths in front of each chunk of a tile: they alone, or the blocks that hold them where there are `digests`.
    fn read(store: &dyn Store, object: &str, part: &Part, digests: Option<&DigestSpan<'_>>) -> Result<Self> {
        let last = part.offset.saturating_add(part.len);
        let corrupt = |at: u64, detail: String| Error::corrupt("a tile", store.describe(object), at, detail);
        let mut held = (0..0, Bytes::new());
        let mut read = |range: Range<u64>| {
            if range.end > last {
                return Err(corrupt(
                    range.start,
                    format!("{} bytes are left", last.saturating_sub(range.start)),
                ));
            }
            let Some(span) = digests else { return store.read(object, range) };
            if range.start < held.0.start || held.0.end < range.end {
                let blocks = || span.blocks(&range);
                let start = blocks().next().map_or(range.start, |(_, block, _)| block.start);
                let end = blocks().last().map_or(range.end, |(_, block, _)| block.end);
                held = (start..end, store.read(object, start..end)?);
                check_blocks(store, object, span, start, &held.1)?;
            }
            let at = |n: u64| usize::try_from(n - held.0.start).unwrap_or(usize::MAX);
            let lengths = at(range.start)..at(range.end);
            if lengths.end > held.1.len() {
                return Err(corrupt(range.start, "its digests do not cover it".to_owned()));
            }
            Ok(held.1.slice(lengths))
        };
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        let count = number(&read(part.offset..part.offset.saturating_add(COUNT))?);
        if count > part.len / LENGTHS {
            return Err(corrupt(part.offset, format!("{count} chunks do not fit in {} bytes", part.len)));
        }
        let (mut starts, mut end) = (Vec::new(), (0_u64, part.offset + COUNT));
        for _ in 0..count {
            let lengths = read(end.1..end.1.saturating_add(LENGTHS))?;
            let [original, filtered, metadata] = [0, 4, 8].map(|at| number(&lengths[at..at + 4]));
            starts.push(end);
            end = (end.0.saturating_add(original), end.1.saturating_add(LENGTHS + filtered + metadata));
        }
        if end.1 != last {
            return Err(corrupt(end.1, format!("the chunks of a tile end here, not at byte {last}")));
        }
        Ok(Self { starts, end })
    }

    /// Where the chunks lie in the file that hold a range of unfiltered bytes; `None` when those are all chunks, or the tile is
    /// shorter.
    pub(crate) fn span(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let first = self.starts.partition_point(|start| start.0 <= bytes.start).checked_sub(1)?;
        let behind = self.starts.partition_point(|start| start.0 < bytes.end);
        if bytes.end > self.end.0 || behind - first == self.starts.len() {
            return None;
        }
        Some(self.starts[first].1..self.starts.get(behind).map_or(self.end.1, |start| start.1))
    }

    /// Unfiltered bytes of all chunks.
    pub(crate) fn unfiltered(&self) -> u64 {
        self.end.0
    }

    /// The first unfiltered byte of the chunk that begins at a byte of the file.
    pub(crate) fn base(&self, offset: u64) -> Option<u64> {
        let found = self.starts.binary_search_by_key(&offset, |start| start.1).ok()?;
        Some(self.starts[found].0)
    }
}

/// Tables that were read, by object and offset of the tile.
#[derive(Debug, Default)]
pub(crate) struct ChunkTables(Mutex<HashMap<(u32, u64), Arc<ChunkTable>>>);

impl ChunkTables {
    /// The table of a tile, read when it is first asked for.
    pub(crate) fn get(
        &self,
        store: &dyn Store,
        object: &str,
        part: &Part,
        digests: Option<&DigestSpan<'_>>,
    ) -> Result<Arc<ChunkTable>> {
        let key = (part.object, part.offset);
        if let Some(table) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(ChunkTable::read(store, object, part, digests)?);
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.len() >= KEPT {
            tables.clear();
        }
        tables.insert(key, Arc::clone(&table));
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_format::{Column, Role};
    use tesseral_store::MemoryStore;

    fn tile(chunks: &[&[u8]]) -> Vec<u8> {
        let mut tile = (chunks.len() as u64).to_le_bytes().to_vec();
        for chunk in chunks {
            let len = u32::try_from(chunk.len()).unwrap();
            [len, len, 0].iter().for_each(|n| tile.extend_from_slice(&n.to_le_bytes()));
            tile.extend_from_slice(chunk);
        }
        tile
    }

    fn read(bytes: Vec<u8>) -> Result<ChunkTable> {
        let store = MemoryStore::new("tiles");
        let len = bytes.len() as u64;
        store.insert("f", [vec![9; 5], bytes].concat());
        let part = Part { column: Column::Field(0), role: Role::Values, object: 0, offset: 5, len };
        ChunkTable::read(&store, "f", &part, None)
    }

    #[test]
    fn a_range_of_bytes_is_found_in_its_chunks() {
        let table = read(tile(&[&[1; 10], &[2; 10], &[3; 4]])).unwrap();
        let starts = [13, 13 + 22, 13 + 44];
        assert_eq!(table.span(&(0..10)), Some(starts[0]..starts[1]));
        assert_eq!(table.span(&(10..11)), Some(starts[1]..starts[2]));
        assert_eq!(table.span(&(9..11)), Some(starts[0]..starts[2]));
        assert_eq!(table.span(&(12..24)), Some(starts[1]..starts[2] + 16));
        assert_eq!(table.span(&(0..24)), None);
        assert_eq!(table.span(&(20..25)), None);
        assert_eq!(table.base(starts[1]), Some(10));
        assert_eq!(table.base(starts[1] + 1), None);
    }

    #[test]
    fn lengths_that_leave_the_tile_are_damage() {
        let whole = tile(&[&[1; 10], &[2; 10]]);
        for len in 0..whole.len() {
            assert!(read(whole[..len].to_vec()).is_err(), "{len}");
        }
        for at in 0..20 {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            assert!((8..12).contains(&at) || read(bytes).is_err(), "{at}");
        }
    }
}
