//! The directory of a ZIP archive: its members, and where their bytes are.
//!
//! ```text
//! archive: member │ member │ … │ central directory │ [ZIP64 end, locator] │ end
//! member:  local header, 30 bytes │ name │ extra │ stored bytes
//! ```
//!
//! Numbers are little-endian. ZIP64 replaces sizes, offsets and counts that do not fit.

use std::ops::Range;

use tesseral_core::{Cursor, Error, Limits, Result};
use tesseral_store::{Store, StoreExt};

/// First bytes of a member.
pub const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// First bytes of an entry of the central directory.
pub const CENTRAL: [u8; 4] = *b"PK\x01\x02";
/// First bytes of the end of an archive.
pub const END: [u8; 4] = *b"PK\x05\x06";
/// First bytes of the end of a ZIP64 archive, and of its locator.
pub const END64: [u8; 4] = *b"PK\x06\x06";
/// First bytes of the locator of the end of a ZIP64 archive.
pub const LOCATOR: [u8; 4] = *b"PK\x06\x07";
/// Bytes of a local header before its name.
pub const LOCAL_LEN: u64 = 30;
/// Bytes of the end without its comment.
const END_LEN: usize = 22;
/// Bytes of the end of a ZIP64 archive, and of its locator.
const END64_LEN: u64 = 56;
const LOCATOR_LEN: u64 = 20;
/// Bytes of an entry of the central directory before its name.
const CENTRAL_LEN: usize = 46;
/// The extra field of ZIP64.
pub const EXTRA64: u16 = 1;

/// How a member is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberMethod {
    /// Uncompressed.
    Stored,
    /// A deflate stream.
    Deflate,
    /// Encrypted, or another method.
    Other(u16),
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveMember {
    /// Path inside the archive.
    pub name: String,
    /// How it is stored.
    pub method: MemberMethod,
    /// CRC-32 of its content.
    pub crc: u32,
    /// Bytes that are stored.
    pub stored: u64,
    /// Bytes of its content.
    pub len: u64,
    /// Offset of its local header.
    pub offset: u64,
    /// The comment.
    pub comment: Vec<u8>,
}

/// A parsed directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// The members, in the order of the directory.
    pub members: Vec<ArchiveMember>,
    /// The comment of the archive.
    pub comment: Vec<u8>,
    /// Bytes of directory and end.
    pub len: u64,
}

/// Location of the central directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPlace {
    /// Byte range.
    pub range: Range<u64>,
    /// Number of entries.
    pub entries: u64,
    /// The comment of the archive.
    pub comment: Vec<u8>,
}

/// The offset of the end within the last bytes of an archive.
fn end_of(tail: &[u8]) -> Option<usize> {
    let last = tail.len().checked_sub(END_LEN)?;
    (0..=last).rev().find(|at| {
        let Some(end) = tail.get(*at..) else { return false };
        let comment = end.get(20..22).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        end.starts_with(&END) && comment == Some(end.len() - END_LEN)
    })
}

