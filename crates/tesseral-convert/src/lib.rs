//! Conversion of datasets to another format, chunking or dtype ([`convert()`], [`rechunk()`]), comparison ([`diff()`]), and
//! indexes of existing files ([`index()`]).
#![forbid(unsafe_code)]

mod convert;
mod diff;
mod index;
mod rechunk;

pub use convert::{
    Cast, ChunkShape, ConvertOptions, Converted, ConvertedArray, ConvertedField, Fill, Packed, Resume,
    SparseAs, convert, default_chunk, parse_codecs,
};
pub use diff::{DiffOptions, Difference, FirstDifference, MetadataDifference, Side, ValueDifference, diff};
pub use index::{IndexOptions, Join, WrittenIndex, index};
pub use rechunk::rechunk;
