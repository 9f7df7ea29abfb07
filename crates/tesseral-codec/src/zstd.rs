//! Zstandard, one or more frames per payload.

use std::io::Cursor;
use std::mem;

use tesseral_core::{Error, Result, alloc};
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective};

use crate::Contexts;
use crate::stream::Admit;

/// The level libzstd uses for level 0.
pub const DEFAULT_LEVEL: i32 = 3;

/// A compressor and a decompressor, created on first use.
#[derive(Default)]
pub(crate) struct ZstdContext {
    encoder: Option<(CCtx<'static>, i32)>,
    decoder: Option<DCtx<'static>>,
}

/// Decodes all frames of `src`, whose output must fill `dst` exactly.
///
/// Frames need not declare their size: `dst` bounds the output.
///
/// # Errors
/// `Codec` when a frame is damaged or the output is shorter or longer than `dst`.
pub fn decode_into(src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
    let decoder = contexts.zstd.decoder.get_or_insert_with(DCtx::create);
    let expected = dst.len();
    match decoder.decompress(dst, src) {
        Ok(written) if written == expected => Ok(()),
        Ok(written) => Err(Error::codec("zstd", format!("expected {expected} bytes, decoded {written}"))),
        Err(code) => {
            let name = zstd_safe::get_error_name(code);
            Err(Error::codec("zstd", format!("{name}, decoding {} bytes into {expected}", src.len())))
        }
    }
}

/// Appends the output of all frames of `src`, whose length is unknown, to `out`.
///
/// # Errors
/// `Codec` when a frame is damaged; errors of `admit`.
pub fn decode_growing(
    src: &[u8],
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
    admit: Admit<'_>,
) -> Result<()> {
    let zstd_error = |code| Error::codec("zstd", zstd_safe::get_error_name(code));
    let decoder = contexts.zstd.decoder.get_or_insert_with(DCtx::create);
    decoder.reset(ResetDirective::SessionOnly).map_err(zstd_error)?;
    let mut input = InBuffer::around(src);
    let open = loop {
        let start = out.len();
        let end = start.saturating_add(DCtx::out_size().max(start / 4));
        admit(end as u64)?;
        alloc::resize("decoded bytes", out, end, 0)?;
        let mut output = OutBuffer::around(&mut out[start..]);
        let consumed = input.pos();
        let open = decoder.decompress_stream(&mut output, &mut input);
        let written = output.pos();
        out.truncate(start + written);
        let open = open.map_err(zstd_error)?;
        let idle = written == 0 && input.pos() == consumed;
        if idle || (open == 0 && input.pos() == src.len()) {
            break open;
        }
    };
    if open != 0 || input.pos() < src.len() {
        return Err(Error::codec("zstd", "truncated frame"));
    }
    Ok(())
}

/// Appends one frame holding `src` to `out`.
///
/// # Errors
/// `Codec` when libzstd fails; for a valid level that happens only when memory runs out.
pub fn encode(src: &[u8], level: i32, out: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
    let zstd_error = |code| Error::codec("zstd", zstd_safe::get_error_name(code));
    let encoder = match &mut contexts.zstd.encoder {
        Some((encoder, with)) if *with == level => encoder,
        slot => {
            let mut encoder = CCtx::create();
            encoder.set_parameter(CParameter::CompressionLevel(level)).map_err(zstd_error)?;
            &mut slot.insert((encoder, level)).0
        }
    };
    let start = out.len() as u64;
    out.reserve(zstd_safe::compress_bound(src.len()));
    // Compressed directly into the unwritten spare capacity of `out`.
    let mut spare = Cursor::new(mem::take(out));
    spare.set_position(start);
    let written = encoder.compress2(&mut spare, src).map_err(zstd_error);
    *out = spare.into_inner();
    written.map(drop)
}

/// Appends frames that hold `step` bytes of `src` each, the last one the rest, so that [`decode_range`] can begin at any of them.
///
/// # Errors
/// As [`encode`].
pub fn encode_frames(
    src: &[u8],
    step: usize,
    level: i32,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    if src.is_empty() {
        return encode(src, level, out, contexts);
    }
    src.chunks(step.max(1)).try_for_each(|part| encode(part, level, out, contexts))
}

/// Whether frames of `step` bytes are hardly longer than one frame would be, as measured with the first two of them: at most half a
/// percent, because only the second of two frames lacks the bytes before it.
///
/// # Errors
/// As [`encode`].
pub fn divides(src: &[u8], step: usize, level: i32, contexts: &mut Contexts) -> Result<bool> {
    let Some(two) = step.checked_mul(2).and_then(|two| src.get(..two)) else { return Ok(false) };
    let (mut apart, mut joined) = (Vec::new(), Vec::new());
    encode_frames(two, step, level, &mut apart, contexts)?;
    encode(two, level, &mut joined, contexts)?;
    Ok(apart.len() <= joined.len() + joined.len() / 200)
}

/// Length of the first frame of `src`, and that of its content; `None` unless the header declares it.
fn first_frame(src: &[u8]) -> Option<(usize, u64)> {
    let content = zstd_safe::get_frame_content_size(src).ok()??;
    let len = zstd_safe::find_frame_compressed_size(src).ok()?;
    (1..=src.len()).contains(&len).then_some((len, content))
}

/// Number of bytes that each of several frames holds, all but the last, which can hold fewer; `None` where `src`, with content of
/// `total` bytes, is not divided so. Reads the headers of frames and blocks only.
pub fn frame_step(src: &[u8], total: u64) -> Option<u64> {
    let (mut rest, mut decoded, mut step) = (src, 0_u64, None);
    while !rest.is_empty() {
        let (len, content) = first_frame(rest)?;
        let step = *step.get_or_insert(content);
        // A shorter frame can only be the last one.
        if content == 0 || content > step || !decoded.is_multiple_of(step) {
            return None;
        }
        decoded = decoded.checked_add(content)?;
        rest = rest.get(len..)?;
    }
    step.filter(|step| decoded == total && *step < total)
}

/// Decodes `dst.len()` bytes from `start`, which must both be where frames of `src` begin or end.
///
/// # Errors
/// `Codec` when a frame is damaged, or none begins or ends there.
pub fn decode_range(src: &[u8], start: u64, dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
    if dst.is_empty() {
        return Ok(());
    }
    let wanted = dst.len();
    let outside = || Error::codec("zstd", format!("no frames hold {wanted} bytes at {start}"));
    let end = start.checked_add(wanted as u64).ok_or_else(outside)?;
    let (mut at, mut decoded, mut from) = (0_usize, 0_u64, 0_usize);
    while decoded < end {
        if decoded == start {
            from = at;
        }
        let (len, content) = src.get(at..).and_then(first_frame).ok_or_else(outside)?;
        at += len;
        decoded = decoded.saturating_add(content);
        if content == 0 || (decoded > start && decoded - content < start) {
            return Err(outside());
        }
    }
    if decoded != end {
        return Err(outside());
    }
    decode_into(src.get(from..at).ok_or_else(outside)?, dst, contexts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(data, DEFAULT_LEVEL, &mut out, &mut Contexts::default()).unwrap();
        out
    }

    #[test]
    fn several_frames_fill_one_slice() {
        let mut packed = frame(b"abc");
        packed.extend(frame(b"defg"));
        let mut out = [0; 7];
        decode_into(&packed, &mut out, &mut Contexts::default()).unwrap();
        assert_eq!(&out, b"abcdefg");
    }

    #[test]
    fn frames_decode_by_themselves() {
        let data: Vec<u8> = (0..10_000_u32).flat_map(|i| (i * i % 977).to_le_bytes()).collect();
        let mut contexts = Contexts::default();
        for step in [1, 999, 4096, 39_990] {
            let mut packed = Vec::new();
            encode_frames(&data, step, DEFAULT_LEVEL, &mut packed, &mut contexts).unwrap();
            assert_eq!(frame_step(&packed, data.len() as u64), Some(step as u64));
            assert_eq!(frame_step(&packed, data.len() as u64 + 1), None);
            let mut whole = vec![0; data.len()];
            decode_into(&packed, &mut whole, &mut contexts).unwrap();
            assert!(whole == data);
            for (first, last) in [(0, 1), (1, 2), (3, 7), (0, usize::MAX), (2, 2)] {
                let place = |frame: usize| frame.saturating_mul(step).min(data.len());
                let range = place(first)..place(last);
                let mut part = vec![0; range.len()];
                decode_range(&packed, range.start as u64, &mut part, &mut contexts).unwrap();
                assert!(part == data[range], "{step} {first}..{last}");
            }
            if step > 1 {
                for (start, len) in [(1, step - 1), (0, step - 1), (0, step + 1), (step, 1)] {
                    let mut part = vec![0; len];
                    assert!(decode_range(&packed, start as u64, &mut part, &mut contexts).is_err());
                }
            }
            assert!(decode_range(&packed, u64::MAX, &mut [0; 4], &mut contexts).is_err());
            for len in (0..packed.len()).step_by(1 + packed.len() / 500) {
                assert_eq!(frame_step(&packed[..len], data.len() as u64), None, "{len}");
            }
        }
        // Noise is as long in two frames; what repeats is not.
        let mut state = 1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_ne_bytes()
        };
        let noise: Vec<u8> = (0..2500).flat_map(|_| random()).collect();
        assert!(divides(&noise, 10_000, DEFAULT_LEVEL, &mut contexts).unwrap());
        let repeated = [&noise[..10_000], &noise[..10_000]].concat();
        assert!(!divides(&repeated, 10_000, DEFAULT_LEVEL, &mut contexts).unwrap());
        assert!(!divides(&noise, 10_001, DEFAULT_LEVEL, &mut contexts).unwrap());
        // One frame, frames without a declared length, and unequal ones.
        assert_eq!(frame_step(&frame(&data), data.len() as u64), None);
        let mut streamed = Vec::new();
        crate::zstd_stream::encode(&data, 3, &mut streamed).unwrap();
        assert_eq!(frame_step(&streamed, data.len() as u64), None);
        let unequal = [frame(&data[..5]), frame(&data[5..7]), frame(&data[7..12])].concat();
        assert_eq!(frame_step(&unequal, 12), None);
        assert_eq!(frame_step(&[], 0), None);
    }

