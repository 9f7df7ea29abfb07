//! One engine for tiled N-dimensional arrays of several formats.
//!
//! ```
//! # fn main() -> Result<(), tesseral::Error> {
//! # let folder = std::env::temp_dir().join(format!("tesseral-doc-{}", std::process::id()));
//! # let path = folder.join("ocean.tet");
//! use tesseral::{ArraySchema, ArraySpec, Create, DType, StatSet};
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
//! // Read: any format, detected by content.
//! let container = tesseral::open(&path)?;
//! let array = container.array("sst")?;
//! let window = array.read(&array.select(["0=1:3", "1=::2"])?)?;
//! assert_eq!(window.shape, [2, 3]);
//! assert_eq!(array.summary(&array.all()?, StatSet::ALL)?.count(), 24);
//! # std::fs::remove_dir_all(folder).ok();
//! # Ok(())
//! # }
//! ```
//!
//! # Concepts
//! A [`Container`] is an opened file or folder with [arrays](Array). A [`Selection`] selects cells; [`Array::select`] parses
//! one from text. Errors have a [kind](ErrorKind), a location, and a hint.
//!
//! # Cargo features
//! One per format, named by its id and on by default, and `remote` for object stores. [`formats`] lists those of the build.
//! `ndarray`, off by default, adds `Array::read_as` and `Session::write_array` for arrays of that crate.
//!
//! # Examples
//! One for each task is in `crates/tesseral/examples`: `list_dataset`, `read_window`, `select_typed`, `statistics`, `coldest_day`,
//! `write_large`, `npy_to_tet`, `convert_dataset`, `read_async`, `answer_queries`.
#![forbid(unsafe_code)]

pub use tesseral_convert::{
    Cast, ChunkShape, ConvertOptions, Converted, ConvertedArray, ConvertedField, DiffOptions, Difference,
    Fill, FirstDifference, IndexOptions, Join, MetadataDifference, Packed, Resume, Side, SparseAs,
    ValueDifference, WrittenIndex, convert, default_chunk, diff, index, parse_codecs, rechunk,
};
pub use tesseral_core::condition::Condition;
pub use tesseral_core::dtype::Class;
pub use tesseral_core::numpy;
pub use tesseral_core::schema::{Enumeration, Labels};
pub use tesseral_core::{
    Advice, ArraySchema, Attributes, CellLen, ChunkGrid, ChunkStats, Coords, DType, Dimension, Element,
    Error, ErrorKind, Field, Finding, HistoryRow, Limits, Order, Region, Result, Scalar, Selection, Severity,
    Slice, Stat, Sum, TimeUnit, Value,
};
pub use tesseral_dataset::{
    AnswerAxis, Append, Array, ArrayId, Asked, AsyncResult, AsyncResults, CellQuery, ChunkAdvice, Container,
    CoordinateRange, CopiedDataset, Create, Open, Output, Overview, Point, PositionRange, ReadCost, Rolling,
    SelectedCells, Session, StagedOutput, StatisticsQuery, TimeGroups, Variable, Variables, advise,
    apply_repair, as_of, condition, copy_dataset, declared_field, edit, edit_store, open, overview,
    overview_within, recover, remove_unfinished, repairs, unfinished,
};
pub use tesseral_engine::{
    Blocks, Buffer, Cancel, CellBatch, CellOrder, CellStream, Cells, Dense, Explained, InputOrder, Options,
    PlannedReads, Progress, RechunkPlan, Recovered, Reduced, Summarized, TransferMethod, Verified, verify,
    verify_to,
};
pub use tesseral_engine::{StatSet, Summary};
pub use tesseral_format::convention::{self, TextExtent};
pub use tesseral_format::{
    AppendOptions, ArraySpec, AuditOptions, Capabilities, Change, ChunkInfo, CodecSpec, Column, ColumnData,
    Conflict, Consolidate, Consolidated, CoordinateRanges, Cover, CreateOptions, Depth, Edit, Format,
    FormatOptions, Groups, MaintenancePart, MemoryBudget, MessageChange, MessageFile, MessageFormat,
    MessageInfo, MessagePredicate, NonEmpty, OpenOptions, OptionInfo, OptionSet, PlannedChunk, Repair,
    Request, Target, TimeRange, Totals, TruncatedTail, Vacuumed, Version, VersionState, Versioned,
    append_messages,
};
pub use tesseral_registry::{check_named, format, formats, of_output, recognize, register};
pub use tesseral_store::{Durability, Overwrite};

pub mod query {
    //! Query documents in JSON and TOML: [`Document::parse`] validates one, [`Plan::new`] resolves it against an array,
    //! [`Plan::run`] executes it.
    pub use tesseral_query::{
        Answer, AxisRange, AxisToken, Detail, Document, Edge, Execution, FilterClause, GroupBy, GroupedBy,
        Job, LabelFilter, Method, Operation, Pad, Plan, QueryOptions, QueryOutcome, Reduction, Results,
        WindowClause, WindowMode, WriteClause, WriteTarget, Written, find, report, to_json,
    };
}

pub mod fold {
    //! Statistics by name and their results: [`Array::reduction`](crate::Array::reduction) computes them.
    pub use tesseral_engine::fold::{
        Answer, Answers, BinRange, Finish, FloatAnswers, FloatColumn, Histogram, Job, Number, OfTimes,
        Results, Statistic,
    };
}

pub mod store {
    //! Byte stores. [`Open::open_store`](crate::Open::open_store) reads from any [`Store`].
    #[cfg(feature = "remote")]
    pub use tesseral_store::RemoteStore;
    pub use tesseral_store::{
        ByteRange, Bytes, CacheFolder, LocalStore, Location, MemoryStore, ObjectInfo, ObjectKind, Profile,
        ReadMode, Staged, StorageOptions, Store, StoreExt, Traffic, Upcoming,
    };
}
