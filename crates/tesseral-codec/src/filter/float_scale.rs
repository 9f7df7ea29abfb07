//! Floats stored as integers: `x = stored · scale + offset`, computed in 64-bit floats.
//!
//! Header `u32 parts`, then one `u32` per part: its size in bytes as integers.

use tesseral_core::{Cursor, Error, Result};

use super::header::put_len;
use super::{FilterBuffers, FilterElement, grow};

pub(crate) struct Scale {
    pub scale: f64,
    pub offset: f64,
    pub width: usize,
}

pub(crate) fn reverse(
    word: FilterElement,
    by: &Scale,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    let mut header = Cursor::codec("float_scale", meta);
    let mut data = Cursor::codec("float_scale", data);
    if !matches!(by.width, 1 | 2 | 4 | 8) || !matches!(word.size, 4 | 8) {
        return Err(header.corrupt(
            "a filtered chunk",
            format!("unsupported: integers of {} bytes for floats of {} bytes", by.width, word.size),
        ));
    }
    let parts = header.count32(4, "parts")?;
    for _ in 0..parts {
        let part = data.take(header.len32("part length")?, "part")?;
        if !part.len().is_multiple_of(by.width) {
            return Err(header.corrupt(
                "a filtered chunk",
                format!("{} bytes are not a multiple of the integer size {}", part.len(), by.width),
            ));
        }
        let bytes = part.len() / by.width * word.size;
        let target = grow(&mut out.data, bytes, cap, "float_scale")?;
        for (stored, float) in part.chunks_exact(by.width).zip(target.chunks_exact_mut(word.size)) {
            let mut wide = if stored[by.width - 1] & 0x80 == 0 { [0; 8] } else { [0xFF; 8] };
            wide[..by.width].copy_from_slice(stored);
            // The reference also converts through a double, for integers of any width.
            let value = i64::from_le_bytes(wide) as f64 * by.scale + by.offset;
            if word.size == 4 {
                float.copy_from_slice(&(value as f32).to_le_bytes());
            } else {
                float.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    out.meta.extend_from_slice(header.rest());
    Ok(())
}

impl Scale {
    /// The nearest integer to the scaled value, rounded half away from zero.
    fn stored(&self, value: f64) -> f64 {
        ((value - self.offset) / self.scale).round()
    }

    /// Whether integers of this width can represent it.
    fn holds(&self, stored: f64) -> bool {
        let half = 2_f64.powi(i32::try_from(self.width * 8).unwrap_or(64) - 1);
        stored >= -half && stored < half
    }
}

fn read(float: &[u8]) -> f64 {
    match <[u8; 4]>::try_from(float) {
        Ok(bytes) => f64::from(f32::from_le_bytes(bytes)),
        Err(_) => f64::from_bits(super::bit_width_reduction::extend(float, false)),
    }
}

fn check(word: FilterElement, by: &Scale) -> Result<()> {
    let supported = matches!(by.width, 1 | 2 | 4 | 8) && matches!(word.size, 4 | 8);
    if !supported || word.kind != super::ElementKind::Float || by.scale == 0.0 || !by.scale.is_finite() {
        let detail =
            format!("unsupported: integers of {} bytes for elements of {} bytes", by.width, word.size);
        return Err(Error::codec("float_scale", detail));
    }
    Ok(())
}

/// Rejects floats that the integers cannot represent, naming the position of the first one.
pub(crate) fn check_cells(word: FilterElement, by: &Scale, cells: &[u8]) -> Result<()> {
    check(word, by)?;
    let misfit = cells.chunks_exact(word.size).map(read).position(|v| !by.holds(by.stored(v)));
    misfit.map_or(Ok(()), |at| {
        let value = read(&cells[at * word.size..(at + 1) * word.size]);
        Err(Error::invalid(format!(
            "the float scale filter cannot store {value} as an integer of {} bytes (cell {at})",
            by.width
        )))
    })
}

/// Encodes the data as one part. Values out of range are clamped: cells were checked before.
pub(crate) fn forward(
    word: FilterElement,
    by: &Scale,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
) -> Result<()> {
    check(word, by)?;
    if !data.len().is_multiple_of(word.size) {
        let detail = format!("{} bytes are not a multiple of the float size {}", data.len(), word.size);
        return Err(Error::codec("float_scale", detail));
    }
    put_len("float_scale", 1, &mut out.meta)?;
    put_len("float_scale", data.len() / word.size * by.width, &mut out.meta)?;
    out.meta.extend_from_slice(meta);
    let half = 2_f64.powi(i32::try_from(by.width * 8).unwrap_or(64) - 1);
    for float in data.chunks_exact(word.size) {
        let stored = by.stored(read(float)).clamp(-half, half - 1.0);
        out.data.extend_from_slice(&(stored as i64).to_le_bytes()[..by.width]);
    }
    Ok(())
}
