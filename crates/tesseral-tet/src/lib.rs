//! Tetration `.tet` v1: dense arrays in one file that can be memory-mapped.
//!
//! ```text
//! superblock │ directory │ chunk index │ payloads │ digests? │ zone maps? │ spills? │ footer JSON │ tail
//! ```
//!
//! [`TetFormat`] implements the format traits. Opening reads the start and the end of the file, not the payloads; a
//! memory-mapped index is used in place. [`TetSummary`] lists the content of a file from its bytes:
//!
//! ```
//! use std::sync::Arc;
//! use tesseral_core::{ArraySchema, DType};
//! use tesseral_format::{ArraySpec, ColumnData, CreateOptions, Format, OpenOptions, Request, Scratch};
//! use tesseral_store::{MemoryStore, Store};
//! use tesseral_tet::TetFormat;
//!
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new("demo.tet"));
//!
//! // A 3-cell array in chunks of 2, written …
//! let mut writer = TetFormat.create(Arc::clone(&store), &CreateOptions::default())?;
//! let array = writer.begin(&ArraySpec::raw(ArraySchema::dense("ab", DType::Int16, &[3], &[2])))?;
//! let mut scratch = Scratch::default();
//! for (coords, cells) in [([0], &[1_i16, -2][..]), ([1], &[300][..])] {
//!     let bytes: Vec<u8> = cells.iter().flat_map(|c| c.to_ne_bytes()).collect();
//!     let column = ColumnData::Fixed { values: &bytes, validity: None };
//!     let chunk = writer.encode(array, &coords, &[column], Vec::new(), &mut scratch)?;
//!     writer.push(array, chunk)?;
//! }
//! writer.commit()?;
//!
//! // … and planned: two chunks, each with its byte range.
//! let container = TetFormat.open(store, &OpenOptions::default())?;
//! let array = container.array(container.find("ab")?)?;
//! let all = tesseral_core::Selection::all(&[3]);
//! let plan = tesseral_format::plan(&*array, container.store(), &Request::cells(all, 0))?;
//! assert_eq!(plan.chunks.iter().map(|c| c.stored_bytes()).collect::<Vec<_>>(), [4, 2]);
//! # Ok::<(), tesseral_core::Error>(())
//! ```
//!
//! # Limitations
//! - The format has ten dtypes ([`wire::directory`]), ranks 1 to 8, text attributes and text labels. It has no nulls.
//! - The number of labels of an axis is not limited. The reference supports at most 64: it reads longer lists, but its `verify`
//!   fails, and it does not open a file with such a list in a metadata spill.
//! - Digests are an extension that other readers ignore as unused space ([`wire::digest_region`]).
//! - Packages (`.tet.d`) are opened at their current generation, and written with one generation. Parts of several writers are not
//!   merged.
#![forbid(unsafe_code)]

mod array;
mod audit;
mod decode;
mod format;
mod layout;
mod lookup;
mod open;
mod package;
mod plan;
mod repair;
mod salvage;
mod source;
mod stats;
mod summary;
pub mod wire;
mod write;

/// Identifier of the format.
pub const ID: &str = "tet";

pub use format::TetFormat;
pub use open::TetContainer;
pub use summary::{ChunkSummary, TetSummary, read_tet_summary_v1};