impl DirectoryPlace {
    /// Reads the end of an archive from its last bytes, which begin at offset `start`. `read` returns bytes of the archive.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for multi-volume archives.
    pub fn parse(
        tail: &[u8],
        start: u64,
        object: &str,
        read: impl Fn(Range<u64>) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let Some(at) = end_of(tail) else {
            return Err(Error::corrupt("end", object, None, "missing end record: the archive is truncated"));
        };
        let position = start + at as u64;
        let mut end = Cursor::at_offset(object, tail.get(at..).unwrap_or_default(), position);
        end.magic(&END, "end")?;
        let disks = (end.u16("end")?, end.u16("end")?);
        let _on_this_disk = end.u16("end")?;
        let entries = end.u16("end")?;
        let (size, offset) = (end.u32("end")?, end.u32("end")?);
        let comment = usize::from(end.u16("end")?);
        let comment = end.take(comment, "comment")?.to_vec();
        let (mut entries, mut size, mut offset) = (u64::from(entries), u64::from(size), u64::from(offset));
        let mut several = disks != (0, 0) && disks != (0xffff, 0xffff);
        let mut limit = position;
        if entries == 0xffff || size == 0xffff_ffff || offset == 0xffff_ffff {
            let corrupt = || Error::corrupt("end", object, position, "missing end record of ZIP64");
            let locator = position.checked_sub(LOCATOR_LEN).ok_or_else(corrupt)?;
            let bytes = read(locator..position)?;
            let mut locator = Cursor::at_offset(object, &bytes, locator);
            locator.magic(&LOCATOR, "ZIP64 locator")?;
            several |= locator.u32("ZIP64 locator")? != 0;
            let at = locator.u64("ZIP64 locator")?;
            let end64 = at.checked_add(END64_LEN).filter(|end| *end <= position).ok_or_else(corrupt)?;
            let bytes = read(at..end64)?;
            let mut end = Cursor::at_offset(object, &bytes, at);
            end.magic(&END64, "ZIP64 end")?;
            end.take(20, "ZIP64 end")?;
            end.u64("ZIP64 end")?;
            (entries, size, offset) = (end.u64("ZIP64 end")?, end.u64("ZIP64 end")?, end.u64("ZIP64 end")?);
            limit = at;
        }
        if several {
            return Err(Error::unsupported("multi-volume archives"));
        }
        let range = offset.checked_add(size).filter(|end| *end <= limit).map(|end| offset..end);
        let Some(range) = range.filter(|_| entries <= size / CENTRAL_LEN as u64) else {
            let detail = format!("a directory of {entries} entries and {size} bytes at offset {offset}");
            return Err(Error::corrupt("end", object, position, detail));
        };
        Ok(Self { range, entries, comment })
    }
}

/// Parses one entry of the central directory.
fn member(cursor: &mut Cursor<'_>) -> Result<ArchiveMember> {
    let what = "central directory";
    let at = cursor.at();
    cursor.magic(&CENTRAL, what)?;
    cursor.take(4, what)?;
    let (flags, method) = (cursor.u16(what)?, cursor.u16(what)?);
    cursor.take(4, what)?;
    let crc = cursor.u32(what)?;
    let (stored, len) = (cursor.u32(what)?, cursor.u32(what)?);
    let (name, extra) = (cursor.u16(what)?, cursor.u16(what)?);
    let comment = cursor.u16(what)?;
    cursor.take(8, what)?;
    let offset = cursor.u32(what)?;
    let name = cursor.take(name.into(), what)?;
    let extra = cursor.take(extra.into(), what)?;
    let mut extra = cursor.over(extra, cursor.at());
    let comment = cursor.take(comment.into(), what)?.to_vec();
    let Ok(name) = std::str::from_utf8(name) else {
        return Err(cursor.corrupt_at(at, what, "a name is not UTF-8"));
    };
    let mut numbers = [len, stored, offset].map(u64::from);
    while extra.rest().len() >= 4 {
        let (id, size) = (extra.u16(what)?, extra.u16(what)?);
        let field = extra.take(size.into(), what)?;
        let mut field = extra.over(field, extra.at());
        if id == EXTRA64 {
            for number in numbers.iter_mut().filter(|number| **number == 0xffff_ffff) {
                *number = field.u64(what)?;
            }
        }
    }
    let [len, stored, offset] = numbers;
    let method = match method {
        // Flag bit 0: encrypted.
        _ if flags & 1 != 0 => MemberMethod::Other(method),
        0 => MemberMethod::Stored,
        8 => MemberMethod::Deflate,
        other => MemberMethod::Other(other),
    };
    if method == MemberMethod::Stored && stored != len {
        return Err(cursor.corrupt_at(
            at,
            what,
            format!("{name:?} has {stored} stored bytes, expected {len}"),
        ));
    }
    Ok(ArchiveMember { name: name.to_owned(), method, crc, stored, len, offset, comment })
}

