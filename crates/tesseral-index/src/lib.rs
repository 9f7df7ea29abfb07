//! Indexes: where the chunks of arrays in other files are, as one dataset that opens without them.
//!
//! ```text
//! header 64 │ chunk table: offset u64, length u64, object u32, flags u32 each │ metadata
//! ```
//!
//! An array consists of [pieces](Piece), each a complete array of a source, joined along a dimension. A [form](ChunkForm) states how
//! the chunks of pieces are decoded: stored cells need nothing, other chunks a *recipe*, a few bytes that the source's format
//! makes of its metadata ([`ArraySource::recipe`](tesseral_format::ArraySource::recipe)). What has no recipe is read through the
//! source's own format, which opens the source when a request touches it.
//!
//! [`IndexFormat`] implements the format interface; [`IndexContent`] is the content of a file. `docs/formats/index.md` has the byte
//! tables.
#![forbid(unsafe_code)]

mod array;
mod attributes;
mod chunk;
mod format;
mod sources;
mod wire;

/// The ID of the format.
pub const ID: &str = "index";

pub use chunk::{ChunkEntry, chunk_form};
pub use format::{FindFormat, IndexFormat};
pub use sources::{SourceState, check_format, relative_path};
pub use wire::{ChunkForm, FormKind, IndexContent, IndexedArray, IndexedSource, Piece, seal};
