//! Differences: `u64 count`, the first value, then the wrapping difference of each value to its predecessor.

use tesseral_core::{Cursor, Error, Result};

use super::FilterElement;
use super::bit_width_reduction::extend;

pub(crate) fn decode_into(word: FilterElement, src: &[u8], dst: &mut [u8]) -> Result<()> {
    let size = word.step();
    let mut header = Cursor::codec("delta", src);
    let count = header.len64("count")?;
    if count.checked_mul(size) != Some(dst.len()) || header.rest().len() != dst.len() {
        let detail = format!(
            "{count} values in {} bytes do not match an output of {} bytes",
            header.rest().len(),
            dst.len()
        );
        return Err(header.corrupt("a filtered chunk", detail));
    }
    let mut value = 0_u64;
    for (stored, element) in header.rest().chunks_exact(size).zip(dst.chunks_exact_mut(size)) {
        value = value.wrapping_add(extend(stored, false));
        element.copy_from_slice(&value.to_le_bytes()[..size]);
    }
    Ok(())
}

/// Appends the differences.
pub(crate) fn encode(word: FilterElement, src: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let size = word.step();
    if !src.len().is_multiple_of(size) {
        let detail = format!("{} bytes are not a multiple of the element size {size}", src.len());
        return Err(Error::codec("delta", detail));
    }
    out.extend_from_slice(&((src.len() / size) as u64).to_le_bytes());
    let mut before = 0_u64;
    for element in src.chunks_exact(size) {
        let value = extend(element, false);
        out.extend_from_slice(&value.wrapping_sub(before).to_le_bytes()[..size]);
        before = value;
    }
    Ok(())
}
