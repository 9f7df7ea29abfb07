//! A chunk: header, block starts, streams.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version, 2 to 5 |
//! | 2 | 1 | flags: 1 and 4 together: 32-byte header; 2 stored; 16 blocks not split; the top 3 bits the codec |
//! | 3 | 1 | bytes of an element |
//! | 4, 8, 12 | 4 | bytes uncompressed, of a block, of the chunk |
//! | 16 | 6 | filters in the order they were applied: 1 byte shuffle, 2 bit shuffle, 3 delta, 4 truncated precision |
//! | 24 | 6 | a number for each filter |
//! | 30 | 1 | flags: 1 blocks of several lengths |
//! | 31 | 1 | flags: 1 dictionary, 8 not loaded, bits 4 to 6 one value for all, 128 instrumented |
//!
//! The short header encodes its filter in the flags.

use std::ops::Range;

use flate2::{Decompress, FlushDecompress, Status};
use tesseral_core::{Error, Result, alloc};

use super::{BlockBuffers, blosclz, fault, filters, i32_at};
use crate::{Contexts, zstd};

pub(super) const HEADER: usize = 16;
pub(super) const EXTENDED: usize = 32;
pub(super) const STORED: u8 = 2;
pub(super) const NOT_SPLIT: u8 = 16;
pub(super) const EXTENDED_FLAGS: u8 = 1 | 4;
/// Bytes of buffers beside the decoded ones that need no justification, and how many each stored byte justifies.
const WORK_SPACE: usize = 16 << 20;
const WORK_RATIO: usize = 32;

/// The value that all elements of a chunk share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Zeros,
    Nan,
    /// The value that follows the header.
    Value,
    /// Uninitialized memory; decoded as zeros.
    Uninitialized,
}

impl Special {
    /// The special value with this code; `None` for 0 and unknown codes.
    pub(super) fn from_code(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Zeros,
            2 => Self::Nan,
            3 => Self::Value,
            4 => Self::Uninitialized,
            _ => return None,
        })
    }

    /// Fills `dst` from byte `start` of the chunk on; `value` is the value that follows the header.
    pub(super) fn fill(self, typesize: usize, value: &[u8], start: usize, dst: &mut [u8]) -> Result<()> {
        let nan = (f32::NAN.to_le_bytes(), f64::NAN.to_le_bytes());
        let pattern: &[u8] = match (self, typesize) {
            (Self::Zeros | Self::Uninitialized, _) => &[0],
            (Self::Nan, 4) => &nan.0,
            (Self::Nan, 8) => &nan.1,
            (Self::Nan, size) => {
                return Err(fault(format!("special value NaN for elements of {size} bytes")));
            }
            (Self::Value, _) => value,
        };
        if pattern.is_empty() {
            return Err(fault("missing value of a single-value chunk"));
        }
        if pattern == [0] {
            dst.fill(0);
            return Ok(());
        }
        let skip = start % pattern.len();
        dst.iter_mut().zip(pattern.iter().cycle().skip(skip)).for_each(|(out, byte)| *out = *byte);
        Ok(())
    }
}

/// A chunk with a validated header.
#[derive(Debug)]
pub(super) struct BloscChunk<'a> {
    /// The chunk, from its header on.
    src: &'a [u8],
    version: u8,
    flags: u8,
    typesize: usize,
    len: usize,
    block_len: usize,
    header_len: usize,
    filters: [(u8, u8); 6],
    special: Option<Special>,
}

impl<'a> BloscChunk<'a> {
    /// Parses the chunk at the start of `src`.
    pub(super) fn parse(src: &'a [u8]) -> Result<Self> {
        let Some(&[version, _, flags, typesize]) = src.first_chunk::<4>() else {
            return Err(fault("truncated chunk"));
        };
        let size = |at| {
            let n = i32_at(src, at)?;
            usize::try_from(n).map_err(|_| fault(format!("invalid chunk size {n}")))
        };
        let (len, block_len, stored) = (size(4)?, size(8)?, size(12)?);
        if !(2..=5).contains(&version) {
            return Err(Error::unsupported(format!("blosc2 chunks of version {version}")));
        }
        let extended = flags & EXTENDED_FLAGS == EXTENDED_FLAGS;
        let header_len = if extended { EXTENDED } else { HEADER };
        let src = src.get(..stored).filter(|src| src.len() >= header_len);
        let src = src.ok_or_else(|| fault(format!("truncated chunk: {stored} bytes declared")))?;
        let mut chunk = Self {
            src,
            version,
            flags,
            typesize: typesize.into(),
            len,
            block_len,
            header_len,
            filters: [(0, 0); 6],
            special: None,
        };
        if extended {
            chunk.extend()?;
        } else if flags & 1 != 0 {
            chunk.filters[0] = (filters::BYTE_SHUFFLE, 0);
        } else if flags & 4 != 0 {
            chunk.filters[0] = (filters::BIT_SHUFFLE, 0);
        }
        if !extended && flags & 8 != 0 {
            return Err(Error::unsupported("delta filter of blosc 1"));
        }
        if len > 0 && (typesize == 0 || block_len == 0 || block_len > len) {
            return Err(fault(format!(
                "invalid block size: {block_len} bytes in a chunk of {len}, elements of {typesize}"
            )));
        }
        Ok(chunk)
    }

