//! Codecs of an array that is being written: from their specification to metadata of either version and to bytes.

use std::borrow::Cow;
use std::mem;

use serde_json::{Value as Json, json};
use tesseral_codec::blosc2::{self, Codec, FrameSettings, Shuffle};
use tesseral_codec::checksum::Checksum;
use tesseral_codec::{bzip2, lz4, shuffle, zlib, zstd};
use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, CellLen, DType, Error, Order, Result, Value, alloc};
use tesseral_format::{CodecSpec, Scratch};

use crate::transpose;

/// Names of the codecs that can be written.
const KNOWN: &str =
    "zstd, gzip, zlib, bz2, lz4, blosc, or raw; before them transpose, bitround, delta, shuffle";

/// One step of encoding.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EncodingStep {
    /// The axes are stored in reverse.
    Transpose,
    /// Mantissas of floats are rounded to this many bits.
    BitRound(u32),
    /// Differences of adjacent integers.
    Delta,
    /// Byte shuffle of elements of this size.
    Shuffle(usize),
    Zstd(i32),
    Gzip(i32),
    Zlib(i32),
    Bzip2(i32),
    Lz4,
    Blosc(FrameSettings),
    /// CRC-32C, little-endian, after the bytes.
    Crc32c,
}

/// The codecs of an array.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    steps: Vec<EncodingStep>,
    /// The engine delivers cells in column-major order.
    col_major: bool,
    dtype: DType,
    /// Bytes of a cell; `None` for variable-length cells.
    size: Option<usize>,
}

/// Bits of the mantissa of a float.
fn mantissa(dtype: DType) -> Option<u32> {
    match dtype {
        DType::Float16 => Some(10),
        DType::Float32 => Some(23),
        DType::Float64 => Some(52),
        _ => None,
    }
}

fn text<'a>(codec: &'a CodecSpec, name: &str) -> Option<&'a str> {
    match codec.options.get(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// Rejects options that a codec does not have.
fn check_options(codec: &CodecSpec, known: &[&str]) -> Result<()> {
    match codec.options.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Error::invalid(format!("unknown option {name:?} of codec {:?}", codec.name))),
        None => Ok(()),
    }
}

fn blosc(codec: &CodecSpec, word: usize) -> Result<FrameSettings> {
    let invalid = |what: &str| Error::invalid(format!("invalid {what} of codec \"blosc\""));
    let name = text(codec, "cname").unwrap_or("lz4");
    let compressor = Codec::named(name)
        .ok_or_else(|| invalid("cname").hint("available: blosclz, lz4, lz4hc, zlib, zstd"))?;
    let level = u8::try_from(codec.int("level").unwrap_or(5)).ok().filter(|level| *level <= 9);
    let shuffle = match text(codec, "shuffle") {
        Some("noshuffle") => Shuffle::None,
        None if word == 1 => Shuffle::None,
        None | Some("shuffle") => Shuffle::Byte,
        Some("bitshuffle") => Shuffle::Bit,
        Some(_) => return Err(invalid("shuffle").hint("available: noshuffle, shuffle, bitshuffle")),
    };
    let typesize = u8::try_from(word).map_err(|_| invalid("element size"))?;
    Ok(FrameSettings { codec: compressor, level: level.ok_or_else(|| invalid("level"))?, typesize, shuffle })
}

