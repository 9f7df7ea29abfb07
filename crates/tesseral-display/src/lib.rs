//! Presentation of arrays: values as JSON and text, descriptions of arrays, and pictures with axes, for `tet` and the page of
//! `tet serve`.
#![forbid(unsafe_code)]

pub mod document;
pub mod json;
pub mod picture;
pub mod statistic;
pub mod text;

mod cell;
mod summary;

pub use cell::{coordinate, csv_head, csv_row, dim_field, dim_name, field_of, write_cell};
pub use summary::{ArraySummary, ChunkRow};
