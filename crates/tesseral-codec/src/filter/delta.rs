//! Differences: `u64 count`, the first value, then each value minus the one before, wrapping.

use tesseral_core::Result;

use super::Word;
use super::bit_width_reduction::extend;
use super::header::Header;

pub(crate) fn decode_into(word: Word, src: &[u8], dst: &mut [u8]) -> Result<()> {
    let size = word.step();
    let mut header = Header::new("delta", src);
    let count = header.len64("the count")?;
    if count.checked_mul(size) != Some(dst.len()) || header.rest.len() != dst.len() {
        let detail = format!("{count} values in {} bytes for an output of {}", header.rest.len(), dst.len());
        return Err(header.refuse(detail));
    }
    let mut value = 0_u64;
    for (stored, element) in header.rest.chunks_exact(size).zip(dst.chunks_exact_mut(size)) {
        value = value.wrapping_add(extend(stored, false));
        element.copy_from_slice(&value.to_le_bytes()[..size]);
    }
    Ok(())
}
