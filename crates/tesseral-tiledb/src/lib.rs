//! TileDB arrays: dense and sparse arrays in versioned fragments.
//!
//! ```text
//! ARRAY/__schema/…          schemas, one file per version of the schema
//! ARRAY/__fragments/NAME/   one write each: a file per field, and its metadata
//! ARRAY/__commits/          which fragments count, which are replaced, which cells were deleted
//! ARRAY/__meta/             attributes
//! ```
//!
//! [`TileDbFormat`] is what the engine talks to. Opening lists the commits and reads schemas and attributes; footers of
//! fragments are read when a plan first needs them, many at once, the rest of a fragment's metadata then field by field. Each fragment is a layer: where the boxes
//! of two fragments meet, the later one wins.
//!
//! # Edges
//! - Versions 10 to 23 are read; new arrays are of version 22, appends keep the version of the array's schema.
//! - The filter `webp` is neither read nor written.
#![forbid(unsafe_code)]

mod array;
mod audit;
mod chunk_table;
mod contents;
mod convention;
mod decode;
mod deletes;
mod details;
mod directory;
mod format;
mod fragment;
mod fragments;
mod frame;
mod geometry;
mod global_order;
mod group;
mod model;
mod open;
mod pieces;
mod plan;
mod reader;
mod repair;
mod salvage;
mod sparse;
mod stats;
mod versions;
pub mod wire;
mod write;

/// The id of the format.
pub const ID: &str = "tiledb";

pub use format::TileDbFormat;
pub use open::TileDbContainer;
