//! Digests of chunks: an extension that other readers ignore as unused space (`docs/formats/tet.md` §8).

use tesseral_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::Cursor;

/// Magic of the region.
pub const MAGIC: [u8; 4] = *b"TDIG";
/// Algorithm number of XXH3-64 with seed 0.
pub const ALGORITHM: u32 = 1;
/// Size of the smallest region, without rows.
pub const MIN_LEN: u64 = 40;

const WHAT: &str = "digest region";
/// Smallest block in bytes.
const MIN_BLOCK: u64 = 4 << 10;
/// Largest number of block digests in a file that we write, except for those of very large chunks of few blocks each.
const MAX_BLOCKS: u64 = 1 << 20;
/// Position of the first block digest of a row that has none.
const WITHOUT_BLOCKS: u64 = u64::MAX;

/// Block size for a file with `raw` bytes of uncompressed chunks: the smallest power of two with which the table of block digests
/// stays below 8 MiB.
pub fn block_size(raw: u64) -> u32 {
    let block = raw.div_ceil(MAX_BLOCKS).clamp(MIN_BLOCK, 1 << 30).next_power_of_two();
    u32::try_from(block).unwrap_or(1 << 30)
}

/// Layout of a region, known from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    version: u32,
    /// Length without the digests of blocks, which follow.
    pub rows_len: u64,
    /// Length of the digests of blocks.
    pub blocks_len: u64,
}

impl Extent {
    /// Reads the first [`MIN_LEN`] bytes of a region for `entry_count` rows.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for another version or algorithm.
    pub fn parse(cursor: &mut Cursor<'_>, entry_count: u64) -> Result<Self> {
        let start = cursor.at();
        cursor.magic(&MAGIC, WHAT)?;
        let (version, algorithm) = (cursor.u32(WHAT)?, cursor.u32(WHAT)?);
        if !matches!(version, 1 | 2) || algorithm != ALGORITHM {
            return Err(Error::unsupported(format!(
                ".tet digest region version {version}, algorithm {algorithm}"
            )));
        }
        cursor.u32(WHAT)?;
        let count = cursor.u64(WHAT)?;
        cursor.u64(WHAT)?;
        let blocks = if version == 1 { 0 } else { cursor.u64(WHAT)? };
        let rows_len = match version {
            1 => entry_count.checked_mul(8).and_then(|len| len.checked_add(40)),
            _ => entry_count.checked_mul(16).and_then(|len| len.checked_add(48)),
        };
        match rows_len.zip(blocks.checked_mul(8)) {
            Some((rows_len, blocks_len))
                if count == entry_count && rows_len.checked_add(blocks_len).is_some() =>
            {
                Ok(Self { version, rows_len, blocks_len })
            }
            _ => {
                let detail = format!("{count} digests and {blocks} of blocks for {entry_count} rows");
                Err(cursor.corrupt_at(start + 16, WHAT, detail))
            }
        }
    }

    /// Length of the region.
    pub fn total_len(&self) -> u64 {
        // Checked by `parse`.
        self.rows_len.saturating_add(self.blocks_len)
    }
}

/// Digest of one row of the chunk index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowDigest {
    /// Digest of the stored bytes, or of the digests of their blocks.
    pub digest: u64,
    /// Position of the first block's digest in the table, for rows with blocks.
    pub first_block: Option<u64>,
}

/// A region whose own digest is verified. Version 1 has one digest per row. Version 2 divides raw chunks that are longer than a
/// block into blocks; the digest of such a row is that of the digests of its blocks.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 4 | magic `TDIG` |
/// | 4 | 4 | version, 1 or 2 |
/// | 8 | 4 | algorithm, 1: XXH3-64 with seed 0 |
/// | 12 | 4 | version 1: reserved 0; version 2: block size in bytes |
/// | 16 | 8 | number of digests, `n`: the rows of the chunk index |
/// | 24 | 8 | digest of directory and chunk index, which binds digest i to row i |
/// | version 1: 32 | 8·n | digest of the stored bytes of row i |
/// | version 2: 32 | 8 | number of digests of blocks, `m` |
/// | 40 | 16·n | digest of row i; position of its first block's digest, or 2^64 − 1 |
/// | then | 8 | digest of everything before it in the region |
/// | then | 8·m | digests of blocks, which the digests of their rows cover |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestRegion<'a> {
    /// Digest of directory and chunk index.
    pub catalog: u64,
    /// Rows as stored.
    pub rows: &'a [u8],
    /// Block size in bytes; 0 without blocks.
    pub block: u32,
    /// Number of digests of blocks.
    pub blocks: u64,
}

