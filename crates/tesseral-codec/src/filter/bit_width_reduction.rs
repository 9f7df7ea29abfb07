//! Bit width reduction: windows of integers, each stored as offsets from the window's minimum in 8, 16 or 32 bits.
//!
//! Header `u32 input length`, `u32 windows`, then per window the offset (one element), `u8 bits`, `u32` length of the
//! unreduced window. A window whose bits are not fewer than the element's, or that ends inside an element, is stored
//! unchanged. Single-byte elements, floats and text pass through without a header.

use tesseral_core::{Cursor, Result};

use super::header::put_len;
use super::{ElementKind, FilterBuffers, FilterElement, grow, noop};

/// Whether the filter changes these elements. Dates count as integers since version 20.
fn applies(word: FilterElement, version: u32) -> bool {
    let number = match word.kind {
        ElementKind::Signed | ElementKind::Unsigned => true,
        ElementKind::Time => version >= 20,
        ElementKind::Float | ElementKind::Bool | ElementKind::Text => false,
    };
    number && word.size > 1
}

pub(crate) fn reverse(
    word: FilterElement,
    version: u32,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    if !applies(word, version) {
        return noop::reverse(meta, data, out);
    }
    let size = word.size;
    let signed = matches!(word.kind, ElementKind::Signed | ElementKind::Time);
    let mut header = Cursor::codec("bit_width_reduction", meta);
    let mut data = Cursor::codec("bit_width_reduction", data);
    let expected = header.len32("input length")?;
    let windows = header.count32(size + 5, "windows")?;
    for _ in 0..windows {
        let base = extend(header.take(size, "offset")?, signed);
        let bits = usize::from(header.u8("width")?);
        let len = header.len32("window length")?;
        if bits >= size * 8 || !len.is_multiple_of(size) {
            let raw = data.take(len, "window")?;
            grow(&mut out.data, len, cap, "bit_width_reduction")?.copy_from_slice(raw);
            continue;
        }
        if !matches!(bits, 8 | 16 | 32) {
            return Err(header.corrupt("a filtered chunk", format!("invalid window width of {bits} bits")));
        }
        let stored = data.take(len / size * (bits / 8), "window")?;
        let target = grow(&mut out.data, len, cap, "bit_width_reduction")?;
        for (stored, element) in stored.chunks_exact(bits / 8).zip(target.chunks_exact_mut(size)) {
            let value = base.wrapping_add(extend(stored, signed));
            element.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
    if out.data.len() != expected {
        return Err(header.corrupt(
            "a filtered chunk",
            format!("windows of {} bytes, expected {expected}", out.data.len()),
        ));
    }
    out.meta.extend_from_slice(header.rest());
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

/// Reduces windows of at most `window` bytes.
pub(crate) fn forward(
    word: FilterElement,
    window: u32,
    version: u32,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
) -> Result<()> {
    if !applies(word, version) {
        return noop::reverse(meta, data, out);
    }
    let name = "bit_width_reduction";
    let size = word.size;
    let signed = matches!(word.kind, ElementKind::Signed | ElementKind::Time);
    let window = window_bytes(window, size);
    put_len(name, data.len(), &mut out.meta)?;
    put_len(name, data.len().div_ceil(window), &mut out.meta)?;
    for window in data.chunks(window) {
        // With the sign bit flipped, signed numbers compare as unsigned numbers.
        let flip = if signed { 1_u64 << 63 } else { 0 };
        let values = || window.chunks_exact(size).map(|v| extend(v, signed));
        let least = values().map(|v| v ^ flip).min().unwrap_or(0) ^ flip;
        let range = values().map(|v| v.wrapping_sub(least)).max().unwrap_or(0);
        let fits = |bits: u32| range < 1 << (bits - u32::from(signed));
        let bits = [8_u32, 16, 32].into_iter().find(|bits| fits(*bits));
        let bits = bits.filter(|bits| window.len().is_multiple_of(size) && (*bits as usize) < size * 8);
        out.meta.extend_from_slice(&least.to_le_bytes()[..size]);
        out.meta.push(u8::try_from(bits.unwrap_or(8 * u32::try_from(size).unwrap_or(8))).unwrap_or(64));
        put_len(name, window.len(), &mut out.meta)?;
        match bits {
            None => out.data.extend_from_slice(window),
            Some(bits) => {
                let bytes = bits as usize / 8;
                for value in values() {
                    out.data.extend_from_slice(&value.wrapping_sub(least).to_le_bytes()[..bytes]);
                }
            }
        }
    }
    out.meta.extend_from_slice(meta);
    Ok(())
}

/// The size of a window: whole elements, at least one.
pub(crate) fn window_bytes(window: u32, size: usize) -> usize {
    (usize::try_from(window).unwrap_or(usize::MAX) / size).max(1) * size
}
