//! Floats stored as integers: `x = stored · scale + offset`, computed in 64-bit floats.
//!
//! Header `u32 parts`, then one `u32` per part: its bytes as integers.

use tesseral_core::Result;

use super::header::Header;
use super::{Pair, Word, grow};

pub(crate) struct Scale {
    pub scale: f64,
    pub offset: f64,
    pub width: usize,
}

pub(crate) fn reverse(
    word: Word,
    by: &Scale,
    meta: &[u8],
    data: &[u8],
    out: &mut Pair,
    cap: usize,
) -> Result<()> {
    let mut header = Header::new("float_scale", meta);
    let mut data = Header::new("float_scale", data);
    if !matches!(by.width, 1 | 2 | 4 | 8) || !matches!(word.size, 4 | 8) {
        return Err(header.refuse(format!("integers of {} bytes for floats of {}", by.width, word.size)));
    }
    let parts = header.count(4, "parts")?;
    for _ in 0..parts {
        let part = data.take(header.len("a part's length")?, "a part")?;
        if !part.len().is_multiple_of(by.width) {
            return Err(header.refuse(format!("{} bytes of integers of {}", part.len(), by.width)));
        }
        let bytes = part.len() / by.width * word.size;
        let target = grow(&mut out.data, bytes, cap, "float_scale")?;
        for (stored, float) in part.chunks_exact(by.width).zip(target.chunks_exact_mut(word.size)) {
            let mut wide = if stored[by.width - 1] & 0x80 == 0 { [0; 8] } else { [0xFF; 8] };
            wide[..by.width].copy_from_slice(stored);
            // The reference converts through a double too, whatever the integer's width.
            #[allow(clippy::cast_precision_loss)]
            let value = i64::from_le_bytes(wide) as f64 * by.scale + by.offset;
            if word.size == 4 {
                #[allow(clippy::cast_possible_truncation)]
                float.copy_from_slice(&(value as f32).to_le_bytes());
            } else {
                float.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    out.meta.extend_from_slice(header.rest);
    Ok(())
}
