//! Zstandard as a writer makes it that does not know how much will come: a frame without its size.

use tesseral_core::{Error, Result};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

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
        let mut context = CCtx::create();
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(refuse)?;
        Ok(Self { context })
    }

    /// Takes more bytes; appends what of the frame is ready. What comes out in all does not depend on the pieces.
    ///
    /// # Errors
    /// `Codec` when libzstd refuses.
    pub fn push(&mut self, src: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        // What waits inside is less than a block.
        out.resize(start + zstd_safe::compress_bound(src.len() + BLOCK) + 64, 0);
        let mut input = InBuffer::around(src);
        let mut output = OutBuffer::around(&mut out[start..]);
        while input.pos() < src.len() {
            self.context
                .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_continue)
                .map_err(refuse)?;
        }
        let written = output.pos();
        out.truncate(start + written);
        Ok(())
    }

    /// Appends the rest of the frame.
    ///
    /// # Errors
    /// `Codec` when libzstd refuses.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + zstd_safe::compress_bound(BLOCK) + 64, 0);
        let mut input = InBuffer::around(&[]);
        let mut output = OutBuffer::around(&mut out[start..]);
        let left = self
            .context
            .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_end)
            .map_err(refuse)?;
        if left != 0 {
            return Err(Error::codec("zstd", format!("{left} bytes did not fit the bound")));
        }
        let written = output.pos();
        out.truncate(start + written);
        Ok(())
    }
}

/// The most that libzstd keeps to itself: its input buffer is a window and a block, of which a block waits to be compressed.
const BLOCK: usize = 128 << 10;

const PIECE: usize = 1 << 20;

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
    // Room for the worst is made for a piece at a time, not for all of it.
    src.chunks(PIECE).try_for_each(|piece| encoder.push(piece, out))?;
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
}
