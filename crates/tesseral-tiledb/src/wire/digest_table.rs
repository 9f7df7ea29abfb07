//! Digests of a fragment's files, stored between the sections and the footer of its metadata, which other readers skip. See
//! `docs/formats/tiledb.md`, section "Digests", for the byte table.
//!
//! ```text
//! sections │ lists of block digests │ directory │ tail │ footer │ u64 length of the footer
//! directory   u32 block size │ u32 sections │ u32 files │ u32 0 │ u64 digest of the footer
//!             per section u64 digest, in the order of offsets
//!             per file u32 number │ u32 0 │ u64 blocks │ u64 digest of its list
//! tail        magic │ u64 bytes of the directory │ u64 digest of the directory, the magic and that number
//! ```
//!
//! A tile is divided into blocks of the block size, of which the last one can be shorter; an empty tile is one block. Digests
//! are XXH3-64 with seed 0 of the stored bytes; the digest in the tail uses the digest of the fragment's name as seed. A byte
//! range is verified by the digests of its blocks, a list by its digest in the directory, the directory by the tail.

use std::ops::Range;

use tesseral_core::{Cursor, Error, Result};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::name;
use super::primitive::{le64, put_u32, put_u64};

/// Block size of new fragments in bytes.
pub const BLOCK: u64 = 16 << 10;

/// Size of the tail in bytes.
pub const TAIL_LEN: u64 = 24;

const MAGIC: [u8; 8] = *b"TSRLDIG1";

/// Computes the digests of the blocks of a tile.
pub fn blocks(tile: &[u8]) -> Vec<u64> {
    if tile.is_empty() {
        return vec![xxh3_64(tile)];
    }
    // A block fits in memory if its tile does.
    tile.chunks(BLOCK as usize).map(xxh3_64).collect()
}

/// Number of blocks of a tile of `len` bytes.
pub fn block_count(len: u64, block: u64) -> u64 {
    len.div_ceil(block.max(1)).max(1)
}

/// A data file in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// File number, three per slot: values or offsets, variable-length data, validity.
    pub number: u32,
    /// Byte range of its digests in the metadata file.
    pub list: Range<u64>,
    /// Digest of that list.
    digest: u64,
}

/// Content of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestTable {
    /// Block size in bytes.
    pub block: u64,
    /// End of the sections.
    pub sections_end: u64,
    footer: u64,
    sections: Vec<u64>,
    files: Vec<FileRow>,
}

fn mismatch(object: &str, what: &'static str, at: u64, expected: u64, computed: u64) -> Error {
    let detail = format!("checksum mismatch: expected {expected:016x}, computed {computed:016x}");
    Error::corrupt(what, object, at, detail).hint("restore the fragment from a copy")
}

/// Size of the directory that a tail belongs to; `None` if the bytes are not a tail.
pub fn directory_len(tail: &[u8]) -> Option<u64> {
    (tail.len() as u64 == TAIL_LEN && tail[..8] == MAGIC).then(|| le64(&tail[8..16]))
}

