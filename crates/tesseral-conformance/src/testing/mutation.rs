//! Changed bytes, for parsers that must reject them without a panic.

use std::path::PathBuf;

/// Calls `check` with every truncation of `bytes`, and with single bytes set to boundary values.
pub fn mutations(bytes: &[u8], mut check: impl FnMut(&[u8])) {
    (0..=bytes.len()).for_each(|end| check(&bytes[..end]));
    let mut copy = bytes.to_vec();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF, bytes[at] ^ 4] {
            copy[at] = value;
            check(&copy);
        }
        copy[at] = bytes[at];
    }
}

/// Sorted paths of the files with an extension in a folder of `fixtures/`.
///
/// # Errors
/// Errors of listing the folder.
pub fn fixtures(folder: &str, extension: &str) -> std::io::Result<Vec<PathBuf>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder);
    let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}
