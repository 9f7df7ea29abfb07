//! Exact statistics of chunks: an extension that other readers ignore as unused space (`docs/formats/tet.md` §8).

use bytes::Bytes;
use tesseral_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::{Cursor, align8};

/// Magic of the region.
pub const MAGIC: [u8; 4] = *b"TSTA";
/// Size of the first fields, from which the length of the region follows.
pub const HEAD_LEN: u64 = 40;
/// Size of a row.
pub const ROW_LEN: usize = 48;

const VERSION: u32 = 1;
const WHAT: &str = "statistics region";
/// First row of a dataset without statistics.
const WITHOUT_ROWS: u64 = u64::MAX;
/// The row has statistics.
const KNOWN: u32 = 1;
/// The row has a minimum and a maximum.
const RANGED: u32 = 2;
/// Maximum number of missing values of a dataset.
pub const MAX_MISSING: usize = 16;

/// Statistics of one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowStatistics<'a> {
    /// Number of cells that equal a missing value.
    pub nulls: u64,
    /// Number of other cells that are NaN.
    pub nans: u64,
    /// Minimum and maximum of the other cells, little-endian, padded with zeros; `None` without such cells.
    pub range: Option<([u8; 8], [u8; 8])>,
    /// Exact sum of these cells, as the engine serializes it.
    pub sum: &'a [u8],
}

/// Statistics of one dataset, to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetStatistics {
    /// Position of the first row in the table; `None` without statistics.
    pub first_row: Option<u64>,
    /// The values that are counted as missing, little-endian, padded with zeros.
    pub missing: Vec<[u8; 8]>,
}

/// Length of the region that begins with these bytes.
///
/// # Errors
/// `Corrupt`; `Unsupported` for another version.
pub fn total_len(cursor: &mut Cursor<'_>) -> Result<u64> {
    let start = cursor.at();
    let Head { datasets, rows, heap, .. } = Head::parse(cursor)?;
    let rows = rows.checked_mul(ROW_LEN as u64);
    let total = rows.zip(align8(heap)).and_then(|(rows, heap)| {
        HEAD_LEN.checked_add(datasets)?.checked_add(rows)?.checked_add(heap)?.checked_add(8)
    });
    total.ok_or_else(|| cursor.corrupt_at(start, WHAT, "length beyond 2^64"))
}

struct Head {
    rows: u64,
    /// Length of the list of datasets in bytes.
    datasets: u64,
    /// Length of all sums in bytes.
    heap: u64,
    catalog: u64,
}

impl Head {
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        cursor.magic(&MAGIC, WHAT)?;
        let version = cursor.u32(WHAT)?;
        if version != VERSION {
            return Err(Error::unsupported(format!(".tet statistics region version {version}")));
        }
        let [rows, datasets, heap, catalog] =
            [cursor.u64(WHAT)?, cursor.u64(WHAT)?, cursor.u64(WHAT)?, cursor.u64(WHAT)?];
        Ok(Self { rows, datasets, heap, catalog })
    }
}

/// A region whose own digest is verified.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 4 | magic `TSTA` |
/// | 4 | 4 | version, 1 |
/// | 8 | 8 | number of rows, `n` |
/// | 16 | 8 | length of the list of datasets, `d` |
/// | 24 | 8 | length of the sums, `s` |
/// | 32 | 8 | digest of directory and chunk index |
/// | 40 | d | per dataset: number of its first row, or 2^64 − 1; number of missing values; 8 bytes for each |
/// | then | 48·n | rows |
/// | then | s | sums, padded with zeros to 8 bytes |
/// | then | 8 | XXH3-64 of everything before it in the region |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatisticsRegion {
    /// Digest of directory and chunk index.
    pub catalog: u64,
    /// One per dataset of the directory.
    pub datasets: Vec<DatasetStatistics>,
    rows: Bytes,
    sums: Bytes,
}

impl StatisticsRegion {
    /// Parses the bytes of a region at offset `start` of `object`, a file with `count` datasets.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for another version.
    pub fn parse(bytes: &Bytes, object: &str, start: u64, count: usize) -> Result<Self> {
        let cursor = &mut Cursor::at_offset(object, bytes, start);
        let digest = bytes.split_last_chunk::<8>();
        if digest.is_none_or(|(covered, digest)| u64::from_le_bytes(*digest) != xxh3_64(covered)) {
            return Err(cursor.corrupt_at(start, WHAT, "digest mismatch"));
        }
        let head = Head::parse(cursor)?;
        let before = cursor.rest().len() as u64;
        let mut datasets = Vec::new();
        for _ in 0..count {
            let first_row = Some(cursor.u64(WHAT)?).filter(|first| *first != WITHOUT_ROWS);
            let missing = cursor.u64(WHAT)?;
            if missing > MAX_MISSING as u64 {
                return Err(cursor.corrupt_at(start, WHAT, format!("{missing} missing values")));
            }
            let missing = (0..missing).map(|_| cursor.array::<8>(WHAT)).collect::<Result<_>>()?;
            datasets.push(DatasetStatistics { first_row, missing });
        }
        if before - cursor.rest().len() as u64 != head.datasets {
            return Err(cursor.corrupt_at(start, WHAT, "wrong length of the list of datasets"));
        }
        let rows = cursor.take64(head.rows.saturating_mul(ROW_LEN as u64), WHAT)?;
        let sums = cursor.take64(head.heap, WHAT)?;
        let padding = sums.len().next_multiple_of(8) - sums.len();
        cursor.take(padding + 8, WHAT)?;
        cursor.finish(WHAT)?;
        Ok(Self { catalog: head.catalog, datasets, rows: bytes.slice_ref(rows), sums: bytes.slice_ref(sums) })
    }