impl Steps {
    pub(super) fn new(schema: &ArraySchema, codecs: &[CodecSpec], crc32c: bool) -> Result<Self> {
        let field = &schema.fields[0];
        let dtype = field.dtype;
        let size = if field.cell == CellLen::Var { None } else { field.cell_size() };
        let word = if size.is_some() { dtype.word().max(1) } else { 1 };
        let col_major = schema.cell_order == Order::ColMajor;
        let mut steps = Vec::new();
        // Read arrays list the checksum that is written below.
        let listed = crc32c && codecs.last().is_some_and(|last| last.name == "crc32c");
        for codec in &codecs[..codecs.len() - usize::from(listed)] {
            let level = |default: i64, from: i64, to: i64| {
                check_options(codec, &["level"])?;
                let level = codec.int("level").unwrap_or(default).clamp(from, to);
                Ok::<_, Error>(i32::try_from(level).unwrap_or(i32::MAX))
            };
            let step = match codec.name.as_str() {
                "raw" | "none" => continue,
                "transpose" => {
                    check_options(codec, &[])?;
                    if col_major || schema.dims.len() < 2 {
                        continue;
                    }
                    if size.is_none() {
                        return Err(Error::unsupported("transposed cells of variable length in Zarr"));
                    }
                    EncodingStep::Transpose
                }
                "bitround" => {
                    check_options(codec, &["level", "keepbits"])?;
                    let bits = codec.int("keepbits").or(codec.int("level"));
                    let bits = bits.and_then(|bits| u32::try_from(bits).ok()).ok_or_else(|| {
                        Error::invalid("codec \"bitround\" requires the number of bits to keep")
                            .hint("for example bitround:10")
                    })?;
                    // Other numbers are exact, and so are the coordinates that positions are found by.
                    let coordinate = matches!(schema.dims.as_slice(),
                        [dim] if schema.name.rsplit('/').next() == Some(dim.name.as_str()));
                    let rounded = mantissa(dtype).is_some_and(|all| bits < all) && size.is_some();
                    if coordinate || !rounded {
                        continue;
                    }
                    EncodingStep::BitRound(bits)
                }
                "delta" => {
                    check_options(codec, &[])?;
                    if !matches!(dtype.class(), Class::Int | Class::UInt) || size.is_none() {
                        return Err(Error::unsupported(format!("codec \"delta\" of {dtype} in Zarr")));
                    }
                    EncodingStep::Delta
                }
                "shuffle" => {
                    check_options(codec, &[])?;
                    EncodingStep::Shuffle(word)
                }
                "zstd" => EncodingStep::Zstd(level(zstd::DEFAULT_LEVEL.into(), -131_072, 22)?),
                "gzip" => EncodingStep::Gzip(level(5, 0, 9)?),
                "zlib" => EncodingStep::Zlib(level(1, 0, 9)?),
                "bz2" | "bzip2" => EncodingStep::Bzip2(level(1, 1, 9)?),
                "lz4" => {
                    check_options(codec, &[])?;
                    EncodingStep::Lz4
                }
                "blosc" => {
                    check_options(codec, &["level", "cname", "shuffle"])?;
                    EncodingStep::Blosc(blosc(codec, word)?)
                }
                other => {
                    return Err(Error::unsupported(format!("writing codec {other:?} in Zarr"))
                        .hint(format!("use {KNOWN}")));
                }
            };
            steps.push(step);
        }
        if steps.windows(2).any(|pair| pair[0].rank() > pair[1].rank()) {
            let names: Vec<&str> = codecs.iter().map(|codec| codec.name.as_str()).collect();
            let detail = format!("codecs in the order {} in Zarr", names.join("+"));
            return Err(
                Error::unsupported(detail).hint("order: transpose, bitround, delta, shuffle, compressor")
            );
        }
        steps.extend(crc32c.then_some(EncodingStep::Crc32c));
        Ok(Self { steps, col_major, dtype, size })
    }

