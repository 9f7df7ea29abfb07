//! zlib streams, which TileDB calls gzip, and gzip members.

use std::io::Read;

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, GzBuilder, Status};
use tesseral_core::{Error, Result};

use crate::stream::{self, Admit};

/// Decodes a zlib stream whose output fills `dst` exactly.
///
/// # Errors
/// `Codec` when the stream is damaged or the output has another length.
pub fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let mut stream = Decompress::new(true);
    let status = stream.decompress(src, dst, FlushDecompress::Finish).map_err(|e| Error::codec("gzip", e))?;
    if status != Status::StreamEnd || stream.total_out() != dst.len() as u64 {
        let detail = format!("expected {} bytes, decoded {}", dst.len(), stream.total_out());
        return Err(Error::codec("gzip", detail));
    }
    Ok(())
}

/// Appends the output of a zlib stream of unknown length to `out`.
///
/// # Errors
/// `Codec` when the stream is damaged; errors of `admit`.
pub fn decode_growing(src: &[u8], out: &mut Vec<u8>, admit: Admit<'_>) -> Result<()> {
    stream::grow("zlib", &mut ZlibDecoder::new(src), out, admit)
}

/// Appends a zlib stream.
///
/// # Errors
/// `Codec` when compression fails.
pub fn encode(src: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    let mut stream = Compress::new(compression(level), true);
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

fn compression(level: i32) -> Compression {
    u32::try_from(level).map_or_else(|_| Compression::default(), |level| Compression::new(level.min(9)))
}

/// Decodes gzip members whose output fills `dst` exactly.
///
/// # Errors
/// As [`decode_into`].
pub fn decode_gzip_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    stream::fill("gzip", &mut MultiGzDecoder::new(src), dst)
}

/// Appends the output of gzip members of unknown length to `out`.
///
/// # Errors
/// As [`decode_growing`].
pub fn decode_gzip_growing(src: &[u8], out: &mut Vec<u8>, admit: Admit<'_>) -> Result<()> {
    stream::grow("gzip", &mut MultiGzDecoder::new(src), out, admit)
}

/// Appends a gzip member without name and time.
///
/// # Errors
/// `Codec` when compression fails.
pub fn encode_gzip(src: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    let mut encoder = GzBuilder::new().buf_read(src, compression(level));
    encoder.read_to_end(out).map(drop).map_err(|e| Error::codec("gzip", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_decode_into_their_length_only() {
        let src: Vec<u8> = (0..9000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let mut packed = Vec::new();
        encode_gzip(&src[..20_000], 5, &mut packed).unwrap();
        encode_gzip(&src[20_000..], 1, &mut packed).unwrap();
        let mut back = vec![0; src.len()];
        decode_gzip_into(&packed, &mut back).unwrap();
        assert_eq!(back, src);
        for len in [0, 100, src.len() - 1, src.len() + 1] {
            assert!(decode_gzip_into(&packed, &mut vec![0; len]).is_err(), "{len}");
        }
        for len in (0..packed.len()).step_by(37) {
            assert!(decode_gzip_into(&packed[..len], &mut back).is_err(), "{len}");
        }
        let mut grown = Vec::new();
        decode_gzip_growing(&packed, &mut grown, &|_| Ok(())).unwrap();
        assert_eq!(grown, src);
    }
}
