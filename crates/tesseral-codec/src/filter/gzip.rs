//! zlib streams, which the format calls gzip.

use flate2::{Decompress, FlushDecompress, Status};
use tesseral_core::{Error, Result};

pub(crate) fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let mut stream = Decompress::new(true);
    let status = stream.decompress(src, dst, FlushDecompress::Finish).map_err(|e| Error::codec("gzip", e))?;
    if status != Status::StreamEnd || stream.total_out() != dst.len() as u64 {
        let detail = format!("expected {} bytes, the stream gave {}", dst.len(), stream.total_out());
        return Err(Error::codec("gzip", detail));
    }
    Ok(())
}