    /// The configuration of v3: codecs of arrays, the serializer, codecs of bytes.
    pub(super) fn document_v3(&self, serializer: Json, rank: usize) -> Vec<Json> {
        let reverse = || {
            let order: Vec<usize> = (0..rank).rev().collect();
            json!({"name": "transpose", "configuration": {"order": order}})
        };
        let mut out: Vec<Json> = self.col_major.then(reverse).into_iter().collect();
        let (arrays, bytes) = self.steps.split_at(self.steps.partition_point(|step| step.rank() < 3));
        let dtype = self.numpy();
        let codec = |step: &EncodingStep| match step {
            EncodingStep::Transpose => reverse(),
            EncodingStep::BitRound(bits) => {
                json!({"name": "numcodecs.bitround", "configuration": {"keepbits": bits}})
            }
            EncodingStep::Delta => json!({"name": "numcodecs.delta", "configuration": {"dtype": dtype}}),
            EncodingStep::Shuffle(size) => {
                json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": size}})
            }
            EncodingStep::Zstd(level) => {
                json!({"name": "zstd", "configuration": {"level": level, "checksum": false}})
            }
            EncodingStep::Gzip(level) => json!({"name": "gzip", "configuration": {"level": level}}),
            EncodingStep::Zlib(level) => json!({"name": "numcodecs.zlib", "configuration": {"level": level}}),
            EncodingStep::Bzip2(level) => json!({"name": "numcodecs.bz2", "configuration": {"level": level}}),
            EncodingStep::Lz4 => json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}),
            EncodingStep::Blosc(settings) => json!({"name": "blosc", "configuration": {
                "cname": settings.codec.name(), "clevel": settings.level, "typesize": settings.typesize,
                "shuffle": match settings.shuffle {
                    Shuffle::None => "noshuffle",
                    Shuffle::Byte => "shuffle",
                    Shuffle::Bit => "bitshuffle",
                },
                "blocksize": 0,
            }}),
            EncodingStep::Crc32c => json!({"name": "crc32c"}),
        };
        out.extend(arrays.iter().map(codec));
        out.push(serializer);
        out.extend(bytes.iter().map(codec));
        out
    }

    /// The filters of v2 after that of variable-length cells, and the compressor.
    pub(super) fn document_v2(&self) -> (Vec<Json>, Json) {
        let dtype = self.numpy();
        let codec = |step: &EncodingStep| match step {
            EncodingStep::Transpose | EncodingStep::Crc32c => Json::Null,
            EncodingStep::BitRound(bits) => json!({"id": "bitround", "keepbits": bits}),
            EncodingStep::Delta => json!({"id": "delta", "dtype": dtype, "astype": dtype}),
            EncodingStep::Shuffle(size) => json!({"id": "shuffle", "elementsize": size}),
            EncodingStep::Zstd(level) => json!({"id": "zstd", "level": level, "checksum": false}),
            EncodingStep::Gzip(level) => json!({"id": "gzip", "level": level}),
            EncodingStep::Zlib(level) => json!({"id": "zlib", "level": level}),
            EncodingStep::Bzip2(level) => json!({"id": "bz2", "level": level}),
            EncodingStep::Lz4 => json!({"id": "lz4", "acceleration": 1}),
            EncodingStep::Blosc(settings) => json!({
                "id": "blosc", "cname": settings.codec.name(), "clevel": settings.level,
                "shuffle": match settings.shuffle {
                    Shuffle::None => 0,
                    Shuffle::Byte => 1,
                    Shuffle::Bit => 2,
                },
                "blocksize": 0,
            }),
        };
        let (filters, compressor) = match self.steps.split_last() {
            Some((last, filters)) if last.rank() > 3 => (filters, codec(last)),
            _ => (self.steps.as_slice(), Json::Null),
        };
        (filters.iter().map(codec).filter(|filter| !filter.is_null()).collect(), compressor)
    }

    /// Whether chunks of v2 are in column-major order.
    pub(super) fn col_major(&self) -> bool {
        self.col_major || self.steps.contains(&EncodingStep::Transpose)
    }

    fn numpy(&self) -> String {
        let kind = if self.dtype.class() == Class::UInt { 'u' } else { 'i' };
        let size = self.dtype.size().unwrap_or(1);
        format!("{}{kind}{size}", if size == 1 { '|' } else { '<' })
    }

    /// Encodes the little-endian cells of a complete chunk of this shape.
    pub(super) fn encode<'a>(
        &self,
        cells: Cow<'a, [u8]>,
        shape: &[u64],
        scratch: &mut Scratch,
    ) -> Result<Cow<'a, [u8]>> {
        let mut held = cells;
        for step in &self.steps {
            if let EncodingStep::BitRound(bits) = step {
                bit_round(held.to_mut(), self.dtype, *bits);
                continue;
            }
            if let EncodingStep::Delta = step {
                delta(held.to_mut(), self.dtype.size().unwrap_or(1));
                continue;
            }
            if *step == EncodingStep::Crc32c {
                let sum = Checksum::Crc32c.compute(&held);
                held.to_mut().extend(sum.to_le_bytes());
                continue;
            }
            let mut out = scratch.take_buffer();
            match step {
                EncodingStep::Transpose => {
                    // Undoing a reversal of the reversed shape is the reversal.
                    let order: Vec<usize> = (0..shape.len()).rev().collect();
                    let reversed: Vec<u64> = shape.iter().rev().copied().collect();
                    alloc::resize("a chunk", &mut out, held.len(), 0)?;
                    transpose::decode_into(&held, &order, &reversed, self.size.unwrap_or(0), &mut out)?;
                }
                EncodingStep::Shuffle(size) => {
                    let whole = held.len() / size * size;
                    alloc::resize("a chunk", &mut out, held.len(), 0)?;
                    let (target, rest) = out.split_at_mut(whole);
                    rest.copy_from_slice(&held[whole..]);
                    shuffle::encode_into(&held[..whole], *size, target)?;
                }
                EncodingStep::Zstd(level) => zstd::encode(&held, *level, &mut out, &mut scratch.contexts)?,
                EncodingStep::Gzip(level) => zlib::encode_gzip(&held, *level, &mut out)?,
                EncodingStep::Zlib(level) => zlib::encode(&held, *level, &mut out)?,
                EncodingStep::Bzip2(level) => bzip2::encode(&held, *level, &mut out)?,
                EncodingStep::Lz4 => lz4::encode(&held, &mut out)?,
                EncodingStep::Blosc(settings) => {
                    blosc2::encode_chunk(&held, settings, &mut out, &mut scratch.contexts)?;
                }
                EncodingStep::BitRound(_) | EncodingStep::Delta | EncodingStep::Crc32c => {}
            }
            if let Cow::Owned(old) = mem::replace(&mut held, Cow::Owned(out)) {
                scratch.keep_buffer(old);
            }
        }
        Ok(held)
    }
}