    /// Parses the second half of the long header.
    fn extend(&mut self) -> Result<()> {
        let half = &self.src[HEADER..EXTENDED];
        for (filter, (id, meta)) in self.filters.iter_mut().zip(half.iter().zip(&half[8..])) {
            *filter = (*id, *meta);
        }
        let (flags2, flags) = (half[14], half[15]);
        if flags2 != 0 {
            return Err(Error::unsupported("blosc2 blocks of varying length"));
        }
        if flags & 1 != 0 {
            return Err(Error::unsupported("blosc2 with a dictionary"));
        }
        if flags & 0x80 != 0 {
            return Err(Error::unsupported("instrumented blosc2 chunks"));
        }
        if flags & 8 != 0 {
            return Err(fault("chunk refers to an external file"));
        }
        let bits = flags >> 4 & 7;
        self.special = Special::from_code(bits);
        if self.special.is_none() && bits != 0 {
            return Err(fault(format!("unknown special value {bits}")));
        }
        if let Some((id, _)) = self.filters.iter().find(|(id, _)| *id > filters::LAST) {
            return Err(Error::unsupported(format!("blosc2 filter {id}")));
        }
        Ok(())
    }

    /// The decoded length.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Rejects a chunk of a different length.
    pub(super) fn expect(&self, len: usize) -> Result<()> {
        if self.len != len {
            return Err(fault(format!("expected a chunk of {len} bytes, its header declares {}", self.len)));
        }
        Ok(())
    }

    /// Decodes bytes `range` of the chunk into a slice of that length; the range must lie inside the chunk.
    pub(super) fn decode_range(
        &self,
        range: Range<usize>,
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        let body = &self.src[self.header_len..];
        if let Some(special) = self.special {
            return special.fill(self.typesize, body, range.start, dst);
        }
        if self.flags & STORED != 0 {
            let stored = body.get(..self.len).ok_or_else(|| fault("truncated stored chunk"))?;
            dst.copy_from_slice(&stored[range]);
            return Ok(());
        }
        let delta = self.filters.iter().any(|(id, _)| *id == filters::DELTA);
        self.check_work_space(delta, range.len() < self.len)?;
        let BlockBuffers { mut first, mut second } = std::mem::take(&mut contexts.blosc2);
        let mut reference = Vec::new();
        let decoded = (|| {
            if delta {
                // Every block is stored as its difference to the first block.
                reference = alloc::zeroed("a blosc2 block", self.block_len.min(self.len))?;
                let len = reference.len();
                self.block(0, len, &mut reference, &[], &mut first, &mut second, contexts)?;
            }
            for number in range.start / self.block_len..=(range.end - 1) / self.block_len {
                let begin = number * self.block_len;
                let len = self.block_len.min(self.len - begin);
                let (from, to) = (range.start.max(begin), range.end.min(begin + len));
                let out = &mut dst[from - range.start..to - range.start];
                if delta && number == 0 {
                    out.copy_from_slice(&reference[from..to]);
                } else if out.len() == len {
                    self.block(number, len, out, &reference, &mut first, &mut second, contexts)?;
                } else {
                    let mut whole = alloc::zeroed("a blosc2 block", len)?;
                    self.block(number, len, &mut whole, &reference, &mut first, &mut second, contexts)?;
                    out.copy_from_slice(&whole[from - begin..to - begin]);
                }
            }
            Ok(())
        })();
        contexts.blosc2 = BlockBuffers { first, second };
        decoded
    }