    #[test]
    fn output_is_bounded_by_the_slice() {
        let bomb = frame(&vec![0; 1 << 20]);
        assert!(bomb.len() < 200);
        let mut contexts = Contexts::default();
        for len in [0, 1, 1000, (1 << 20) - 1, (1 << 20) + 1] {
            assert!(decode_into(&bomb, &mut vec![0; len], &mut contexts).is_err(), "{len}");
        }
        decode_into(&bomb, &mut vec![0; 1 << 20], &mut contexts).unwrap();
    }

    #[test]
    fn output_of_unknown_length_grows_as_admitted() {
        let mut packed = frame(&vec![5; 1 << 20]);
        packed.extend(frame(b"tail"));
        let mut contexts = Contexts::default();
        let mut out = Vec::new();
        decode_growing(&packed, &mut out, &mut contexts, &|_| Ok(())).unwrap();
        assert_eq!((out.len(), &out[1 << 20..]), ((1 << 20) + 4, &b"tail"[..]));
        let admit = |len: u64| match len {
            0..=400_000 => Ok(()),
            _ => Err(Error::limit("bytes", len, 400_000)),
        };
        out.clear();
        assert!(decode_growing(&packed, &mut out, &mut contexts, &admit).is_err());
        assert!(out.len() <= 400_000);
        for len in 0..packed.len() {
            out.clear();
            let whole = decode_growing(&packed[..len], &mut out, &mut contexts, &|_| Ok(())).is_ok();
            assert!(!whole || out.is_empty() || out.len() == 1 << 20, "{len}");
        }
    }

    #[test]
    fn every_truncation_is_rejected() {
        let data: Vec<u8> = (0..4000_u32).flat_map(|i| (i * i).to_le_bytes()).collect();
        let packed = frame(&data);
        let mut contexts = Contexts::default();
        let mut out = vec![0; data.len()];
        for len in 0..packed.len() {
            assert!(decode_into(&packed[..len], &mut out, &mut contexts).is_err(), "{len}");
        }
    }
}
