//! Encodings of the values of a page. `None` from a decoder means damaged bytes.
//!
//! The decoders of the crate `parquet` panic on damaged pages, so pages are decoded here.

use std::ops::Range;

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

impl PageValues {
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

/// Integers of `DELTA_BINARY_PACKED`.
#[derive(Clone)]
pub(crate) struct Deltas<'a> {
    bytes: &'a [u8],
    /// Parts of a block, and values of a part.
    parts: usize,
    each: usize,
    /// Whether `value` is still to come.
    first: bool,
    value: i64,
    /// Values that follow the first.
    left: usize,
    least: i64,
    /// Widths of the parts of the block that are still to come.
    widths: &'a [u8],
    /// The current part: its bits, their number for each value, and which of its values come next.
    packed: &'a [u8],
    width: u32,
    own: Range<usize>,
}

impl<'a> Deltas<'a> {
    fn new(mut bytes: &'a [u8], count: usize) -> Option<Self> {
        let block = usize::try_from(varint(&mut bytes)?).ok()?;
        let parts = usize::try_from(varint(&mut bytes)?).ok()?;
        let total = usize::try_from(varint(&mut bytes)?).ok()?;
        let value = zigzag(&mut bytes)?;
        // A block has 128 values at least, its parts multiples of 32.
        let each = block.checked_div(parts).filter(|each| each.is_multiple_of(32) && *each > 0)?;
        if total != count || each.checked_mul(parts)? != block {
            return None;
        }
        let (first, left) = (total > 0, total.saturating_sub(1));
        let (widths, packed): (&[u8], &[u8]) = (&[], &[]);
        Some(Self { bytes, parts, each, first, value, left, least: 0, widths, packed, width: 0, own: 0..0 })
    }

    /// Goes to the next part.
    fn advance(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            self.least = zigzag(&mut self.bytes)?;
            self.widths = take(&mut self.bytes, self.parts)?;
        }
        let (width, rest) = self.widths.split_first()?;
        self.widths = rest;
        self.packed = take(&mut self.bytes, self.each.checked_mul(usize::from(*width))? / 8)?;
        self.width = u32::from(*width);
        self.own = 0..self.each.min(self.left);
        (self.width <= 64).then_some(())
    }

    fn next(&mut self) -> Option<i64> {
        if std::mem::take(&mut self.first) {
            return Some(self.value);
        }
        if self.own.is_empty() {
            if self.left == 0 {
                return None;
            }
            self.advance()?;
        }
        let delta = bits(self.packed, self.own.start * self.width as usize, self.width)?;
        self.own.start += 1;
        self.left -= 1;
        self.value = self.value.wrapping_add(self.least).wrapping_add(delta.cast_signed());
        Some(self.value)
    }

    /// The bytes that follow all integers, of which none has been read.
    fn end(mut self) -> Option<&'a [u8]> {
        while self.left > 0 {
            self.advance()?;
            self.left -= self.own.len();
        }
        Some(self.bytes)
    }
}

/// Texts by their lengths, which can share the start of the text before.
pub(crate) struct Texts<'a> {
    prefixes: Option<Deltas<'a>>,
    lengths: Deltas<'a>,
    bytes: &'a [u8],
    /// The text before.
    last: Vec<u8>,
}

impl<'a> Texts<'a> {
    fn new(mut bytes: &'a [u8], count: usize, prefixed: bool) -> Option<Self> {
        let mut prefixes = None;
        if prefixed {
            let own = Deltas::new(bytes, count)?;
            (prefixes, bytes) = (Some(own.clone()), own.end()?);
        }
        let lengths = Deltas::new(bytes, count)?;
        let bytes = lengths.clone().end()?;
        Some(Self { prefixes, lengths, bytes, last: Vec::new() })
    }

