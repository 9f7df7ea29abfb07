//! On-disk structures. This module does no I/O.

pub mod chunk_table;
pub mod condition;
pub mod consolidated_footers;
pub mod datatype;
pub mod digest_table;
pub mod enumeration;
pub mod footer;
pub mod generic_tile;
pub mod group;
pub mod metadata;
pub mod name;
pub mod pipeline;
pub mod primitive;
pub mod rtree;
pub mod schema;
pub mod section;
pub mod single_tile;
pub mod trailer;

/// The newest supported format version.
pub const NEWEST: u32 = 23;
/// The oldest supported format version.
pub const OLDEST: u32 = 1;
/// File name of the only schema of an array before version 10.
pub const ONLY_SCHEMA: &str = "__array_schema.tdb";

/// Rejects unsupported format versions.
///
/// # Errors
/// `Unsupported`, with the version.
pub fn check_version(version: u32) -> tesseral_core::Result<()> {
    if (OLDEST..=NEWEST).contains(&version) {
        return Ok(());
    }
    Err(tesseral_core::Error::unsupported(format!(
        "TileDB format version {version} (supported: {OLDEST} to {NEWEST})"
    )))
}

/// The format version of new arrays.
pub const WRITTEN: u32 = 22;

/// Rejects format versions that cannot be written: an append keeps the version of the array's schema.
///
/// # Errors
/// `Unsupported`, with the version.
pub fn check_written(version: u32) -> tesseral_core::Result<()> {
    if (FIRST_WRITTEN..=WRITTEN).contains(&version) {
        return Ok(());
    }
    Err(tesseral_core::Error::unsupported(format!(
        "writing TileDB format version {version} (supported: {FIRST_WRITTEN} to {WRITTEN})"
    )))
}

/// The oldest format version that can be written.
const FIRST_WRITTEN: u32 = 12;
