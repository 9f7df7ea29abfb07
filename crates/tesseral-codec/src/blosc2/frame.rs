//! The frame around the chunks.
//!
//! Fields are MessagePack, each after its type byte; numbers are big-endian.
//!
//! | offset | field |
//! |---|---|
//! | 0 | `9e` array of 14, `a8` text of 8: `b2frame\0` |
//! | 10 | `d2` header length |
//! | 15 | `cf` frame length |
//! | 24 | `a4` flags: version and offset width, frame type, codec and level, split mode |
//! | 29 | `d3` uncompressed bytes |
//! | 38 | `d3` compressed bytes of all chunks |
//! | 47, 52, 57 | `d2` bytes of an element, of a block, of a chunk |
//! | 62 | threads, whether there are metadata in the trailer, filters, metadata |

use tesseral_core::{Error, Result, alloc};

use super::chunk::{BloscChunk, Special};
use super::fault;
use crate::Contexts;

const MAGIC: &[u8] = b"\x9e\xa8b2frame\0";
/// The size of the fixed part of the header.
const FIXED: usize = 87;
/// An index of up to this many bytes is always read.
const SMALL_INDEX: u64 = 64 << 10;

/// A larger one takes at most this fraction of the data.
const INDEX_SHARE: u64 = 32;

/// A frame whose header is consistent with its length.
#[derive(Debug)]
pub(super) struct BloscFrame<'a> {
    src: &'a [u8],
    /// The offset of the first chunk.
    header_len: usize,
    /// The offset of the index.
    index: usize,
    chunks: u64,
    /// Decoded bytes of every chunk but the last; at least 1.
    pub chunk_len: u64,
    pub typesize: usize,
}

/// The storage of a chunk.
pub(super) enum FrameChunk<'a> {
    /// From its first byte to the end of all chunks.
    Bytes(&'a [u8]),
    /// A single value without stored bytes.
    Special(Special),
}

fn field<const N: usize>(src: &[u8], at: usize, kind: u8) -> Result<[u8; N]> {
    match src.get(at..).and_then(|rest| rest.split_first()) {
        Some((found, rest)) if *found == kind => {
            rest.first_chunk::<N>().copied().ok_or_else(|| fault("truncated header"))
        }
        _ => Err(fault(format!("header byte {at}: expected type {kind:#x}"))),
    }
}

impl<'a> BloscFrame<'a> {
    /// Parses the header of a frame that must decode to `total` bytes.
    pub(super) fn parse(src: &'a [u8], total: u64) -> Result<Self> {
        if src.len() < FIXED || !src.starts_with(MAGIC) {
            return Err(fault("not a contiguous frame: bad magic"));
        }
        let size = |n: i64, what: &str| {
            usize::try_from(n).map_err(|_| fault(format!("invalid {what} in the header: {n}")))
        };
        let header_len = size(i32::from_be_bytes(field(src, 10, 0xd2)?).into(), "header length")?;
        let frame_len = u64::from_be_bytes(field(src, 15, 0xcf)?);
        let flags: [u8; 4] = field(src, 24, 0xa4)?;
        let uncompressed = i64::from_be_bytes(field(src, 29, 0xd3)?);
        let compressed = size(i64::from_be_bytes(field(src, 38, 0xd3)?), "compressed size")?;
        let typesize = size(i32::from_be_bytes(field(src, 47, 0xd2)?).into(), "element size")?;
        let chunk_len = size(i32::from_be_bytes(field(src, 57, 0xd2)?).into(), "chunk size")? as u64;
        if frame_len != src.len() as u64 {
            return Err(fault(format!(
                "frame length mismatch: the header declares {frame_len} bytes, found {}",
                src.len()
            )));
        }
        if u64::try_from(uncompressed) != Ok(total) {
            return Err(fault(format!("expected {total} bytes, the header declares {uncompressed}")));
        }
        if flags[1] & 0x0f != 0 || flags[0] >> 4 != 1 {
            // Chunks in separate files, offsets other than 64 bits, chunks of varying length.
            return Err(Error::unsupported(format!("blosc2 frames of kind {:#x} {:#x}", flags[0], flags[1])));
        }
        let index = header_len.checked_add(compressed).filter(|index| *index <= src.len());
        let Some(index) = index.filter(|_| header_len >= FIXED) else {
            return Err(fault(format!(
                "truncated frame: a header of {header_len} bytes and {compressed} bytes of chunks do not fit"
            )));
        };
        if chunk_len == 0 && total > 0 {
            return Err(fault("chunk size is 0"));
        }
        let chunk_len = chunk_len.max(1);
        Ok(Self { src, header_len, index, chunks: total.div_ceil(chunk_len), chunk_len, typesize })
    }

