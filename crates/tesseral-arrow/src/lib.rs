//! Arrow IPC files (Feather version 2) and streams as arrays, one per column.
//!
//! ```text
//! file:    ARROW1 │ schema │ dictionaries │ record batch │ … │ footer: schema, where each batch is │ ARROW1
//! stream:           schema │ dictionaries │ record batch │ …
//! batch:   length of the metadata │ metadata: rows, nulls of each array, where each buffer is │ buffers
//! ```
//!
//! [`ArrowFormat`] implements the format interface. A column is an array of one dimension, `row`; a record batch is a chunk.
//! Columns of numbers that are not compressed are read in place. Metadata are FlatBuffers, verified by the crate `flatbuffers`
//! and described by the tables of `arrow-ipc`; its readers, which build Arrow arrays, are not used.
//!
//! | file | content |
//! |---|---|
//! | `kind` | types of columns, in both directions |
//! | `schema` | columns of a schema, and the buffers of each |
//! | `batch` | metadata of record batches |
//! | `table` | files and streams |
//! | `decode` | buffers to cells |
//! | `array` | plan and decode |
//! | `write` | record batches as chunks come |
#![forbid(unsafe_code)]

mod array;
mod batch;
mod decode;
mod format;
mod kind;
mod schema;
mod table;
mod write;

/// The ID of the format.
pub const ID: &str = "arrow";

pub use format::ArrowFormat;
