//! Mapped files: the only `unsafe` of this crate.

use std::fs::File;

use bytes::Bytes;
use memmap2::Mmap;

/// Maps a whole file for reading. Empty files need no map.
pub(crate) fn map(file: &File) -> std::io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    #[allow(unsafe_code)]
    // SAFETY: the map is private to this process and read-only, so no Rust code changes the bytes behind a shared
    // slice. Another process may still write to or cut the file; docs/adr/0002 says when files are mapped and what
    // `LocalStore` does about it (length checked before every use, `Access::Read` for files that others write to).
    let map = unsafe { Mmap::map(file) }?;
    Ok(Bytes::from_owner(map))
}
