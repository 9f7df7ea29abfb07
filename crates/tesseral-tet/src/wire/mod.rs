//! The structures of a `.tet` file, one file each: byte tables, `parse` and `write`. No I/O happens here.
//!
//! `docs/formats/tet.md` describes them in prose and says where the reference implementation departs from them.

pub mod chunk_index;
mod cursor;
pub mod digest_region;
pub mod directory;
pub mod footer;
pub mod json;
pub mod metadata;
pub mod secondary_index;
pub mod superblock;
pub mod zone_map;

pub use cursor::Cursor;

/// The next multiple of 8; `None` beyond `u64`.
pub fn align8(n: u64) -> Option<u64> {
    n.checked_next_multiple_of(8)
}
