//! Folders as one file: a zip archive without compression.

use std::io::{Read, Write};
use std::path::Path;

use tesseral::{Cancel, Error, Result};

/// Date of all entries: 1980-01-01, the first one that the format can express.
const DATE: u16 = 0x21;

/// Bytes of a file in memory.
const PIECE: usize = 256 << 10;

/// Visits the bytes of a file piece by piece.
fn pieces(path: &Path, cancel: &Cancel, see: &mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> Result<()> {
    let failed = |e| Error::io("archive", path.display().to_string(), e);
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut piece = vec![0; PIECE];
    loop {
        cancel.check()?;
        let n = file.read(&mut piece).map_err(failed)?;
        if n == 0 {
            return Ok(());
        }
        see(&piece[..n]).map_err(failed)?;
    }
}

/// Writes every file of a folder. Names are relative to `base`. Files are read twice: a header precedes the content, with its
/// checksum.
pub(crate) fn write(folder: &Path, base: &str, cancel: &Cancel, out: &mut impl Write) -> Result<()> {
    let failed = |e| Error::io("archive", folder.display().to_string(), e);
    let mut names = Vec::new();
    list(folder, String::new(), &mut names).map_err(failed)?;
    names.sort();
    let mut entries = Vec::new();
    let mut offset = 0_u64;
    for name in &names {
        let (mut hasher, mut length) = (crc32fast::Hasher::new(), 0_u64);
        pieces(&folder.join(name), cancel, &mut |piece| {
            hasher.update(piece);
            length += piece.len() as u64;
            Ok(())
        })?;
        let head = head(&format!("{base}/{name}"), hasher.finalize(), length)?;
        let mut local = 0x0403_4b50_u32.to_le_bytes().to_vec();
        local.extend(&head.common);
        local.extend(head.name.as_bytes());
        out.write_all(&local).map_err(failed)?;
        pieces(&folder.join(name), cancel, &mut |piece| out.write_all(piece))?;
        entries.push((head, offset));
        offset += local.len() as u64 + length;
    }
    let mut directory = Vec::new();
    for (head, at) in &entries {
        directory.extend(0x0201_4b50_u32.to_le_bytes());
        directory.extend([20, 0]);
        directory.extend(&head.common);
        // Comment, disk, attributes.
        directory.extend([0; 10]);
        directory.extend(small(*at)?.to_le_bytes());
        directory.extend(head.name.as_bytes());
    }
    let count = u16::try_from(entries.len())
        .map_err(|_| Error::limit("files of an archive", entries.len() as u64, u16::MAX.into()))?;
    let mut end = 0x0605_4b50_u32.to_le_bytes().to_vec();
    end.extend([0; 4]);
    end.extend(count.to_le_bytes());
    end.extend(count.to_le_bytes());
    end.extend(small(directory.len() as u64)?.to_le_bytes());
    end.extend(small(offset)?.to_le_bytes());
    end.extend([0; 2]);
    out.write_all(&directory).and_then(|()| out.write_all(&end)).map_err(failed)
}

/// The part that both headers of an entry share.
struct EntryHead {
    name: String,
    common: Vec<u8>,
}

fn small(n: u64) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::limit("the bytes of an archive", n, u32::MAX.into()))
}

fn head(name: &str, crc: u32, length: u64) -> Result<EntryHead> {
    let length = small(length)?.to_le_bytes();
    let name_length = u16::try_from(name.len())
        .map_err(|_| Error::limit("the length of a file name", name.len() as u64, u16::MAX.into()))?;
    // Version 2.0, names in UTF-8, stored, midnight.
    let mut common = vec![20, 0, 0, 8, 0, 0, 0, 0];
    common.extend(DATE.to_le_bytes());
    common.extend(crc.to_le_bytes());
    common.extend(length);
    common.extend(length);
    common.extend(name_length.to_le_bytes());
    common.extend([0, 0]);
    Ok(EntryHead { name: name.to_owned(), common })
}

fn list(folder: &Path, prefix: String, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), format!("{name}/"), names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_have_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/b"), b"123456789").unwrap();
        let mut out = Vec::new();
        write(folder.path(), "x", &Cancel::default(), &mut out).unwrap();
        assert_eq!(&out[..4], b"PK\x03\x04");
        assert_eq!(out[14..18], 0xcbf4_3926_u32.to_le_bytes());
        assert_eq!(&out[30..35], b"x/a/b");
        let end = out.len() - 22;
        assert_eq!(&out[end..end + 4], b"PK\x05\x06");
        let at = u32::from_le_bytes(out[end + 16..end + 20].try_into().unwrap()) as usize;
        assert_eq!(&out[at..at + 4], b"PK\x01\x02");
    }
}