impl DigestTable {
    /// Parses the directory of a fragment, at offset `at`, and its tail.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(object: &str, fragment: &str, at: u64, directory: &[u8], tail: &[u8]) -> Result<Self> {
        const WHAT: &str = "the digest table";
        let hashed = [directory, tail.get(..16).unwrap_or_default()].concat();
        let (expected, computed) =
            (le64(tail.get(16..24).unwrap_or(&[0; 8])), xxh3_64_with_seed(&hashed, name::seed(fragment)));
        if expected != computed {
            return Err(mismatch(object, WHAT, at, expected, computed));
        }
        let cursor = &mut Cursor::new(object, directory);
        let block = u64::from(cursor.u32(WHAT)?);
        let sections = u64::from(cursor.u32(WHAT)?);
        let files = u64::from(cursor.u32(WHAT)?);
        let reserved = cursor.u32(WHAT)?;
        if block == 0 || reserved != 0 {
            return Err(Error::unsupported("unknown layout of the digest table"));
        }
        let footer = cursor.u64(WHAT)?;
        let sections = cursor.u64s(sections, WHAT)?;
        let files = cursor.count(files, 24, WHAT)?;
        let mut rows = Vec::with_capacity(files);
        let mut bytes = 0_u64;
        for _ in 0..files {
            let number = cursor.u32(WHAT)?;
            let _ = cursor.u32(WHAT)?;
            let count = cursor.u64(WHAT)?;
            let digest = cursor.u64(WHAT)?;
            let end = count.checked_mul(8).and_then(|n| bytes.checked_add(n)).filter(|n| *n <= at);
            let end = end.ok_or_else(|| cursor.corrupt(WHAT, "the lists exceed the file"))?;
            rows.push(FileRow { number, list: bytes..end, digest });
            bytes = end;
        }
        cursor.finish(WHAT)?;
        let sections_end = at - bytes;
        for row in &mut rows {
            row.list = row.list.start + sections_end..row.list.end + sections_end;
        }
        Ok(Self { block, sections_end, footer, sections, files: rows })
    }

    /// Verifies the digest of a footer.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn check_footer(&self, object: &str, at: u64, footer: &[u8]) -> Result<()> {
        match xxh3_64(footer) {
            computed if computed == self.footer => Ok(()),
            computed => Err(mismatch(object, "the footer", at, self.footer, computed)),
        }
    }

    /// Verifies the digest of a section. Sections are numbered in the order of their offsets.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn check_section(&self, object: &str, number: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let expected = self.sections.get(number).copied().unwrap_or(0);
        match xxh3_64(bytes) {
            computed if computed == expected => Ok(()),
            computed => Err(mismatch(object, "a section of the fragment", at, expected, computed)),
        }
    }

    /// Returns the row of a data file.
    pub fn file(&self, number: u32) -> Option<&FileRow> {
        self.files.iter().find(|row| row.number == number)
    }
}

impl FileRow {
    /// Parses and verifies a list of digests.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(&self, object: &str, bytes: &[u8]) -> Result<Vec<u64>> {
        let computed = xxh3_64(bytes);
        if computed != self.digest {
            return Err(mismatch(object, "a list of digests", self.list.start, self.digest, computed));
        }
        Ok(bytes.chunks_exact(8).map(le64).collect())
    }
}

