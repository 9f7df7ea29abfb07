//! Decoding and encoding of chunks by a sequence of codecs.

use std::mem;

use tesseral_codec::stream::Admit;
use tesseral_codec::{Contexts, blosc2, bzip2, checksum, lz4, lzma, room, shuffle, zlib, zstd};
use tesseral_core::dtype::Class;
use tesseral_core::{DType, Error, Limits, Result, Scalar, alloc};
use tesseral_format::Scratch;

use crate::transpose;
use crate::wire::codecs::{Compressor, NumberType, Stage};

/// Bytes that one byte of an LZ4 block can expand to.
const LZ4_RATIO: u64 = 255;

/// The codecs of the chunks of an array.
#[derive(Clone, Debug)]
pub(crate) struct CodecChain {
    stages: Vec<Stage>,
    /// Bytes of a stored cell, for transposition.
    size: usize,
    limits: Limits,
}

/// A chunk to decode.
pub(crate) struct Encoded<'a> {
    pub bytes: &'a [u8],
    /// Shape of the chunk.
    pub shape: &'a [u64],
}

/// Receives the decoded bytes, with the output unless a step has written to it.
type Finish<'a> = &'a mut dyn FnMut(&[u8], Option<&mut [u8]>) -> Result<()>;

/// Destination of one step.
enum StepOutput<'a> {
    Exact(&'a mut [u8]),
    Growing(&'a mut Vec<u8>),
}

impl CodecChain {
    pub(crate) fn new(stages: Vec<Stage>, size: Option<usize>, limits: Limits) -> Self {
        Self { stages, size: size.unwrap_or(0), limits }
    }

    pub(crate) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Names of the codecs, for display.
    pub(crate) fn names(&self) -> Vec<String> {
        self.stages.iter().map(|stage| stage.name().to_owned()).collect()
    }

    /// Decodes a chunk of fixed-size cells; the output fills `out` exactly.
    pub(crate) fn decode_into(
        &self,
        chunk: &Encoded<'_>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let len = out.len();
        self.run(chunk, Some(len), Some(out), scratch, &mut |bytes, out| match out {
            Some(out) if bytes.len() == len => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            _ => Err(Error::codec("chunk", format!("expected {len} bytes, decoded {}", bytes.len()))),
        })
    }

    /// Whether ranges of cells decode without the whole chunk: Blosc compresses blocks.
    pub(crate) fn decodes_ranges(&self) -> bool {
        match self.stages.split_first() {
            Some((Stage::Compress(Compressor::Blosc), checks)) => {
                checks.iter().all(|stage| matches!(stage, Stage::Check(..)))
            }
            _ => false,
        }
    }

    /// Decodes bytes of a chunk of `total` bytes from `start` on, if the chain [decodes ranges](Self::decodes_ranges).
    pub(crate) fn decode_range(
        &self,
        mut bytes: &[u8],
        total: usize,
        start: usize,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        for stage in self.stages.iter().rev() {
            if let Stage::Check(sum, place) = stage {
                bytes = sum.verify(bytes, *place)?;
            }
        }
        blosc2::decode_chunk_range(bytes, total, start, out, &mut scratch.contexts)
    }

    /// Decodes a chunk of unknown length and passes it to `finish`.
    pub(crate) fn decode_with(
        &self,
        chunk: &Encoded<'_>,
        len: Option<usize>,
        scratch: &mut Scratch,
        finish: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.run(chunk, len, None, scratch, &mut |bytes, _| match len {
            Some(len) if bytes.len() != len => {
                Err(Error::codec("chunk", format!("expected {len} bytes, decoded {}", bytes.len())))
            }
            _ => finish(bytes),
        })
    }

    /// Runs the steps backwards. The first step writes to `out`, if there is one and the step produces new bytes; otherwise
    /// `finish` receives the bytes.
    fn run(
        &self,
        chunk: &Encoded<'_>,
        len: Option<usize>,
        mut out: Option<&mut [u8]>,
        scratch: &mut Scratch,
        finish: Finish<'_>,
    ) -> Result<()> {
        let lens = self.encoded_lens(len);
        let stored = chunk.bytes.len() as u64;
        let admit = |bytes: u64| self.limits.check_decoded(bytes, stored);
        let [mut held, mut next] = mem::take(&mut scratch.buffers);
        let contexts = &mut scratch.contexts;
        let result = (|| {
            // `None`: the bytes are those of the chunk, at this range.
            let (mut source, mut range) = (true, 0..chunk.bytes.len());
            for (number, stage) in self.stages.iter().enumerate().rev() {
                let input = if source { &chunk.bytes[range.clone()] } else { &held[range.clone()] };
                if let Stage::Check(sum, place) = stage {
                    let covered = sum.verify(input, *place)?.len();
                    let skipped = if *place == checksum::ChecksumPosition::Start { checksum::LEN } else { 0 };
                    range = range.start + skipped..range.start + skipped + covered;
                    continue;
                }
                let expected = lens[number].or_else(|| stage.decoded_len(input.len()));
                if number == 0
                    && let Some(out) = out.take()
                {
                    return self.step(stage, input, chunk.shape, StepOutput::Exact(out), contexts, &admit);
                }
                let written = match expected {
                    Some(len) => {
                        admit(len as u64)?;
                        let exact = StepOutput::Exact(room(&mut next, len)?);
                        self.step(stage, input, chunk.shape, exact, contexts, &admit)?;
                        len
                    }
                    None => {
                        next.clear();
                        self.step(
                            stage,
                            input,
                            chunk.shape,
                            StepOutput::Growing(&mut next),
                            contexts,
                            &admit,
                        )?;
                        next.len()
                    }
                };
                mem::swap(&mut held, &mut next);
                (source, range) = (false, 0..written);
            }
            let bytes = if source { &chunk.bytes[range] } else { &held[range] };
            finish(bytes, out)
        })();
        scratch.buffers = [held, next];
        result
    }

    /// Length of the input of each step of encoding, where the length of the cells determines it.
    fn encoded_lens(&self, len: Option<usize>) -> Vec<Option<usize>> {
        let mut len = len;
        let each = |stage: &Stage| {
            let input = len;
            len = input.and_then(|input| stage.encoded_len(input));
            input
        };
        self.stages.iter().map(each).collect()
    }

    fn step(
        &self,
        stage: &Stage,
        src: &[u8],
        shape: &[u64],
        out: StepOutput<'_>,
        contexts: &mut Contexts,
        admit: Admit<'_>,
    ) -> Result<()> {
        let dst = match (stage, out) {
            (Stage::Compress(compressor), StepOutput::Growing(out)) => {
                return decompress_growing(*compressor, src, out, contexts, admit);
            }
            (_, StepOutput::Exact(dst)) => dst,
            (_, StepOutput::Growing(_)) => {
                return Err(Error::internal("a codec with an unknown output length"));
            }
        };
        match stage {
            Stage::Transpose(order) => transpose::decode_into(src, order, shape, self.size, dst),
            Stage::Swap(word) => {
                same_len("bytes", src, dst)?;
                dst.copy_from_slice(src);
                dst.chunks_exact_mut((*word).max(1)).for_each(<[u8]>::reverse);
                Ok(())
            }
            Stage::Delta { from, to } => undo_delta(src, *from, *to, dst),
            Stage::FixedScaleOffset { from, to, offset, scale } => {
                undo_scale(src, (*from, *to), (*offset, *scale), dst)
            }
            Stage::AsType { from, to } => undo_conversion(src, *from, *to, dst),
            Stage::PackBits => unpack_bits(src, dst),
            Stage::Shuffle(size) => shuffle::decode_into(src, *size, dst),
            Stage::Compress(compressor) => decompress(*compressor, src, dst, contexts),
            Stage::Check(..) => Err(Error::internal("a checksum produces no bytes")),
        }
    }
}

impl Stage {
    /// Length of the encoded bytes, where that of the input determines it.
    fn encoded_len(&self, len: usize) -> Option<usize> {
        match self {
            Self::Transpose(_) | Self::Swap(_) | Self::Shuffle(_) => Some(len),
            Self::Delta { from, to }
            | Self::FixedScaleOffset { from, to, .. }
            | Self::AsType { from, to } => (len / from.dtype.size()?).checked_mul(to.dtype.size()?),
            Self::PackBits => Some(len.div_ceil(8) + 1),
            Self::Check(..) => len.checked_add(checksum::LEN),
            Self::Compress(_) => None,
        }
    }

    /// Length of the decoded bytes, where that of the encoded bytes determines it.
    fn decoded_len(&self, len: usize) -> Option<usize> {
        match self {
            Self::Delta { from, to }
            | Self::FixedScaleOffset { from, to, .. }
            | Self::AsType { from, to } => (len / to.dtype.size()?).checked_mul(from.dtype.size()?),
            // The number of unused bits is in the bytes; cells are never of unknown length here.
            Self::Compress(_) | Self::PackBits => None,
            _ => Some(len),
        }
    }
}

fn same_len(codec: &'static str, src: &[u8], dst: &[u8]) -> Result<()> {
    if src.len() != dst.len() {
        return Err(Error::codec(codec, format!("expected {} bytes, found {}", dst.len(), src.len())));
    }
    Ok(())
}

fn decompress(compressor: Compressor, src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
    match compressor {
        Compressor::Zstd => zstd::decode_into(src, dst, contexts),
        Compressor::Gzip => zlib::decode_gzip_into(src, dst),
        Compressor::Zlib => zlib::decode_into(src, dst),
        Compressor::Bzip2 => bzip2::decode_into(src, dst),
        Compressor::Lz4 => lz4::decode_into(src, dst),
        Compressor::Lzma(container) => lzma::decode_into(src, container, dst),
        Compressor::Blosc => blosc2::decode_chunk_into(src, dst, contexts),
    }
}

fn decompress_growing(
    compressor: Compressor,
    src: &[u8],
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
    admit: Admit<'_>,
) -> Result<()> {
    let len = match compressor {
        Compressor::Zstd => return zstd::decode_growing(src, out, contexts, admit),
        Compressor::Gzip => return zlib::decode_gzip_growing(src, out, admit),
        Compressor::Zlib => return zlib::decode_growing(src, out, admit),
        Compressor::Bzip2 => return bzip2::decode_growing(src, out, admit),
        Compressor::Lzma(container) => return lzma::decode_growing(src, container, out, admit),
        Compressor::Lz4 => {
            let (len, block) =
                src.split_first_chunk::<4>().ok_or_else(|| Error::codec("lz4", "truncated length prefix"))?;
            let len = u32::from_le_bytes(*len);
            if u64::from(len) > (block.len() as u64).saturating_mul(LZ4_RATIO) {
                return Err(Error::codec("lz4", format!("{} bytes cannot hold {len}", block.len())));
            }
            usize::try_from(len).unwrap_or(usize::MAX)
        }
        Compressor::Blosc => blosc2::chunk_len(src)?,
    };
    admit(len as u64)?;
    alloc::resize("decoded bytes", out, len, 0)?;
    decompress(compressor, src, out, contexts)
}

/// An integer of up to 8 bytes, sign-extended.
fn int_at(bytes: &[u8], number: NumberType) -> i64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    if number.big {
        word[..bytes.len()].reverse();
    }
    let shift = 64 - 8 * bytes.len().min(8);
    let value = i64::from_le_bytes(word);
    match number.dtype.class() {
        Class::Int => value << shift >> shift,
        _ => value,
    }
}

