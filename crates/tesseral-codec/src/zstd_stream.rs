//! Streaming Zstandard compression, for inputs of unknown length: the frame header declares no content size.

use std::cell::Cell;

use tesseral_core::{Error, Result};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

thread_local! {
    /// The compressor of this thread's last frame, kept to reuse its window and tables.
    static KEPT: Cell<Option<CCtx<'static>>> = const { Cell::new(None) };
}

/// Larger compressors, as used by high levels, are not kept.
const MAX_KEPT: usize = 8 << 20;

/// An incremental encoder of one frame.
pub struct Encoder {
    context: CCtx<'static>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder of an empty frame.
    ///
    /// # Errors
    /// `Codec` when libzstd rejects the level.
    pub fn new(level: i32) -> Result<Self> {
        let mut context = KEPT.take().unwrap_or_else(CCtx::create);
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(zstd_error)?;
        Ok(Self { context })
    }

    /// Adds input and appends the output that is ready. The frame does not depend on how the input is split.
    ///
    /// # Errors
    /// `Codec` when libzstd fails.
    pub fn push(&mut self, src: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut input = InBuffer::around(src);
        while input.pos() < src.len() {
            self.step(&mut input, ZSTD_EndDirective::ZSTD_e_continue, out)?;
        }
        Ok(())
    }

    /// Appends the rest of the frame.
    ///
    /// # Errors
    /// `Codec` when libzstd fails.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<()> {
        let mut input = InBuffer::around(&[]);
        while self.step(&mut input, ZSTD_EndDirective::ZSTD_e_end, out)? > 0 {}
        // A compressor is reusable only after a complete frame.
        if self.context.sizeof() <= MAX_KEPT {
            KEPT.set(Some(self.context));
        }
        Ok(())
    }

    /// Compresses until the input is consumed or the spare capacity is full; returns the number of bytes left to flush. The
    /// capacity holds at least one block, so that libzstd compresses directly into memory that was not written before.
    fn step(&mut self, input: &mut InBuffer<'_>, how: ZSTD_EndDirective, out: &mut Vec<u8>) -> Result<usize> {
        let block = zstd_safe::compress_bound(BLOCK);
        if out.capacity() - out.len() < block {
            // Not doubled: incompressible data would reserve twice its size.
            out.reserve_exact(block.max(out.len() / 8));
        }
        let start = out.len();
        let mut output = OutBuffer::around_pos(out, start);
        self.context.compress_stream2(&mut output, input, how).map_err(zstd_error)
    }
}

/// The block size of libzstd.
const BLOCK: usize = 128 << 10;

fn zstd_error(code: usize) -> Error {
    Error::codec("zstd", zstd_safe::get_error_name(code))
}

/// Appends one frame holding `src` to `out`. The frame does not declare its content size;
/// [`zstd::decode_into`](crate::zstd) does not need it.
///
/// # Errors
/// `Codec` when libzstd fails.
pub fn encode(src: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    let mut encoder = Encoder::new(level)?;
    encoder.push(src, out)?;
    encoder.finish(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Contexts;

    #[test]
    fn frames_without_content_size_decode() {
        for len in [1, 1000, 300_000] {
            let src: Vec<u8> = (0..len).map(|i: u32| (i / 5) as u8).collect();
            let mut packed = Vec::new();
            encode(&src, 3, &mut packed).unwrap();
            assert_eq!(packed[4], 0, "the header has neither content size nor checksum");
            let mut back = vec![0; src.len()];
            crate::zstd::decode_into(&packed, &mut back, &mut Contexts::default()).unwrap();
            assert_eq!(back, src);
        }
    }

    #[test]
    fn split_input_gives_the_same_frame() {
        let src: Vec<u8> =
            (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as u8 & 31).collect();
        let mut whole = Vec::new();
        encode(&src, 3, &mut whole).unwrap();
        for piece in [1000, 65_536, 1 << 20] {
            let mut encoder = Encoder::new(3).unwrap();
            let mut parts = Vec::new();
            src.chunks(piece).for_each(|part| encoder.push(part, &mut parts).unwrap());
            encoder.finish(&mut parts).unwrap();
            assert_eq!(parts, whole, "pieces of {piece}");
        }
    }

    #[test]
    fn a_reused_compressor_gives_the_frame_of_a_new_one() {
        let noise = |seed: u32, len: u32| -> Vec<u8> {
            (0..len).map(|i| (i.wrapping_mul(seed).wrapping_mul(2_654_435_761) >> 19) as u8 & 63).collect()
        };
        let frame = |src: &[u8], level: i32| {
            let mut out = vec![7];
            encode(src, level, &mut out).unwrap();
            assert_eq!(out[0], 7, "existing output");
            out
        };
        for (seed, level) in [(3, 3), (5, 3), (7, 1), (11, 12), (13, 19), (3, 3), (17, -5)] {
            for len in [0, 1, 4000, 128 << 10, (2 << 20) + 77, 3 << 20] {
                let src = noise(seed, len);
                let kept = frame(&src, level);
                let new = std::thread::scope(|scope| scope.spawn(|| frame(&src, level)).join().unwrap());
                assert!(kept == new, "level {level}, {len} bytes");
            }
        }
    }

    #[test]
    fn an_abandoned_frame_leaves_no_state() {
        let mut whole = Vec::new();
        encode(&[1; 5000], 3, &mut whole).unwrap();
        let mut given_up = Encoder::new(3).unwrap();
        given_up.push(&[2; 300_000], &mut Vec::new()).unwrap();
        drop(given_up);
        let mut again = Vec::new();
        encode(&[1; 5000], 3, &mut again).unwrap();
        assert_eq!(again, whole);
    }
}
