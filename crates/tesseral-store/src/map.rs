//! Memory-mapping of files for reading.

use std::fs::File;

use memmap2::Mmap;

/// Takes the pages of a map of a file out of the memory of this process; the next access maps them again.
pub(crate) fn release(map: &Mmap) {
    #[cfg(target_os = "linux")]
    {
        #[allow(unsafe_code)]
        // SAFETY: `MADV_DONTNEED` drops pages that were modified in memory; the map is read-only and of a file, so it has none,
        // and later accesses see the bytes of the file as before.
        let released = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        // Locked pages stay: only memory is at stake.
        drop(released);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = map;
}

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
