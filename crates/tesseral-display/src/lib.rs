//! How arrays are shown: values as JSON and text, what is known of an array, and pictures with axes. `tet` and its page use it.
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
