//! Encodings of the values of a page. `None` from a decoder means damaged bytes.
//!
//! The decoders of the crate `parquet` panic on damaged pages, so pages are decoded here.

use tesseral_core::{Result, alloc};

/// Numbers of the encodings in the specification.
pub(crate) const PLAIN: i64 = 0;
pub(crate) const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const DELTA_BINARY_PACKED: i64 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;
pub(crate) const RLE_DICTIONARY: i64 = 8;
const BYTE_STREAM_SPLIT: i64 = 9;

/// How values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// Bits, decoded to bytes.
    Bit,
    /// Little-endian values of a fixed number of bytes.
    Bytes(usize),
    /// A length before each value.
    Variable,
}

/// Decoded values in the plain encoding.
#[derive(Debug)]
pub(crate) enum PageValues {
    Fixed { width: usize, bytes: Vec<u8> },
    Variable { ends: Vec<usize>, bytes: Vec<u8> },
}

/// Rejects values of more bytes in memory than the stored ones justify.
pub(crate) type CheckHeld<'a> = &'a dyn Fn(usize) -> Result<()>;

impl PageValues {
    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fixed { bytes, .. } | Self::Variable { bytes, .. } => bytes.len(),
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        match self {
            Self::Fixed { width, bytes } => {
                let start = at.checked_mul(*width)?;
                bytes.get(start..start.checked_add(*width)?)
            }
            Self::Variable { ends, bytes } => {
                let start = at.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
                bytes.get(start..*ends.get(at)?)
            }
        }
    }
}

/// Runs of numbers of up to 32 bits, repeated or packed.
pub(crate) struct Hybrid<'a> {
    bytes: &'a [u8],
    width: u32,
    /// Numbers left in the run, and the repeated number or the bits of a packed run.
    left: u64,
    run: Run<'a>,
}

