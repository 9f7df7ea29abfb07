//! The directory: one record per dataset (`docs/formats/tet.md`, "Directory").

use tesseral_core::{ChunkGrid, Coords, DType, Error, Result};

use super::{Cursor, align8};

/// Offset of the directory, which begins with the length of its records.
pub const OFFSET: u64 = 32;
/// Offset of the first record.
pub const RECORDS_OFFSET: u64 = 40;
/// Minimum size of a record in bytes: 16 fixed bytes, an empty name, one dimension.
pub const MIN_RECORD: u64 = 32;
/// Maximum rank of an array.
pub const MAX_RANK: usize = 8;

const WHAT: &str = "dataset directory";

/// Dtype tags and the names printed by the format's own tools.
const TAGS: [(u32, DType, &str); 10] = [
    (1, DType::Float32, "f32"),
    (2, DType::Float64, "f64"),
    (3, DType::Int32, "i32"),
    (4, DType::Int64, "i64"),
    (5, DType::UInt8, "u8"),
    (6, DType::UInt16, "u16"),
    (7, DType::Int16, "i16"),
    (8, DType::UInt32, "u32"),
    (9, DType::Float16, "f16"),
    (10, DType::UInt64, "u64"),
];

/// Returns the dtype of a tag; `None` for unknown tags.
pub fn dtype_of(tag: u32) -> Option<DType> {
    TAGS.iter().find(|row| row.0 == tag).map(|row| row.1)
}

/// Returns the format's own name of a tag.
pub fn name_of(tag: u32) -> Option<&'static str> {
    TAGS.iter().find(|row| row.0 == tag).map(|row| row.2)
}

/// Returns the tag of a dtype; `None` for unsupported dtypes.
pub fn tag_of(dtype: DType) -> Option<u32> {
    TAGS.iter().find(|row| row.1 == dtype).map(|row| row.0)
}

/// One record of the directory.
///
/// | offset in the record | size | field |
/// |---|---|---|
/// | 0 | 4 | length of the name in bytes, `n` |
/// | 4 | 4 | dtype tag |
/// | 8 | 4 | number of dimensions, 1 to 8 |
/// | 12 | 4 | reserved: written 0, ignored on read |
/// | 16 | n | name, UTF-8 |
/// | 16 + n | 0–7 | zero padding to a multiple of 8 from the record's start |
/// | … | 8 per dimension | shape |
/// | … | 8 per dimension | chunk shape |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetRecord {
    /// Name of the dataset.
    pub name: String,
    /// The dtype tag, which can be unknown.
    pub dtype: u32,
    /// The reserved field as stored.
    pub reserved: u32,
    /// Extent of each dimension.
    pub shape: Coords,
    /// Extent of an unclipped chunk along each dimension.
    pub chunk_shape: Coords,
}

impl DatasetRecord {
    /// Parses one record.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.at();
        let name_len = cursor.u32(WHAT)? as usize;
        let dtype = cursor.u32(WHAT)?;
        let ndim = cursor.u32(WHAT)? as usize;
        let reserved = cursor.u32(WHAT)?;
        if !(1..=MAX_RANK).contains(&ndim) {
            return Err(cursor.corrupt_at(start + 8, WHAT, format!("rank {ndim} is outside 1..={MAX_RANK}")));
        }
        let name_at = cursor.at();
        let name = std::str::from_utf8(cursor.take(name_len, WHAT)?)
            .map_err(|e| cursor.corrupt_at(name_at, WHAT, format!("invalid UTF-8 in name: {e}")))?;
        // Padding aligns the shape relative to the start of the record.
        cursor.take((16 + name_len).next_multiple_of(8) - (16 + name_len), WHAT)?;
        let mut words = || (0..ndim).map(|_| cursor.u64(WHAT)).collect::<Result<Coords>>();
        let (shape, chunk_shape) = (words()?, words()?);
        Ok(Self { name: name.to_owned(), dtype, reserved, shape, chunk_shape })
    }

    /// Appends the encoded record.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        // Writers reject names and ranks beyond `u32` earlier.
        out.extend(u32::try_from(self.name.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.dtype.to_le_bytes());
        out.extend(u32::try_from(self.shape.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.reserved.to_le_bytes());
        out.extend(self.name.as_bytes());
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
        for word in self.shape.iter().chain(&self.chunk_shape) {
            out.extend(word.to_le_bytes());
        }
    }

    /// Returns dtype and grid if the record describes a valid array.
    ///
    /// # Errors
    /// `Unsupported` for an unknown dtype tag; `Corrupt` for a chunk extent of 0 or an array beyond `u64` bytes.
    pub fn geometry(&self, object: &str) -> Result<(DType, ChunkGrid)> {
        let dtype = dtype_of(self.dtype).ok_or_else(|| {
            Error::unsupported(format!("the .tet dtype tag {}", self.dtype)).in_array(&self.name)
        })?;
        let corrupt = |detail: String| Error::corrupt(WHAT, object, None, detail).in_array(&self.name);
        let grid = ChunkGrid::new(&self.shape, &self.chunk_shape).map_err(|e| corrupt(e.to_string()))?;
        let cells = tesseral_core::Region::from_shape(&self.shape).cells();
        let bytes = cells.and_then(|n| n.checked_mul(dtype.size().unwrap_or(1) as u64));
        if bytes.is_none() {
            return Err(corrupt(format!("shape {:?} exceeds 2^64 bytes", self.shape)));
        }
        Ok((dtype, grid))
    }
}