    /// Statistics of the row with this number; `None` if it has none.
    pub fn row(&self, number: u64) -> Option<RowStatistics<'_>> {
        let row = self.rows.as_chunks::<ROW_LEN>().0.get(usize::try_from(number).ok()?)?;
        let word = |at: usize| std::array::from_fn::<u8, 8, _>(|i| row[at + i]);
        let number = |at: usize| u64::from_le_bytes(word(at));
        let lengths = number(40);
        let flags = (lengths >> 32) as u32;
        if flags & KNOWN == 0 {
            return None;
        }
        let start = usize::try_from(number(32)).ok()?;
        let sum = self.sums.get(start..start.checked_add((lengths & 0xFFFF_FFFF) as usize)?)?;
        let range = (flags & RANGED != 0).then(|| (word(16), word(24)));
        Some(RowStatistics { nulls: number(0), nans: number(8), range, sum })
    }

    /// Number of rows.
    pub fn count(&self) -> u64 {
        (self.rows.len() / ROW_LEN) as u64
    }
}

/// Appends an encoded region. A row without statistics is `None`.
pub fn write<'a>(
    catalog: u64,
    datasets: &[DatasetStatistics],
    rows: impl ExactSizeIterator<Item = Option<RowStatistics<'a>>>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let mut list = Vec::new();
    for dataset in datasets {
        list.extend(dataset.first_row.unwrap_or(WITHOUT_ROWS).to_le_bytes());
        list.extend((dataset.missing.len() as u64).to_le_bytes());
        list.extend(dataset.missing.as_flattened());
    }
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend((rows.len() as u64).to_le_bytes());
    out.extend((list.len() as u64).to_le_bytes());
    let length_at = out.len();
    out.extend([0; 8]);
    out.extend(catalog.to_le_bytes());
    out.append(&mut list);
    let mut sums = Vec::new();
    for row in rows {
        let Some(RowStatistics { nulls, nans, range, sum }) = row else {
            out.extend([0; ROW_LEN]);
            continue;
        };
        let (min, max) = range.unwrap_or_default();
        out.extend(nulls.to_le_bytes());
        out.extend(nans.to_le_bytes());
        out.extend(min);
        out.extend(max);
        out.extend((sums.len() as u64).to_le_bytes());
        // The writer bounds the length of a sum.
        out.extend((sum.len() as u32).to_le_bytes());
        out.extend((KNOWN | if range.is_some() { RANGED } else { 0 }).to_le_bytes());
        sums.extend_from_slice(sum);
    }
    out[length_at..length_at + 8].copy_from_slice(&(sums.len() as u64).to_le_bytes());
    sums.resize(sums.len().next_multiple_of(8), 0);
    out.append(&mut sums);
    let digest = xxh3_64(&out[start..]);
    out.extend(digest.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Vec<u8> {
        let datasets = [
            DatasetStatistics::default(),
            DatasetStatistics { first_row: Some(0), missing: vec![[9; 8], [7; 8]] },
        ];
        let rows = [
            Some(RowStatistics { nulls: 1, nans: 2, range: Some(([3; 8], [4; 8])), sum: &[5, 6, 7] }),
            None,
            Some(RowStatistics { nulls: 4, nans: 0, range: None, sum: &[8] }),
        ];
        let mut out = Vec::new();
        write(77, &datasets, rows.into_iter(), &mut out);
        out
    }

    #[test]
    fn round_trips() {
        let bytes = region();
        let len = total_len(&mut Cursor::at_offset("f", &bytes[..HEAD_LEN as usize], 0)).unwrap();
        assert_eq!(len, bytes.len() as u64);
        let read = StatisticsRegion::parse(&Bytes::from(bytes), "f", 0, 2).unwrap();
        assert_eq!((read.catalog, read.count()), (77, 3));
        assert_eq!(read.datasets[0].first_row, None);
        assert_eq!(read.datasets[1].missing, [[9; 8], [7; 8]]);
        let first = read.row(0).unwrap();
        assert_eq!((first.nulls, first.nans, first.range), (1, 2, Some(([3; 8], [4; 8]))));
        assert_eq!(first.sum, [5, 6, 7]);
        assert_eq!((read.row(1), read.row(3)), (None, None));
        assert_eq!(read.row(2), Some(RowStatistics { nulls: 4, nans: 0, range: None, sum: &[8] }));
    }

    #[test]
    fn every_flip_and_every_truncation_is_found() {
        let bytes = region();
        for at in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..at]);
            assert!(StatisticsRegion::parse(&cut, "f", 0, 2).is_err());
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(StatisticsRegion::parse(&Bytes::from(flipped), "f", 0, 2).is_err());
        }
    }

    /// The digest does not protect from files that are made on purpose.
    #[test]
    fn impossible_lengths_are_rejected() {
        let mut bytes = region();
        let end = bytes.len() - 8;
        for at in (8..32).step_by(8) {
            for value in [u64::MAX, 1 << 60, 1000] {
                let held = bytes.clone();
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let digest = xxh3_64(&bytes[..end]).to_le_bytes();
                bytes[end..].copy_from_slice(&digest);
                assert!(StatisticsRegion::parse(&Bytes::copy_from_slice(&bytes), "f", 0, 2).is_err());
                let _ = total_len(&mut Cursor::at_offset("f", &bytes, 0));
                bytes = held;
            }
        }
        assert!(StatisticsRegion::parse(&Bytes::from(bytes), "f", 0, 9).is_err());
    }
}