    fn next(&mut self) -> Result<Option<&[u8]>> {
        let len = self.lengths.next().and_then(|len| usize::try_from(len).ok());
        let own = len.and_then(|len| take(&mut self.bytes, len));
        let shared = match &mut self.prefixes {
            Some(prefixes) => prefixes.next().and_then(|shared| usize::try_from(shared).ok()),
            None => return Ok(own),
        };
        let (Some(own), Some(shared)) = (own, shared) else { return Ok(None) };
        if shared > self.last.len() {
            return Ok(None);
        }
        self.last.truncate(shared);
        alloc::reserve("a text of a page", &mut self.last, own.len())?;
        self.last.extend_from_slice(own);
        Ok(Some(&self.last))
    }
}

/// Appends `len` bytes to values.
fn append(ends: &mut Vec<usize>, out: &mut Vec<u8>, value: &[u8]) -> Result<()> {
    alloc::reserve("the values of a page", out, value.len())?;
    out.extend_from_slice(value);
    ends.push(out.len());
    Ok(())
}

/// Bytes in memory of `count` values in the plain encoding, which take `raw` bytes there.
pub(crate) fn plain_size(raw: usize, count: usize, width: Width) -> Option<usize> {
    match width {
        Width::Bit => Some(count),
        Width::Bytes(width) => count.checked_mul(width),
        Width::Variable => count.checked_mul(size_of::<usize>())?.checked_add(raw),
    }
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

/// The values of a page, decoded a block at a time: a page of few bytes can hold many.
pub(crate) enum PageReader<'a> {
    /// Fixed-size values as they are stored.
    Plain {
        width: usize,
        bytes: &'a [u8],
    },
    /// Bits of Booleans, and which of them is next.
    Bits {
        bytes: &'a [u8],
        next: usize,
    },
    /// Booleans as runs.
    Runs(Hybrid<'a>),
    Deltas {
        width: usize,
        numbers: Deltas<'a>,
    },
    /// The first bytes of all values, then the second ones, and so on.
    Split {
        width: usize,
        count: usize,
        bytes: &'a [u8],
        next: usize,
    },
    /// Texts after their lengths.
    Lengths(&'a [u8]),
    Texts(Texts<'a>),
    /// Places in a dictionary.
    Dictionary {
        indices: Hybrid<'a>,
        values: &'a PageValues,
    },
}

/// Buffers of the values of a block.
#[derive(Default)]
pub(crate) struct PageBuffers {
    numbers: Vec<u32>,
    bytes: Vec<u8>,
}

impl<'a> PageReader<'a> {
    /// A reader of `count` values in an encoding; `None` also for unknown encodings.
    pub(crate) fn new(
        encoding: i64,
        bytes: &'a [u8],
        count: usize,
        width: Width,
        dictionary: Option<&'a PageValues>,
    ) -> Option<Self> {
        Some(match (encoding, width) {
            (PLAIN_DICTIONARY | RLE_DICTIONARY, _) => {
                let values = dictionary?;
                // Without values there is no width of indices either.
                let (bits, runs) = if count > 0 { bytes.split_first()? } else { (&0, bytes) };
                Self::Dictionary { indices: Hybrid::new(runs, u32::from(*bits))?, values }
            }
            (PLAIN, Width::Bit) => Self::Bits { bytes, next: 0 },
            (PLAIN, Width::Bytes(width)) => {
                Self::Plain { width, bytes: bytes.get(..count.checked_mul(width)?)? }
            }
            (PLAIN, Width::Variable) => Self::Lengths(bytes),
            (RLE, Width::Bit) => Self::Runs(Hybrid::new(bytes.get(4..)?, 1)?),
            (DELTA_BINARY_PACKED, Width::Bytes(width @ (4 | 8))) => {
                Self::Deltas { width, numbers: Deltas::new(bytes, count)? }
            }
            (DELTA_LENGTH_BYTE_ARRAY, Width::Variable) => Self::Texts(Texts::new(bytes, count, false)?),
            (DELTA_BYTE_ARRAY, Width::Variable) => Self::Texts(Texts::new(bytes, count, true)?),
            (BYTE_STREAM_SPLIT, Width::Bytes(width)) => {
                let bytes = bytes.get(..count.checked_mul(width)?)?;
                Self::Split { width, count, bytes, next: 0 }
            }
            _ => return None,
        })
    }

    /// Size of a value; `None` for texts.
    pub(crate) fn width(&self) -> Option<usize> {
        match self {
            Self::Plain { width, .. } | Self::Deltas { width, .. } | Self::Split { width, .. } => {
                Some(*width)
            }
            Self::Bits { .. } | Self::Runs(_) => Some(1),
            Self::Dictionary { values: PageValues::Fixed { width, .. }, .. } => Some(*width),
            Self::Dictionary { .. } | Self::Lengths(_) | Self::Texts(_) => None,
        }
    }

    /// The next values, of a fixed size, one after another. Blocks are small.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn block<'b>(&mut self, count: usize, buffers: &'b mut PageBuffers) -> Result<Option<&'b [u8]>>
    where
        'a: 'b,
    {
        let PageBuffers { numbers, bytes: out } = buffers;
        out.clear();
        let size = self.width().and_then(|width| width.checked_mul(count));
        let Some(size) = size else { return Ok(None) };
        if let Self::Plain { bytes, .. } = self {
            return Ok(take(bytes, size));
        }
        alloc::reserve("the values of a page", out, size)?;
        let mut fill = || -> Result<Option<()>> {
            match self {
                Self::Bits { bytes, next } => {
                    for _ in 0..count {
                        let Some(byte) = bytes.get(*next / 8) else { return Ok(None) };
                        out.push(byte >> (*next % 8) & 1);
                        *next += 1;
                    }
                }
                Self::Runs(runs) => {
                    alloc::resize("the values of a page", numbers, count, 0)?;
                    let Some(()) = runs.fill(numbers) else { return Ok(None) };
                    out.extend(numbers.iter().map(|bit| *bit as u8));
                }
                Self::Deltas { width, numbers } => {
                    for _ in 0..count {
                        let Some(number) = numbers.next() else { return Ok(None) };
                        out.extend_from_slice(&number.to_le_bytes()[..*width]);
                    }
                }
                Self::Split { width, count: total, bytes, next } => {
                    let Some(end) = next.checked_add(count).filter(|end| end <= total) else {
                        return Ok(None);
                    };
                    for at in *next..end {
                        out.extend((0..*width).map(|byte| bytes[byte * *total + at]));
                    }
                    *next = end;
                }
                Self::Dictionary { indices, values: PageValues::Fixed { width, bytes } } => {
                    alloc::resize("the indices of a page", numbers, count, 0)?;
                    let Some(()) = indices.fill(numbers) else { return Ok(None) };
                    return Ok(match width {
                        4 => gather::<4>(bytes, numbers, out),
                        8 => gather::<8>(bytes, numbers, out),
                        _ => numbers.iter().try_for_each(|at| {
                            let start = (*at as usize).checked_mul(*width)?;
                            out.extend_from_slice(bytes.get(start..start.checked_add(*width)?)?);
                            Some(())
                        }),
                    });
                }
                _ => return Ok(None),
            }
            Ok(Some(()))
        };
        Ok(fill()?.map(|()| &out[..]))
    }

    /// The next text.
    pub(crate) fn text(&mut self) -> Result<Option<&[u8]>> {
        match self {
            Self::Lengths(bytes) => {
                let len = take(bytes, 4).and_then(|len| len.try_into().ok()).map(u32::from_le_bytes);
                Ok(len.and_then(|len| take(bytes, len as usize)))
            }
            Self::Texts(texts) => texts.next(),
            Self::Dictionary { indices, values } => {
                let mut index = [0];
                let values: &PageValues = values;
                Ok(indices.fill(&mut index).and_then(|()| values.get(index[0] as usize)))
            }
            _ => Ok(None),
        }
    }
}

/// Appends values of a dictionary; `None` if an index is not one of it.
fn gather<const N: usize>(dictionary: &[u8], indices: &[u32], out: &mut Vec<u8>) -> Option<()> {
    let values = dictionary.as_chunks::<N>().0;
    indices.iter().try_for_each(|at| {
        out.extend_from_slice(values.get(*at as usize)?);
        Some(())
    })
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

    /// All integers, and the bytes that follow them.
    fn deltas(bytes: &[u8], count: usize) -> Option<(Vec<i64>, &[u8])> {
        let mut numbers = Deltas::new(bytes, count)?;
        let rest = numbers.clone().end()?;
        let own = (0..count).map(|_| numbers.next()).collect::<Option<Vec<i64>>>()?;
        assert_eq!(numbers.next(), None);
        Some((own, rest))
    }

    #[test]
    fn deltas_are_sums() {
        // The second example of the specification: 7, 5, 3, 1, 2, 3, 4, 5 in blocks of 128 with four parts.
        let bytes = [0x80, 0x01, 4, 8, 14, 3, 2, 0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0, 0, 0];
        let (numbers, rest) = deltas(&bytes, 8).unwrap();
        assert_eq!((numbers, rest.len()), (vec![7, 5, 3, 1, 2, 3, 4, 5], 0));
        for len in 0..bytes.len() {
            assert!(deltas(&bytes[..len], 8).is_none(), "{len}");
        }
        assert!(deltas(&bytes, 7).is_none());
        let many: Vec<i64> = (0..1000).map(|n| n * n % 97).collect();
        let bytes = [packed(&many), vec![1, 2]].concat();
        assert_eq!(deltas(&bytes, 1000).unwrap(), (many, &[1, 2][..]));
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
    fn texts_share_the_start_of_the_text_before() {
        let (prefixes, lengths) = (packed(&[0, 2, 3, 0]), packed(&[3, 1, 0, 1]));
        let bytes = [prefixes, lengths, b"abcxy".to_vec()].concat();
        let read = |bytes: &[u8]| {
            let mut texts = Texts::new(bytes, 4, true)?;
            let text = |_| texts.next().unwrap().map(|text| String::from_utf8_lossy(text).into_owned());
            (0..4).map(text).collect::<Option<Vec<_>>>()
        };
        assert_eq!(read(&bytes).unwrap(), ["abc", "abx", "abx", "y"]);
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_none(), "{len}");
        }
        let beyond = [packed(&[0, 4, 3, 0]), packed(&[3, 1, 0, 1]), b"abcxy".to_vec()].concat();
        assert!(read(&beyond).is_none());
    }

    /// Every encoding gives the same values in blocks of any size.
    #[test]
    fn blocks_are_parts_of_a_page() {
        let numbers: Vec<i64> = (0..300).map(|n| n * 7 % 50).collect();
        let plain: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let split: Vec<u8> = (0..8).flat_map(|k| numbers.iter().map(move |n| n.to_le_bytes()[k])).collect();
        let dictionary =
            PageValues::Fixed { width: 8, bytes: (0..50_i64).flat_map(i64::to_le_bytes).collect() };
        // Indices of eight bits, packed.
        let indices: Vec<u8> = numbers.iter().map(|n| *n as u8).chain([0; 4]).collect();
        let indices = [vec![8, 38 << 1 | 1], indices].concat();
        let pages = [
            (PLAIN, plain.clone()),
            (BYTE_STREAM_SPLIT, split),
            (DELTA_BINARY_PACKED, packed(&numbers)),
            (RLE_DICTIONARY, indices),
        ];
        for (encoding, bytes) in &pages {
            for step in [1, 7, 300] {
                let page = |bytes| PageReader::new(*encoding, bytes, 300, Width::Bytes(8), Some(&dictionary));
                let (mut reader, mut buffers) = (page(bytes).unwrap(), PageBuffers::default());
                let mut found = Vec::new();
                while found.len() < plain.len() {
                    let count = step.min(300 - found.len() / 8);
                    found.extend_from_slice(reader.block(count, &mut buffers).unwrap().unwrap());
                }
                assert_eq!(found, plain, "{encoding}");
                assert!(reader.block(8, &mut buffers).unwrap().is_none() || *encoding == RLE_DICTIONARY);
                let cut = page(&bytes[..bytes.len() / 2]);
                let read = cut.and_then(|mut cut| cut.block(300, &mut buffers).unwrap().map(<[u8]>::len));
                assert_eq!(read, None, "{encoding}");
            }
        }
    }
}
