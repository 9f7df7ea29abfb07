//! The header that a filter prepends to the metadata.

use tesseral_core::{Cursor, Error, Result};

use super::{FilterBuffers, grow};

/// Reverses a filter whose header is `u32 parts`, then one `u32` length per part: calls `restore` with each stored part and its
/// output of the same length. The metadata of the following filters remain.
pub(crate) fn reverse_parts(
    filter: &'static str,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
    mut restore: impl FnMut(&[u8], &mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut header = Cursor::codec(filter, meta);
    let mut data = Cursor::codec(filter, data);
    let parts = header.count32(4, "parts")?;
    for _ in 0..parts {
        let part = data.take(header.len32("part length")?, "part")?;
        restore(part, grow(&mut out.data, part.len(), cap, filter)?)?;
    }
    out.meta.extend_from_slice(header.rest());
    Ok(())
}

/// Appends a 32-bit length.
pub(crate) fn put_len(filter: &'static str, len: usize, out: &mut Vec<u8>) -> Result<()> {
    let len = u32::try_from(len)
        .map_err(|_| Error::limit(format!("part of a {filter} filter"), len as u64, u64::from(u32::MAX)))?;
    out.extend_from_slice(&len.to_le_bytes());
    Ok(())
}

/// Appends the last `width` bytes of a big-endian number.
pub(crate) fn put_big_endian(n: usize, width: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(n as u64).to_be_bytes()[8 - width..]);
}

/// The integer width that holds values up to `most`: 1, 2, 4 or 8 bytes.
pub(crate) fn integer_width(most: usize) -> u8 {
    match most {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}
