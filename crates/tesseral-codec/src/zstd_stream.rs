//! Zstandard as a writer makes it that does not know how much will come: a frame without its size.

use tesseral_core::{Error, Result};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

/// Appends one frame holding `src` to `out`. The frame does not say how long it is; [`zstd::decode_into`](crate::zstd) reads
/// it all the same.
///
/// # Errors
/// `Codec` when libzstd refuses.
pub fn encode(src: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    let refuse = |code| Error::codec("zstd", zstd_safe::get_error_name(code));
    let mut encoder = CCtx::create();
    encoder.set_parameter(CParameter::CompressionLevel(level)).map_err(refuse)?;
    let start = out.len();
    out.resize(start + zstd_safe::compress_bound(src.len()) + 64, 0);
    let mut input = InBuffer::around(src);
    let mut output = OutBuffer::around(&mut out[start..]);
    // Ending at once would tell libzstd the size, so the input goes in first.
    while input.pos() < src.len() {
        encoder
            .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_continue)
            .map_err(refuse)?;
    }
    let left =
        encoder.compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_end).map_err(refuse)?;
    if left != 0 {
        return Err(Error::codec("zstd", format!("{left} bytes did not fit the bound")));
    }
    let written = output.pos();
    out.truncate(start + written);
    Ok(())
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
}
