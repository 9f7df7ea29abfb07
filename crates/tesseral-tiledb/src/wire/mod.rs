//! Structures as they lie in the files. Nothing here opens anything.

pub mod condition;
pub mod consolidated_footers;
pub mod cursor;
pub mod datatype;
pub mod digest_table;
pub mod enumeration;
pub mod footer;
pub mod generic_tile;
pub mod group;
pub mod metadata;
pub mod name;
pub mod pipeline;
pub mod rtree;
pub mod schema;
pub mod section;
pub mod trailer;

/// The newest format version that is read.
pub const NEWEST: u32 = 23;
/// The oldest format version that is read.
pub const OLDEST: u32 = 10;

/// Refuses versions outside what is read.
///
/// # Errors
/// `Unsupported`, with the version named.
pub fn check_version(version: u32) -> tesseral_core::Result<()> {
    if (OLDEST..=NEWEST).contains(&version) {
        return Ok(());
    }
    Err(tesseral_core::Error::unsupported(format!(
        "TileDB format version {version}; versions {OLDEST} to {NEWEST} are read"
    )))
}

/// The format version of new arrays.
pub const WRITTEN: u32 = 22;

/// Refuses versions that are not written: an array keeps the version of its schema when it is appended to.
///
/// # Errors
/// `Unsupported`, with the version named.
pub fn check_written(version: u32) -> tesseral_core::Result<()> {
    if (FIRST_WRITTEN..=WRITTEN).contains(&version) {
        return Ok(());
    }
    Err(tesseral_core::Error::unsupported(format!(
        "writing TileDB format version {version}; versions {FIRST_WRITTEN} to {WRITTEN} are written"
    )))
}

/// The oldest format version that is written.
const FIRST_WRITTEN: u32 = 12;
