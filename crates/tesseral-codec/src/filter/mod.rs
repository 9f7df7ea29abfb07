//! TileDB tile filters.
//!
//! A tile is divided into chunks; each chunk passes through a pipeline of filters that map a pair (metadata, data) to another
//! such pair. [`Chain`] applies the pipeline forwards to encode and backwards to decode. One file per filter, `forward` or
//! `encode` beside `reverse` or `decode_into`:
//!
//! ```text
//! pass-through  header ‖ metadata of the preceding filter, data transformed
//!               bit_width_reduction · positive_delta · bitshuffle · byteshuffle · xor · float_scale · checksum · webp
//! absorbing     metadata and data of the preceding filter, both inside the new data
//!               gzip · zstd · lz4 · bzip2 · rle · dictionary · delta · double_delta (see compressor) · encryption
//! ```
//!
//! Every size in a header is checked against the maximum decoded size of the chunk before anything is allocated.

mod bit_width_reduction;
mod bitshuffle;
mod byteshuffle;
mod chain;
mod checksum;
mod compressor;
mod delta;
mod dictionary;
mod double_delta;
mod encode;
mod encryption;
mod float_scale;
mod header;
mod lz4;
mod noop;
mod positive_delta;
mod rle;
#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;
mod webp;
mod xor;
mod zstd;

use crate::{bzip2, zlib as gzip};

pub use chain::{Chain, Chunks, FilterContext, FilterScratch, FilteredChunk};
pub use webp::WebPChannels;

/// The arithmetic type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementKind {
    /// Signed integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Floats.
    Float,
    /// Dates and durations: signed integers of 8 bytes.
    Time,
    /// Bools of one byte.
    Bool,
    /// Text and bytes: filters process single bytes.
    Text,
}

/// The element type a filter works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterElement {
    /// Bytes of one element.
    pub size: usize,
    /// Arithmetic type.
    pub kind: ElementKind,
}

impl FilterElement {
    /// An element type of `size` bytes.
    pub fn new(size: usize, kind: ElementKind) -> Self {
        Self { size: size.max(1), kind }
    }

    /// The integer size that delta filters compute in.
    fn step(self) -> usize {
        if self.kind == ElementKind::Text { 1 } else { self.size }
    }
}

/// The compressor's default level.
pub const DEFAULT_LEVEL: i32 = -1;

/// A filter with its options.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Filter {
    /// Does nothing.
    Noop,
    /// zlib streams.
    Gzip {
        /// 0 to 9, or [`DEFAULT_LEVEL`].
        level: i32,
    },
    /// Zstandard frames.
    Zstd {
        /// A libzstd level, or [`DEFAULT_LEVEL`].
        level: i32,
    },
    /// LZ4 blocks.
    Lz4 {
        /// Stored for readers; the encoder ignores it.
        level: i32,
    },
    /// Run lengths of cells or strings.
    Rle,
    /// bzip2 streams.
    Bzip2 {
        /// 1 to 9, or [`DEFAULT_LEVEL`].
        level: i32,
    },
    /// Dictionary-encoded strings.
    Dictionary,
    /// Second differences, bit-packed.
    DoubleDelta {
        /// Element type that replaces the field's.
        reinterpret: Option<FilterElement>,
    },
    /// Differences.
    Delta {
        /// Element type that replaces the field's.
        reinterpret: Option<FilterElement>,
    },
    /// Offsets from a window's minimum in fewer bits.
    BitWidthReduction {
        /// Maximum window size of the encoder, in bytes.
        window: u32,
    },
    /// Bit shuffle.
    BitShuffle,
    /// Byte shuffle.
    ByteShuffle,
    /// Differences of an increasing sequence.
    PositiveDelta {
        /// Maximum window size of the encoder, in bytes.
        window: u32,
    },
    /// AES-256-GCM.
    Aes256Gcm,
    /// MD5 checksum of the input.
    Md5,
    /// SHA-256 checksum of the input.
    Sha256,
    /// Floats as scaled integers.
    FloatScale {
        /// Multiplier of the stored integers.
        scale: f64,
        /// Offset added after scaling.
        offset: f64,
        /// Size of the stored integers in bytes.
        width: usize,
    },
    /// XOR of each element with its predecessor.
    Xor,
    /// WebP images, which are decoded and not encoded.
    WebP {
        /// Order of the channels of a pixel.
        channels: WebPChannels,
        /// Quality of lossy images, 0 to 100.
        quality: f32,
        /// Whether images are lossless.
        lossless: bool,
        /// Tile extents of the two dimensions.
        extents: [u16; 2],
    },
}

impl Filter {
    /// The filter name in schema reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Gzip { .. } => "gzip",
            Self::Zstd { .. } => "zstd",
            Self::Lz4 { .. } => "lz4",
            Self::Rle => "rle",
            Self::Bzip2 { .. } => "bzip2",
            Self::Dictionary => "dictionary",
            Self::DoubleDelta { .. } => "double_delta",
            Self::Delta { .. } => "delta",
            Self::BitWidthReduction { .. } => "bit_width_reduction",
            Self::BitShuffle => "bitshuffle",
            Self::ByteShuffle => "byteshuffle",
            Self::PositiveDelta { .. } => "positive_delta",
            Self::Aes256Gcm => "aes_256_gcm",
            Self::Md5 => "checksum_md5",
            Self::Sha256 => "checksum_sha256",
            Self::FloatScale { .. } => "float_scale",
            Self::Xor => "xor",
            Self::WebP { .. } => "webp",
        }
    }

    /// The element type of its output, given that of its input.
    fn output(&self, input: FilterElement) -> FilterElement {
        match *self {
            Self::FloatScale { width, .. } => FilterElement::new(width, ElementKind::Signed),
            Self::Xor => FilterElement::new(input.size, ElementKind::Signed),
            Self::DoubleDelta { reinterpret } | Self::Delta { reinterpret } => reinterpret.unwrap_or(input),
            _ => input,
        }
    }
}

/// Metadata and data between two filters.
#[derive(Debug, Default)]
pub(crate) struct FilterBuffers {
    meta: Vec<u8>,
    data: Vec<u8>,
}

impl FilterBuffers {
    fn clear(&mut self) {
        self.meta.clear();
        self.data.clear();
    }
}

/// Appends `len` zeroed bytes; an error when the total would exceed the limit of the chunk.
fn grow<'a>(
    out: &'a mut Vec<u8>,
    len: usize,
    cap: usize,
    filter: &'static str,
) -> tesseral_core::Result<&'a mut [u8]> {
    let start = out.len();
    match start.checked_add(len) {
        Some(end) if end <= cap => {
            out.resize(end, 0);
            Ok(&mut out[start..])
        }
        _ => Err(tesseral_core::Error::codec(
            filter,
            format!("output of {start} + {len} bytes exceeds the {cap} bytes allowed for the chunk"),
        )),
    }
}
