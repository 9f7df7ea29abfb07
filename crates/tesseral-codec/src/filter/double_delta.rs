//! Double delta: `u8 bits`, `u64 count`, then the values verbatim when packing saves nothing; else the first two values and, for
//! each further one, a sign bit (1 is negative) and `bits` bits of magnitude, from the most significant bit of little-endian
//! 64-bit words.

use tesseral_core::{Cursor, Error, Result};

use super::bit_width_reduction::extend;
use super::{ElementKind, FilterElement};

pub(crate) fn decode_into(word: FilterElement, src: &[u8], dst: &mut [u8]) -> Result<()> {
    let size = word.step();
    let mut header = Cursor::codec("double_delta", src);
    let bits = u32::from(header.u8("width")?);
    let count = header.len64("count")?;
    let raw = bits as usize >= size * 8 - 1;
    // After a compressor the input may have any number of bytes: verbatim values include the odd bytes at the end.
    let whole = if raw { dst.len() / size * size } else { dst.len() };
    if count.checked_mul(size) != Some(whole) {
        return Err(header.corrupt(
            "a filtered chunk",
            format!("{count} values do not match an output of {} bytes", dst.len()),
        ));
    }
    if raw {
        dst.copy_from_slice(header.take(dst.len(), "values")?);
        return Ok(());
    }
    let first = header.take(size.saturating_mul(count.min(2)), "first values")?;
    let (head, tail) = dst.split_at_mut(first.len());
    head.copy_from_slice(first);
    if tail.is_empty() {
        return Ok(());
    }
    let mut before = extend(&first[..size], false);
    let mut last = extend(&first[size..], false);
    let mut stream = WordBitReader { words: header.rest().chunks_exact(8), word: 0, left: 0 };
    for element in tail.chunks_exact_mut(size) {
        let (Some(sign), Some(magnitude)) = (stream.read(1), stream.read(bits)) else {
            return Err(header.corrupt("a filtered chunk", "truncated packed differences"));
        };
        let step = if sign == 1 { magnitude.wrapping_neg() } else { magnitude };
        let value = step.wrapping_add(last.wrapping_mul(2)).wrapping_sub(before);
        element.copy_from_slice(&value.to_le_bytes()[..size]);
        (before, last) = (last, value);
    }
    Ok(())
}

/// Reads bits from the most significant end of 64-bit words.
struct WordBitReader<'a> {
    words: std::slice::ChunksExact<'a, u8>,
    word: u64,
    left: u32,
}

impl WordBitReader<'_> {
    /// Reads up to 63 bits.
    fn read(&mut self, n: u32) -> Option<u64> {
        let mut value = 0;
        let mut missing = n;
        while missing > 0 {
            if self.left == 0 {
                self.word = extend(self.words.next()?, false);
                self.left = 64;
            }
            let now = missing.min(self.left);
            // `now` is 1 to 63; 64 would require a request for a full word, and requests are at most 63 bits.
            value = value << now | self.word >> (64 - now);
            self.word = self.word.checked_shl(now).unwrap_or(0);
            self.left -= now;
            missing -= now;
        }
        Some(value)
    }
}

/// Appends the packed second differences.
pub(crate) fn encode(word: FilterElement, src: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let size = word.step();
    if !src.len().is_multiple_of(size) {
        let detail = format!("{} bytes are not a multiple of the element size {size}", src.len());
        return Err(Error::codec("double_delta", detail));
    }
    let signed = matches!(word.kind, ElementKind::Signed | ElementKind::Time);
    // Exact: 64-bit values of either sign and twice their differences fit.
    let value = |i: usize| {
        let wide = extend(&src[i * size..(i + 1) * size], signed);
        if signed { i128::from(wide.cast_signed()) } else { i128::from(wide) }
    };
    let count = src.len() / size;
    let bits = if count <= 2 {
        0
    } else {
        let mut largest = (value(1) - value(0)).unsigned_abs();
        for i in 2..count {
            largest = largest.max((value(i) - 2 * value(i - 1) + value(i - 2)).unsigned_abs());
        }
        (128 - largest.leading_zeros()).max(1)
    };
    let raw = bits as usize >= size * 8 - 1;
    let shown = if raw { u8::try_from(size * 8).unwrap_or(64) } else { u8::try_from(bits).unwrap_or(64) };
    out.push(shown);
    out.extend_from_slice(&(count as u64).to_le_bytes());
    if raw || count <= 2 {
        out.extend_from_slice(src);
        return Ok(());
    }
    out.extend_from_slice(&src[..2 * size]);
    let mut packer = WordBitWriter { out, word: 0, used: 0 };
    for i in 2..count {
        let step = value(i) - 2 * value(i - 1) + value(i - 2);
        packer.put(u64::from(step < 0), 1);
        // At most 62 bits: larger values are stored verbatim.
        packer.put(u64::try_from(step.unsigned_abs()).unwrap_or(0), bits);
    }
    packer.finish();
    Ok(())
}

/// Writes bits into the most significant end of 64-bit words.
struct WordBitWriter<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    used: u32,
}

impl WordBitWriter<'_> {
    /// Writes up to 63 bits.
    fn put(&mut self, value: u64, bits: u32) {
        let free = 64 - self.used;
        if bits < free {
            self.word |= value << (free - bits);
            self.used += bits;
            return;
        }
        let rest = bits - free;
        self.out.extend_from_slice(&(self.word | value >> rest).to_le_bytes());
        self.word = if rest == 0 { 0 } else { value << (64 - rest) };
        self.used = rest;
    }

    fn finish(self) {
        if self.used > 0 {
            self.out.extend_from_slice(&self.word.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::ElementKind;

    #[test]
    fn decodes_a_handmade_stream() {
        // 10, 13, 15, 20: differences 3, 2, 5, second differences -1, 3: two bits and a sign each.
        let packed = (0b10_1011_u64 << 58).to_le_bytes();
        let mut src = vec![2];
        src.extend(4_u64.to_le_bytes());
        src.extend([10_i32, 13].iter().flat_map(|v| v.to_le_bytes()));
        src.extend(packed);
        let mut dst = [0; 16];
        decode_into(FilterElement::new(4, ElementKind::Signed), &src, &mut dst).unwrap();
        let values: Vec<i32> = dst.chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect();
        assert_eq!(values, [10, 13, 15, 20]);
        // Seven verbatim bytes: one value and three odd bytes.
        let mut plain = vec![31];
        plain.extend(1_u64.to_le_bytes());
        plain.extend([1, 2, 3, 4, 5, 6, 7]);
        let mut seven = [0; 7];
        decode_into(FilterElement::new(4, ElementKind::Signed), &plain, &mut seven).unwrap();
        assert_eq!(seven, [1, 2, 3, 4, 5, 6, 7]);
        for cut in 0..src.len() {
            assert!(
                decode_into(FilterElement::new(4, ElementKind::Signed), &src[..cut], &mut dst).is_err(),
                "{cut}"
            );
        }
    }
}