/// Parses the directory, with `cursor` at its length, and checks that the records end at that length.
///
/// # Errors
/// `Corrupt`.
pub fn parse(cursor: &mut Cursor<'_>, count: u32) -> Result<Vec<DatasetRecord>> {
    let start = cursor.at();
    let blob_len = cursor.u64(WHAT)?;
    let available = cursor.rest().len() as u64;
    if blob_len > available {
        return Err(cursor.corrupt_at(
            start,
            WHAT,
            format!("{blob_len} bytes of records, found {available}"),
        ));
    }
    if u64::from(count) > blob_len / MIN_RECORD {
        let detail = format!("{count} datasets do not fit {blob_len} bytes of records");
        return Err(cursor.corrupt_at(start, WHAT, detail));
    }
    // `blob_len` is at most the length of a slice.
    let blob = cursor.take(blob_len as usize, WHAT)?;
    let mut records = cursor.over(blob, start + 8);
    let mut datasets = Vec::with_capacity(count as usize);
    for _ in 0..count {
        datasets.push(DatasetRecord::parse(&mut records)?);
    }
    if !records.rest().is_empty() {
        let detail = format!("{} extra bytes after the last of {count} records", records.rest().len());
        return Err(records.corrupt(WHAT, detail));
    }
    Ok(datasets)
}

/// Appends the directory and zero padding. `out` must begin with the superblock.
pub fn write(datasets: &[DatasetRecord], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0; 8]);
    datasets.iter().for_each(|record| record.write(out));
    let blob_len = (out.len() - start - 8) as u64;
    out[start..start + 8].copy_from_slice(&blob_len.to_le_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
}

/// Offset of the chunk index after records of `blob_len` bytes; `None` if it exceeds `u64`.
pub fn index_offset(blob_len: u64) -> Option<u64> {
    align8(RECORDS_OFFSET.checked_add(blob_len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, rank: usize) -> DatasetRecord {
        let words: Coords = (1..=rank as u64).collect();
        DatasetRecord { name: name.into(), dtype: 7, reserved: 0, shape: words.clone(), chunk_shape: words }
    }

    #[test]
    fn round_trips() {
        let datasets: Vec<_> = (1..=8)
            .map(|rank| record(&"nämé/x".chars().cycle().take(rank).collect::<String>(), rank))
            .collect();
        let mut bytes = Vec::new();
        write(&datasets, &mut bytes);
        assert_eq!(bytes.len() % 8, 0);
        let mut cursor = Cursor::at_offset("f", &bytes, 32);
        assert_eq!(parse(&mut cursor, 8).unwrap(), datasets);
        assert!(parse(&mut Cursor::at_offset("f", &bytes, 32), 7).is_err());
        assert!(parse(&mut Cursor::at_offset("f", &bytes, 32), 9).is_err());
    }

    #[test]
    fn tags_are_a_bijection() {
        for tag in 1..=10 {
            assert_eq!(tag_of(dtype_of(tag).unwrap()), Some(tag));
            assert!(name_of(tag).is_some());
        }
        assert_eq!((dtype_of(0), dtype_of(11), tag_of(DType::Bool)), (None, None, None));
    }

    #[test]
    fn invalid_records_are_rejected() {
        let mut zero = record("a", 2);
        zero.chunk_shape[1] = 0;
        assert!(zero.geometry("f").unwrap_err().is_damage());
        let mut huge = record("a", 2);
        huge.shape = Coords::from_slice(&[u64::MAX, 2]);
        huge.chunk_shape = huge.shape.clone();
        assert!(huge.geometry("f").unwrap_err().is_damage());
        let mut empty = record("a", 2);
        empty.shape[0] = 0;
        assert_eq!(empty.geometry("f").unwrap().1.total(), 0);
    }
}
