//! From stored bytes to cells: decompress, unshuffle, unpack or swap, restore what masks name.

use std::ops::Range;

use half::{bf16, f16};
use tesseral_codec::bitset::{rle, roaring};
use tesseral_codec::{Contexts, aec, lz4, raw, shuffle, zstd};
use tesseral_core::{DType, Error, Result};
use tesseral_format::Scratch;

use crate::array::Object;
use crate::pipeline::{Compression, Pipeline};
use crate::wire::descriptor::{Mask, MaskKind};

/// Decodes a run of cells; all of them unless the stored bytes are plain.
pub(crate) fn decode<P: AsRef<[u8]>>(
    object: &Object,
    pipeline: &Pipeline,
    file: &str,
    parts: &[P],
    cells: Range<u64>,
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let dtype = object.descriptor.dtype;
    let count = cells.end - cells.start;
    let room = match dtype.size() {
        Some(size) => count.checked_mul(size as u64),
        None => Some(count.div_ceil(8)),
    };
    if room != Some(values.len() as u64) {
        return Err(Error::invalid(format!("{} bytes are no room for cells {cells:?}", values.len())));
    }
    let Some((payload, blobs)) = parts.split_first().filter(|(_, blobs)| blobs.len() == object.masks.len())
    else {
        let detail = format!("expected {} parts, found {}", 1 + object.masks.len(), parts.len());
        return Err(Error::corrupt("payload", file, object.payload.start, detail));
    };
    let payload = payload.as_ref();
    if pipeline.plain() {
        plain(object, pipeline, payload, &cells, values)?;
    } else if cells == (0..object.cells) {
        coded(object, pipeline, payload, values, scratch)?;
    } else {
        return Err(Error::invalid("a compressed object decodes whole"));
    }
    if pipeline.packing.is_none() && object.swapped() {
        values.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
    }
    for ((mask, _), blob) in object.masks.iter().zip(blobs) {
        restore(mask, blob.as_ref(), object, &cells, values, scratch)?;
    }
    Ok(())
}

/// Stored bytes that are the cells, or packed values.
fn plain(
    object: &Object,
    pipeline: &Pipeline,
    payload: &[u8],
    cells: &Range<u64>,
    values: &mut [u8],
) -> Result<()> {
    if payload.len() as u64 != pipeline.coded_len {
        return Err(Error::codec(
            "raw",
            format!("expected {} bytes, found {}", pipeline.coded_len, payload.len()),
        ));
    }
    if let Some(packing) = &pipeline.packing {
        return packing.decode_into(payload, cells.start, values);
    }
    let dtype = object.descriptor.dtype;
    let start = match dtype.size() {
        Some(size) => cells.start.checked_mul(size as u64),
        // Runs of bits begin with a byte.
        None => Some(cells.start / 8),
    };
    let start = start.and_then(|n| usize::try_from(n).ok());
    let part = start.and_then(|start| payload.get(start..start.checked_add(values.len())?));
    raw::decode_into(part.unwrap_or_default(), values)?;
    if dtype == DType::Bitmask
        && !cells.end.is_multiple_of(8)
        && let Some(last) = values.last_mut()
    {
        *last &= !(0xff >> (cells.end % 8));
    }
    Ok(())
}

/// Stored bytes that went through a filter or a compression.
fn coded(
    object: &Object,
    pipeline: &Pipeline,
    payload: &[u8],
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let Scratch { contexts, buffers: [first, second] } = scratch;
    let len = usize::try_from(pipeline.coded_len)
        .map_err(|_| Error::limit("an object", pipeline.coded_len, usize::MAX as u64))?;
    let name = &object.descriptor.compression;
    let unpack = |coded: &[u8], values: &mut [u8]| match &pipeline.packing {
        Some(packing) => packing.decode_into(coded, 0, values),
        None => raw::decode_into(coded, values),
    };
    match pipeline.shuffle {
        None if pipeline.packing.is_none() => decompress(pipeline, name, payload, values, contexts),
        None => {
            first.resize(len, 0);
            decompress(pipeline, name, payload, &mut first[..len], contexts)?;
            unpack(&first[..len], values)
        }
        Some(size) => {
            first.resize(len, 0);
            decompress(pipeline, name, payload, &mut first[..len], contexts)?;
            if pipeline.packing.is_none() {
                return shuffle::decode_into(&first[..len], size, values);
            }
            second.resize(len, 0);
            shuffle::decode_into(&first[..len], size, &mut second[..len])?;
            unpack(&second[..len], values)
        }
    }
}