    /// Rejects blocks whose buffers the stored bytes do not justify. Writers make blocks of a few hundred kilobytes.
    fn check_work_space(&self, delta: bool, partial: bool) -> Result<()> {
        let filters = self.filters.iter().filter(|(id, _)| filters::changes_bytes(*id)).count().min(2);
        let buffers = filters + usize::from(delta) + usize::from(partial);
        let needed = self.block_len.min(self.len).saturating_mul(buffers);
        let allowed = WORK_SPACE.max(self.src.len().saturating_mul(WORK_RATIO));
        if needed > allowed {
            return Err(Error::limit("the work space of a blosc2 block", needed as u64, allowed as u64));
        }
        Ok(())
    }

    /// Decodes a block of `len` bytes.
    #[allow(clippy::too_many_arguments)]
    fn block(
        &self,
        number: usize,
        len: usize,
        dst: &mut [u8],
        reference: &[u8],
        first: &mut Vec<u8>,
        second: &mut Vec<u8>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let start = usize::try_from(i32_at(self.src, self.header_len + 4 * number)?).ok();
        let src = start.filter(|start| *start >= self.header_len).and_then(|start| self.src.get(start..));
        let src = src.ok_or_else(|| fault(format!("start of block {number} is outside its chunk")))?;
        let mut filters = self.filters.iter().rev().filter(|(id, _)| filters::changes_bytes(*id)).peekable();
        if filters.peek().is_none() {
            return self.streams(src, dst, contexts);
        }
        let buffer = crate::room(first, len)?;
        self.streams(src, buffer, contexts)?;
        while let Some((id, meta)) = filters.next() {
            let size =
                if *id == filters::BYTE_SHUFFLE && *meta != 0 { (*meta).into() } else { self.typesize };
            let undo = filters::FilterUndo { id: *id, size, version: self.version, reference };
            if filters.peek().is_none() {
                return undo.run(&first[..len], dst);
            }
            undo.run(&first[..len], crate::room(second, len)?)?;
            std::mem::swap(first, second);
        }
        Ok(())
    }

    /// Decompresses the streams of a block in order.
    fn streams(&self, mut src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
        let whole = dst.len() == self.block_len;
        let split = self.flags & NOT_SPLIT == 0 && whole;
        let streams = if split { self.typesize } else { 1 };
        if !dst.len().is_multiple_of(streams) {
            return Err(fault(format!(
                "block of {} bytes is not divisible into {streams} streams",
                dst.len()
            )));
        }
        for out in dst.chunks_mut(dst.len() / streams) {
            let len = i32_at(src, 0)?;
            src = &src[4..];
            match usize::try_from(len) {
                Ok(0) => out.fill(0),
                Ok(len) => {
                    let (stream, rest) =
                        src.split_at_checked(len).ok_or_else(|| fault("truncated stream"))?;
                    src = rest;
                    self.stream(stream, out, contexts)?;
                }
                Err(_) => {
                    // The length is the negated repeated byte; the token marks this.
                    let (token, rest) = src.split_first().ok_or_else(|| fault("truncated stream"))?;
                    let byte = u8::try_from(len.unsigned_abs()).ok().filter(|_| *token == 1);
                    out.fill(
                        byte.ok_or_else(|| fault(format!("invalid stream length {len} with token {token}")))?,
                    );
                    src = rest;
                }
            }
        }
        Ok(())
    }

    fn stream(&self, src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
        if src.len() == dst.len() {
            dst.copy_from_slice(src);
            return Ok(());
        }
        let written = match self.flags >> 5 {
            0 => blosclz::decode_into(src, dst)?,
            1 => lz4_flex::block::decompress_into(src, dst).map_err(|e| Error::codec("blosc2", e))?,
            3 => inflate(src, dst)?,
            4 => {
                zstd::decode_into(src, dst, contexts)?;
                dst.len()
            }
            other => return Err(Error::unsupported(format!("blosc2 codec {other}"))),
        };
        if written != dst.len() {
            return Err(fault(format!("decompressed stream has {written} bytes, expected {}", dst.len())));
        }
        Ok(())
    }
}

fn inflate(src: &[u8], dst: &mut [u8]) -> Result<usize> {
    let mut stream = Decompress::new(true);
    let status =
        stream.decompress(src, dst, FlushDecompress::Finish).map_err(|e| Error::codec("blosc2", e))?;
    if status != Status::StreamEnd {
        return Err(fault("truncated zlib stream"));
    }
    usize::try_from(stream.total_out()).map_err(|_| fault("zlib stream too long"))
}
