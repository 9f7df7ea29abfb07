//! The contiguous frame of Blosc2: a header, compressed chunks, a chunk index, a trailer.
//!
//! ```text
//! frame:  header 87+ (MessagePack) │ chunk … chunk │ index chunk: i64 offset of each │ trailer
//! chunk:  header 16 or 32 │ block starts, i32 each │ streams of block 0 │ streams of block 1 │ …
//! stream: i32 length │ bytes              a length of 0: zeros, below 0: one byte repeated
//! ```
//!
//! Chunks are divided into blocks, and blocks (unless the chunk disables it) into one stream per byte of an element, so that
//! shuffled bytes of equal significance compress together. Blocks decode independently, which range reads rely on. Chunks of a
//! single value store no bytes.
//!
//! ```
//! use tesseral_codec::Contexts;
//! use tesseral_codec::blosc2::{self, Codec, FrameSettings, Shuffle};
//!
//! let mut contexts = Contexts::default();
//! let cells: Vec<u8> = (0..1000_u32).flat_map(u32::to_le_bytes).collect();
//! let settings = FrameSettings { codec: Codec::Lz4, level: 5, typesize: 4, shuffle: Shuffle::Byte };
//! let mut frame = Vec::new();
//! blosc2::encode(&cells, &settings, &mut frame, &mut contexts)?;
//! let mut part = [0; 8];
//! blosc2::decode_range(&frame, 4000, 400, &mut part, &mut contexts)?;
//! assert_eq!(part, cells[400..408]);
//! # Ok::<(), tesseral_core::Error>(())
//! ```

mod blosclz;
mod chunk;
mod encode;
mod filters;
mod frame;

use tesseral_core::{Error, Result};

use crate::Contexts;

pub use encode::{encode, encode_chunk};

/// Decodes a complete frame, whose output must fill `dst` exactly.
///
/// # Errors
/// `Codec` when the frame is damaged or holds a different number of bytes; `Unsupported` for user-defined codecs and filters,
/// dictionaries and blocks of varying length.
pub fn decode_into(src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
    decode_range(src, dst.len() as u64, 0, dst, contexts)
}

/// Decodes bytes `start..start + dst.len()` of a frame of `total` bytes, and no block other than those that hold them.
///
/// # Errors
/// As [`decode_into`]; `InvalidRequest` for bytes beyond `total`.
pub fn decode_range(
    src: &[u8],
    total: u64,
    start: u64,
    dst: &mut [u8],
    contexts: &mut Contexts,
) -> Result<()> {
    let end = start.checked_add(dst.len() as u64).filter(|end| *end <= total);
    let Some(end) = end else {
        return Err(Error::invalid(format!("bytes {start}..+{} out of range for {total} bytes", dst.len())));
    };
    let frame = frame::BloscFrame::parse(src, total)?;
    if start == end {
        return Ok(());
    }
    let offsets = frame.offsets(contexts)?;
    let chunk_len = frame.chunk_len;
    for number in start / chunk_len..=(end - 1) / chunk_len {
        let begin = number * chunk_len;
        let len = chunk_len.min(total - begin);
        let (from, to) = (start.max(begin), end.min(begin + len));
        // All lie inside `dst` or a chunk, whose length fits.
        let (out, within) = (
            &mut dst[(from - start) as usize..(to - start) as usize],
            (from - begin) as usize..(to - begin) as usize,
        );
        match frame.chunk(&offsets, number as usize)? {
            frame::FrameChunk::Bytes(bytes) => {
                let chunk = chunk::BloscChunk::parse(bytes)?;
                chunk.expect(len as usize)?;
                chunk.decode_range(within, out, contexts)?;
            }
            frame::FrameChunk::Special(special) => special.fill(frame.typesize, &[], within.start, out)?,
        }
    }
    Ok(())
}

/// Decodes a chunk outside a frame, of Blosc 1 or 2, whose output must fill `dst` exactly.
///
/// # Errors
/// As [`decode_into`].
pub fn decode_chunk_into(src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
    let chunk = chunk::BloscChunk::parse(src)?;
    chunk.expect(dst.len())?;
    chunk.decode_range(0..dst.len(), dst, contexts)
}

/// Decodes a range of bytes of a chunk outside a frame, of `total` bytes, and no block other than those that hold them.
///
/// # Errors
/// As [`decode_into`]; `InvalidRequest` for bytes beyond `total`.
pub fn decode_chunk_range(
    src: &[u8],
    total: usize,
    start: usize,
    dst: &mut [u8],
    contexts: &mut Contexts,
) -> Result<()> {
    let chunk = chunk::BloscChunk::parse(src)?;
    chunk.expect(total)?;
    let end = start.checked_add(dst.len()).filter(|end| *end <= total);
    let Some(end) = end else {
        return Err(Error::invalid(format!("bytes {start}..+{} out of range for {total} bytes", dst.len())));
    };
    chunk.decode_range(start..end, dst, contexts)
}

/// The decoded length that a chunk outside a frame declares.
///
/// # Errors
/// As [`decode_into`].
pub fn chunk_len(src: &[u8]) -> Result<usize> {
    Ok(chunk::BloscChunk::parse(src)?.len())
}

/// The compressor of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// BloscLZ, derived from FastLZ.
    BloscLz,
    /// LZ4 blocks.
    Lz4,
    /// LZ4 blocks as written by LZ4HC. This encoder writes plain LZ4, which has the same stream format.
    Lz4Hc,
    /// zlib streams.
    Zlib,
    /// Zstandard frames.
    Zstd,
}

impl Codec {
    /// The codec with this name in Blosc.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "blosclz" => Self::BloscLz,
            "lz4" => Self::Lz4,
            "lz4hc" => Self::Lz4Hc,
            "zlib" => Self::Zlib,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }

    /// Name of the codec in Blosc.
    pub fn name(self) -> &'static str {
        match self {
            Self::BloscLz => "blosclz",
            Self::Lz4 => "lz4",
            Self::Lz4Hc => "lz4hc",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// The reordering of bytes before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// No reordering.
    None,
    /// Byte shuffle: bytes of equal significance together.
    Byte,
    /// Bit shuffle: bits of equal significance together.
    Bit,
}

/// The parameters of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSettings {
    /// The compressor of the streams.
    pub codec: Codec,
    /// Compression level from 0 (stored) to 9.
    pub level: u8,
    /// Bytes of an element, 1 to 255.
    pub typesize: u8,
    /// The reordering before compression.
    pub shuffle: Shuffle,
}

/// Buffers that are reused between blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockBuffers {
    pub first: Vec<u8>,
    pub second: Vec<u8>,
}

fn fault(detail: impl Into<String>) -> Error {
    Error::codec("blosc2", detail.into())
}

/// The little-endian i32 at an offset.
fn i32_at(bytes: &[u8], at: usize) -> Result<i32> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map(|word| i32::from_le_bytes(*word)).ok_or_else(|| fault("truncated chunk"))
}

#[cfg(test)]
mod tests;
