//! The frame around the chunks.
//!
//! Fields are MessagePack, each behind its type byte; numbers in it are big-endian.
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

use tesseral_core::{Error, Result};

use super::chunk::{Chunk, Special};
use super::fault;
use crate::Contexts;

const MAGIC: &[u8] = b"\x9e\xa8b2frame\0";
/// The part of the header that every frame has.
const FIXED: usize = 87;
/// Offsets of this many bytes are read whatever the frame holds.
const SMALL_INDEX: u64 = 64 << 10;

/// A frame whose header agrees with its bytes.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    src: &'a [u8],
    /// Where chunks begin.
    header_len: usize,
    /// Where the index begins.
    index: usize,
    chunks: u64,
    /// Bytes of every chunk but the last, once decoded; at least 1.
    pub chunk_len: u64,
    pub typesize: usize,
}

/// A chunk as it is stored.
pub(super) enum Stored<'a> {
    /// From its first byte to the end of all chunks.
    Bytes(&'a [u8]),
    /// By its value alone.
    Special(Special),
}

fn field<const N: usize>(src: &[u8], at: usize, kind: u8) -> Result<[u8; N]> {
    match src.get(at..).and_then(|rest| rest.split_first()) {
        Some((found, rest)) if *found == kind => {
            rest.first_chunk::<N>().copied().ok_or_else(|| fault("the header is cut"))
        }
        _ => Err(fault(format!("byte {at} of the header is not {kind:#x}"))),
    }
}

impl<'a> Frame<'a> {
    /// Reads the header of a frame that must hold `total` bytes once decoded.
    pub(super) fn parse(src: &'a [u8], total: u64) -> Result<Self> {
        if src.len() < FIXED || !src.starts_with(MAGIC) {
            return Err(fault("it is not a contiguous frame"));
        }
        let size = |n: i64, what: &str| {
            usize::try_from(n).map_err(|_| fault(format!("{what} of the header is {n}")))
        };
        let header_len = size(i32::from_be_bytes(field(src, 10, 0xd2)?).into(), "its own length")?;
        let frame_len = u64::from_be_bytes(field(src, 15, 0xcf)?);
        let flags: [u8; 4] = field(src, 24, 0xa4)?;
        let uncompressed = i64::from_be_bytes(field(src, 29, 0xd3)?);
        let compressed = size(i64::from_be_bytes(field(src, 38, 0xd3)?), "compressed bytes")?;
        let typesize = size(i32::from_be_bytes(field(src, 47, 0xd2)?).into(), "bytes of an element")?;
        let chunk_len = size(i32::from_be_bytes(field(src, 57, 0xd2)?).into(), "bytes of a chunk")? as u64;
        if frame_len != src.len() as u64 {
            return Err(fault(format!("it says {frame_len} bytes and has {}", src.len())));
        }
        if u64::try_from(uncompressed) != Ok(total) {
            return Err(fault(format!("expected {total} bytes, it says {uncompressed}")));
        }
        if flags[1] & 0x0f != 0 || flags[0] >> 4 != 1 {
            // Chunks in files beside it, offsets other than 64 bits, chunks of several lengths.
            return Err(Error::unsupported(format!("blosc2 frames of kind {:#x} {:#x}", flags[0], flags[1])));
        }
        let index = header_len.checked_add(compressed).filter(|index| *index <= src.len());
        let Some(index) = index.filter(|_| header_len >= FIXED) else {
            return Err(fault(format!(
                "a header of {header_len} and {compressed} bytes of chunks do not fit"
            )));
        };
        if chunk_len == 0 && total > 0 {
            return Err(fault("chunks of 0 bytes"));
        }
        let chunk_len = chunk_len.max(1);
        Ok(Self { src, header_len, index, chunks: total.div_ceil(chunk_len), chunk_len, typesize })
    }

    /// Where each chunk begins, after the header; or what it holds, when it has no bytes.
    pub(super) fn offsets(&self, contexts: &mut Contexts) -> Result<Vec<i64>> {
        // At most 2^63 chunks of at least a byte each, so this may overflow only for what cannot be there.
        let len = self.chunks.saturating_mul(8);
        // An index longer than what it leads to is not made by anyone, but could ask for much memory.
        let most = self.chunks.saturating_mul(self.chunk_len).max(SMALL_INDEX);
        if len > most {
            return Err(Error::limit("the index of a blosc2 frame", len, most));
        }
        let chunk = Chunk::parse(self.src.get(self.index..).unwrap_or_default())?;
        let len = usize::try_from(len).map_err(|_| fault("the index is too long"))?;
        chunk.expect(len)?;
        let mut bytes = vec![0; len];
        chunk.decode_range(0..len, &mut bytes, contexts)?;
        Ok(bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect())
    }

    /// Chunk `number` of a frame with these offsets.
    pub(super) fn chunk(&self, offsets: &[i64], number: usize) -> Result<Stored<'a>> {
        let offset = offsets.get(number).copied().ok_or_else(|| fault("a chunk without an offset"))?;
        if offset < 0 {
            #[allow(clippy::cast_sign_loss)]
            let bits = (offset as u64 >> 56) as u8;
            return Special::of(bits & 7)
                .filter(|special| *special != Special::Value)
                .map(Stored::Special)
                .ok_or_else(|| fault(format!("chunk {number} holds special value {bits:#x}")));
        }
        let start = usize::try_from(offset).ok().and_then(|at| self.header_len.checked_add(at));
        let bytes = start.and_then(|start| self.src.get(start..self.index));
        bytes.map(Stored::Bytes).ok_or_else(|| fault(format!("chunk {number} begins outside the frame")))
    }
}

/// What the header says of a frame that is written.
pub(super) struct Header {
    pub total: u64,
    pub compressed: u64,
    /// Of chunks and index.
    pub body: u64,
    pub typesize: u8,
    pub block_len: u32,
    pub chunk_len: u32,
    /// Codec and level as the frame has them.
    pub codec_flags: u8,
    pub codec: u8,
    pub filter: u8,
}

/// The header's length, as no metadata are written.
const HEADER_LEN: usize = 97;
const TRAILER: &[u8] = b"\x94\x01\x93\xcd\x00\x06\xde\x00\x00\xdc\x00\x00\xce\x00\x00\x00\x23\xd8\x00";
const TRAILER_LEN: usize = 35;

impl Header {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let frame_len = (HEADER_LEN + TRAILER_LEN) as u64 + self.body;
        out.extend_from_slice(MAGIC);
        out.push(0xd2);
        out.extend_from_slice(&97_u32.to_be_bytes());
        out.push(0xcf);
        out.extend_from_slice(&frame_len.to_be_bytes());
        // Version 2 with offsets of 64 bits, contiguous, codec, blocks split as readers before us expect it.
        out.extend_from_slice(&[0xa4, 0x12, 0, self.codec_flags, 3]);
        for size in [self.total, self.compressed] {
            out.push(0xd3);
            out.extend_from_slice(&size.to_be_bytes());
        }
        for size in [u32::from(self.typesize), self.block_len, self.chunk_len] {
            out.push(0xd2);
            out.extend_from_slice(&size.to_be_bytes());
        }
        // One thread each way, no metadata in the trailer.
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
