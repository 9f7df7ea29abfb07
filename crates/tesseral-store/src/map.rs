//! Mapping a file for reading.

use std::fs::File;

use memmap2::Mmap;

/// Maps a whole file for reading. Empty files cannot be mapped.
pub(crate) fn map(file: &File) -> std::io::Result<Mmap> {
    #[allow(unsafe_code)]
    // SAFETY: the map is private to this process and read-only, so no Rust code changes the bytes behind a shared
    // slice. Another process may still write to or cut the file; docs/adr/0002 says when files are mapped and what
    // `LocalStore` does about it (`guard.rs`, and `Access::Read` for files that others write to).
    unsafe {
        Mmap::map(file)
    }
}
