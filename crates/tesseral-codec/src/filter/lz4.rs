//! Raw LZ4 blocks without a length prefix.

use tesseral_core::{Error, Result};

pub(crate) fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let written = lz4_flex::block::decompress_into(src, dst).map_err(|e| Error::codec("lz4", e))?;
    if written != dst.len() {
        return Err(Error::codec("lz4", format!("expected {} bytes, decoded {written}", dst.len())));
    }
    Ok(())
}

/// Appends a block.
pub(crate) fn encode(src: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(src.len()), 0);
    let written =
        lz4_flex::block::compress_into(src, &mut out[start..]).map_err(|e| Error::codec("lz4", e))?;
    out.truncate(start + written);
    Ok(())
}
