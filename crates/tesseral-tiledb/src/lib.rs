//! TileDB arrays: dense and sparse arrays in versioned fragments.
//!
//! ```text
//! ARRAY/__schema/…          schemas, one file per version of the schema
//! ARRAY/__fragments/NAME/   one write each: a file per field, and its metadata
//! ARRAY/__commits/          committed and replaced fragments, deletes
//! ARRAY/__meta/             attributes
//! ```
//!
//! [`TileDbFormat`] implements the format traits. Opening lists the commits and reads schemas and attributes. Footers of
//! fragments are read in one batch when first needed, other metadata field by field. Each fragment is a layer: where fragments
//! overlap, the later one wins.
//!
//! # Limitations
//! - Format versions 1 to 23 are read. New arrays have version 22; appends keep the version of the array's schema.
//! - Tiles of the filter `webp` are read and not written. Sparse fragments of dense arrays (versions 1 to 4) are not supported.
#![forbid(unsafe_code)]

mod array;
mod array_store;
mod audit;
mod box_index;
mod chunk_tables;
mod contents;
mod convention;
mod decode;
mod deletes;
mod details;
mod directory;
mod format;
mod fragment;
mod fragments;
mod geometry;
mod global_order;
mod group;
mod label;
mod metadata_loader;
mod model;
mod open;
mod outline;
mod padded_tile;
mod plan;
mod portion;
mod repair;
mod salvage;
mod scatter;
mod sparse;
mod stats;
mod versions;
pub mod wire;
mod write;

/// Identifier of the format.
pub const ID: &str = "tiledb";

pub use format::TileDbFormat;
pub use open::TileDbContainer;
pub use write::TileDbCreateOptions;
