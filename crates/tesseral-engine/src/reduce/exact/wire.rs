//! The serialized form of exact sums: few bytes for sums of few digits.
//!
//! | bytes | what |
//! |------:|------|
//! | varint | twice the number of bytes of the magnitude, plus 1 if the number is negative |
//! | varint | power of 256 of the first byte, zigzag; absent for 0 |
//! |     n | the magnitude, little-endian, without zero bytes at the ends |
//!
//! Moments are a byte of flags (1: infinities, 2: sum of squares), the counts of negative and positive infinities as varints
//! where there are any, the sum, and the sum of squares where it is not 0. Varints are unsigned LEB128 of the fewest bytes. Every
//! number has one form, so equal cells give equal bytes. The sum of a million temperatures in `float32` takes about 9 bytes, that
//! of `float64` about 13.

use smallvec::SmallVec;
use tesseral_core::{Error, Result};

use super::digits::{Digits, END_DIGIT, FIRST_DIGIT};

pub(super) fn corrupt(detail: &str) -> Error {
    Error::corrupt("exact sum", "partial result", None, detail)
}

/// Appends an unsigned integer, seven bits per byte.
pub(crate) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Parses an unsigned integer of the fewest bytes, and returns the bytes after it.
pub(crate) fn parse_varint(bytes: &[u8]) -> Result<(u64, &[u8])> {
    let mut value = 0_u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7F);
        if i == 9 && part > 1 {
            break;
        }
        value |= part << (7 * i);
        if byte < 0x80 {
            let canonical = byte != 0 || i == 0;
            let rest = bytes.get(i + 1..).unwrap_or_default();
            return if canonical { Ok((value, rest)) } else { Err(corrupt("not canonical")) };
        }
    }
    Err(corrupt(if bytes.len() < 10 { "truncated" } else { "integer out of range" }))
}

impl Digits {
    /// Appends the bytes of the number.
    pub fn write(&self, out: &mut Vec<u8>) {
        let bytes: SmallVec<[u8; 64]> = self.digits.iter().flat_map(|digit| digit.to_le_bytes()).collect();
        let low = bytes.iter().take_while(|&&byte| byte == 0).count();
        let high = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        let magnitude = bytes.get(low..bytes.len() - high).unwrap_or_default();
        write_varint(2 * magnitude.len() as u64 + u64::from(self.negative), out);
        if !magnitude.is_empty() {
            let first = i64::from(self.first) * 4 + low as i64;
            write_varint(((first << 1) ^ (first >> 63)) as u64, out);
            out.extend(magnitude);
        }
    }

    /// Parses a number from the start of `bytes`, and returns the bytes after it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are truncated, not canonical, or beyond the range of sums of products.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let (head, rest) = parse_varint(bytes)?;
        if head < 2 {
            return if head == 0 { Ok((Self::default(), rest)) } else { Err(corrupt("negative zero")) };
        }
        let (first, rest) = parse_varint(rest)?;
        let first =
            i64::try_from(first >> 1).map_err(|_| corrupt("digits out of range"))? ^ -((first & 1) as i64);
        let (low, end) = (i64::from(FIRST_DIGIT) * 4, i64::from(END_DIGIT) * 4);
        let inside = first >= low && first < end && head >> 1 <= (end - first) as u64;
        let length = usize::try_from(head >> 1).ok().filter(|_| inside);
        let length = length.ok_or_else(|| corrupt("digits out of range"))?;
        let (body, rest) = rest.split_at_checked(length).ok_or_else(|| corrupt("truncated"))?;
        if body.first() == Some(&0) || body.last() == Some(&0) {
            return Err(corrupt("not canonical"));
        }
        // Bytes below the first one fill up its digit.
        let digit = first.div_euclid(4);
        let padding = first.rem_euclid(4) as usize;
        let bytes: SmallVec<[u8; 64]> = std::iter::repeat_n(0, padding).chain(body.iter().copied()).collect();
        let digits = bytes.chunks(4).map(|part| {
            let byte = |i: usize| u32::from(part.get(i).copied().unwrap_or(0)) << (8 * i);
            byte(0) | byte(1) | byte(2) | byte(3)
        });
        Ok((Self::new(head & 1 == 1, digit as i32, digits.collect()), rest))
    }
}
