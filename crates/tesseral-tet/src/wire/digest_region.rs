//! Digests of chunks: an extension that other readers ignore as unused space (`docs/formats/tet.md` §8).

use tesseral_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::Cursor;

/// Magic of the region.
pub const MAGIC: [u8; 4] = *b"TDIG";
/// The supported version.
pub const VERSION: u32 = 1;
/// Algorithm number of XXH3-64 with seed 0.
pub const ALGORITHM: u32 = 1;
/// Offset of the first chunk digest.
pub const HEADER_LEN: u64 = 32;

const WHAT: &str = "digest region";

/// Size of a region for the given number of rows; `None` if it exceeds `u64`.
pub fn length(entry_count: u64) -> Option<u64> {
    entry_count.checked_mul(8)?.checked_add(HEADER_LEN + 8)
}

/// A region whose own digest is verified.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 4 | magic `TDIG` |
/// | 4 | 4 | version, 1 |
/// | 8 | 4 | algorithm, 1: XXH3-64 with seed 0 |
/// | 12 | 4 | reserved 0 |
/// | 16 | 8 | number of digests, `n`: the rows of the chunk index |
/// | 24 | 8 | digest of directory and chunk index, which binds digest i to row i |
/// | 32 | 8·n | digest of the stored bytes of row i |
/// | 32 + 8·n | 8 | digest of everything before it in the region |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestRegion<'a> {
    /// Digest of directory and chunk index.
    pub catalog: u64,
    /// Digests of the chunks, 8 bytes each.
    pub chunks: &'a [u8],
}

impl<'a> DigestRegion<'a> {
    /// Parses a region for `entry_count` rows.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for another version or algorithm.
    pub fn parse(cursor: &mut Cursor<'a>, entry_count: u64) -> Result<Self> {
        let (start, bytes) = (cursor.at(), cursor.rest());
        cursor.magic(&MAGIC, WHAT)?;
        let (version, algorithm) = (cursor.u32(WHAT)?, cursor.u32(WHAT)?);
        if (version, algorithm) != (VERSION, ALGORITHM) {
            return Err(Error::unsupported(format!(
                ".tet digest region version {version}, algorithm {algorithm}"
            )));
        }
        cursor.u32(WHAT)?;
        let count = cursor.u64(WHAT)?;
        let catalog = cursor.u64(WHAT)?;
        let len = length(entry_count).and_then(|len| usize::try_from(len).ok());
        if count != entry_count || len != Some(bytes.len()) {
            let detail = format!("{count} digests in {} bytes for {entry_count} rows", bytes.len());
            return Err(cursor.corrupt_at(start + 16, WHAT, detail));
        }
        let chunks = cursor.take(cursor.rest().len() - 8, WHAT)?;
        let covered = &bytes[..bytes.len() - 8];
        let at = cursor.at();
        if cursor.u64(WHAT)? != xxh3_64(covered) {
            return Err(cursor.corrupt_at(at, WHAT, "digest mismatch"));
        }
        Ok(Self { catalog, chunks })
    }

    /// Appends an encoded region.
    pub fn write(catalog: u64, digests: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(ALGORITHM.to_le_bytes());
        out.extend([0; 4]);
        out.extend((digests.len() as u64).to_le_bytes());
        out.extend(catalog.to_le_bytes());
        out.reserve(8 * digests.len() + 8);
        digests.for_each(|digest| out.extend(digest.to_le_bytes()));
        let own = xxh3_64(&out[start..]);
        out.extend(own.to_le_bytes());
    }

    /// Returns the digest of a row from [`chunks`](Self::chunks).
    pub fn get(chunks: &[u8], row: u64) -> Option<u64> {
        let start = usize::try_from(row).ok()?.checked_mul(8)?;
        let bytes = chunks.get(start..start.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_detects_every_flip() {
        let mut bytes = Vec::new();
        DigestRegion::write(99, [5, u64::MAX].into_iter(), &mut bytes);
        assert_eq!(Some(bytes.len() as u64), length(2));
        let region = DigestRegion::parse(&mut Cursor::at_offset("f", &bytes, 0), 2).unwrap();
        assert_eq!((region.catalog, DigestRegion::get(region.chunks, 1)), (99, Some(u64::MAX)));
        assert_eq!(DigestRegion::get(region.chunks, 2), None);
        assert!(DigestRegion::parse(&mut Cursor::at_offset("f", &bytes, 0), 1).is_err());
        for i in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[i] ^= 0x40;
            assert!(DigestRegion::parse(&mut Cursor::at_offset("f", &flipped, 0), 2).is_err(), "byte {i}");
            assert!(
                DigestRegion::parse(&mut Cursor::at_offset("f", &bytes[..i], 0), 2).is_err(),
                "cut at {i}"
            );
        }
    }
}
