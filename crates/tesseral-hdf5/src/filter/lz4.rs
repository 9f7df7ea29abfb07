//! The LZ4 filter: big-endian sizes before blocks.
//!
//! ```text
//! u64 original size │ u32 block size │ per block: u32 compressed size │ bytes        a block with equal compressed size is
//! stored uncompressed
//! ```

use tesseral_core::{Error, Result};

/// Splits a big-endian number off.
pub(super) fn number(src: &mut &[u8], len: usize, codec: &'static str) -> Result<usize> {
    let (head, tail) = src.split_at_checked(len).ok_or_else(|| Error::codec(codec, "truncated chunk"))?;
    *src = tail;
    let number = head.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    usize::try_from(number).map_err(|e| Error::codec(codec, e))
}

/// Splits bytes off.
pub(super) fn bytes<'a>(src: &mut &'a [u8], len: usize, codec: &'static str) -> Result<&'a [u8]> {
    let (head, tail) = src.split_at_checked(len).ok_or_else(|| Error::codec(codec, "truncated chunk"))?;
    *src = tail;
    Ok(head)
}

/// Decodes a chunk and returns the number of bytes written.
pub(super) fn decode(mut src: &[u8], dst: &mut [u8]) -> Result<usize> {
    let (total, block) = (number(&mut src, 8, "lz4")?, number(&mut src, 4, "lz4")?);
    let Some(dst) = dst.get_mut(..total) else {
        return Err(Error::codec("lz4", format!("the chunk declares {total} bytes")));
    };
    if block == 0 && total > 0 {
        return Err(Error::codec("lz4", "blocks of 0 bytes"));
    }
    for out in dst.chunks_mut(block.max(1)) {
        let stored = number(&mut src, 4, "lz4")?;
        let stored = bytes(&mut src, stored, "lz4")?;
        if stored.len() == out.len() {
            out.copy_from_slice(stored);
        } else {
            tesseral_codec::lz4::decode_block_into(stored, out)?;
        }
    }
    Ok(total)
}
