//! The index of a shard: for each chunk its offset and length, both 2^64 − 1 for chunks that were not written.

use tesseral_codec::checksum::{self, Checksum, ChecksumPosition};
use tesseral_core::{Error, Result, alloc};

/// Bytes of one entry.
pub const ENTRY: u64 = 16;

/// Location and encoding of the index of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLayout {
    /// At the start of the object instead of the end.
    pub at_start: bool,
    /// Followed by a CRC-32C.
    pub checksum: bool,
    /// Big-endian numbers.
    pub big: bool,
}

impl IndexLayout {
    /// Length of the index of a shard with this many chunks.
    pub fn len(self, chunks: u64) -> Option<u64> {
        let sum = if self.checksum { checksum::LEN as u64 } else { 0 };
        chunks.checked_mul(ENTRY)?.checked_add(sum)
    }
}

/// The index of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    entries: Vec<(u64, u64)>,
}

impl ShardIndex {
    /// Parses the index of an object of `len` bytes.
    ///
    /// # Errors
    /// `Codec` for a checksum mismatch, `Corrupt` for another length or for chunks outside the object.
    pub fn parse(bytes: &[u8], layout: IndexLayout, chunks: u64, len: u64, object: &str) -> Result<Self> {
        let corrupt = |at: usize, detail: String| Error::corrupt("shard index", object, at as u64, detail);
        let bytes =
            if layout.checksum { Checksum::Crc32c.verify(bytes, ChecksumPosition::End)? } else { bytes };
        if Some(bytes.len() as u64) != chunks.checked_mul(ENTRY) {
            return Err(corrupt(0, format!("{} bytes do not hold {chunks} entries", bytes.len())));
        }
        let mut entries = alloc::with_capacity("a shard index", bytes.len() / 16)?;
        for (number, entry) in bytes.as_chunks::<16>().0.iter().enumerate() {
            let (offset, size) = entry.split_at(8);
            let read = |half: &[u8]| {
                let mut word = [0; 8];
                word.copy_from_slice(half);
                if layout.big { u64::from_be_bytes(word) } else { u64::from_le_bytes(word) }
            };
            let (offset, size) = (read(offset), read(size));
            let written = (offset, size) != (u64::MAX, u64::MAX);
            if written && offset.checked_add(size).is_none_or(|end| end > len) {
                let detail = format!("chunk {number} at {offset}..+{size} exceeds an object of {len} bytes");
                return Err(corrupt(number * 16, detail));
            }
            entries.push((offset, size));
        }
        Ok(Self { entries })
    }

    /// Offset and length of a chunk; `None` if it was not written.
    pub fn get(&self, number: u64) -> Option<(u64, u64)> {
        let entry = usize::try_from(number).ok().and_then(|number| self.entries.get(number))?;
        (*entry != (u64::MAX, u64::MAX)).then_some(*entry)
    }

    /// Size in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes an index with little-endian numbers and a checksum.
    fn encode(entries: &[(u64, u64)]) -> Vec<u8> {
        let entry = |(offset, len): &(u64, u64)| [offset.to_le_bytes(), len.to_le_bytes()].concat();
        let mut out: Vec<u8> = entries.iter().flat_map(entry).collect();
        let sum = Checksum::Crc32c.compute(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    const LAYOUT: IndexLayout = IndexLayout { at_start: false, checksum: true, big: false };

    #[test]
    fn entries_round_trip_and_unwritten_chunks_are_absent() {
        let entries = [(0, 10), (u64::MAX, u64::MAX), (10, 0)];
        let bytes = encode(&entries);
        assert_eq!(LAYOUT.len(3), Some(52));
        let index = ShardIndex::parse(&bytes, LAYOUT, 3, 62, "o").unwrap();
        assert_eq!((index.get(0), index.get(1), index.get(2)), (Some((0, 10)), None, Some((10, 0))));
        assert_eq!(index.get(3), None);
        for len in 0..bytes.len() {
            assert!(ShardIndex::parse(&bytes[..len], LAYOUT, 3, 62, "o").is_err(), "{len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(ShardIndex::parse(&damaged, LAYOUT, 3, 62, "o").is_err(), "{bit}");
        }
        assert!(ShardIndex::parse(&bytes, LAYOUT, 3, 9, "o").is_err());
        assert_eq!(LAYOUT.len(u64::MAX / 2), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), n in 0_u64..8, big: bool) {
            let layout = IndexLayout { at_start: false, checksum: false, big };
            if let Ok(index) = ShardIndex::parse(&bytes, layout, n, 50, "o") {
                for chunk in 0..n + 1 {
                    prop_assert!(index.get(chunk).is_none_or(|(offset, len)| offset + len <= 50));
                }
            }
        }
    }
}
