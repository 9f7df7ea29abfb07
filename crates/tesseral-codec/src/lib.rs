//! Codecs that decode into a caller-owned slice. They perform no I/O and do not panic on any input.
//!
//! A decoder never writes past the slice it is given, so the caller's declared size bounds every decompression.
//! Contexts that are expensive to create live in [`Contexts`], one per thread, reused from chunk to chunk.
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
pub mod bzip2;
pub mod checksum;
pub mod filter;
pub mod lz4;
pub mod lzma;
pub mod packing;
pub mod raw;
pub mod shuffle;
pub mod stream;
pub mod sz3;
#[cfg(feature = "zfp")]
pub mod zfp;
pub mod zlib;
pub mod zstd;
pub mod zstd_stream;

/// Codec state that is reused between chunks. One per thread.
#[derive(Default)]
pub struct Contexts {
    blosc2: blosc2::BlockBuffers,
    filter: filter::FilterScratch,
    zstd: zstd::ZstdContext,
}

impl std::fmt::Debug for Contexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contexts").finish_non_exhaustive()
    }
}

/// The first `len` bytes of a reusable buffer, which grows when it is too short. A larger buffer is allocated zeroed by the
/// system, so that pages that are never written cost no memory.
///
/// # Errors
/// `Limit` when the allocation fails.
pub fn room(buffer: &mut Vec<u8>, len: usize) -> tesseral_core::Result<&mut [u8]> {
    tesseral_core::alloc::scratch("a buffer", buffer, len)
}
