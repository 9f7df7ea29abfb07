//! The chunk index: where each chunk's bytes are (`docs/formats/tet.md` §4).

use tesseral_core::{Coords, Error, Result};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Cursor;
use super::directory::MAX_RANK;

/// Length of the header.
pub const HEADER_LEN: u64 = 32;
/// Length of a row.
pub const ROW_LEN: u64 = 104;
/// First four bytes of the index.
pub const MAGIC: [u8; 4] = *b"TIDX";
/// The one index layout there is.
pub const INDEX_VERSION: u32 = 1;
/// Codec of payloads that are the cells themselves.
pub const RAW: u32 = 0;
/// Codec of payloads that are one or more Zstandard frames.
pub const ZSTD: u32 = 1;

const WHAT: &str = "chunk index";
const ROW: &str = "chunk index row";

/// The name of a codec; `None` for numbers that mean nothing.
pub fn codec_name(codec: u32) -> Option<&'static str> {
    match codec {
        RAW => Some("raw"),
        ZSTD => Some("zstd"),
        _ => None,
    }
}

/// The first 32 bytes of the index.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 4 | magic `TIDX` |
/// | 4 | 4 | index version, 1 |
/// | 8 | 8 | number of rows over all datasets |
/// | 16 | 2 | memory budget in hundredths of a percent of the host's memory; 0: not said |
/// | 18 | 2 | reserved 0 |
/// | 20 | 4 | memory budget in bytes; 0: not said |
/// | 24 | 8 | reserved 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexHeader {
    /// Number of rows.
    pub entry_count: u64,
    /// Memory budget in basis points.
    pub memory_budget_percent_bps: u16,
    /// Memory budget in bytes.
    pub memory_budget_bytes: u32,
    /// The two reserved fields, as stored.
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
            let detail = format!("{entry_count} rows do not make an index of {length} bytes");
            return Err(cursor.corrupt_at(start + 8, WHAT, detail));
        }
        Ok(Self { entry_count, memory_budget_percent_bps, memory_budget_bytes, reserved })
    }

    /// Appends the 32 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(INDEX_VERSION.to_le_bytes());
        out.extend(self.entry_count.to_le_bytes());
        out.extend(self.memory_budget_percent_bps.to_le_bytes());
        out.extend(self.reserved.0.to_le_bytes());
        out.extend(self.memory_budget_bytes.to_le_bytes());
        out.extend(self.reserved.1.to_le_bytes());
    }

    /// Length of an index of that many rows; `None` beyond `u64`.
    pub fn length(entry_count: u64) -> Option<u64> {
        entry_count.checked_mul(ROW_LEN)?.checked_add(HEADER_LEN)
    }
}

/// One row of the index, as it lies in the file: a mapped index is used in place.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | dataset, by position in the directory |
/// | 8 | 64 | grid coordinates, eight of them; those beyond the rank are written 0 and ignored on read |
/// | 72 | 8 | offset of the payload |
/// | 80 | 8 | bytes once decoded |
/// | 88 | 8 | bytes as stored |
/// | 96 | 4 | codec: 0 raw, 1 zstd |
/// | 100 | 4 | reserved 0 |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Row {
    /// Position of the dataset in the directory.
    pub dataset_id: U64,
    /// Grid coordinates.
    pub chunk_index: [U64; MAX_RANK],
    /// Where the payload begins.
    pub payload_offset: U64,
    /// Bytes once decoded.
    pub raw_byte_len: U64,
    /// Bytes as stored.
    pub stored_byte_len: U64,
    /// What was done to the bytes.
    pub codec: U32,
    /// Written 0.
    pub reserved: U32,
}

impl Row {
    /// A row for a chunk.
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

    /// The grid coordinates of a dataset of that rank.
    pub fn coords(&self, rank: usize) -> Coords {
        self.chunk_index.iter().take(rank).map(|c| c.get()).collect()
    }

    /// One past the last stored byte; `None` beyond `u64`.
    pub fn payload_end(&self) -> Option<u64> {
        self.payload_offset.get().checked_add(self.stored_byte_len.get())
    }

    /// Whether something is wrong with the row that stops a file from opening: an unknown codec, raw bytes of another
    /// length than stored, a payload outside `start..end`.
    ///
    /// Branch-free on purpose: this runs over every row at open.
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

    /// What [`is_suspect`](Self::is_suspect) saw, for row `number` of the index at `index_offset`.
    ///
    /// # Errors
    /// `Corrupt`, or `Unsupported` for an unknown codec; `Ok` when nothing is wrong.
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
                .hint("known codecs are 0 (raw) and 1 (zstd)"));
        }
        if codec == RAW && raw != stored {
            return corrupt(80, format!("a raw payload of {raw} bytes is stored in {stored}"));
        }
        match self.payload_end() {
            Some(last) if last <= end => {}
            _ => {
                let detail = format!("{stored} bytes at {offset} pass the end of the payloads at {end}");
                return corrupt(72, detail);
            }
        }
        if stored > 0 && offset < start {
            return corrupt(
                72,
                format!("{stored} bytes at {offset} lie in the metadata before byte {start}"),
            );
        }
        Ok(())
    }
}

/// The rows of an index, in place. A length that is not a whole number of rows gives none; [`IndexHeader::parse`]
/// refuses such an index first.
pub fn rows(bytes: &[u8]) -> &[Row] {
    <[Row]>::ref_from_bytes(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    #[test]
    fn the_header_writes_what_it_parses() {
        let header = IndexHeader {
            entry_count: 2,
            memory_budget_percent_bps: 1250,
            memory_budget_bytes: 1 << 20,
            reserved: (3, 4),
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert_eq!(bytes.len() as u64, HEADER_LEN);
        assert_eq!(IndexHeader::parse(&mut Cursor::new("f", &bytes, 0), 240).unwrap(), header);
        assert!(IndexHeader::parse(&mut Cursor::new("f", &bytes, 0), 241).is_err());
    }

    #[test]
    fn a_row_is_its_bytes() {
        assert_eq!(size_of::<Row>() as u64, ROW_LEN);
        let row = Row::new(1, &[2, 3], 500, 16, 9, ZSTD);
        let bytes = row.as_bytes();
        assert_eq!((bytes[0], bytes[8], bytes[16], bytes[88], bytes[96]), (1, 2, 3, 9, 1));
        assert_eq!(rows(bytes)[0].coords(2).as_slice(), [2, 3]);
        assert_eq!(rows(&bytes[1..]).len(), 0);
    }

    #[test]
    fn suspicion_and_check_agree() {
        let edge = [0, 1, 99, 100, 101, 199, 200, 201, u64::MAX - 1, u64::MAX];
        for offset in edge {
            for stored in edge {
                for raw in [stored, 7] {
                    for codec in 0..3 {
                        let row = Row::new(0, &[], offset, raw, stored, codec);
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