enum Run<'a> {
    Repeated(u32),
    Packed { bytes: &'a [u8], bit: usize },
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift == 63 && byte & 0x7f > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(bytes: &mut &[u8]) -> Option<i64> {
    let value = varint(bytes)?;
    Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// A number of up to 64 bits at a bit of little-endian bytes.
fn bits(bytes: &[u8], at: usize, width: u32) -> Option<u64> {
    if width == 0 {
        return Some(0);
    }
    let (first, shift) = (at / 8, (at % 8) as u32);
    let len = (shift + width).div_ceil(8) as usize;
    let mut word = [0; 16];
    word[..len].copy_from_slice(bytes.get(first..first.checked_add(len)?)?);
    let value = u128::from_le_bytes(word) >> shift;
    Some((value & ((1_u128 << width) - 1)) as u64)
}

impl<'a> Hybrid<'a> {
    pub(crate) fn new(bytes: &'a [u8], width: u32) -> Option<Self> {
        (width <= 32).then_some(Self { bytes, width, left: 0, run: Run::Repeated(0) })
    }

    /// Goes to a run with numbers left.
    fn advance(&mut self) -> Option<()> {
        while self.left == 0 {
            let header = varint(&mut self.bytes)?;
            if header & 1 == 0 {
                let len = self.width.div_ceil(8) as usize;
                let mut word = [0; 4];
                word[..len].copy_from_slice(take(&mut self.bytes, len)?);
                self.left = header >> 1;
                self.run = Run::Repeated(u32::from_le_bytes(word));
            } else {
                // The last run can be shorter than declared.
                let groups = usize::try_from(header >> 1).ok()?;
                let len = groups.checked_mul(self.width as usize)?.min(self.bytes.len());
                self.left = (header >> 1).checked_mul(8)?;
                self.run = Run::Packed { bytes: take(&mut self.bytes, len)?, bit: 0 };
            }
            if self.left == 0 && self.bytes.is_empty() {
                return None;
            }
        }
        Some(())
    }

    /// The next numbers, run by run. Packed ones are read from eight bytes at a time, except the last few.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn fill(&mut self, mut out: &mut [u32]) -> Option<()> {
        let (width, mask) = (self.width as usize, ((1_u64 << self.width) - 1) as u32);
        while !out.is_empty() {
            self.advance()?;
            let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
            let (now, rest) = std::mem::take(&mut out).split_at_mut(count);
            match &mut self.run {
                Run::Repeated(number) => now.fill(*number),
                Run::Packed { bytes, bit } => {
                    for number in now {
                        let (first, shift) = (*bit / 8, *bit % 8);
                        *number = match bytes.get(first..).and_then(<[u8]>::first_chunk) {
                            Some(eight) => (u64::from_le_bytes(*eight) >> shift) as u32 & mask,
                            None => bits(bytes, *bit, self.width)? as u32,
                        };
                        *bit += width;
                    }
                }
            }
            self.left -= count as u64;
            out = rest;
        }
        Some(())
    }
}

/// Integers of `DELTA_BINARY_PACKED`, and the bytes that follow them.
fn deltas<'a>(mut bytes: &'a [u8], count: usize) -> Result<Option<(Vec<i64>, &'a [u8])>> {
    let mut out = alloc::with_capacity("the integers of a page", count)?;
    let mut read = || -> Option<&'a [u8]> {
        let block = usize::try_from(varint(&mut bytes)?).ok()?;
        let parts = usize::try_from(varint(&mut bytes)?).ok()?;
        let total = usize::try_from(varint(&mut bytes)?).ok()?;
        let mut value = zigzag(&mut bytes)?;
        // A block has 128 values at least, its parts multiples of 32.
        let each = block.checked_div(parts).filter(|each| each.is_multiple_of(32) && *each > 0)?;
        if total != count || each.checked_mul(parts)? != block {
            return None;
        }
        if total > 0 {
            out.push(value);
        }
        while out.len() < total {
            let least = zigzag(&mut bytes)?;
            let widths = take(&mut bytes, parts)?;
            for width in widths {
                if out.len() >= total {
                    break;
                }
                let packed = take(&mut bytes, each.checked_mul(usize::from(*width))? / 8)?;
                let width = u32::from(*width).min(65);
                if width > 64 {
                    return None;
                }
                for n in 0..each.min(total - out.len()) {
                    let delta = bits(packed, n * width as usize, width)?;
                    value = value.wrapping_add(least).wrapping_add(delta.cast_signed());
                    out.push(value);
                }
            }
        }
        Some(bytes)
    };
    Ok(read().map(|rest| (out, rest)))
}

/// Appends `len` bytes to values.
fn append(ends: &mut Vec<usize>, out: &mut Vec<u8>, value: &[u8]) -> Result<()> {
    alloc::reserve("the values of a page", out, value.len())?;
    out.extend_from_slice(value);
    ends.push(out.len());
    Ok(())
}

/// Texts by their lengths, which can share the start of the text before.
fn texts(mut bytes: &[u8], count: usize, prefixed: bool, held: CheckHeld<'_>) -> Result<Option<PageValues>> {
    let mut prefixes = Vec::new();
    if prefixed {
        let Some((own, rest)) = deltas(bytes, count)? else { return Ok(None) };
        (prefixes, bytes) = (own, rest);
    }
    let Some((lengths, mut bytes)) = deltas(bytes, count)? else { return Ok(None) };
    let (mut ends, mut out) = (alloc::with_capacity("the ends of texts", count)?, Vec::new());
    let mut start = 0;
    for (n, len) in lengths.into_iter().enumerate() {
        let own = usize::try_from(len).ok().and_then(|len| take(&mut bytes, len));
        let shared = prefixes.get(n).map_or(Some(0), |shared| usize::try_from(*shared).ok());
        let (Some(own), Some(shared)) = (own, shared) else { return Ok(None) };
        let end = out.len();
        if shared > end - start {
            return Ok(None);
        }
        held(end.saturating_add(shared))?;
        alloc::reserve("the values of a page", &mut out, shared)?;
        out.extend_from_within(start..start + shared);
        append(&mut ends, &mut out, own)?;
        start = end;
    }
    Ok(Some(PageValues::Variable { ends, bytes: out }))
}

