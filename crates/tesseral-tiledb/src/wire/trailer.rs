//! Digests of files that are one generic tile, or lines of text. See `docs/formats/tiledb.md`, section "Digests", for the byte
//! tables.
//!
//! The [name](super::name::carries_digest) of a file announces its digest, so that a removed digest is an error.

use tesseral_core::{Advice, Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::name;
use super::primitive::{le64, put_u64};

/// Magic of the trailer of a generic tile.
const MAGIC: [u8; 8] = *b"TSRLXXH3";

/// Size of the trailer of a generic tile in bytes.
pub const TRAILER_LEN: usize = 24;

/// Suffix of the identifier in the digest line of a text file.
const LINE_MARK: &str = "d16e5701d16e5701";

fn corrupt(object: &str, at: usize, detail: &str) -> Error {
    Error::corrupt("the digest of a file", object, at as u64, detail)
        .hint(Advice::from("restore the file from a copy").or(Advice::SkipDigests))
}

fn mismatch(object: &str, at: usize, expected: u64, computed: u64) -> Error {
    corrupt(object, at, &format!("checksum mismatch: expected {expected:016x}, computed {computed:016x}"))
}

/// Appends the trailer of a file: magic, `u64` length of the bytes before it, `u64` digest of everything before that number.
pub fn finish_run(file: &str, bytes: &mut Vec<u8>) {
    let len = bytes.len() as u64;
    bytes.extend_from_slice(&MAGIC);
    put_u64(len, bytes);
    put_u64(xxh3_64_with_seed(bytes, name::seed(file)), bytes);
}

/// Returns the bytes before the trailer of a file, verified if `verify` is set; all bytes of a file without a trailer.
///
/// # Errors
/// `Corrupt` if the digest differs, or is missing from a file whose name announces one.
pub fn open<'a>(object: &str, file: &str, bytes: &'a [u8], verify: bool) -> Result<&'a [u8]> {
    let at = bytes.len().saturating_sub(TRAILER_LEN);
    let (front, trailer) = bytes.split_at(at);
    let sealed = trailer.len() == TRAILER_LEN && trailer[..8] == MAGIC && le64(&trailer[8..16]) == at as u64;
    if !sealed {
        if verify && name::carries_digest(file) {
            return Err(corrupt(object, at, "missing or damaged"));
        }
        return Ok(bytes);
    }
    if verify {
        let (expected, computed) =
            (le64(&trailer[16..]), xxh3_64_with_seed(&bytes[..at + 16], name::seed(file)));
        if expected != computed {
            return Err(mismatch(object, at, expected, computed));
        }
    }
    Ok(front)
}

/// Returns the last line of a text file with this name: the name of a nonexistent fragment, because other readers expect names,
/// with the digest of the lines before it as its identifier.
fn line(object: &str, digest: u64) -> Option<String> {
    let (folder, file) = object.rsplit_once('/').unwrap_or(("", object));
    let (stem, ending) = file.rsplit_once('.')?;
    let time = name::parse(stem)?;
    let folder = folder.rsplit('/').next().unwrap_or(folder);
    let folder = match (ending, folder) {
        ("vac", "__commits") => "__fragments",
        (_, folder) => folder,
    };
    let version = time.version.map(|v| format!("_{v}")).unwrap_or_default();
    Some(format!("/{folder}/__{}_{}_{digest:016x}{LINE_MARK}{version}\n", time.start, time.end))
}

/// Appends a digest line to the lines of a text file whose name announces one.
pub fn seal_lines(object: &str, bytes: &mut Vec<u8>) {
    if name::carries_digest(object)
        && let Some(line) = line(object, xxh3_64_with_seed(bytes, name::seed(object)))
    {
        bytes.extend_from_slice(line.as_bytes());
    }
}

/// Returns the lines before the digest line of a text file, verified if `verify` is set; all lines of a file without one.
///
/// # Errors
/// As [`open`].
pub fn open_lines<'a>(described: &str, object: &str, bytes: &'a [u8], verify: bool) -> Result<&'a [u8]> {
    let Some(usual) = line(object, 0).filter(|_| name::carries_digest(object)) else { return Ok(bytes) };
    let at = bytes.len().saturating_sub(usual.len());
    let (front, last) = bytes.split_at(at);
    if verify
        && line(object, xxh3_64_with_seed(front, name::seed(object)))
            .is_none_or(|line| line.as_bytes() != last)
    {
        return Err(corrupt(described, at, "digest mismatch or missing digest line"));
    }
    Ok(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "__1_2_0123456789abcdef01234567d16e5701";

    #[test]
    fn every_flip_and_truncation_of_a_tile_with_a_digest_is_detected() {
        let mut bytes = b"a generic tile".to_vec();
        finish_run(NAME, &mut bytes);
        assert_eq!(open("x", NAME, &bytes, true).unwrap(), b"a generic tile");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open("x", NAME, &flipped, true).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(open("x", NAME, &bytes[..cut], true).is_err(), "{cut} bytes");
        }
        // The intact content of another file is rejected.
        assert!(open("x", &NAME.replace("__1_2", "__1_3"), &bytes, true).is_err());
        // Names of other writers announce no digest.
        assert_eq!(open("x", "__1_2_0123456789abcdef0123456789abcdef", b"tile", true).unwrap(), b"tile");
    }

    #[test]
    fn every_flip_and_truncation_of_lines_with_a_digest_is_detected() {
        let object = format!("__commits/{NAME}_22.vac");
        let mut bytes = b"/__fragments/a\n/__fragments/b\n".to_vec();
        seal_lines(&object, &mut bytes);
        assert_eq!(open_lines("x", &object, &bytes, true).unwrap(), b"/__fragments/a\n/__fragments/b\n");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open_lines("x", &object, &flipped, true).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(open_lines("x", &object, &bytes[..cut], true).is_err(), "{cut} bytes");
        }
    }
}
