//! Positive delta: windows of an increasing sequence, each stored as its first value and the differences between neighbors.
//!
//! Header `u32 windows`, then per window the first value (one element) and `u32` bytes. The first difference is 0. Floats and
//! text pass through without a header.

use tesseral_core::{Cursor, Error, Result};

use super::bit_width_reduction::{extend, window_bytes};
use super::header::put_len;
use super::{ElementKind, FilterBuffers, FilterElement, grow, noop};

fn applies(word: FilterElement, version: u32) -> bool {
    match word.kind {
        ElementKind::Signed | ElementKind::Unsigned | ElementKind::Bool => true,
        ElementKind::Time => version >= 20,
        ElementKind::Float | ElementKind::Text => false,
    }
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
    let mut header = Cursor::codec("positive_delta", meta);
    let mut data = Cursor::codec("positive_delta", data);
    let windows = header.count32(size + 4, "windows")?;
    for _ in 0..windows {
        let mut value = extend(header.take(size, "first value")?, false);
        let len = header.len32("window length")?;
        let stored = data.take(len, "window")?;
        let target = grow(&mut out.data, len, cap, "positive_delta")?;
        if !len.is_multiple_of(size) {
            target.copy_from_slice(stored);
            continue;
        }
        for (stored, element) in stored.chunks_exact(size).zip(target.chunks_exact_mut(size)) {
            value = value.wrapping_add(extend(stored, false));
            element.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
    out.meta.extend_from_slice(header.rest());
    Ok(())
}

/// Stores the differences of windows of at most `window` bytes. A decreasing sequence is an error.
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
    let name = "positive_delta";
    let size = word.size;
    let signed = matches!(word.kind, ElementKind::Signed | ElementKind::Time);
    let flip = if signed { 1_u64 << 63 } else { 0 };
    let window = window_bytes(window, size);
    put_len(name, data.len().div_ceil(window), &mut out.meta)?;
    for window in data.chunks(window) {
        let whole = window.len().is_multiple_of(size);
        let first = window.get(..size).map_or(0, |v| extend(v, signed));
        out.meta.extend_from_slice(&first.to_le_bytes()[..size]);
        put_len(name, window.len(), &mut out.meta)?;
        if !whole {
            out.data.extend_from_slice(window);
            continue;
        }
        let mut before = first;
        for element in window.chunks_exact(size) {
            let value = extend(element, signed);
            if value ^ flip < before ^ flip {
                return Err(Error::codec(
                    name,
                    "decreasing values: this filter requires an increasing sequence",
                ));
            }
            out.data.extend_from_slice(&value.wrapping_sub(before).to_le_bytes()[..size]);
            before = value;
        }
    }
    out.meta.extend_from_slice(meta);
    Ok(())
}