/// PageValues of the plain encoding.
pub(crate) fn plain(mut bytes: &[u8], count: usize, width: Width) -> Result<Option<PageValues>> {
    Ok(match width {
        Width::Bit => {
            let mut out = alloc::zeroed::<u8>("the values of a page", count)?;
            for (n, value) in out.iter_mut().enumerate() {
                let Some(byte) = bytes.get(n / 8) else { return Ok(None) };
                *value = byte >> (n % 8) & 1;
            }
            Some(PageValues::Fixed { width: 1, bytes: out })
        }
        Width::Bytes(width) => {
            let own = count.checked_mul(width).and_then(|len| bytes.get(..len));
            own.map(|own| PageValues::Fixed { width, bytes: own.to_vec() })
        }
        Width::Variable => {
            if count > bytes.len() / 4 {
                return Ok(None);
            }
            let mut ends = alloc::with_capacity("the ends of texts", count)?;
            let mut out = alloc::with_capacity("the values of a page", bytes.len())?;
            for _ in 0..count {
                let len = take(&mut bytes, 4).and_then(|len| len.try_into().ok()).map(u32::from_le_bytes);
                let Some(own) = len.and_then(|len| take(&mut bytes, len as usize)) else { return Ok(None) };
                append(&mut ends, &mut out, own)?;
            }
            Some(PageValues::Variable { ends, bytes: out })
        }
    })
}

