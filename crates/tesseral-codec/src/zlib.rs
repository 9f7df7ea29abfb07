//! zlib streams, which TileDB calls gzip, and gzip members.
//!
//! A stream whose output is known to fill a buffer is decoded in one call of libdeflate, which keeps no window and copies words where a
//! resumable decoder copies bytes. Everything else is decoded and encoded by zlib-rs.

use std::io::Read;

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, GzBuilder, Status};
use libdeflater::{Crc, Decompressor};
use tesseral_core::{Error, Result, alloc};

use crate::stream::{self, Admit};

/// Decodes a zlib stream whose output fills `dst` exactly.
///
/// # Errors
/// `Codec` when the stream is damaged or the output has another length.
pub fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    match Decompressor::new().zlib_decompress(src, dst) {
        Ok(len) if len == dst.len() => Ok(()),
        Ok(len) => Err(Error::codec("gzip", format!("expected {} bytes, decoded {len}", dst.len()))),
        Err(e) => Err(Error::codec("gzip", e)),
    }
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

/// Decodes the first bytes of a deflate stream, at most `len`; fewer if the stream or its bytes end before.
///
/// # Errors
/// `Codec` when the stream is damaged.
pub fn inflate_prefix(src: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut out = alloc::zeroed("the first bytes of a deflate stream", len)?;
    let mut stream = Decompress::new(false);
    let status = stream.decompress(src, &mut out, FlushDecompress::None);
    // A truncated stream ends without progress.
    if let Err(e) = status
        && stream.total_out() == 0
    {
        return Err(Error::codec("deflate", e));
    }
    out.truncate(usize::try_from(stream.total_out()).unwrap_or(len));
    Ok(out)
}

/// Decodes a deflate stream whose output fills `head` and then `dst` exactly.
///
/// # Errors
/// `Codec` when the stream is damaged or the output has another length.
pub fn inflate_into(src: &[u8], head: &mut [u8], dst: &mut [u8]) -> Result<()> {
    let expected = head.len() as u64 + dst.len() as u64;
    let mut stream = Decompress::new(false);
    let damaged = |e| Error::codec("deflate", e);
    let mut status = Status::Ok;
    if !head.is_empty() {
        status = stream.decompress(src, head, FlushDecompress::None).map_err(damaged)?;
    }
    if stream.total_out() == head.len() as u64 && status != Status::StreamEnd {
        let read = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = src.get(read..).unwrap_or_default();
        status = stream.decompress(rest, dst, FlushDecompress::Finish).map_err(damaged)?;
    }
    if status != Status::StreamEnd || stream.total_out() != expected {
        let detail = format!("expected {expected} bytes, decoded {}", stream.total_out());
        return Err(Error::codec("deflate", detail));
    }
    Ok(())
}

/// Decodes gzip members whose output fills `dst` exactly.
///
/// # Errors
/// As [`decode_into`].
pub fn decode_gzip_into(src: &[u8], dst: &mut [u8]) -> Result<()> {
    // Length and checksum at the end are those of the output: there is one member.
    let end = src.len().checked_sub(8).and_then(|at| src.get(at..));
    let one = end.is_some_and(|end| end[4..] == (dst.len() as u32).to_le_bytes());
    if one && Decompressor::new().gzip_decompress(src, dst).is_ok_and(|len| len == dst.len()) {
        let mut crc = Crc::new();
        crc.update(dst);
        if end.is_some_and(|end| end[..4] == crc.sum().to_le_bytes()) {
            return Ok(());
        }
    }
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
    fn deflate_streams_decode_into_their_length_only() {
        let src: Vec<u8> = (0..9000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let mut packed = Vec::new();
        encode(&src, 6, &mut packed).unwrap();
        // The stream is between the header and the checksum of zlib.
        let stream = &packed[2..packed.len() - 4];
        for head in [0, 100, src.len()] {
            let (mut first, mut rest) = (vec![0; head], vec![0; src.len() - head]);
            inflate_into(stream, &mut first, &mut rest).unwrap();
            assert_eq!([first, rest].concat(), src);
        }
        for len in [src.len() - 1, src.len() + 1] {
            assert!(inflate_into(stream, &mut [0; 10], &mut vec![0; len - 10]).is_err(), "{len}");
        }
        for len in (0..stream.len()).step_by(37) {
            let decoded = inflate_into(&stream[..len], &mut [0; 10], &mut vec![0; src.len() - 10]);
            assert!(decoded.is_err(), "{len}");
            assert!(src.starts_with(&inflate_prefix(&stream[..len], 500).unwrap()));
        }
        assert_eq!(inflate_prefix(stream, 500).unwrap(), src[..500]);
        assert_eq!(inflate_prefix(stream, src.len() + 9).unwrap(), src);
    }

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
