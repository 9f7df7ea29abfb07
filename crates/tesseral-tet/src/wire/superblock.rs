//! The superblock: the first 32 bytes (`docs/formats/tet.md`, "Superblock").

use tesseral_core::{Error, Result};

use super::Cursor;

/// Size of the superblock in bytes.
pub const LEN: u64 = 32;
/// Magic at the start of every file.
pub const MAGIC: [u8; 4] = *b"TETR";
/// The supported layout version.
pub const LAYOUT_VERSION: u32 = 1;
/// Flag: the file ends with a footer.
pub const FLAG_FOOTER: u32 = 1;
/// Offset of the flags.
pub const FLAGS_OFFSET: u64 = 12;

const WHAT: &str = "superblock";

/// The superblock of a file.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 4 | magic `TETR` |
/// | 4 | 4 | layout version, 1 |
/// | 8 | 4 | number of datasets |
/// | 12 | 4 | flags; bit 0: a footer ends the file; others written 0, ignored on read |
/// | 16 | 8 | offset of the chunk index |
/// | 24 | 8 | length of the chunk index |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number of directory records.
    pub dataset_count: u32,
    /// Flags as stored.
    pub flags: u32,
    /// Offset of the chunk index.
    pub chunk_index_offset: u64,
    /// Length of the chunk index in bytes.
    pub chunk_index_length: u64,
}

impl Superblock {
    /// Parses the superblock of a file of `file_len` bytes.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for another layout version.
    pub fn parse(cursor: &mut Cursor<'_>, file_len: u64) -> Result<Self> {
        let start = *cursor;
        // Check the length first, so that a truncated file is reported as truncated.
        cursor.take(32, WHAT)?;
        let mut fields = start;
        fields.magic(&MAGIC, WHAT)?;
        let version = fields.u32(WHAT)?;
        if version != LAYOUT_VERSION {
            return Err(Error::unsupported(format!(".tet layout version {version}"))
                .hint(format!("supported layout version: {LAYOUT_VERSION}")));
        }
        let superblock = Self {
            dataset_count: fields.u32(WHAT)?,
            flags: fields.u32(WHAT)?,
            chunk_index_offset: fields.u64(WHAT)?,
            chunk_index_length: fields.u64(WHAT)?,
        };
        let (offset, length) = (superblock.chunk_index_offset, superblock.chunk_index_length);
        match offset.checked_add(length) {
            Some(end) if end <= file_len => Ok(superblock),
            _ => Err(start.corrupt_at(
                start.at() + 16,
                WHAT,
                format!(
                    "a chunk index of {length} bytes at {offset} does not fit a file of {file_len} bytes"
                ),
            )),
        }
    }

    /// Appends the encoded superblock.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(LAYOUT_VERSION.to_le_bytes());
        out.extend(self.dataset_count.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.chunk_index_offset.to_le_bytes());
        out.extend(self.chunk_index_length.to_le_bytes());
    }

    /// Returns whether the file ends with a footer.
    pub fn has_footer(&self) -> bool {
        self.flags & FLAG_FOOTER != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let superblock =
            Superblock { dataset_count: 3, flags: 1, chunk_index_offset: 80, chunk_index_length: 240 };
        let mut bytes = Vec::new();
        superblock.write(&mut bytes);
        assert_eq!(bytes.len() as u64, LEN);
        let mut cursor = Cursor::at_offset("f", &bytes, 0);
        assert_eq!(Superblock::parse(&mut cursor, 320).unwrap(), superblock);
        assert!(cursor.rest().is_empty());
        let short = Superblock::parse(&mut Cursor::at_offset("f", &bytes, 0), 319).unwrap_err();
        assert_eq!(short.offset(), Some(16));
    }
}