/// Appends lists, directory and tail of a fragment to sections at `offsets`, then the footer with its length.
///
/// # Errors
/// `Limit` for too many rows.
pub fn write(
    fragment: &str,
    offsets: &mut Vec<u64>,
    files: &[(u32, &[u64])],
    footer: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    const WHAT: &str = "the digest table";
    offsets.sort_unstable();
    offsets.dedup();
    let mut directory = Vec::new();
    put_u32(BLOCK, WHAT, &mut directory)?;
    put_u32(offsets.len() as u64, WHAT, &mut directory)?;
    put_u32(files.len() as u64, WHAT, &mut directory)?;
    put_u32(0, WHAT, &mut directory)?;
    put_u64(xxh3_64(footer.get(..footer.len().saturating_sub(8)).unwrap_or_default()), &mut directory);
    let ends = offsets.iter().skip(1).copied().chain([out.len() as u64]);
    for (start, end) in offsets.iter().zip(ends) {
        let range = usize::try_from(*start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        put_u64(xxh3_64(out.get(range).unwrap_or_default()), &mut directory);
    }
    for (number, digests) in files {
        let start = out.len();
        digests.iter().for_each(|digest| put_u64(*digest, out));
        put_u32(u64::from(*number), WHAT, &mut directory)?;
        put_u32(0, WHAT, &mut directory)?;
        put_u64(digests.len() as u64, &mut directory);
        put_u64(xxh3_64(&out[start..]), &mut directory);
    }
    let len = directory.len() as u64;
    directory.extend_from_slice(&MAGIC);
    put_u64(len, &mut directory);
    put_u64(xxh3_64_with_seed(&directory, name::seed(fragment)), &mut directory);
    out.extend_from_slice(&directory);
    out.extend_from_slice(footer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sections, lists, directory, tail and footer of a metadata file.
    fn stored() -> (Vec<u8>, usize) {
        let mut out = b"first section, second section".to_vec();
        let sections = out.len();
        let footer = b"footer 12345678";
        write("name", &mut vec![15, 0], &[(0, &[1, 2, 3]), (4, &[9])], footer, &mut out).unwrap();
        (out, sections)
    }

    /// The table of a file whose footer has 15 bytes, including its length.
    fn parse(file: &[u8]) -> Result<DigestTable> {
        let tail_at = file.len() - 15 - 24;
        let tail = &file[tail_at..tail_at + 24];
        let len = directory_len(tail).and_then(|len| usize::try_from(len).ok());
        let at = len.and_then(|len| tail_at.checked_sub(len));
        let at = at.ok_or_else(|| Error::corrupt("the digest table", "x", None, "no tail"))?;
        DigestTable::parse("x", "name", at as u64, &file[at..tail_at], tail)
    }

    #[test]
    fn round_trips() {
        let (file, sections) = stored();
        let table = parse(&file).unwrap();
        assert_eq!((table.block, table.sections_end), (BLOCK, sections as u64));
        table.check_footer("x", 0, b"footer ").unwrap();
        table.check_section("x", 0, 0, b"first section, ").unwrap();
        table.check_section("x", 1, 15, b"second section").unwrap();
        assert!(table.check_section("x", 1, 15, b"second sectioN").is_err());
        assert!(table.check_section("x", 2, 15, b"").is_err());
        let row = table.file(0).unwrap();
        let list = |row: &FileRow| {
            let at = |n: u64| usize::try_from(n).unwrap();
            file[at(row.list.start)..at(row.list.end)].to_vec()
        };
        assert_eq!(row.parse("x", &list(row)).unwrap(), [1, 2, 3]);
        assert_eq!(table.file(4).unwrap().parse("x", &list(table.file(4).unwrap())).unwrap(), [9]);
        assert_eq!(table.file(1), None);
    }

    #[test]
    fn every_flip_of_directory_and_tail_is_detected() {
        let (file, sections) = stored();
        for at in sections + 4 * 8..file.len() - 15 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(parse(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn hostile_directories_are_errors() {
        let tail = |directory: &[u8]| {
            let mut out = MAGIC.to_vec();
            put_u64(directory.len() as u64, &mut out);
            put_u64(xxh3_64_with_seed(&[directory, &out].concat(), name::seed("name")), &mut out);
            out
        };
        let numbers = |values: &[u32]| values.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        for head in [[16384, u32::MAX, 0, 0], [16384, 0, u32::MAX, 0], [0, 0, 0, 0], [16384, 0, 0, 1]] {
            let directory = [numbers(&head), vec![0; 8]].concat();
            assert!(DigestTable::parse("x", "name", 99, &directory, &tail(&directory)).is_err(), "{head:?}");
        }
        for count in [u64::MAX, u64::MAX / 8, 13] {
            let row = [numbers(&[0, 0]), count.to_le_bytes().to_vec(), vec![0; 8]].concat();
            let directory = [numbers(&[16384, 0, 1, 0]), vec![0; 8], row].concat();
            assert!(DigestTable::parse("x", "name", 99, &directory, &tail(&directory)).is_err(), "{count}");
        }
        let (file, _) = stored();
        let len = usize::try_from(directory_len(&file[file.len() - 39..file.len() - 15]).unwrap()).unwrap();
        let directory = &file[file.len() - 39 - len..file.len() - 39];
        for cut in 0..directory.len() {
            assert!(
                DigestTable::parse("x", "name", 99, &directory[..cut], &tail(&directory[..cut])).is_err()
            );
        }
    }
}
