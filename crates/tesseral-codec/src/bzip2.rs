//! bzip2 streams.

use ::bzip2::bufread::MultiBzDecoder;
use ::bzip2::{Action, Compress, Compression, Decompress, Status};
use tesseral_core::{Error, Result};

use crate::stream::{self, Admit};

/// Decodes one stream whose output fills `dst` exactly.
///
/// # Errors
/// `Codec` when the stream is damaged or the output has another length.
pub fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
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
            let detail = format!("expected {} bytes, decoded {}", dst.len(), stream.total_out());
            return Err(Error::codec("bzip2", detail));
        }
    }
}

/// Appends the output of streams of unknown length to `out`.
///
/// # Errors
/// `Codec` when a stream is damaged; errors of `admit`.
pub fn decode_growing(src: &[u8], out: &mut Vec<u8>, admit: Admit<'_>) -> Result<()> {
    stream::grow("bzip2", &mut MultiBzDecoder::new(src), out, admit)
}

/// Appends a stream.
///
/// # Errors
/// `Codec` when compression fails.
pub fn encode(src: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    let level = u32::try_from(level).ok().filter(|l| (1..=9).contains(l)).unwrap_or(1);
    let mut stream = Compress::new(Compression::new(level), 0);
    loop {
        let read = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = src.get(read..).unwrap_or_default();
        out.reserve(rest.len() / 2 + 64);
        let status = stream.compress_vec(rest, out, Action::Finish).map_err(|e| Error::codec("bzip2", e))?;
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}
