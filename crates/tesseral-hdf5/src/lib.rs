//! HDF5 and NetCDF-4 files, read and written as arrays.
//!
//! ```text
//! file:    superblock │ object headers, heaps, B-trees, chunks …
//! group:   object header ─▶ links: symbol table │ link messages │ fractal heap
//! dataset: object header ─▶ dataspace · datatype · layout · filters · fill value · attributes
//! layout:  compact │ contiguous │ chunks, located by a B-tree, an array or a rule
//! ```
//!
//! [`Hdf5Format`] implements the format interface. The crate `hdf5-reader` parses headers, heaps and chunk indexes, through the
//! store and within a budget (ADR 0027); datatypes, filters and everything above are here. Every dataset is an array, named by its
//! path. Dimension scales give dimensions their names, as in NetCDF-4.
//!
//! | file | content |
//! |---|---|
//! | `file`, `storage` | the parser and its reads |
//! | `links`, `attribute`, `datatype`, `dimension` | members of groups, and what describes a dataset |
//! | `index` | where the chunks of a dataset are |
//! | `header_messages` | flags of object headers: unfiltered chunks, order of attributes |
//! | `filter` | filter pipelines |
//! | `array` | plan and decode |
//! | `mapping`, `virtual_array`, `siblings` | virtual datasets, and other files that hold cells (ADR 0094) |
//! | `write` | NetCDF-4 files, by our own structures (ADR 0036) |
//!
//! # Limitations
//! - References, times, and links to other files are `Unsupported`; they are listed by `unread`.
//! - Virtual datasets and raw files are read in the folder of the file only, and virtual datasets without conversion of datatypes.
//! - Values of variable length are in heaps outside their chunks and are read while a chunk is decoded.
#![forbid(unsafe_code)]

mod array;
mod attribute;
mod dataset;
pub mod datatype;
mod dimension;
mod error;
mod file;
mod filter;
mod format;
mod header_messages;
mod index;
mod links;
mod mapping;
mod open;
mod recipe;
mod siblings;
mod storage;
mod virtual_array;
mod write;

/// The ID of the format.
pub const ID: &str = "hdf5";

pub use filter::decode_filters;
pub use format::Hdf5Format;
pub use mapping::virtual_boxes;
pub use write::NetCdf4Options;