impl Directory {
    /// Parses the central directory.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(bytes: &[u8], place: &DirectoryPlace, object: &str) -> Result<Self> {
        let mut cursor = Cursor::at_offset(object, bytes, place.range.start);
        let mut members = Vec::new();
        for _ in 0..place.entries {
            members.push(member(&mut cursor)?);
        }
        cursor.finish("central directory")?;
        Ok(Self { members, comment: place.comment.clone(), len: place.range.end - place.range.start })
    }

    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Limit`; `Io`.
    pub fn read(store: &dyn Store, limits: &Limits) -> Result<Self> {
        let (object, len) = (store.describe(""), store.len("")?);
        let tail = len.saturating_sub(END_LEN as u64 + 0xffff);
        let bytes = store.read("", tail..len)?;
        let read = |range: Range<u64>| Ok(store.read("", range)?.to_vec());
        let place = DirectoryPlace::parse(&bytes, tail, &object, read)?;
        limits.check_metadata(place.range.end - place.range.start)?;
        let mut directory = Self::parse(&store.read("", place.range.clone())?, &place, &object)?;
        directory.len = len - place.range.start;
        Ok(directory)
    }
}

/// The offset of a member's stored bytes, relative to its local header.
///
/// # Errors
/// `Corrupt`.
pub fn stored_offset(local: &[u8], object: &str, offset: u64) -> Result<u64> {
    let mut cursor = Cursor::at_offset(object, local, offset);
    cursor.magic(&LOCAL, "local header")?;
    cursor.take(22, "local header")?;
    let (name, extra) = (cursor.u16("local header")?, cursor.u16("local header")?);
    Ok(LOCAL_LEN + u64::from(name) + u64::from(extra))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<Directory> {
        let read = |range: Range<u64>| {
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            bytes.get(range).map(<[u8]>::to_vec).ok_or_else(|| Error::corrupt("x", "x", 0, "outside"))
        };
        let place = DirectoryPlace::parse(bytes, 0, "x", read)?;
        Directory::parse(&read(place.range.clone())?, &place, "x")
    }

    fn archive() -> Vec<u8> {
        let mut out = b"PK\x01\x02".to_vec();
        out.extend([0; 6]);
        out.extend(8_u16.to_le_bytes());
        out.extend([0; 4]);
        for word in [7_u32, u32::MAX, u32::MAX] {
            out.extend(word.to_le_bytes());
        }
        for half in [5_u16, 20, 2] {
            out.extend(half.to_le_bytes());
        }
        out.extend([0; 8]);
        out.extend(9_u32.to_le_bytes());
        out.extend(b"a.npy\x01\0\x10\0");
        out.extend(1_u64.to_le_bytes());
        out.extend((1_u64 << 40).to_le_bytes());
        out.extend(b"{}");
        let size = out.len() as u32;
        out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        out.extend([size, 0].iter().flat_map(|word| word.to_le_bytes()));
        out.extend(b"\x02\0hi");
        out
    }

    #[test]
    fn large_sizes_are_in_the_extra_field() {
        let Directory { members, comment, .. } = parse(&archive()).unwrap();
        let member = &members[0];
        assert_eq!((member.len, member.stored, member.offset), (1, 1 << 40, 9));
        assert_eq!((member.method, member.crc, &member.name[..]), (MemberMethod::Deflate, 7, "a.npy"));
        assert_eq!((&member.comment[..], &comment[..]), (&b"{}"[..], &b"hi"[..]));
    }

    #[test]
    fn truncated_archives_are_rejected() {
        let whole = archive();
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(noise in proptest::collection::vec((0..200_usize, any::<u8>()), 0..6), local in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = archive();
            for (at, byte) in noise {
                if let Some(slot) = bytes.get_mut(at) {
                    *slot = byte;
                }
            }
            let _ = (parse(&bytes), parse(&local), stored_offset(&local, "x", 0));
        }
    }
}
