//! Codecs: bytes in, bytes into a slice the caller owns. No I/O, no panic on any input.
//!
//! A decoder never writes past the slice it is given, so the caller's declared size bounds every decompression.
//! Contexts that are costly to make live in [`Contexts`], one per thread, reused from chunk to chunk.
//!
//! ```
//! use tesseral_codec::{Contexts, zstd};
//!
//! let mut contexts = Contexts::default();
//! let mut packed = Vec::new();
//! zstd::encode(&[7; 1000], zstd::DEFAULT_LEVEL, &mut packed, &mut contexts)?;
//! let mut cells = [0; 1000];
//! zstd::decode_into(&packed, &mut cells, &mut contexts)?;
//! assert_eq!(cells, [7; 1000]);
//! # Ok::<(), tesseral_core::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod aec;
pub mod bitset;
pub mod bitshuffle;
pub mod blosc2;
pub mod filter;
pub mod lz4;
pub mod packing;
pub mod raw;
pub mod shuffle;
pub mod sz3;
#[cfg(feature = "zfp")]
pub mod zfp;
pub mod zstd;
pub mod zstd_stream;

/// Codec state that is worth keeping between chunks. One per thread.
#[derive(Default)]
pub struct Contexts {
    blosc2: blosc2::Work,
    filter: filter::Work,
    zstd: zstd::Context,
}

impl std::fmt::Debug for Contexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contexts").finish_non_exhaustive()
    }
}

/// The first `len` bytes of a buffer that is kept. A longer one than before comes from the system as it is, so that what is
/// not written costs no memory.
///
/// # Errors
/// `Limit` when there is not as much memory.
pub fn room(buffer: &mut Vec<u8>, len: usize) -> tesseral_core::Result<&mut [u8]> {
    if buffer.len() < len {
        let mut larger = Vec::<u8>::new();
        let short = |_| tesseral_core::Error::limit("a buffer", len as u64, 0);
        larger.try_reserve_exact(len).map_err(short)?;
        drop(larger);
        *buffer = vec![0; len];
    }
    Ok(&mut buffer[..len])
}
