//! One bzip2 stream per part.

use bzip2::{Decompress, Status};
use tesseral_core::{Error, Result};

pub(crate) fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let mut stream = Decompress::new(false);
    loop {
        let (read, written) = (stream.total_in(), stream.total_out());
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let input = src.get(at(read)..).unwrap_or_default();
        let output = dst.get_mut(at(written)..).unwrap_or_default();
        let status = stream.decompress(input, output).map_err(|e| Error::codec("bzip2", e))?;
        if status == Status::StreamEnd && stream.total_out() == dst.len() as u64 {
            return Ok(());
        }
        let stuck = stream.total_in() == read && stream.total_out() == written;
        if status == Status::StreamEnd || stuck {
            let detail = format!("expected {} bytes, the stream gave {}", dst.len(), stream.total_out());
            return Err(Error::codec("bzip2", detail));
        }
    }
}
