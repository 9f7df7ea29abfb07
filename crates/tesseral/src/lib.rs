//! One engine for tiled N-dimensional arrays, whatever the format.
//!
//! ```
//! # fn main() -> Result<(), tesseral::Error> {
//! # let folder = std::env::temp_dir().join(format!("tesseral-doc-{}", std::process::id()));
//! # let path = folder.join("ocean.tet");
//! use tesseral::{ArraySchema, ArraySpec, Create, DType, Wanted};
//!
//! // Write: declare arrays, fill them chunk by chunk, commit. Nothing is visible before the commit.
//! let mut session = Create::new().begin(&path, "tet")?;
//! let sst = session.add(&ArraySpec::raw(ArraySchema::dense("sst", DType::Float32, &[4, 6], &[2, 3])))?;
//! session.fill(sst, |region, cells| {
//!     for (i, cell) in cells.chunks_exact_mut(4).enumerate() {
//!         let value = region.start(0) as f32 * 10.0 + i as f32;
//!         cell.copy_from_slice(&value.to_ne_bytes());
//!     }
//!     Ok(())
//! })?;
//! session.commit()?;
//!
//! // Read: any format, recognised by content.
//! let container = tesseral::open(&path)?;
//! let array = container.array("sst")?;
//! let window = array.read(&array.select(["0=1:3", "1=::2"])?)?;
//! assert_eq!(window.shape, [2, 3]);
//! assert_eq!(array.summary(&array.all()?, Wanted::ALL)?.count(), 24);
//! # std::fs::remove_dir_all(folder).ok();
//! # Ok(())
//! # }
//! ```
//!
//! # Concepts
//! A [`Container`] is an opened file or folder; it holds [arrays](Array). A [`Selection`] says which cells; [`Array::select`]
//! reads one from text. Errors carry a [kind](ErrorKind), the place, and what to try.
#![forbid(unsafe_code)]

mod advise;
mod append;
mod array;
mod as_of;
mod cells;
mod container;
mod convert;
mod create;
mod declare;
mod diff;
mod filter;
mod output;
mod overview;
pub mod query;
mod rechunk;
mod recover;
mod registry;
mod repair;
mod select;
mod variable;

pub use advise::{Advice, ReadCost, advise};
pub use append::{Append, condition, edit};
pub use array::Array;
pub use as_of::as_of;
pub use cells::CellQuery;
pub use container::{Container, Open, local, open};
pub use convert::{
    Cast, ChunkShape, ConvertOptions, Converted, ConvertedArray, ConvertedField, Fill, Packed, Resume,
    SparseAs, convert, default_chunk, parse_codecs,
};
pub use create::{ArrayId, Create, Session};
pub use declare::declared_field;
pub use diff::{DiffOptions, Difference, FirstDifference, Note, Side, ValueDifference, diff};
pub use output::{Output, StagedOutput};
pub use overview::{Overview, Point, overview};
pub use rechunk::rechunk;
pub use recover::recover;
pub use registry::{FORMATS, format, of_output, recognise};
pub use repair::{apply_repair, repairs};
pub use tesseral_core::{
    self as core, ArraySchema, Attributes, CellLen, ChunkGrid, ChunkStats, DType, Dimension, Element, Error,
    ErrorKind, Field, Finding, HistoryRow, Limits, Order, Region, Result, Scalar, Selection, Severity, Slice,
    Value,
};
pub use tesseral_engine::{
    self as engine, Arrival, Cancel, CellBatch, CellOrder, CellStream, Cells, Dense, Options, Progress,
    Reduced,
    kernel::summary::{Summary, Wanted},
};
pub use tesseral_format::{
    AppendOptions, ArraySpec, AuditOptions, Change, ChunkInfo, CodecSpec, Column, ColumnData, Conflict,
    Consolidate, Consolidated, CoordinateRanges, Cover, CreateOptions, Depth, Edit, EditPart, Format,
    MemoryBudget, MessageChange, MessageFile, MessageFormat, MessageInfo, NonEmpty, OpenOptions,
    PlannedChunk, Repair, Request, Target, TimeRange, Totals, TruncatedTail, Vacuumed, Version, VersionState,
    Where, append_messages,
};
pub use tesseral_store::{self as store, Overwrite};
/// Messages of tensors: encode, decode, scan, stream and validate `.tgm` without the engine.
pub use tesseral_tensogram as tensogram;
