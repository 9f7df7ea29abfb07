//! The traits that a format implements so that the engine can read and write it.
//!
//! A format provides four operations and never reads payloads itself: the content of a source ([`ContainerSource`]), the chunks that
//! serve a request and their byte ranges ([`ArraySource::plan`]), statistics of chunks without reading them
//! ([`ArraySource::stats`]), and decoding of bytes into cells ([`ArraySource::decode`]). The engine does all fetching, caching,
//! threading, memory limits, layering, filling and reducing.
//!
//! ```text
//! Format ──open──▶ Container ──array──▶ ArraySource ──plan──▶ Needs(metadata) ──(engine fetches)──▶ plan again
//!                                                         └▶ Ready(ChunkPlan) ─(engine fetches)──▶ decode into a column
//!        ──create─▶ Writer: begin arrays · encode chunks (pure, parallel) · push · commit
//! ```
#![forbid(unsafe_code)]

mod cell_keys;
mod cells_out;
mod column;
mod computed;
mod container;
mod contiguous;
pub mod convention;
mod create_options;
mod digest;
mod edit;
mod format;
mod hierarchy;
mod messages;
mod plan;
mod request;
mod source;
mod source_layer;
pub mod table;
mod versioned;
mod workers;
mod writer;
mod written_chunks;

pub use cell_keys::{CellKey, CellKeys, DuplicatePolicy};
pub use cells_out::CellsOut;
pub use column::{Column, ColumnData, ColumnMut, KEPT, Scratch, UNWRITTEN};
pub use computed::{ComputedArray, ComputedCells};
pub use container::{ContainerPart, ContainerSource, Groups, MemoryBudget, Version, VersionState};
pub use contiguous::{CONTIGUOUS_CHUNK, contiguous_chunk_shape, contiguous_runs, first_cell};
pub use create_options::{
    CreateOption, CreateOptions, DeclaredLabel, Domains, FormatOptions, OptionInfo, OptionSet, OptionTable,
    OptionType,
};
pub use digest::{BlockHasher, Digest, DigestBlock, DigestSpan, DigestSpans};
pub use edit::{Change, Consolidate, Consolidated, Edit, MaintenancePart, Vacuumed};
pub use format::{
    AppendOptions, AuditOptions, AuditReport, Capabilities, Depth, Format, OpenOptions, Probe, Repair,
    Salvage, Sniff, TimeRange, file_stem,
};
pub use hierarchy::{check_paths, groups_around};
pub use messages::{
    Conflict, MessageChange, MessageFile, MessageFormat, MessageInfo, MessagePredicate, TruncatedTail,
    append_messages,
};
pub use plan::{
    Access, ChunkPlan, Cover, Delete, Part, Planned, PlannedChunk, Role, Uncovered, plan, plan_from,
};
pub use request::{CoordinateRanges, Request, Target};
pub use source::{ArraySource, CellFault, ChunkInfo, ImpliedBytes, NonEmpty, StoredForm, Totals};
pub use source_layer::SourceLayer;
pub use tesseral_codec::Contexts;
pub use tesseral_core as core;
pub use tesseral_store as store;
pub use versioned::Versioned;
pub use workers::Workers;
pub use writer::{
    ArraySpec, CodecSpec, EncodedChunk, EncodedPart, Pending, StoredChunk, Writer, check_unique,
    publish_shared,
};
pub use written_chunks::{WrittenChunks, to_little_endian};
