//! LZ4: one block preceded by its uncompressed length, a little-endian u32; one block alone; frames.

use std::io::{Read, Write};

use lz4_flex::block;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use tesseral_core::{Error, Result, alloc};

/// Bytes that one byte of a block can expand to.
const MAX_FROM_BYTE: usize = 255;
/// Size of an output buffer from which a new one is allocated rather than an old one cleared.
const LAZY_FROM: usize = 1 << 20;
/// The last block of a frame.
const END_MARK: [u8; 4] = [0; 4];

/// Decodes a block whose output fills `dst` exactly.
///
/// # Errors
/// `Codec` when the stored length differs or the block is damaged.
pub fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let fault = |detail: String| Error::codec("lz4", detail);
    let (len, block) =
        src.split_first_chunk::<4>().ok_or_else(|| fault("truncated length prefix".to_owned()))?;
    let len = u32::from_le_bytes(*len);
    if u64::from(len) != dst.len() as u64 {
        return Err(fault(format!("expected {} bytes, the block declares {len}", dst.len())));
    }
    decode_block_into(block, dst)
}

/// Decodes a block without a length prefix, whose output fills `dst` exactly.
///
/// # Errors
/// `Codec` when the block is damaged or holds a different number of bytes.
pub fn decode_block_into(block: &[u8], dst: &mut [u8]) -> Result<()> {
    let fault = |detail: String| Error::codec("lz4", detail);
    // A byte of a block copies at most 255: anything longer is not worth clearing memory for.
    if dst.len() > block.len().saturating_mul(MAX_FROM_BYTE) {
        return Err(fault(format!("{} bytes cannot hold {}", block.len(), dst.len())));
    }
    let written = block::decompress_into(block, dst).map_err(|e| Error::codec("lz4", e))?;
    if written != dst.len() {
        return Err(fault(format!("expected {} bytes, decoded {written}", dst.len())));
    }
    Ok(())
}

/// Appends the length of `src` and one compressed block to `out`.
///
/// # Errors
/// `Limit` beyond 4 GiB, the largest length the prefix can hold.
pub fn encode(src: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let len = u32::try_from(src.len())
        .map_err(|_| Error::limit("lz4 block", src.len() as u64, u64::from(u32::MAX)))?;
    let prefix = len.to_le_bytes();
    let most = prefix.len() + block::get_maximum_output_size(src.len());
    if most > LAZY_FROM && out.is_empty() {
        // Zeroed by the system, so that only pages that are written take memory.
        *out = alloc::zeroed("a compressed block", most)?;
    } else {
        let end = out.len() + most;
        alloc::resize("a compressed block", out, end, 0)?;
    }
    let start = out.len() - most;
    out[start..start + prefix.len()].copy_from_slice(&prefix);
    let block = start + prefix.len();
    let written = block::compress_into(src, &mut out[block..]).map_err(|e| Error::codec("lz4", e))?;
    out.truncate(block + written);
    Ok(())
}

/// Decodes a frame whose content fills `dst` exactly.
///
/// # Errors
/// `Codec` when the frame is damaged or holds a different number of bytes.
pub fn decode_frame_into(frame: &[u8], dst: &mut [u8]) -> Result<()> {
    let fault = |e: std::io::Error| Error::codec("lz4", e);
    // The decoder treats the end of its input as the end of a frame; the appended mark shows whether the frame is complete.
    let mut decoder = FrameDecoder::new(frame.chain(&END_MARK[..]));
    decoder.read_exact(dst).map_err(fault)?;
    match decoder.read(&mut [0]).map_err(fault)? {
        0 if decoder.get_ref().get_ref().1.len() == END_MARK.len() => Ok(()),
        0 => Err(Error::codec("lz4", "truncated frame")),
        _ => Err(Error::codec("lz4", format!("the frame holds more than {} bytes", dst.len()))),
    }
}

/// Appends a frame to `out`.
///
/// # Errors
/// `Codec`.
pub fn encode_frame(src: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut encoder = FrameEncoder::new(out);
    encoder.write_all(src).map_err(|e| Error::codec("lz4", e))?;
    encoder.finish().map_err(|e| Error::codec("lz4", e))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_rejects_truncation() {
        let src: Vec<u8> = (0..5000_u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
        let mut packed = Vec::new();
        encode(&src, &mut packed).unwrap();
        let mut back = vec![0; src.len()];
        decode_into(&packed, &mut back).unwrap();
        assert_eq!(back, src);
        for len in 0..packed.len() {
            assert!(decode_into(&packed[..len], &mut back).is_err(), "{len}");
        }
        assert!(decode_into(&packed, &mut back[1..]).is_err());
    }

    #[test]
    fn blocks_do_not_depend_on_the_buffer() {
        let src: Vec<u8> = (0..700_000_u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
        let (mut empty, mut begun) = (Vec::new(), vec![7; 5]);
        encode(&src, &mut empty).unwrap();
        encode(&src, &mut begun).unwrap();
        assert_eq!(begun[..5], [7; 5]);
        assert!(begun[5..] == empty);
        let mut back = vec![0; src.len()];
        decode_into(&empty, &mut back).unwrap();
        assert!(back == src);
    }

    #[test]
    fn frames_round_trip_and_reject_truncation() {
        for len in [0, 1, 5000, 300_000] {
            let src: Vec<u8> = (0..len).map(|i: u32| (i / 7) as u8).collect();
            let mut packed = Vec::new();
            encode_frame(&src, &mut packed).unwrap();
            let mut back = vec![0; src.len()];
            decode_frame_into(&packed, &mut back).unwrap();
            assert_eq!(back, src);
            for cut in (0..packed.len()).step_by(packed.len() / 60 + 1) {
                assert!(
                    decode_frame_into(&packed[..cut], &mut back).is_err() || src.is_empty(),
                    "{cut} of {len}"
                );
            }
            assert!(src.is_empty() || decode_frame_into(&packed, &mut back[1..]).is_err());
        }
    }
}