    /// The offset of each chunk after the header, or its special value when it has no stored bytes.
    pub(super) fn offsets(&self, contexts: &mut Contexts) -> Result<Vec<i64>> {
        // At most 2^63 chunks of at least one byte each, so overflow is possible only for an index that cannot be present.
        let len = self.chunks.saturating_mul(8);
        // No writer produces chunks of a few bytes, but a damaged index could request as much memory as the data or more.
        let most = (self.chunks.saturating_mul(self.chunk_len) / INDEX_SHARE).max(SMALL_INDEX);
        if len > most {
            return Err(Error::limit("index of a blosc2 frame", len, most));
        }
        let chunk = BloscChunk::parse(self.src.get(self.index..).unwrap_or_default())?;
        let len = usize::try_from(len).map_err(|_| fault("index too long"))?;
        chunk.expect(len)?;
        let mut bytes: Vec<u8> = alloc::zeroed("the index of a blosc2 frame", len)?;
        chunk.decode_range(0..len, &mut bytes, contexts)?;
        Ok(bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect())
    }

    /// Chunk `number` of a frame with these offsets.
    pub(super) fn chunk(&self, offsets: &[i64], number: usize) -> Result<FrameChunk<'a>> {
        let offset = offsets.get(number).copied().ok_or_else(|| fault("chunk without an offset"))?;
        if offset < 0 {
            let bits = (offset as u64 >> 56) as u8;
            return Special::from_code(bits & 7)
                .filter(|special| *special != Special::Value)
                .map(FrameChunk::Special)
                .ok_or_else(|| fault(format!("chunk {number} has unknown special value {bits:#x}")));
        }
        let start = usize::try_from(offset).ok().and_then(|at| self.header_len.checked_add(at));
        let bytes = start.and_then(|start| self.src.get(start..self.index));
        bytes
            .map(FrameChunk::Bytes)
            .ok_or_else(|| fault(format!("start of chunk {number} is outside the frame")))
    }
}

/// The header fields of a frame to write.
pub(super) struct Blosc2Header {
    pub total: u64,
    pub compressed: u64,
    /// Compressed bytes of chunks and index.
    pub body: u64,
    pub typesize: u8,
    pub block_len: u32,
    pub chunk_len: u32,
    /// Codec and level in frame encoding.
    pub codec_flags: u8,
    pub codec: u8,
    pub filter: u8,
}

/// The header length; no metadata are written.
const HEADER_LEN: usize = 97;
const TRAILER: &[u8] = b"\x94\x01\x93\xcd\x00\x06\xde\x00\x00\xdc\x00\x00\xce\x00\x00\x00\x23\xd8\x00";
const TRAILER_LEN: usize = 35;

impl Blosc2Header {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let frame_len = (HEADER_LEN + TRAILER_LEN) as u64 + self.body;
        out.extend_from_slice(MAGIC);
        out.push(0xd2);
        out.extend_from_slice(&97_u32.to_be_bytes());
        out.push(0xcf);
        out.extend_from_slice(&frame_len.to_be_bytes());
        // Version 2 with 64-bit offsets, contiguous, codec, split mode compatible with older decoders.
        out.extend_from_slice(&[0xa4, 0x12, 0, self.codec_flags, 3]);
        for size in [self.total, self.compressed] {
            out.push(0xd3);
            out.extend_from_slice(&size.to_be_bytes());
        }
        for size in [u32::from(self.typesize), self.block_len, self.chunk_len] {
            out.push(0xd2);
            out.extend_from_slice(&size.to_be_bytes());
        }
        // One thread for each direction, no metadata in the trailer.
        out.extend_from_slice(&[0xd1, 0, 1, 0xd1, 0, 1, 0xc2, 0xd8, 6]);
        out.extend_from_slice(&[0, 0, 0, 0, 0, self.filter, self.codec, 0]);
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(b"\x93\xcd\x00\x07\xde\x00\x00\xdc\x00\x00");
        debug_assert_eq!(out.len() - start, HEADER_LEN);
    }

    pub(super) fn write_trailer(out: &mut Vec<u8>) {
        out.extend_from_slice(TRAILER);
        out.extend_from_slice(&[0; TRAILER_LEN - TRAILER.len()]);
    }
}
