//! The data model that all Tesseral crates share. No I/O, no `unsafe`.
//!
//! An *array* has [dimensions](schema::Dimension) and [fields](schema::Field); its cells are stored in *chunks* that tile the
//! index space along a [`ChunkGrid`]. Positions are `u64`, counted from the start of the array in all formats; a half-open box
//! of positions is a [`Region`], a box with steps a [`Selection`]. [`ChunkStats`] are statistics of a chunk that are known
//! without reading it, each with its [exactness](Stat).
//!
//! ```
//! use tesseral_core::{ChunkGrid, Region};
//!
//! // A 3×5 array in 2×2 chunks: six chunks, the ones at the edge clipped.
//! let grid = ChunkGrid::new(&[3, 5], &[2, 2])?;
//! assert_eq!(grid.total(), 6);
//! assert_eq!(grid.region(&[1, 2]), Region::new([(2, 3), (4, 5)]));
//! # Ok::<(), tesseral_core::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod advice;
pub mod alloc;
pub mod calendar;
pub mod cancel;
pub mod condition;
mod cursor;
pub mod description;
pub mod dtype;
pub mod element;
pub mod error;
mod escape;
pub mod finding;
pub mod grid;
pub mod limits;
pub mod metadata;
mod metadata_cost;
pub mod missing;
pub mod numpy;
pub mod packing;
pub mod region;
pub mod scalar;
pub mod schema;
pub mod selection;
pub mod stats;
pub mod time;

pub use advice::Advice;
pub use cancel::{Cancel, CancelCall};
pub use cursor::Cursor;
pub use dtype::{DType, TimeUnit};
pub use element::Element;
pub use error::{Error, ErrorKind, Result};
pub use escape::{escape, escape_json, file_name_part};
pub use finding::{Finding, Severity};
pub use grid::{ChunkGrid, TouchedChunk};
pub use limits::Limits;
pub use metadata::{Attributes, HistoryRow, Value};
pub use metadata_cost::{CountedValues, MetadataCost};
pub use region::{Coords, Region};
pub use scalar::Scalar;
pub use schema::{ArraySchema, CellLen, Dimension, Field, Order};
pub use selection::{Selection, Slice};
pub use stats::{ChunkStats, Stat, Sum};
