//! Filters of TileDB tiles.
//!
//! A tile is cut into chunks; each chunk went through a list of filters that turn a pair (metadata, data) into another
//! such pair. [`Chain`] walks the list forwards to encode and backwards to decode. One file per filter, `forward` or `encode` beside
//! `reverse` or `decode_into`:
//!
//! ```text
//! pass-through  header ‖ metadata of the filter before, data transformed
//!               bit_width_reduction · positive_delta · bitshuffle · byteshuffle · xor · float_scale · checksum
//! absorbing     metadata and data of the filter before, both inside the new data
//!               gzip · zstd · lz4 · bzip2 · rle · dictionary · delta · double_delta (see compressor) · encryption
//! ```
//!
//! Every size that a header claims is checked against what the chunk may decode to before anything is allocated.

mod bit_width_reduction;
mod bitshuffle;
mod byteshuffle;
mod bzip2;
mod chain;
mod checksum;
mod compressor;
mod delta;
mod dictionary;
mod double_delta;
mod encode;
mod encryption;
mod float_scale;
mod gzip;
mod header;
mod lz4;
mod noop;
mod positive_delta;
mod rle;
#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;
mod xor;
mod zstd;

pub use chain::{Chain, Chunk, Chunks, Rules, Work};

/// What arithmetic an element of a tile has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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
    /// Text and bytes: filters see single bytes.
    Text,
}

/// The elements a filter works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// Bytes of one element.
    pub size: usize,
    /// Its arithmetic.
    pub kind: Kind,
}

impl Word {
    /// Elements of `size` bytes.
    pub fn new(size: usize, kind: Kind) -> Self {
        Self { size: size.max(1), kind }
    }

    /// Bytes of the integers that delta filters compute in.
    fn step(self) -> usize {
        if self.kind == Kind::Text { 1 } else { self.size }
    }
}

/// A level that leaves the choice to the compressor.
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
        /// As libzstd takes it, or [`DEFAULT_LEVEL`].
        level: i32,
    },
    /// LZ4 blocks.
    Lz4 {
        /// Kept for those who read it; blocks are made one way.
        level: i32,
    },
    /// Run lengths of cells, or of strings.
    Rle,
    /// bzip2 streams.
    Bzip2 {
        /// 1 to 9, or [`DEFAULT_LEVEL`].
        level: i32,
    },
    /// Strings by number.
    Dictionary,
    /// Differences of differences, packed.
    DoubleDelta {
        /// Work on these elements instead of the field's.
        reinterpret: Option<Word>,
    },
    /// Differences.
    Delta {
        /// Work on these elements instead of the field's.
        reinterpret: Option<Word>,
    },
    /// Offsets from a window's minimum, in fewer bits.
    BitWidthReduction {
        /// Bytes of a window that a writer makes.
        window: u32,
    },
    /// Bits of equal weight together.
    BitShuffle,
    /// Bytes of equal weight together.
    ByteShuffle,
    /// Steps of a rising sequence.
    PositiveDelta {
        /// Bytes of a window that a writer makes.
        window: u32,
    },
    /// AES-256-GCM.
    Aes256Gcm,
    /// MD5 of the input.
    Md5,
    /// SHA-256 of the input.
    Sha256,
    /// Floats as scaled integers.
    FloatScale {
        /// Factor.
        scale: f64,
        /// Summand.
        offset: f64,
        /// Bytes of the integers.
        width: usize,
    },
    /// Each element XORed with the one before.
    Xor,
    /// Lossy images; not decoded.
    WebP,
}

impl Filter {
    /// Its name, as `info` lists codecs.
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
            Self::WebP => "webp",
        }
    }

    /// The elements of its output, given those of its input.
    fn output(&self, input: Word) -> Word {
        match *self {
            Self::FloatScale { width, .. } => Word::new(width, Kind::Signed),
            Self::Xor => Word::new(input.size, Kind::Signed),
            Self::DoubleDelta { reinterpret } | Self::Delta { reinterpret } => reinterpret.unwrap_or(input),
            _ => input,
        }
    }
}

/// Metadata and data between two filters.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    meta: Vec<u8>,
    data: Vec<u8>,
}

impl Pair {
    fn clear(&mut self) {
        self.meta.clear();
        self.data.clear();
    }
}

/// Room for `len` more bytes, refused when the total would pass what the chunk may take.
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
            format!("{len} more bytes after {start} pass the {cap} that the chunk may take"),
        )),
    }
}
