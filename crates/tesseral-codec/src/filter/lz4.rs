//! Raw LZ4 blocks: no size in front.

use tesseral_core::{Error, Result};

pub(crate) fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let written = lz4_flex::block::decompress_into(src, dst).map_err(|e| Error::codec("lz4", e))?;
    if written != dst.len() {
        return Err(Error::codec("lz4", format!("expected {} bytes, the block gave {written}", dst.len())));
    }
    Ok(())
}
