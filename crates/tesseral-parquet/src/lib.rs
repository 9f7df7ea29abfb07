//! Parquet tables as arrays.
//!
//! ```text
//! file:   PAR1 │ column chunk │ column chunk … │ metadata │ length │ PAR1
//! arrays: one per column, over the dimension `row`; a row group is a chunk
//! ```
//!
//! [`ParquetFormat`] implements the format interface on top of the crate `parquet`. Its parsers trust some of the lengths that they
//! read, so metadata and page headers are walked here first (ADR 0052).
//!
//! | file | content |
//! |---|---|
//! | `thrift` | the walk over metadata and page headers |
//! | `kind` | types of columns |
//! | `table` | metadata of a file |
//! | `encoding`, `decode` | pages to values, and values to cells |
//! | `array`, `format` | the traits |
//! | `write` | writing of tables |
#![forbid(unsafe_code)]

mod array;
mod decode;
mod encoding;
mod format;
mod kind;
mod table;
mod thrift;
mod write;

/// The ID of the format.
pub const ID: &str = "parquet";

pub use format::ParquetFormat;
