//! Consolidated footers of fragments (`__fragment_meta/NAME.meta`): `u32` count, then per fragment a `u64` length, its name and
//! the `u64` offset of its footer; then the footers, without their lengths.

use std::ops::Range;

use tesseral_core::{Cursor, Result};

/// Returns names of fragments, and the byte ranges of their footers.
///
/// # Errors
/// `Corrupt`.
pub fn parse(object: &str, bytes: &[u8]) -> Result<Vec<(String, Range<usize>)>> {
    let cursor = &mut Cursor::new(object, bytes);
    let count = cursor.u32("the number of footers")?;
    let count = cursor.count(u64::from(count), 16, "the number of footers")?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let name = cursor.text64("a fragment's name")?;
        let offset = cursor.u64("the offset of a footer")?;
        let offset = usize::try_from(offset).ok().filter(|o| *o <= bytes.len());
        let offset =
            offset.ok_or_else(|| cursor.corrupt("the offset of a footer", "it is outside the file"))?;
        entries.push((name, offset));
    }
    // A footer ends where the next one begins.
    let mut starts: Vec<usize> = entries.iter().map(|(_, offset)| *offset).collect();
    starts.push(bytes.len());
    starts.sort_unstable();
    let end = |start: usize| starts[starts.partition_point(|s| *s <= start).min(starts.len() - 1)];
    Ok(entries.into_iter().map(|(name, start)| (name, start..end(start).max(start))).collect())
}
