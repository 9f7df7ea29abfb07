//! Decoding of stored bytes into cells: decompress, unshuffle, unpack or byte-swap, restore masked cells.

use std::ops::Range;

use half::{bf16, f16};
use tesseral_codec::packing::SimplePacking;
use tesseral_codec::{raw, room, shuffle, zstd};
use tesseral_core::{DType, Error, Result};
use tesseral_format::Scratch;

use crate::array::Object;
use crate::compress::{decode_mask, decompress, decompress_range};
use crate::pipeline::{Compression, ObjectPipeline};
use crate::wire::descriptor::{Mask, MaskKind};

/// Decodes a range of cells; all cells unless the pipeline [seeks](Pipeline::seeks).
pub(crate) fn decode<P: AsRef<[u8]>>(
    object: &Object,
    pipeline: &ObjectPipeline,
    file: &str,
    parts: &[P],
    cells: Range<u64>,
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    check_room(object, &cells, values)?;
    let Some((payload, blobs)) = parts.split_first().filter(|(_, blobs)| blobs.len() == object.masks.len())
    else {
        let detail = format!("expected {} parts, found {}", 1 + object.masks.len(), parts.len());
        return Err(Error::corrupt("payload", file, object.payload.start, detail));
    };
    let payload = payload.as_ref();
    if pipeline.compression == Compression::None && payload.len() as u64 != pipeline.coded_len {
        let detail = format!("expected {} bytes, found {}", pipeline.coded_len, payload.len());
        return Err(Error::codec("raw", detail));
    }
    if pipeline.plain() {
        let (bytes, _) = window(pipeline, object.descriptor.dtype, &cells).unwrap_or_default();
        let part = payload.get(bytes.start as usize..bytes.end as usize);
        plain(object, pipeline, part.unwrap_or_default(), &cells, values)?;
    } else if cells == (0..object.cells) {
        coded(object, pipeline, payload, values, scratch)?;
    } else if pipeline.framed() {
        let size = object.descriptor.dtype.size().unwrap_or(1) as u64;
        zstd::decode_range(payload, cells.start.saturating_mul(size), values, &mut scratch.contexts)?;
    } else if pipeline.seeks(object.descriptor.dtype) {
        part(object, pipeline, payload, &cells, values, scratch)?;
    } else {
        return Err(Error::internal("this compression does not support random access"));
    }
    finish(object, pipeline, blobs, &cells, values, scratch)
}

/// Number of cells that each frame of a compressed payload holds, if it has several that decode by themselves.
pub(crate) fn frame_cells(object: &Object, pipeline: &ObjectPipeline, payload: &[u8]) -> Option<u64> {
    let size =
        object.descriptor.dtype.size().filter(|_| pipeline.framed() && object.masks.is_empty())? as u64;
    let step = zstd::frame_step(payload, pipeline.coded_len)?;
    step.is_multiple_of(size).then(|| step / size)
}

/// Decodes a range of cells of a [plain](Pipeline::plain) pipeline from the bytes of their [window] and the masks.
pub(crate) fn decode_window<P: AsRef<[u8]>>(
    object: &Object,
    pipeline: &ObjectPipeline,
    bytes: &[u8],
    blobs: &[P],
    cells: &Range<u64>,
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    check_room(object, cells, values)?;
    plain(object, pipeline, bytes, cells, values)?;
    finish(object, pipeline, blobs, cells, values, scratch)
}

fn check_room(object: &Object, cells: &Range<u64>, values: &[u8]) -> Result<()> {
    let count = cells.end - cells.start;
    let needed = match object.descriptor.dtype.size() {
        Some(size) => count.checked_mul(size as u64),
        None => Some(count.div_ceil(8)),
    };
    if needed != Some(values.len() as u64) {
        return Err(Error::internal(format!(
            "buffer of {} bytes is too small for cells {cells:?}",
            values.len()
        )));
    }
    Ok(())
}

/// Converts decoded cells to native byte order and restores masked cells.
fn finish<P: AsRef<[u8]>>(
    object: &Object,
    pipeline: &ObjectPipeline,
    blobs: &[P],
    cells: &Range<u64>,
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let dtype = object.descriptor.dtype;
    if pipeline.packing.is_none() && object.swapped() && !pipeline.native(dtype) {
        values.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
    }
    for ((mask, _), blob) in object.masks.iter().zip(blobs) {
        restore(mask, blob.as_ref(), object, cells, values, scratch)?;
    }
    Ok(())
}

