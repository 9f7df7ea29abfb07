//! Starts of the chunks of a filtered tile, to read a run of its cells without the others.
//!
//! ```text
//! tile    u64 number of chunks | chunk …
//! chunk   u32 bytes before filtering | u32 filtered bytes | u32 metadata bytes | metadata | filtered bytes
//! ```

use std::ops::Range;

use bytes::Bytes;
use tesseral_core::{Error, Result};

/// Size of the count before the chunks, and of the lengths before each chunk.
const COUNT: u64 = 8;
const LENGTHS: u64 = 12;

/// The chunks of one tile. Each entry is where a chunk begins: its first unfiltered byte, and where it lies in the file.
#[derive(Debug)]
pub struct ChunkTable {
    starts: Vec<(u64, u64)>,
    /// Unfiltered bytes in all, and the end of the last chunk in the file.
    end: (u64, u64),
}

impl ChunkTable {
    /// Parses the lengths before each chunk of a tile, which are read one after another: `read` returns the bytes of a range of
    /// the file, which lies inside the tile.
    ///
    /// # Errors
    /// `Corrupt`; what `read` returns.
    pub fn parse(
        object: &str,
        tile: Range<u64>,
        mut read: impl FnMut(Range<u64>) -> Result<Bytes>,
    ) -> Result<Self> {
        let last = tile.end;
        let corrupt = |at: u64, detail: String| Error::corrupt("a tile", object, at, detail);
        let mut number = |range: Range<u64>, digits: usize| {
            if range.end > last {
                let left = last.saturating_sub(range.start);
                return Err(corrupt(range.start, format!("{left} bytes are left")));
            }
            let bytes = read(range)?;
            Ok(bytes.chunks(digits).map(little_endian).collect::<Vec<_>>())
        };
        let start = tile.start.saturating_add(COUNT);
        let count = number(tile.start..start, 8)?.first().copied().unwrap_or(0);
        if count > last.saturating_sub(start) / LENGTHS {
            return Err(corrupt(
                tile.start,
                format!("{count} chunks do not fit in {} bytes", last - tile.start),
            ));
        }
        let (mut starts, mut end) = (Vec::new(), (0_u64, start));
        for _ in 0..count {
            let lengths = number(end.1..end.1.saturating_add(LENGTHS), 4)?;
            let &[original, filtered, metadata] = &lengths[..] else {
                return Err(corrupt(end.1, "the lengths of a chunk are incomplete".to_owned()));
            };
            starts.push(end);
            end = (end.0.saturating_add(original), end.1.saturating_add(LENGTHS + filtered + metadata));
        }
        if end.1 != last {
            return Err(corrupt(end.1, format!("the chunks of a tile end here, not at byte {last}")));
        }
        Ok(Self { starts, end })
    }

    /// Location in the file of the chunks that hold a range of unfiltered bytes; `None` when those are all chunks, the tile is
    /// shorter, or the range is empty.
    pub fn span(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        // Before empty chunks, an empty range would end before it begins.
        if bytes.is_empty() {
            return None;
        }
        let first = self.starts.partition_point(|start| start.0 <= bytes.start).checked_sub(1)?;
        let behind = self.starts.partition_point(|start| start.0 < bytes.end);
        if bytes.end > self.end.0 || behind - first == self.starts.len() {
            return None;
        }
        Some(self.starts[first].1..self.starts.get(behind).map_or(self.end.1, |start| start.1))
    }

    /// Unfiltered bytes of all chunks.
    pub fn unfiltered(&self) -> u64 {
        self.end.0
    }

    /// The first unfiltered byte of the chunk that begins at a byte of the file.
    pub fn base(&self, offset: u64) -> Option<u64> {
        let found = self.starts.binary_search_by_key(&offset, |start| start.1).ok()?;
        Some(self.starts[found].0)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let file = Bytes::from([vec![9; 5], bytes].concat());
        let part = 5..file.len() as u64;
        ChunkTable::parse("f", part, |range| {
            Ok(file.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()))
        })
    }

    #[test]
    fn an_empty_range_is_in_no_chunk() {
        for chunks in [&[&[][..]][..], &[&[], &[]], &[&[], &[], &[1; 4]]] {
            assert_eq!(read(tile(chunks)).unwrap().span(&(0..0)), None);
        }
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
