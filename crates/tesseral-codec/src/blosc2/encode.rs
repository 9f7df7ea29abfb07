//! Encoding bytes as a frame.

use flate2::{Compress, Compression, FlushCompress};
use tesseral_core::{Error, Result};

use super::chunk::{EXTENDED, EXTENDED_FLAGS, HEADER, NOT_SPLIT, STORED};
use super::frame::Blosc2Header;
use super::{Codec, FrameSettings, Shuffle, blosclz, filters};
use crate::{Contexts, bitshuffle, shuffle, zstd};

/// The maximum number of bytes of a chunk.
const CHUNK: usize = 256 << 20;
/// Block size at level 2; other levels use multiples.
const BLOCK: usize = 32 << 10;
/// Elements wider than this are not split into streams.
const MAX_STREAMS: usize = 16;
/// The minimum stream length for splitting.
const MIN_STREAM: usize = 32;
/// The same for Blosc 1, whose decoder expects one stream below it.
const MIN_STREAM_1: usize = 128;
/// The most bytes of a chunk: its lengths are signed, and the header and the block starts add to them.
const MAX_CHUNK: usize = (i32::MAX as usize) - (1 << 20);

impl Codec {
    /// The stream format code in chunk flags.
    fn format(self) -> u8 {
        match self {
            Self::BloscLz => 0,
            Self::Lz4 | Self::Lz4Hc => 1,
            Self::Zlib => 3,
            Self::Zstd => 4,
        }
    }

    /// The codec number in Blosc.
    fn number(self) -> u8 {
        match self {
            Self::BloscLz => 0,
            Self::Lz4 => 1,
            Self::Lz4Hc => 2,
            Self::Zlib => 4,
            Self::Zstd => 5,
        }
    }

    /// Strong codecs use larger blocks.
    fn strong(self) -> bool {
        matches!(self, Self::Lz4Hc | Self::Zlib | Self::Zstd)
    }
}

impl FrameSettings {
    fn splits(&self, len: usize) -> bool {
        let fast = match self.codec {
            Codec::BloscLz | Codec::Lz4 => true,
            Codec::Zstd => self.level <= 5,
            Codec::Lz4Hc | Codec::Zlib => false,
        };
        let size = usize::from(self.typesize);
        fast && self.shuffle == Shuffle::Byte && size <= MAX_STREAMS && len / size >= MIN_STREAM
    }

    /// The block size in a chunk of `len` bytes: cache-sized, larger for strong codecs and high levels, whole elements.
    pub(super) fn block_len(&self, len: usize) -> usize {
        let size = usize::from(self.typesize);
        let desired = if self.splits(len) {
            let stream = match self.level {
                0..=3 => BLOCK,
                4..=6 => 2 * BLOCK,
                7 => 4 * BLOCK,
                8 => 8 * BLOCK,
                _ => 16 * BLOCK,
            };
            (stream * size).min(4 << 20)
        } else {
            let times = match self.level {
                0..=2 => 1,
                3 => 2,
                4..=5 => 4,
                _ => 8,
            };
            BLOCK * times * if self.codec.strong() { 2 } else { 1 }
        };
        let block = desired.min(len);
        if block > size { block / size * size } else { block.max(1) }
    }
}

