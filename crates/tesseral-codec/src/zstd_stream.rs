//! Zstandard as a writer makes it that does not know how much will come: a frame without its size.

use std::cell::Cell;

use tesseral_core::{Error, Result};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

thread_local! {
    /// The compressor of this thread's last frame: its window and tables would be new memory for each.
    static KEPT: Cell<Option<CCtx<'static>>> = const { Cell::new(None) };
}

/// Larger compressors, those of high levels, are not kept.
const MOST_KEPT: usize = 8 << 20;

/// A frame in the making, piece by piece.
pub struct Encoder {
    context: CCtx<'static>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// Nothing in it yet.
    ///
    /// # Errors
    /// `Codec` when libzstd refuses the level.
    pub fn new(level: i32) -> Result<Self> {
        let mut context = KEPT.take().unwrap_or_else(CCtx::create);
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(refuse)?;
        Ok(Self { context })
    }

    /// Takes more bytes; appends what of the frame is ready. What comes out in all does not depend on the pieces.
    ///
    /// # Errors
    /// `Codec` when libzstd refuses.
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
    /// `Codec` when libzstd refuses.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<()> {
        let mut input = InBuffer::around(&[]);
        while self.step(&mut input, ZSTD_EndDirective::ZSTD_e_end, out)? > 0 {}
        // Only behind a whole frame is it as good as new.
        if self.context.sizeof() <= MOST_KEPT {
            KEPT.set(Some(self.context));
        }
        Ok(())
    }

    /// Goes on as far as there is input or room; gives what is left to flush. There is room for a block at least, so that it is
    /// compressed to where it stays, in memory that nothing was written to before.
    fn step(&mut self, input: &mut InBuffer<'_>, how: ZSTD_EndDirective, out: &mut Vec<u8>) -> Result<usize> {
        let block = zstd_safe::compress_bound(BLOCK);
        if out.capacity() - out.len() < block {
            // Not doubled: what does not compress would be held twice.
            out.reserve_exact(block.max(out.len() / 8));
        }
        let start = out.len();
        let mut output = OutBuffer::around_pos(out, start);
        self.context.compress_stream2(&mut output, input, how).map_err(refuse)
    }
}

/// What libzstd compresses at a time.
const BLOCK: usize = 128 << 10;

fn refuse(code: usize) -> Error {
    Error::codec("zstd", zstd_safe::get_error_name(code))
}

/// Appends one frame holding `src` to `out`. The frame does not say how long it is; [`zstd::decode_into`](crate::zstd) reads
/// it all the same.
///
/// # Errors
/// `Codec` when libzstd refuses.
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
    fn frames_say_no_size_and_decode() {
        for len in [1, 1000, 300_000] {
            let src: Vec<u8> = (0..len).map(|i: u32| (i / 5) as u8).collect();
            let mut packed = Vec::new();
            encode(&src, 3, &mut packed).unwrap();
            assert_eq!(packed[4], 0, "the header says neither size nor checksum");
            let mut back = vec![0; src.len()];
            crate::zstd::decode_into(&packed, &mut back, &mut Contexts::default()).unwrap();
            assert_eq!(back, src);
        }
    }

    #[test]
    fn pieces_make_the_same_frame() {
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
    fn a_kept_compressor_makes_the_frame_of_a_new_one() {
        let noise = |seed: u32, len: u32| -> Vec<u8> {
            (0..len).map(|i| (i.wrapping_mul(seed).wrapping_mul(2_654_435_761) >> 19) as u8 & 63).collect()
        };
        let frame = |src: &[u8], level: i32| {
            let mut out = vec![7];
            encode(src, level, &mut out).unwrap();
            assert_eq!(out[0], 7, "what was there before");
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
    fn a_frame_that_was_given_up_leaves_nothing_behind() {
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