/// Copies uncompressed cells, or unpacks values, from the bytes of their [window].
fn plain(
    object: &Object,
    pipeline: &ObjectPipeline,
    bytes: &[u8],
    cells: &Range<u64>,
    values: &mut [u8],
) -> Result<()> {
    let dtype = object.descriptor.dtype;
    if let Some(packing) = &pipeline.packing {
        let skip = window(pipeline, dtype, cells).map_or(0, |(_, skip)| skip);
        return packing.decode_into(bytes, skip, values);
    }
    raw::decode_into(bytes, values)?;
    clear_tail(dtype, cells, values);
    Ok(())
}

/// Returns the encoded bytes that contain a range of cells, and the index of its first cell in them.
pub(crate) fn window(
    pipeline: &ObjectPipeline,
    dtype: DType,
    cells: &Range<u64>,
) -> Option<(Range<u64>, u64)> {
    if let Some(packing) = &pipeline.packing {
        // Every eighth packed value is byte-aligned.
        let first = cells.start & !7;
        let end = SimplePacking::packed_len(packing.bits, cells.end)?;
        return Some((first / 8 * u64::from(packing.bits)..end, cells.start - first));
    }
    match dtype.size() {
        Some(size) => Some((cells.start.checked_mul(size as u64)?..cells.end.checked_mul(size as u64)?, 0)),
        None => Some((cells.start / 8..cells.end.div_ceil(8), 0)),
    }
}

/// Decodes a range of cells from compressed bytes.
fn part(
    object: &Object,
    pipeline: &ObjectPipeline,
    payload: &[u8],
    cells: &Range<u64>,
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let dtype = object.descriptor.dtype;
    let too_long = || Error::limit("an object", pipeline.coded_len, usize::MAX as u64);
    let (bytes, skip) = window(pipeline, dtype, cells).ok_or_else(too_long)?;
    if let Some(size) = pipeline.shuffle {
        let first = usize::try_from(cells.start).map_err(|_| too_long())?;
        return shuffle::decode_range_into(payload, size, first, values);
    }
    let Scratch { contexts, buffers: [first, _], .. } = scratch;
    if let Some(packing) = &pipeline.packing {
        let len = usize::try_from(bytes.end - bytes.start).map_err(|_| too_long())?;
        let coded = room(first, len)?;
        decompress_range(pipeline, payload, bytes.start, coded, &object.szip, contexts)?;
        return packing.decode_into(coded, skip, values);
    }
    decompress_range(pipeline, payload, bytes.start, values, &object.szip, contexts)?;
    clear_tail(dtype, cells, values);
    Ok(())
}

/// Clears the padding bits of the last byte.
fn clear_tail(dtype: DType, cells: &Range<u64>, values: &mut [u8]) {
    if dtype == DType::Bitmask
        && !cells.end.is_multiple_of(8)
        && let Some(last) = values.last_mut()
    {
        *last &= !(0xff >> (cells.end % 8));
    }
}

/// Decodes bytes that were filtered or compressed.
fn coded(
    object: &Object,
    pipeline: &ObjectPipeline,
    payload: &[u8],
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let Scratch { contexts, buffers: [first, second], .. } = scratch;
    let len = usize::try_from(pipeline.coded_len)
        .map_err(|_| Error::limit("an object", pipeline.coded_len, usize::MAX as u64))?;
    let exact = !pipeline.plain_doubles(object.descriptor.dtype);
    if pipeline.packing.is_none() && pipeline.shuffle.is_none() {
        return decompress(pipeline, payload, exact, values, contexts);
    }
    let coded = if pipeline.compression == Compression::None {
        payload
    } else {
        let coded = room(first, len)?;
        decompress(pipeline, payload, exact, coded, contexts)?;
        coded
    };
    match (pipeline.shuffle, &pipeline.packing) {
        (Some(size), None) => shuffle::decode_into(coded, size, values),
        (Some(size), Some(packing)) => {
            let packed = room(second, len)?;
            shuffle::decode_into(coded, size, packed)?;
            packing.decode_into(packed, 0, values)
        }
        (None, Some(packing)) => packing.decode_into(coded, 0, values),
        (None, None) => raw::decode_into(coded, values),
    }
}

/// Returns the bytes of a restored cell in native byte order.
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

/// Overwrites the masked cells of a range.
fn restore(
    mask: &Mask,
    blob: &[u8],
    object: &Object,
    cells: &Range<u64>,
    values: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let Scratch { contexts, buffers: [bits, _], .. } = scratch;
    let len = usize::try_from(object.cells.div_ceil(8))
        .map_err(|_| Error::limit("a mask", object.cells, usize::MAX as u64))?;
    let bits = room(bits, len)?;
    decode_mask(mask, blob, object.cells, bits, contexts)?;
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
                let at = (cell - cells.start) as usize * pattern.len();
                values[at..at + pattern.len()].copy_from_slice(&pattern);
            }
        }
    }
    Ok(())
}