/// Appends the frame of `src` to `out`.
///
/// # Errors
/// `InvalidRequest` for settings out of range; `Codec` when a compressor fails.
pub fn encode(
    src: &[u8],
    settings: &FrameSettings,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    if settings.typesize == 0 || settings.level > 9 {
        return Err(Error::invalid(format!("invalid blosc2 settings: {settings:?}")));
    }
    let size = usize::from(settings.typesize);
    let chunk_len = src.len().min(CHUNK / size * size);
    let mut body = Vec::new();
    let mut offsets = Vec::new();
    for part in src.chunks(chunk_len.max(1)) {
        offsets.extend_from_slice(&(body.len() as i64).to_le_bytes());
        chunk(part, settings, &mut body, contexts)?;
    }
    let compressed = body.len() as u64;
    if !offsets.is_empty() {
        let index = FrameSettings { codec: Codec::BloscLz, level: 0, typesize: 8, shuffle: Shuffle::Byte };
        chunk(&offsets, &index, &mut body, contexts)?;
    }
    let header = Blosc2Header {
        total: src.len() as u64,
        compressed,
        body: body.len() as u64,
        typesize: settings.typesize,
        block_len: settings.block_len(chunk_len) as u32,
        chunk_len: chunk_len as u32,
        codec_flags: settings.level << 4 | settings.codec.format(),
        codec: settings.codec.number(),
        filter: filter(settings.shuffle),
    };
    header.write(out);
    out.append(&mut body);
    Blosc2Header::write_trailer(out);
    Ok(())
}

fn filter(shuffle: Shuffle) -> u8 {
    match shuffle {
        Shuffle::None => 0,
        Shuffle::Byte => filters::BYTE_SHUFFLE,
        Shuffle::Bit => filters::BIT_SHUFFLE,
    }
}