fn decompress(
    pipeline: &Pipeline,
    name: &str,
    src: &[u8],
    dst: &mut [u8],
    contexts: &mut Contexts,
) -> Result<()> {
    // Bit sets as a compression say how many bits they have, padding included.
    let counted = |codec: &'static str| {
        let (count, rest) =
            src.split_first_chunk::<4>().ok_or_else(|| Error::codec(codec, "no count of bits"))?;
        let count = u64::from(u32::from_be_bytes(*count));
        if count != dst.len() as u64 * 8 {
            return Err(Error::codec(codec, format!("{count} bits for {} bytes of {name}", dst.len())));
        }
        Ok((count, rest))
    };
    match &pipeline.compression {
        Compression::None => raw::decode_into(src, dst),
        Compression::Zstd => zstd::decode_into(src, dst, contexts),
        Compression::Lz4 => lz4::decode_into(src, dst),
        Compression::Szip(params) => aec::decode_into(src, params, dst),
        Compression::Rle => counted("rle").and_then(|(bits, rest)| rle::decode_into(rest, bits, dst)),
        Compression::Roaring => {
            counted("roaring").and_then(|(bits, rest)| roaring::decode_into(rest, bits, dst))
        }
    }
}

/// The bytes of a cell that a mask restores, native-endian.
pub(crate) fn pattern(dtype: DType, kind: MaskKind) -> Option<Vec<u8>> {
    fn pick<T>(kind: MaskKind, nan: T, up: T, down: T) -> T {
        match kind {
            MaskKind::Nan => nan,
            MaskKind::PosInf => up,
            MaskKind::NegInf => down,
        }
    }
    let single = |kind| pick(kind, 0x7fc0_0000_u32, 0x7f80_0000, 0xff80_0000).to_ne_bytes();
    let double = |kind| pick(kind, 0x7ff8_u64 << 48, 0x7ff0 << 48, 0xfff0 << 48).to_ne_bytes();
    Some(match dtype {
        DType::Float16 => f16::from_bits(pick(kind, 0x7e00, 0x7c00, 0xfc00)).to_ne_bytes().to_vec(),
        DType::BFloat16 => bf16::from_bits(pick(kind, 0x7fc0, 0x7f80, 0xff80)).to_ne_bytes().to_vec(),
        DType::Float32 => single(kind).to_vec(),
        DType::Float64 => double(kind).to_vec(),
        DType::Complex64 => single(kind).repeat(2),
        DType::Complex128 => double(kind).repeat(2),
        _ => return None,
    })
}

/// Overwrites the cells of a run that a mask names.
fn restore(
    mask: &Mask,
    blob: &[u8],
    object: &Object,
    cells: &Range<u64>,
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let Scratch { contexts, buffers: [bits, _] } = scratch;
    let len = usize::try_from(object.cells.div_ceil(8))
        .map_err(|_| Error::limit("a mask", object.cells, usize::MAX as u64))?;
    bits.resize(len, 0);
    let bits = &mut bits[..len];
    match mask.method.as_str() {
        "none" => raw::decode_into(blob, bits)?,
        "rle" => rle::decode_into(blob, object.cells, bits)?,
        "roaring" => roaring::decode_into(blob, object.cells, bits)?,
        "lz4" => lz4::decode_into(blob, bits)?,
        "zstd" => zstd::decode_into(blob, bits, contexts)?,
        other => return Err(Error::unsupported(format!("Tensogram mask method {other:?}"))),
    }
    let dtype = object.descriptor.dtype;
    let pattern = pattern(dtype, mask.kind).ok_or_else(|| Error::unsupported(format!("masks of {dtype}")))?;
    let first = usize::try_from(cells.start / 8).unwrap_or(len);
    for (byte, base) in bits[first.min(len)..].iter().zip((cells.start & !7..).step_by(8)) {
        if base >= cells.end {
            break;
        }
        if *byte == 0 {
            continue;
        }
        for bit in (0..8).filter(|bit| byte >> (7 - bit) & 1 == 1) {
            let cell = base + bit;
            if cells.contains(&cell) {
                #[allow(clippy::cast_possible_truncation)]
                let at = (cell - cells.start) as usize * pattern.len();
                values[at..at + pattern.len()].copy_from_slice(&pattern);
            }
        }
    }
    Ok(())
}
