//! GRIB files as read-only arrays: the fields of editions 1 and 2, arranged as variables.
//!
//! ```text
//! file:       message │ message │ …, with any bytes between them
//! edition 1:  "GRIB" │ 1 definition │ 2 grid │ 3 bitmap │ 4 values │ "7777"
//! edition 2:  "GRIB" │ 1 identification │ (2 local │ 3 grid │ 4 product │ 5 packing │ 6 bitmap │ 7 values), repeated │ "7777"
//! ```
//!
//! [`GribFormat`] implements the format interface. Opening reads the headers of all messages once. Fields of one parameter form a
//! variable over ensemble members, times, steps and levels, with the names and coordinates of cfgrib; each field is a chunk. Values
//! are doubles, computed as ecCodes does. Points that a bitmap or the packing marks as missing are null.
//!
//! # Limitations
//! - Spherical harmonics, matrices of values and grids other than those of `docs/formats/grib.md` are listed as
//!   unread.
//! - There are no checksums: damage in packed values is detected only where a decoder notices it.
#![forbid(unsafe_code)]

mod array;
mod coordinate;
mod dataset;
mod field;
mod format;
mod grid;
mod packing;
mod parameter;
mod product;
mod scan;
mod wire;

/// The ID of the format.
pub const ID: &str = "grib";

pub use format::GribFormat;
