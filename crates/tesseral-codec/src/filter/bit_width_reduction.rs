//! Windows of integers, each stored as offsets from the window's minimum in 8, 16 or 32 bits.
//!
//! Header `u32 input length`, `u32 windows`, then per window the offset (one element), `u8 bits`, `u32` length of the
//! window before the reduction. A window whose bits are not fewer than the element's, or that ends inside an element, is
//! stored as it is. Elements of one byte, floats and text pass without a header.

use tesseral_core::Result;

use super::header::Header;
use super::{Kind, Pair, Word, grow, noop};

/// Whether the filter does anything to these elements. Dates count as integers since version 20.
fn applies(word: Word, version: u32) -> bool {
    let number = match word.kind {
        Kind::Signed | Kind::Unsigned => true,
        Kind::Time => version >= 20,
        Kind::Float | Kind::Bool | Kind::Text => false,
    };
    number && word.size > 1
}

pub(crate) fn reverse(
    word: Word,
    version: u32,
    meta: &[u8],
    data: &[u8],
    out: &mut Pair,
    cap: usize,
) -> Result<()> {
    if !applies(word, version) {
        return noop::reverse(meta, data, out);
    }
    let size = word.size;
    let signed = matches!(word.kind, Kind::Signed | Kind::Time);
    let mut header = Header::new("bit_width_reduction", meta);
    let mut data = Header::new("bit_width_reduction", data);
    let expected = header.len("the input's length")?;
    let windows = header.count(size + 5, "windows")?;
    for _ in 0..windows {
        let base = extend(header.take(size, "an offset")?, signed);
        let bits = usize::from(header.u8("a width")?);
        let len = header.len("a window's length")?;
        if bits >= size * 8 || !len.is_multiple_of(size) {
            let raw = data.take(len, "a window")?;
            grow(&mut out.data, len, cap, header.filter)?.copy_from_slice(raw);
            continue;
        }
        if !matches!(bits, 8 | 16 | 32) {
            return Err(header.refuse(format!("a window of {bits} bits")));
        }
        let stored = data.take(len / size * (bits / 8), "a window")?;
        let target = grow(&mut out.data, len, cap, header.filter)?;
        for (stored, element) in stored.chunks_exact(bits / 8).zip(target.chunks_exact_mut(size)) {
            let value = base.wrapping_add(extend(stored, signed));
            element.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
    if out.data.len() != expected {
        return Err(header.refuse(format!("windows of {} bytes for an input of {expected}", out.data.len())));
    }
    out.meta.extend_from_slice(header.rest);
    Ok(())
}

/// A little-endian integer of up to 8 bytes, widened.
pub(crate) fn extend(bytes: &[u8], signed: bool) -> u64 {
    let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut wide = if negative { [0xFF; 8] } else { [0; 8] };
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(wide)
}
