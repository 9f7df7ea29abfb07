//! One LZ4 block preceded by its uncompressed length, a little-endian u32.

use lz4_flex::block;
use tesseral_core::{Error, Result};

/// Bytes that one byte of a block can expand to.
const MOST_FROM_BYTE: usize = 255;

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
    if dst.len() > block.len().saturating_mul(MOST_FROM_BYTE) {
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
    out.extend_from_slice(&len.to_le_bytes());
    let start = out.len();
    out.resize(start + block::get_maximum_output_size(src.len()), 0);
    let written = block::compress_into(src, &mut out[start..]).map_err(|e| Error::codec("lz4", e))?;
    out.truncate(start + written);
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
}
