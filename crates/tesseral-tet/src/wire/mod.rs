//! The structures of a `.tet` file, one file each: byte tables, `parse` and `write`. This module does no I/O.
//!
//! `docs/formats/tet.md` describes them and lists where the reference implementation differs.

pub mod chunk_index;
pub mod digest_region;
pub mod directory;
pub mod footer;
pub mod json;
pub mod metadata;
pub mod secondary_index;
pub mod statistics_region;
pub mod superblock;
pub mod zone_map;

pub use tesseral_core::Cursor;

/// Rounds up to a multiple of 8; `None` if it exceeds `u64`.
pub fn align8(n: u64) -> Option<u64> {
    n.checked_next_multiple_of(8)
}
