//! zlib streams, which TileDB calls gzip.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use tesseral_core::{Error, Result};

pub(crate) fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let mut stream = Decompress::new(true);
    let status = stream.decompress(src, dst, FlushDecompress::Finish).map_err(|e| Error::codec("gzip", e))?;
    if status != Status::StreamEnd || stream.total_out() != dst.len() as u64 {
        let detail = format!("expected {} bytes, decoded {}", dst.len(), stream.total_out());
        return Err(Error::codec("gzip", detail));
    }
    Ok(())
}

/// Appends a stream.
pub(crate) fn encode(src: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    let level = u32::try_from(level).map_or_else(|_| Compression::default(), |l| Compression::new(l.min(9)));
    let mut stream = Compress::new(level, true);
    loop {
        let read = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = src.get(read..).unwrap_or_default();
        out.reserve(rest.len() / 2 + 64);
        let status =
            stream.compress_vec(rest, out, FlushCompress::Finish).map_err(|e| Error::codec("gzip", e))?;
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}
