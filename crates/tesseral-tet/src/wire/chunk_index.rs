//! The chunk index: byte ranges of all chunks (`docs/formats/tet.md` §4).

use tesseral_core::{Coords, Error, Result};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Cursor;
use super::directory::MAX_RANK;

/// Size of the header in bytes.
pub const HEADER_LEN: u64 = 32;
/// Size of a row in bytes.
pub const ROW_LEN: u64 = 104;
/// Magic of the index.
pub const MAGIC: [u8; 4] = *b"TIDX";
/// The supported index version.
pub const INDEX_VERSION: u32 = 1;
/// Codec number of uncompressed payloads.
pub const RAW: u32 = 0;
/// Codec number of payloads that are one or more Zstandard frames.
pub const ZSTD: u32 = 1;

const WHAT: &str = "chunk index";
const ROW: &str = "chunk index row";

/// Returns the name of a codec; `None` for unknown numbers.
pub fn codec_name(codec: u32) -> Option<&'static str> {
    match codec {
        RAW => Some("raw"),
        ZSTD => Some("zstd"),
        _ => None,
    }
}

/// The header of the index.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 4 | magic `TIDX` |
/// | 4 | 4 | index version, 1 |
/// | 8 | 8 | number of rows over all datasets |
/// | 16 | 2 | memory budget in hundredths of a percent of the host's memory; 0: not stated |
/// | 18 | 2 | reserved 0 |
/// | 20 | 4 | memory budget in bytes; 0: not stated |
/// | 24 | 8 | reserved 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexHeader {
    /// Number of rows.
    pub entry_count: u64,
    /// Memory budget in basis points.
    pub memory_budget_percent_bps: u16,
    /// Memory budget in bytes.
    pub memory_budget_bytes: u32,
    /// The two reserved fields as stored.
    pub reserved: (u16, u64),
}

impl IndexHeader {
    /// Parses the header of an index of `length` bytes, which must be exactly header and rows.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for another index version.
    pub fn parse(cursor: &mut Cursor<'_>, length: u64) -> Result<Self> {
        let start = cursor.at();
        cursor.magic(&MAGIC, WHAT)?;
        let version = cursor.u32(WHAT)?;
        if version != INDEX_VERSION {
            return Err(Error::unsupported(format!(".tet chunk index version {version}")));
        }
        let entry_count = cursor.u64(WHAT)?;
        let memory_budget_percent_bps = cursor.u16(WHAT)?;
        let first = cursor.u16(WHAT)?;
        let memory_budget_bytes = cursor.u32(WHAT)?;
        let reserved = (first, cursor.u64(WHAT)?);
        if Self::length(entry_count) != Some(length) {
            let detail = format!("{entry_count} rows do not match an index of {length} bytes");
            return Err(cursor.corrupt_at(start + 8, WHAT, detail));
        }
        Ok(Self { entry_count, memory_budget_percent_bps, memory_budget_bytes, reserved })
    }

    /// Appends the encoded header.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(INDEX_VERSION.to_le_bytes());
        out.extend(self.entry_count.to_le_bytes());
        out.extend(self.memory_budget_percent_bps.to_le_bytes());
        out.extend(self.reserved.0.to_le_bytes());
        out.extend(self.memory_budget_bytes.to_le_bytes());
        out.extend(self.reserved.1.to_le_bytes());
    }

    /// Size of an index with the given number of rows; `None` if it exceeds `u64`.
    pub fn length(entry_count: u64) -> Option<u64> {
        entry_count.checked_mul(ROW_LEN)?.checked_add(HEADER_LEN)
    }
}

/// One row of the index in its stored layout: a memory-mapped index is used in place.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | index of the dataset in the directory |
/// | 8 | 64 | grid coordinates, eight of them; those beyond the rank are written 0 and ignored on read |
/// | 72 | 8 | offset of the payload |
/// | 80 | 8 | decoded size in bytes |
/// | 88 | 8 | stored size in bytes |
/// | 96 | 4 | codec: 0 raw, 1 zstd |
/// | 100 | 4 | reserved 0 |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndexRow {
    /// Index of the dataset in the directory.
    pub dataset_id: U64,
    /// Grid coordinates, padded with zeros.
    pub chunk_index: [U64; MAX_RANK],
    /// Offset of the payload.
    pub payload_offset: U64,
    /// Decoded size in bytes.
    pub raw_byte_len: U64,
    /// Stored size in bytes.
    pub stored_byte_len: U64,
    /// Codec number: 0 raw, 1 zstd.
    pub codec: U32,
    /// Reserved, written as 0.
    pub reserved: U32,
}

impl IndexRow {
    /// Creates the row of a chunk.
    pub fn new(dataset: u64, coords: &[u64], offset: u64, raw: u64, stored: u64, codec: u32) -> Self {
        let mut chunk_index = [U64::ZERO; MAX_RANK];
        for (slot, c) in chunk_index.iter_mut().zip(coords) {
            slot.set(*c);
        }
        Self {
            dataset_id: dataset.into(),
            chunk_index,
            payload_offset: offset.into(),
            raw_byte_len: raw.into(),
            stored_byte_len: stored.into(),
            codec: codec.into(),
            reserved: U32::ZERO,
        }
    }

