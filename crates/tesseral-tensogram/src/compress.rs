//! Compression, the last stage of a pipeline, in both directions; mask blobs.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use tesseral_codec::bitset::{rle, roaring};
#[cfg(feature = "zfp")]
use tesseral_codec::zfp;
use tesseral_codec::{Contexts, aec, blosc2, lz4, raw, sz3, zstd, zstd_stream};
use tesseral_core::{Error, Result};

use crate::pipeline::{Compression, ObjectPipeline};
use crate::wire::cbor::{CborItem, Map};
use crate::wire::descriptor::Mask;

/// Bytes that each frame of a large zstd payload holds. Frames are compressed and decompressed by several threads, and ranges need only
/// some of them.
const FRAME: usize = 1 << 20;
/// Minimum size of such a payload before compression in bytes.
const DIVIDED_FROM: usize = 4 * FRAME;

/// Compresses encoded bytes and stores data-dependent parameters in the descriptor. The result does not depend on the number of
/// threads.
pub(crate) fn compress<'a>(
    pipeline: &ObjectPipeline,
    coded: Cow<'a, [u8]>,
    params: &mut Map,
    threads: usize,
    contexts: &mut Contexts,
) -> Result<Cow<'a, [u8]>> {
    let mut out = Vec::new();
    let bits = coded.len() as u64 * 8;
    let count = || {
        let limit = Error::limit("a bit set", bits, u64::from(u32::MAX));
        u32::try_from(bits).map(u32::to_be_bytes).map_err(|_| limit)
    };
    match &pipeline.compression {
        Compression::None => return Ok(coded),
        Compression::Zstd(level)
            if coded.len() >= DIVIDED_FROM && zstd::divides(&coded, FRAME, *level, contexts)? =>
        {
            out = encode_frames(&coded, *level, threads)?;
        }
        Compression::Zstd(level) => zstd_stream::encode(&coded, *level, &mut out)?,
        Compression::Lz4 => lz4::encode(&coded, &mut out)?,
        Compression::Szip(szip) => {
            let offsets = aec::encode(&coded, szip, &mut out)?;
            let offsets = offsets.into_iter().map(CborItem::UInt).collect();
            params.insert("szip_block_offsets".to_owned(), CborItem::Array(offsets));
        }
        Compression::Blosc2(settings) => blosc2::encode(&coded, settings, &mut out, contexts)?,
        #[cfg(feature = "zfp")]
        Compression::Zfp(mode) => zfp::encode(&coded, *mode, &mut out)?,
        Compression::Sz3(bound) => sz3::encode(&coded, *bound, &mut out, contexts)?,
        Compression::Rle => {
            out.extend_from_slice(&count()?);
            rle::encode(&coded, bits, &mut out);
        }
        Compression::Roaring => {
            out.extend_from_slice(&count()?);
            roaring::encode(&coded, bits, &mut out)?;
        }
    }
    Ok(Cow::Owned(out))
}

