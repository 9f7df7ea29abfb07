//! Tetration `.tet` v1: many dense arrays in one file that can be mapped.
//!
//! ```text
//! superblock │ directory │ chunk index │ payloads │ digests? │ zone maps? │ spills? │ footer JSON │ tail
//! ```
//!
//! [`TetFormat`] is what the engine talks to. Opening reads the two ends of the file and never a payload; a mapped index
//! is used where it lies. [`Summary`] is the short way to what a file holds when its bytes are at hand:
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
//! // … and planned: two chunks, each with the place of its bytes.
//! let container = TetFormat.open(store, &OpenOptions::default())?;
//! let array = container.array(container.find("ab")?)?;
//! let all = tesseral_core::Selection::all(&[3]);
//! let plan = array.plan(&Request::cells(all, 0))?;
//! assert_eq!(plan.chunks.iter().map(|c| c.stored_bytes()).collect::<Vec<_>>(), [4, 2]);
//! # Ok::<(), tesseral_core::Error>(())
//! ```
//!
//! # Edges
//! - The format holds ten dtypes ([`wire::directory`]), ranks 1 to 8, text attributes, text labels, no nulls of its own.
//! - An axis may have any number of labels. The reference takes no more than 64: it reads longer lists, its `verify` fails
//!   on them, and it does not open a file whose metadata is so long that it lies in a spill and has such a list.
//! - Digests are ours: other readers take them for unused space ([`wire::digest_region`]).
//! - Packages (`.tet.d`) are opened at their current generation and not written.
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

/// The id of the format.
pub const ID: &str = "tet";

pub use format::TetFormat;
pub use open::TetContainer;
pub use summary::{ChunkSummary, Summary, read_tet_summary_v1};