    /// Returns the grid coordinates for a dataset of the given rank.
    pub fn coords(&self, rank: usize) -> Coords {
        self.chunk_index.iter().take(rank).map(|c| c.get()).collect()
    }

    /// End of the stored bytes; `None` if it exceeds `u64`.
    pub fn payload_end(&self) -> Option<u64> {
        self.payload_offset.get().checked_add(self.stored_byte_len.get())
    }

    /// Returns whether the row prevents the file from opening: an unknown codec, a raw payload with different decoded and
    /// stored sizes, or a payload outside `start..end`.
    ///
    /// Branch-free, because it runs over every row at open.
    #[inline]
    pub fn is_suspect(&self, start: u64, end: u64) -> bool {
        let (offset, stored) = (self.payload_offset.get(), self.stored_byte_len.get());
        let (last, overflows) = offset.overflowing_add(stored);
        let codec = self.codec.get();
        (codec > ZSTD)
            | ((codec == RAW) & (self.raw_byte_len.get() != stored))
            | overflows
            | (last > end)
            | ((offset < start) & (stored > 0))
    }

    /// Returns the error that [`is_suspect`](Self::is_suspect) detected, for row `number` of the index at `index_offset`.
    ///
    /// # Errors
    /// `Corrupt`, or `Unsupported` for an unknown codec; `Ok` for a valid row.
    pub fn check(&self, object: &str, index_offset: u64, number: u64, start: u64, end: u64) -> Result<()> {
        let at = index_offset.saturating_add(HEADER_LEN).saturating_add(number.saturating_mul(ROW_LEN));
        let corrupt = |field: u64, detail: String| {
            Err(Error::corrupt(ROW, object, at + field, format!("row {number}: {detail}")))
        };
        let codec = self.codec.get();
        let (offset, raw, stored) =
            (self.payload_offset.get(), self.raw_byte_len.get(), self.stored_byte_len.get());
        if codec > ZSTD {
            return Err(Error::unsupported(format!(".tet codec {codec} (row {number} of the chunk index)"))
                .hint("available: 0 (raw), 1 (zstd)"));
        }
        if codec == RAW && raw != stored {
            return corrupt(80, format!("raw payload with decoded size {raw} and stored size {stored}"));
        }
        match self.payload_end() {
            Some(last) if last <= end => {}
            _ => {
                let detail =
                    format!("{stored} bytes at {offset} exceed the end of the payload area at {end}");
                return corrupt(72, detail);
            }
        }
        if stored > 0 && offset < start {
            return corrupt(
                72,
                format!("{stored} bytes at {offset} overlap the metadata before byte {start}"),
            );
        }
        Ok(())
    }
}

/// Casts bytes to rows in place. Returns no rows if the length is not a multiple of the row size; [`IndexHeader::parse`]
/// rejects such an index first.
pub fn rows(bytes: &[u8]) -> &[IndexRow] {
    <[IndexRow]>::ref_from_bytes(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    #[test]
    fn the_header_round_trips() {
        let header = IndexHeader {
            entry_count: 2,
            memory_budget_percent_bps: 1250,
            memory_budget_bytes: 1 << 20,
            reserved: (3, 4),
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert_eq!(bytes.len() as u64, HEADER_LEN);
        assert_eq!(IndexHeader::parse(&mut Cursor::at_offset("f", &bytes, 0), 240).unwrap(), header);
        assert!(IndexHeader::parse(&mut Cursor::at_offset("f", &bytes, 0), 241).is_err());
    }

    #[test]
    fn a_row_is_its_bytes() {
        assert_eq!(size_of::<IndexRow>() as u64, ROW_LEN);
        let row = IndexRow::new(1, &[2, 3], 500, 16, 9, ZSTD);
        let bytes = row.as_bytes();
        assert_eq!((bytes[0], bytes[8], bytes[16], bytes[88], bytes[96]), (1, 2, 3, 9, 1));
        assert_eq!(rows(bytes)[0].coords(2).as_slice(), [2, 3]);
        assert_eq!(rows(&bytes[1..]).len(), 0);
    }

    #[test]
    fn is_suspect_agrees_with_check() {
        let edge = [0, 1, 99, 100, 101, 199, 200, 201, u64::MAX - 1, u64::MAX];
        for offset in edge {
            for stored in edge {
                for raw in [stored, 7] {
                    for codec in 0..3 {
                        let row = IndexRow::new(0, &[], offset, raw, stored, codec);
                        let check = row.check("f", 0, 0, 100, 200);
                        assert_eq!(row.is_suspect(100, 200), check.is_err(), "{row:?}");
                        if codec == 2 {
                            assert!(matches!(check.unwrap_err().kind(), ErrorKind::Unsupported { .. }));
                        }
                    }
                }
            }
        }
    }
}