impl<'a> DigestRegion<'a> {
    /// Parses the bytes of a region without its digests of blocks.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(cursor: &mut Cursor<'a>, extent: Extent) -> Result<Self> {
        let bytes = cursor.rest();
        if extent.rows_len != bytes.len() as u64 {
            let detail = format!("{} bytes, expected {}", bytes.len(), extent.rows_len);
            return Err(cursor.corrupt_at(cursor.at(), WHAT, detail));
        }
        cursor.take(12, WHAT)?;
        let block_at = cursor.at();
        let block = cursor.u32(WHAT)?;
        cursor.u64(WHAT)?;
        let catalog = cursor.u64(WHAT)?;
        let blocks = if extent.version == 1 { 0 } else { cursor.u64(WHAT)? };
        let rows = cursor.take(cursor.rest().len() - 8, WHAT)?;
        let covered = &bytes[..bytes.len() - 8];
        let at = cursor.at();
        if cursor.u64(WHAT)? != xxh3_64(covered) {
            return Err(cursor.corrupt_at(at, WHAT, "digest mismatch"));
        }
        if extent.version == 2 && block == 0 {
            return Err(cursor.corrupt_at(block_at, WHAT, "block size 0"));
        }
        Ok(Self { catalog, rows, block: if extent.version == 1 { 0 } else { block }, blocks })
    }

    /// Appends an encoded region. `table` has the digests of the blocks of all rows.
    pub fn write(
        catalog: u64,
        block: u32,
        rows: impl ExactSizeIterator<Item = RowDigest>,
        table: &[[u8; 8]],
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let version: u32 = if table.is_empty() { 1 } else { 2 };
        out.extend(MAGIC);
        out.extend(version.to_le_bytes());
        out.extend(ALGORITHM.to_le_bytes());
        out.extend(if version == 1 { [0; 4] } else { block.to_le_bytes() });
        out.extend((rows.len() as u64).to_le_bytes());
        out.extend(catalog.to_le_bytes());
        if version == 2 {
            out.extend((table.len() as u64).to_le_bytes());
        }
        out.reserve(16 * rows.len() + 8 + 8 * table.len());
        for row in rows {
            out.extend(row.digest.to_le_bytes());
            if version == 2 {
                out.extend(row.first_block.unwrap_or(WITHOUT_BLOCKS).to_le_bytes());
            }
        }
        let own = xxh3_64(&out[start..]);
        out.extend(own.to_le_bytes());
        out.extend(table.as_flattened());
    }
}

/// Digest of a row, from [`DigestRegion::rows`] of a region with or without blocks.
pub fn row_digest(rows: &[u8], with_blocks: bool, row: u64) -> Option<RowDigest> {
    let number = |at: usize| -> Option<u64> {
        rows.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
    };
    let row = usize::try_from(row).ok()?;
    if !with_blocks {
        return Some(RowDigest { digest: number(row.checked_mul(8)?)?, first_block: None });
    }
    let at = row.checked_mul(16)?;
    let first = number(at.checked_add(8)?)?;
    Some(RowDigest { digest: number(at)?, first_block: (first != WITHOUT_BLOCKS).then_some(first) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], rows: u64) -> Result<(Extent, DigestRegion<'_>)> {
        let extent = Extent::parse(&mut Cursor::at_offset("f", bytes, 0), rows)?;
        if extent.total_len() != bytes.len() as u64 {
            return Err(Error::corrupt("f", "f", None, "length"));
        }
        let held = &bytes[..extent.rows_len as usize];
        Ok((extent, DigestRegion::parse(&mut Cursor::at_offset("f", held, 0), extent)?))
    }

    #[test]
    fn round_trips_and_detects_every_flip() {
        let plain = |digest| RowDigest { digest, first_block: None };
        let table = [[1; 8], [2; 8]];
        for (rows, table) in [
            ([plain(5), plain(u64::MAX)], &[][..]),
            ([RowDigest { digest: 5, first_block: Some(0) }, plain(u64::MAX)], &table[..]),
        ] {
            let mut bytes = Vec::new();
            DigestRegion::write(99, 4096, rows.into_iter(), table, &mut bytes);
            let (extent, region) = parse(&bytes, 2).unwrap();
            let blocks = !table.is_empty();
            assert_eq!((region.catalog, region.blocks), (99, table.len() as u64));
            assert_eq!(region.block, if blocks { 4096 } else { 0 });
            for (number, row) in rows.iter().enumerate() {
                assert_eq!(row_digest(region.rows, blocks, number as u64), Some(*row));
            }
            assert_eq!(row_digest(region.rows, blocks, 2), None);
            assert!(parse(&bytes, 1).is_err());
            // Digests of blocks are covered by those of their rows.
            for i in 0..extent.rows_len as usize {
                let mut flipped = bytes.clone();
                flipped[i] ^= 0x40;
                assert!(parse(&flipped, 2).is_err(), "byte {i}");
            }
            for i in 0..bytes.len() {
                assert!(parse(&bytes[..i], 2).is_err(), "cut at {i}");
            }
        }
    }

    #[test]
    fn tables_of_block_digests_stay_small() {
        assert_eq!(block_size(0), 4096);
        assert_eq!(block_size(4 << 30), 4096);
        assert_eq!(block_size((4 << 30) + 1), 8192);
        assert_eq!(block_size(1 << 40), 1 << 20);
        assert_eq!(block_size(u64::MAX), 1 << 30);
    }
}