/// Appends a chunk of Blosc 1, which has no frame, no filters other than shuffles, and no runs of one byte.
///
/// # Errors
/// As [`encode`]; `Limit` for more bytes than a chunk can hold.
pub fn encode_chunk(
    src: &[u8],
    settings: &FrameSettings,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    if settings.typesize == 0 || settings.level > 9 {
        return Err(Error::invalid(format!("invalid blosc settings: {settings:?}")));
    }
    if src.len() > MAX_CHUNK {
        return Err(Error::limit("a blosc chunk", src.len() as u64, MAX_CHUNK as u64));
    }
    let block_len = settings.block_len(src.len());
    let size = usize::from(settings.typesize);
    let split = settings.splits(block_len) && block_len / size >= MIN_STREAM_1;
    let start = out.len();
    let shuffled = match settings.shuffle {
        Shuffle::None => 0,
        Shuffle::Byte => 1,
        Shuffle::Bit => 4,
    };
    let flags = settings.codec.format() << 5 | if split { 0 } else { NOT_SPLIT } | shuffled;
    out.extend_from_slice(&[2, 1, flags, settings.typesize]);
    out.extend_from_slice(&(src.len() as u32).to_le_bytes());
    out.extend_from_slice(&(block_len as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    if settings.level > 0 {
        let mut table = out.len();
        out.resize(table + 4 * src.len().div_ceil(block_len), 0);
        for block in src.chunks(block_len) {
            let at = (out.len() - start) as u32;
            out[table..table + 4].copy_from_slice(&at.to_le_bytes());
            table += 4;
            let streams = if split && block.len() == block_len { size } else { 1 };
            let mut shuffled = std::mem::take(&mut contexts.blosc2.first);
            // Blosc 1 shuffles the bits of complete groups of 8 elements only, or nothing.
            let bits = settings.shuffle == Shuffle::Bit && !(block.len() / size).is_multiple_of(8);
            let applied = if bits { Shuffle::None } else { settings.shuffle };
            let bytes = shuffle_block(block, size, applied, &mut shuffled)?;
            for stream in bytes.chunks(bytes.len() / streams) {
                put_compressed(stream, settings, out, contexts)?;
            }
            contexts.blosc2.first = shuffled;
        }
    }
    if settings.level == 0 || out.len() - start >= HEADER + src.len() {
        out[start + 2] = flags | STORED;
        out.truncate(start + HEADER);
        out.extend_from_slice(src);
    }
    let len = (out.len() - start) as u32;
    out[start + 12..start + 16].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

/// Appends one chunk of at most 2^31 bytes; stored when compression does not save bytes.
fn chunk(src: &[u8], settings: &FrameSettings, out: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
    let block_len = settings.block_len(src.len());
    let split = settings.splits(block_len);
    let start = out.len();
    let mut flags = EXTENDED_FLAGS | settings.codec.format() << 5 | if split { 0 } else { NOT_SPLIT };
    out.extend_from_slice(&[5, 1, flags, settings.typesize]);
    out.extend_from_slice(&(src.len() as u32).to_le_bytes());
    out.extend_from_slice(&(block_len as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[0, 0, 0, 0, 0, filter(settings.shuffle), settings.codec.number(), 0]);
    out.extend_from_slice(&[0; 8]);
    if settings.level > 0 {
        let mut table = out.len();
        out.resize(table + 4 * src.len().div_ceil(block_len), 0);
        for block in src.chunks(block_len) {
            let at = (out.len() - start) as u32;
            out[table..table + 4].copy_from_slice(&at.to_le_bytes());
            table += 4;
            let streams = if split && block.len() == block_len { settings.typesize.into() } else { 1 };
            put_streams(block, settings, streams, out, contexts)?;
        }
    }
    if settings.level == 0 || out.len() - start >= EXTENDED + src.len() {
        flags |= STORED;
        out[start + 2] = flags;
        out.truncate(start + EXTENDED);
        out.extend_from_slice(src);
    }
    let len = (out.len() - start) as u32;
    out[start + 12..start + 16].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

/// Appends the streams of a block.
fn put_streams(
    block: &[u8],
    settings: &FrameSettings,
    streams: usize,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    let mut shuffled = std::mem::take(&mut contexts.blosc2.first);
    let bytes = shuffle_block(block, settings.typesize.into(), settings.shuffle, &mut shuffled)?;
    for stream in bytes.chunks(bytes.len() / streams) {
        put_stream(stream, settings, out, contexts)?;
    }
    contexts.blosc2.first = shuffled;
    Ok(())
}

/// The reordered bytes of a block, in `buffer` unless they are unchanged.
fn shuffle_block<'a>(block: &'a [u8], size: usize, by: Shuffle, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    if by == Shuffle::None {
        return Ok(block);
    }
    let target = crate::room(buffer, block.len())?;
    match by {
        Shuffle::Byte => filters::shuffle_tail(block, size, target, shuffle::encode_into)?,
        _ => bitshuffle::encode_into(block, size, target),
    }
    Ok(target)
}

fn put_stream(
    src: &[u8],
    settings: &FrameSettings,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    if let Some(byte) = src.first()
        && src.iter().all(|other| other == byte)
    {
        out.extend_from_slice(&(-i32::from(*byte)).to_le_bytes());
        if *byte > 0 {
            out.push(1);
        }
        return Ok(());
    }
    put_compressed(src, settings, out, contexts)
}

/// Appends a stream after its length.
fn put_compressed(
    src: &[u8],
    settings: &FrameSettings,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match settings.codec {
        Codec::BloscLz => blosclz::encode(src, out),
        Codec::Lz4 | Codec::Lz4Hc => {
            let at = out.len();
            out.resize(at + lz4_flex::block::get_maximum_output_size(src.len()), 0);
            let len =
                lz4_flex::block::compress_into(src, &mut out[at..]).map_err(|e| Error::codec("blosc2", e))?;
            out.truncate(at + len);
        }
        Codec::Zlib => deflate(src, settings.level, out)?,
        Codec::Zstd => {
            let level = if settings.level < 9 { 2 * i32::from(settings.level) - 1 } else { 22 };
            zstd::encode(src, level, out, contexts)?;
        }
    }
    // A stream whose length equals its size is stored uncompressed.
    if out.len() - start - 4 >= src.len() {
        out.truncate(start + 4);
        out.extend_from_slice(src);
    }
    let len = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

fn deflate(src: &[u8], level: u8, out: &mut Vec<u8>) -> Result<()> {
    let mut stream = Compress::new(Compression::new(level.into()), true);
    out.reserve(src.len() + 64);
    // Without spare capacity for all of it, the output is longer than `src`, which is stored then.
    stream.compress_vec(src, out, FlushCompress::Finish).map_err(|e| Error::codec("blosc2", e))?;
    Ok(())
}
