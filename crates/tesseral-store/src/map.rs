//! Memory-mapping of files for reading.

use std::fs::File;

use memmap2::Mmap;

/// Memory-maps a whole file for reading. Empty files cannot be mapped.
pub(crate) fn map(file: &File) -> std::io::Result<Mmap> {
    #[allow(unsafe_code)]
    // SAFETY: the map is private to this process and read-only, so no Rust code changes the bytes behind a shared slice.
    // Another process can still write to or truncate the file; docs/adr/0002 describes when files are mapped and how
    // `LocalStore` handles it (`sigbus.rs`, and `ReadMode::Read` for files that other processes write to).
    unsafe {
        Mmap::map(file)
    }
}
