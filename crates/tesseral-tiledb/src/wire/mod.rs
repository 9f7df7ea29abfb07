//! Structures as they lie in the files. Nothing here opens anything.

pub mod condition;
pub mod cursor;
pub mod datatype;
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
