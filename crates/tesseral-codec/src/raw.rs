//! The identity codec.

use tesseral_core::{Error, Result};

/// Copies `src`, which must be exactly as long as `dst`.
///
/// # Errors
/// `Codec` when the lengths differ.
pub fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    if src.len() != dst.len() {
        return Err(Error::codec("raw", format!("expected {} bytes, found {}", dst.len(), src.len())));
    }
    dst.copy_from_slice(src);
    Ok(())
}