/// Compresses frames, one per thread at a time, so that at most one of each thread is in memory beside the result.
fn encode_frames(coded: &[u8], level: i32, threads: usize) -> Result<Vec<u8>> {
    let encode = |part: &[u8]| -> Result<Vec<u8>> {
        let mut out = Vec::new();
        zstd::encode_frames(part, FRAME, level, &mut out, &mut Contexts::default())?;
        Ok(out)
    };
    let mut out = Vec::new();
    for group in coded.chunks(FRAME.saturating_mul(threads.max(1))) {
        let mut parts = group.chunks(FRAME);
        let Some(first) = parts.next() else { break };
        std::thread::scope(|scope| {
            let others: Vec<_> = parts.map(|part| scope.spawn(move || encode(part))).collect();
            let first = encode(first)?;
            out.extend_from_slice(&first);
            for other in others {
                out.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(out)
}

/// Compresses encoded bytes that arrive in pieces, into the bytes of [`compress`].
pub(crate) enum ZstdEncoder {
    /// Bytes before it is known whether they are divided.
    Held(i32, Vec<u8>),
    /// Several frames, and the bytes of the next one.
    Frames(i32, Vec<u8>),
    /// One frame.
    One(zstd_stream::Encoder),
}

impl ZstdEncoder {
    /// An encoder of `len` bytes.
    pub(crate) fn new(level: i32, len: u64) -> Result<Self> {
        if len < DIVIDED_FROM as u64 {
            return Ok(Self::One(zstd_stream::Encoder::new(level)?));
        }
        Ok(Self::Held(level, Vec::with_capacity(2 * FRAME)))
    }

    pub(crate) fn push(&mut self, src: &[u8], out: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        match self {
            Self::One(encoder) => return encoder.push(src, out),
            Self::Held(level, held) => {
                held.extend_from_slice(src);
                if held.len() < 2 * FRAME {
                    return Ok(());
                }
                let (level, held) = (*level, std::mem::take(held));
                if !zstd::divides(&held, FRAME, level, contexts)? {
                    let mut encoder = zstd_stream::Encoder::new(level)?;
                    encoder.push(&held, out)?;
                    *self = Self::One(encoder);
                    return Ok(());
                }
                *self = Self::Frames(level, held);
            }
            Self::Frames(_, held) => held.extend_from_slice(src),
        }
        if let Self::Frames(level, held) = self {
            let whole = held.len() / FRAME * FRAME;
            if whole > 0 {
                zstd::encode_frames(&held[..whole], FRAME, *level, out, contexts)?;
                held.drain(..whole);
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self, out: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        match self {
            Self::One(encoder) => encoder.finish(out),
            Self::Frames(level, held) if !held.is_empty() => zstd::encode(&held, level, out, contexts),
            Self::Frames(..) => Ok(()),
            Self::Held(level, held) => zstd_stream::encode(&held, level, out),
        }
    }
}

/// Decompresses all encoded bytes. `exact` means that they are float64 cells, for which lossy compression is intended.
pub(crate) fn decompress(
    pipeline: &ObjectPipeline,
    src: &[u8],
    exact: bool,
    dst: &mut [u8],
    contexts: &mut Contexts,
) -> Result<()> {
    // Bit-set compression stores the number of bits, including padding.
    let counted = |codec: &'static str| {
        let (count, rest) =
            src.split_first_chunk::<4>().ok_or_else(|| Error::codec(codec, "missing bit count"))?;
        let count = u64::from(u32::from_be_bytes(*count));
        if count != dst.len() as u64 * 8 {
            return Err(Error::codec(codec, format!("{count} bits for {} bytes", dst.len())));
        }
        Ok((count, rest))
    };
    match &pipeline.compression {
        Compression::None => raw::decode_into(src, dst),
        Compression::Zstd(_) => zstd::decode_into(src, dst, contexts),
        Compression::Lz4 => lz4::decode_into(src, dst),
        Compression::Szip(params) => aec::decode_into(src, params, dst),
        Compression::Blosc2(_) => blosc2::decode_into(src, dst, contexts),
        #[cfg(feature = "zfp")]
        Compression::Zfp(mode) => zfp::decode_into(src, *mode, dst),
        Compression::Sz3(_) => {
            if exact && !sz3::is_lossless(src)? {
                return Err(Error::unsupported("lossy sz3 of data other than unencoded float64"));
            }
            sz3::decode_into(src, dst, contexts)
        }
        Compression::Rle => counted("rle").and_then(|(bits, rest)| rle::decode_into(rest, bits, dst)),
        Compression::Roaring => {
            counted("roaring").and_then(|(bits, rest)| roaring::decode_into(rest, bits, dst))
        }
    }
}

/// Decompresses encoded bytes from `start`, if the pipeline [seeks](Pipeline::seeks). `index` belongs to one payload.
pub(crate) fn decompress_range(
    pipeline: &ObjectPipeline,
    src: &[u8],
    start: u64,
    dst: &mut [u8],
    index: &Mutex<aec::RsiIndex>,
    contexts: &mut Contexts,
) -> Result<()> {
    let total = pipeline.coded_len;
    match &pipeline.compression {
        Compression::Szip(params) => {
            let size = params.sample_size() as u64;
            let (first, total) = (start / size, total / size);
            if dst.is_empty() {
                return Ok(());
            }
            let bit = index.lock().unwrap_or_else(PoisonError::into_inner).find_sample(src, params, first)?;
            aec::decode_range(src, params, bit, total, first, dst)
        }
        Compression::Blosc2(_) => blosc2::decode_range(src, total, start, dst, contexts),
        #[cfg(feature = "zfp")]
        Compression::Zfp(mode) => zfp::decode_range(src, *mode, total / 8, start / 8, dst),
        _ => {
            let end = start.checked_add(dst.len() as u64).and_then(|end| usize::try_from(end).ok());
            let part = end.and_then(|end| src.get(end - dst.len()..end));
            raw::decode_into(part.unwrap_or_default(), dst)
        }
    }
}

/// Default blosc2 parameters of masks.
const MASK_BLOSC2: blosc2::FrameSettings =
    blosc2::FrameSettings { codec: blosc2::Codec::Lz4, level: 5, typesize: 1, shuffle: blosc2::Shuffle::Bit };

/// Names of mask methods.
pub(crate) const MASK_METHODS: [&str; 6] = ["none", "rle", "roaring", "lz4", "zstd", "blosc2"];

/// Appends the blob of `count` packed bits and returns its parameters.
pub(crate) fn encode_mask(
    method: &str,
    bits: &[u8],
    count: u64,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<Map> {
    let mut params = Map::new();
    match method {
        "none" => out.extend_from_slice(bits),
        "rle" => rle::encode(bits, count, out),
        "roaring" => roaring::encode(bits, count, out)?,
        "lz4" => lz4::encode(bits, out)?,
        "zstd" => zstd_stream::encode(bits, zstd::DEFAULT_LEVEL, out)?,
        "blosc2" => {
            blosc2::encode(bits, &MASK_BLOSC2, out, contexts)?;
            params.insert("codec".to_owned(), CborItem::Text("lz4".to_owned()));
            params.insert("level".to_owned(), CborItem::UInt(MASK_BLOSC2.level.into()));
        }
        other => return Err(Error::unsupported(format!("Tensogram mask method {other:?}"))),
    }
    Ok(params)
}

/// Decodes a blob of `count` bits into `bits`.
pub(crate) fn decode_mask(
    mask: &Mask,
    blob: &[u8],
    count: u64,
    bits: &mut [u8],
    contexts: &mut Contexts,
) -> Result<()> {
    match mask.method.as_str() {
        "none" => raw::decode_into(blob, bits),
        "rle" => rle::decode_into(blob, count, bits),
        "roaring" => roaring::decode_into(blob, count, bits),
        "lz4" => lz4::decode_into(blob, bits),
        "zstd" => zstd::decode_into(blob, bits, contexts),
        "blosc2" => blosc2::decode_into(blob, bits, contexts),
        other => Err(Error::unsupported(format!("Tensogram mask method {other:?}"))),
    }
}
