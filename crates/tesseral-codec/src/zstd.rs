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
