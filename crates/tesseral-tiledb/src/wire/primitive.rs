//! Little-endian numbers and texts with a length prefix.

use tesseral_core::{Error, Result};

/// Parses a little-endian number of up to eight bytes.
pub(crate) fn le64(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(wide)
}

/// Appends text with a 32-bit length prefix.
///
/// # Errors
/// `Limit` if the length exceeds `u32`.
pub fn put_text32(text: &str, out: &mut Vec<u8>) -> Result<()> {
    put_u32(text.len() as u64, "a name", out)?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Appends text with a 64-bit length prefix.
pub fn put_text64(text: &str, out: &mut Vec<u8>) {
    put_bytes64(text.as_bytes(), out);
}

/// Appends bytes with a 64-bit length prefix.
pub fn put_bytes64(bytes: &[u8], out: &mut Vec<u8>) {
    put_u64(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a number as `u32`.
///
/// # Errors
/// `Limit` if it exceeds `u32`.
pub fn put_u32(n: u64, what: &str, out: &mut Vec<u8>) -> Result<()> {
    let n = u32::try_from(n).map_err(|_| Error::limit(what, n, u64::from(u32::MAX)))?;
    out.extend_from_slice(&n.to_le_bytes());
    Ok(())
}

/// Appends a number as `u64`.
pub fn put_u64(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&n.to_le_bytes());
}