impl EncodingStep {
    /// Position in the order that codecs must have.
    fn rank(&self) -> u8 {
        match self {
            Self::Transpose => 0,
            Self::BitRound(_) => 1,
            Self::Delta => 2,
            Self::Shuffle(_) => 3,
            Self::Crc32c => 5,
            _ => 4,
        }
    }
}

/// Rounds mantissas of little-endian floats to nearest, ties to even. NaN keep their bits, and finite values stay finite:
/// those that would become infinite are rounded towards zero.
fn bit_round(cells: &mut [u8], dtype: DType, bits: u32) {
    let (Some(all), Some(size)) = (mantissa(dtype), dtype.size()) else { return };
    let dropped = all - bits.min(all);
    if dropped == 0 {
        return;
    }
    let exponent = ((1_u64 << (size as u32 * 8 - 1)) - 1) & !((1 << all) - 1);
    for cell in cells.chunks_exact_mut(size) {
        let mut word = [0; 8];
        word[..size].copy_from_slice(cell);
        let value = u64::from_le_bytes(word);
        if value & exponent == exponent {
            continue;
        }
        let mask = !((1 << dropped) - 1);
        let half = (1 << (dropped - 1)) - 1 + (value >> dropped & 1);
        let rounded = value.wrapping_add(half) & mask;
        let rounded = if rounded & exponent == exponent { value & mask } else { rounded };
        cell.copy_from_slice(&rounded.to_le_bytes()[..size]);
    }
}

/// Replaces little-endian integers by the differences from their predecessors, which wrap.
fn delta(cells: &mut [u8], size: usize) {
    let mut before = 0_u64;
    for cell in cells.chunks_exact_mut(size) {
        let mut word = [0; 8];
        word[..size].copy_from_slice(cell);
        let value = u64::from_le_bytes(word);
        cell.copy_from_slice(&value.wrapping_sub(before).to_le_bytes()[..size]);
        before = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even_and_keeps_nan_and_the_largest_values() {
        let round = |value: f32, bits| {
            let mut cell = value.to_le_bytes();
            bit_round(&mut cell, DType::Float32, bits);
            f32::from_le_bytes(cell)
        };
        assert_eq!((round(1.25, 1), round(1.75, 1), round(1.5, 1)), (1.0, 2.0, 1.5));
        assert_eq!((round(-1.75, 1), round(0.0, 3), round(f32::INFINITY, 3)), (-2.0, 0.0, f32::INFINITY));
        assert!(round(f32::MAX, 2).is_finite());
        let nan = f32::from_bits(0x7fff_ffff);
        assert_eq!(round(nan, 2).to_bits(), nan.to_bits());
        assert_eq!(round(-0.0, 2).to_bits(), (-0.0_f32).to_bits());
    }

    #[test]
    fn codecs_in_another_order_are_refused() {
        let schema = ArraySchema::dense("a", DType::Int32, &[4, 5], &[2, 2]);
        let steps = |text: &str| {
            let codecs: Vec<CodecSpec> = text.split('+').map(|codec| codec.parse().unwrap()).collect();
            Steps::new(&schema, &codecs, false)
        };
        for good in ["raw", "transpose+delta+shuffle+zstd:3", "blosc:9:cname=zstd:shuffle=bitshuffle", "bz2"]
        {
            assert!(steps(good).is_ok(), "{good}");
        }
        for bad in [
            "zstd+shuffle",
            "delta+transpose",
            "snappy",
            "blosc:11",
            "blosc:cname=x",
            "zstd:3:x=1",
            "bitround",
        ] {
            assert!(steps(bad).is_err(), "{bad}");
        }
    }
}