fn float_at(bytes: &[u8], number: NumberType) -> f64 {
    let bits = int_at(bytes, number).cast_unsigned();
    match number.dtype {
        // The upper half is the sign extension of nothing: floats are not extended.
        #[allow(clippy::cast_possible_truncation)]
        DType::Float32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

fn put(word: [u8; 8], number: NumberType, out: &mut [u8]) {
    let len = out.len();
    out.copy_from_slice(&word[..len]);
    if number.big {
        out.reverse();
    }
}

fn put_float(value: f64, number: NumberType, out: &mut [u8]) {
    match number.dtype {
        #[allow(clippy::cast_possible_truncation)]
        DType::Float32 => put(u64::from((value as f32).to_bits()).to_le_bytes(), number, out),
        _ => put(value.to_bits().to_le_bytes(), number, out),
    }
}

/// Pairs of encoded and decoded numbers.
fn numbers<'a>(
    codec: &'static str,
    src: &'a [u8],
    (from, to): (NumberType, NumberType),
    dst: &'a mut [u8],
) -> Result<impl Iterator<Item = (&'a [u8], &'a mut [u8])>> {
    let (decoded, encoded) = (from.dtype.size().unwrap_or(1), to.dtype.size().unwrap_or(1));
    let whole = src.len().is_multiple_of(encoded) && dst.len().is_multiple_of(decoded);
    if !whole || src.len() / encoded != dst.len() / decoded {
        return Err(Error::codec(
            codec,
            format!("{} bytes do not hold {} numbers", src.len(), dst.len() / decoded),
        ));
    }
    Ok(src.chunks_exact(encoded).zip(dst.chunks_exact_mut(decoded)))
}

/// Sums differences: integers wrap, floats are added one after another in their own precision.
fn undo_delta(src: &[u8], from: NumberType, to: NumberType, dst: &mut [u8]) -> Result<()> {
    let pairs = numbers("delta", src, (from, to), dst)?;
    if from.dtype.class() != Class::Float {
        let mut sum = 0_i64;
        for (difference, out) in pairs {
            sum = sum.wrapping_add(int_at(difference, to));
            put(sum.to_le_bytes(), from, out);
        }
        return Ok(());
    }
    let mut sum = None;
    for (difference, out) in pairs {
        let difference = float_at(difference, to);
        let next = sum.map_or(difference, |sum: f64| sum + difference);
        // The sum of two float32, rounded twice, is the float32 sum: a double has more than twice the digits.
        #[allow(clippy::cast_possible_truncation)]
        let next = if from.dtype == DType::Float32 { f64::from(next as f32) } else { next };
        put_float(next, from, out);
        sum = Some(next);
    }
    Ok(())
}

/// Divides by the scale and adds the offset, in the precision of NumPy: that of the stored floats, double for integers.
fn undo_scale(
    src: &[u8],
    (from, to): (NumberType, NumberType),
    (offset, scale): (f64, f64),
    dst: &mut [u8],
) -> Result<()> {
    for (stored, out) in numbers("fixedscaleoffset", src, (from, to), dst)? {
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let value = match to.dtype {
            DType::Float32 => f64::from(float_at(stored, to) as f32 / scale as f32 + offset as f32),
            DType::Float64 => float_at(stored, to) / scale + offset,
            DType::UInt64 => int_at(stored, to).cast_unsigned() as f64 / scale + offset,
            _ => int_at(stored, to) as f64 / scale + offset,
        };
        if from.dtype.class() == Class::Float {
            put_float(value, from, out);
            continue;
        }
        #[allow(clippy::cast_possible_truncation)]
        let whole = value.trunc() as i128;
        let held = value.is_finite().then_some(whole);
        put_int("fixedscaleoffset", held, &value, from, out)?;
    }
    Ok(())
}

/// Stores an integer; an error if the type does not hold it.
fn put_int(
    codec: &'static str,
    value: Option<i128>,
    shown: &dyn std::fmt::Display,
    number: NumberType,
    out: &mut [u8],
) -> Result<()> {
    let held = value.and_then(|value| Scalar::from_i128(number.dtype, value));
    let held =
        held.ok_or_else(|| Error::codec(codec, format!("{shown} is not a value of {}", number.dtype)))?;
    // Bytes of a scalar are in the order of the machine.
    out.copy_from_slice(held.bytes());
    if number.big != cfg!(target_endian = "big") {
        out.reverse();
    }
    Ok(())
}

/// Converts numbers back. Integers keep their value or are an error; floats are rounded, and truncated towards zero to
/// integers, as NumPy does.
fn undo_conversion(src: &[u8], from: NumberType, to: NumberType, dst: &mut [u8]) -> Result<()> {
    for (stored, out) in numbers("astype", src, (from, to), dst)? {
        if to.dtype.class() == Class::Float {
            let value = float_at(stored, to);
            if from.dtype.class() == Class::Float {
                put_float(value, from, out);
            } else {
                #[allow(clippy::cast_possible_truncation)]
                let whole = value.is_finite().then_some(value.trunc() as i128);
                put_int("astype", whole, &value, from, out)?;
            }
            continue;
        }
        let value = int_at(stored, to);
        let value = match to.dtype {
            DType::UInt64 => i128::from(value.cast_unsigned()),
            _ => i128::from(value),
        };
        match from.dtype {
            // Rounded once, from the integer.
            #[allow(clippy::cast_precision_loss)]
            DType::Float32 => put(u64::from((value as f32).to_bits()).to_le_bytes(), from, out),
            #[allow(clippy::cast_precision_loss)]
            DType::Float64 => put_float(value as f64, from, out),
            _ => put_int("astype", Some(value), &value, from, out)?,
        }
    }
    Ok(())
}

/// Expands bits, the most significant of a byte first, to bytes of 0 and 1.
fn unpack_bits(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let bits = src.split_first().and_then(|(unused, bits)| {
        let held = bits.len().checked_mul(8)?.checked_sub((*unused).into())?;
        (held == dst.len() && *unused < 8).then_some(bits)
    });
    let bits = bits.ok_or_else(|| {
        Error::codec("packbits", format!("{} bytes do not hold {} bits", src.len(), dst.len()))
    })?;
    for (byte, out) in bits.iter().zip(dst.chunks_mut(8)) {
        out.iter_mut().enumerate().for_each(|(i, bit)| *bit = byte >> (7 - i) & 1);
    }
    Ok(())
}