/// PageValues of an encoding without a dictionary; `None` also for unknown encodings. `held` bounds texts that share bytes.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn decode(
    encoding: i64,
    bytes: &[u8],
    count: usize,
    width: Width,
    held: CheckHeld<'_>,
) -> Result<Option<PageValues>> {
    match (encoding, width) {
        (PLAIN, _) => plain(bytes, count, width),
        (RLE, Width::Bit) => {
            let mut numbers = alloc::zeroed("the values of a page", count)?;
            let filled = bytes
                .get(4..)
                .and_then(|bytes| Hybrid::new(bytes, 1))
                .and_then(|mut runs| runs.fill(&mut numbers));
            Ok(filled.map(|()| {
                let bytes = numbers.into_iter().map(|bit: u32| bit as u8).collect();
                PageValues::Fixed { width: 1, bytes }
            }))
        }
        (DELTA_BINARY_PACKED, Width::Bytes(width @ (4 | 8))) => {
            let Some((numbers, _)) = deltas(bytes, count)? else { return Ok(None) };
            let mut out = alloc::with_capacity("the values of a page", count.saturating_mul(width))?;
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()[..width]));
            Ok(Some(PageValues::Fixed { width, bytes: out }))
        }
        (DELTA_LENGTH_BYTE_ARRAY, Width::Variable) => texts(bytes, count, false, held),
        (DELTA_BYTE_ARRAY, Width::Variable) => texts(bytes, count, true, held),
        (BYTE_STREAM_SPLIT, Width::Bytes(width)) => {
            let Some(bytes) = count.checked_mul(width).and_then(|len| bytes.get(..len)) else {
                return Ok(None);
            };
            let mut out = alloc::zeroed::<u8>("the values of a page", bytes.len())?;
            for (n, value) in out.chunks_exact_mut(width.max(1)).enumerate() {
                value.iter_mut().enumerate().for_each(|(k, byte)| *byte = bytes[k * count + n]);
            }
            Ok(Some(PageValues::Fixed { width, bytes: out }))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_runs_are_repeated_or_packed() {
        // Eight numbers of three bits, as in the specification, then three times 5.
        let bytes = [0x03, 0x88, 0xc6, 0xfa, 0x06, 5];
        let expected = [0, 1, 2, 3, 4, 5, 6, 7, 5, 5, 5];
        for step in 1..=expected.len() {
            let mut runs = Hybrid::new(&bytes, 3).unwrap();
            let mut numbers = [9; 11];
            numbers.chunks_mut(step).for_each(|part| runs.fill(part).unwrap());
            assert_eq!(numbers, expected);
            assert_eq!(runs.fill(&mut [0]), None);
        }
        assert!(Hybrid::new(&[], 33).is_none());
        assert_eq!(Hybrid::new(&[0, 0, 0, 0], 3).unwrap().fill(&mut [0]), None);
    }

    /// Numbers of every width, from eight bytes at a time and bit by bit.
    #[test]
    fn packed_numbers_of_every_width_are_found() {
        for width in 0..=32_u32 {
            let mask = ((1_u64 << width) - 1) as u32;
            let expected: Vec<u32> = (1..=64_u32).map(|n| n.wrapping_mul(0x9e37_79b9) & mask).collect();
            let mut packed = vec![0; 8 * width as usize];
            for (n, number) in expected.iter().enumerate() {
                for bit in 0..width as usize {
                    let at = n * width as usize + bit;
                    packed[at / 8] |= ((number >> bit & 1) as u8) << (at % 8);
                }
            }
            let bytes = [vec![8 << 1 | 1], packed].concat();
            let mut found = vec![9; 64];
            Hybrid::new(&bytes, width).unwrap().fill(&mut found).unwrap();
            assert_eq!(found, expected, "{width}");
            if width > 0 {
                assert_eq!(Hybrid::new(&bytes[..bytes.len() - 1], width).unwrap().fill(&mut found), None);
            }
        }
    }

    #[test]
    fn deltas_are_sums() {
        // The second example of the specification: 7, 5, 3, 1, 2, 3, 4, 5 in blocks of 128 with four parts.
        let bytes = [0x80, 0x01, 4, 8, 14, 3, 2, 0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0, 0, 0];
        let (numbers, rest) = deltas(&bytes, 8).unwrap().unwrap();
        assert_eq!((numbers, rest.len()), (vec![7, 5, 3, 1, 2, 3, 4, 5], 0));
        for len in 0..bytes.len() {
            assert!(deltas(&bytes[..len], 8).unwrap().is_none(), "{len}");
        }
    }

    #[test]
    fn bits_cross_bytes() {
        let bytes = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
        assert_eq!(bits(&bytes, 0, 64), Some(0x0123_4567_89ab_cdef));
        assert_eq!(bits(&bytes, 4, 12), Some(0xcde));
        assert_eq!(bits(&bytes, 60, 5), None);
    }

    /// Numbers as `DELTA_BINARY_PACKED`, each difference in 64 bits.
    fn packed(numbers: &[i64]) -> Vec<u8> {
        let number = |mut n: u64| {
            let mut out = Vec::new();
            while n > 0x7f {
                out.push(n as u8 | 0x80);
                n >>= 7;
            }
            out.push(n as u8);
            out
        };
        let mut out =
            [vec![0x80, 1, 4], number(numbers.len() as u64), number(2 * numbers[0] as u64)].concat();
        let deltas: Vec<u8> = numbers.windows(2).flat_map(|pair| (pair[1] - pair[0]).to_le_bytes()).collect();
        for block in deltas.chunks(128 * 8) {
            out.extend([0, 64, 64, 64, 64]);
            out.extend(block);
            // Parts of a block without values are not stored.
            out.resize(out.len() + block.len().next_multiple_of(32 * 8) - block.len(), 0);
        }
        out
    }

    #[test]
    fn texts_that_share_bytes_are_bounded() {
        let count = 200;
        let mut prefixes = vec![100; count];
        let mut lengths = vec![0; count];
        (prefixes[0], lengths[0]) = (0, 100);
        let bytes = [packed(&prefixes), packed(&lengths), vec![b'x'; 100]].concat();
        let values = texts(&bytes, count, true, &|_| Ok(())).unwrap().unwrap();
        assert_eq!((values.len(), values.get(199).unwrap().len()), (20_000, 100));
        let held = |len: usize| match len {
            0..=5000 => Ok(()),
            _ => Err(tesseral_core::Error::limit("texts", len as u64, 5000)),
        };
        let error = texts(&bytes, count, true, &held).unwrap_err();
        assert!(matches!(error.kind(), tesseral_core::ErrorKind::Limit { .. }), "{error}");
    }
}
