//! What a format must answer so that the engine can read and write it.
//!
//! A format answers four questions and never reads payloads itself: what is in here ([`Container`]), which chunks serve
//! this request and where are their bytes ([`ArraySource::plan`]), what is known of those chunks without reading them
//! ([`ArraySource::stats`]), and turn these bytes into cells, there ([`ArraySource::decode`]). Fetching, caching,
//! threads, memory limits, overlaying, filling and reducing are the engine's.
//!
//! ```text
//! Format ──open──▶ Container ──array──▶ ArraySource ──plan──▶ ChunkPlan ──(engine fetches)──▶ decode into a column
//!        ──create─▶ Writer: begin arrays · encode chunks (pure, parallel) · push · commit
//! ```
#![forbid(unsafe_code)]

mod cell_keys;
mod column;
#[cfg(feature = "testing")]
pub mod conformance;
mod container;
mod edit;
mod format;
mod messages;
#[cfg(feature = "testing")]
pub mod oracle;
mod plan;
mod request;
mod source;
#[cfg(feature = "testing")]
pub mod testing;
mod writer;

pub use cell_keys::{CellKey, CellKeys, Twice};
pub use column::{Column, ColumnData, ColumnMut, KEPT, Scratch, UNWRITTEN};
pub use container::{Container, MemoryBudget, Version, VersionState};
pub use edit::{Change, Consolidate, Consolidated, Edit, Part as EditPart, Vacuumed};
pub use format::{
    AppendOptions, AuditOptions, AuditReport, Capabilities, CreateOptions, Depth, Format, OpenOptions, Probe,
    Repair, Salvage, Sniff, TimeRange,
};
pub use messages::{
    Conflict, MessageChange, MessageFile, MessageFormat, MessageInfo, TruncatedTail, Where, append_messages,
};
pub use plan::{Access, ChunkPlan, Cover, Delete, Part, PlannedChunk, Role, Uncovered};
pub use request::{CoordinateRanges, Request, Target};
pub use source::{
    ArraySource, ChunkInfo, Digest, DigestSpan, DigestSpans, ImpliedBytes, NonEmpty, StoredForm, Totals,
};
pub use tesseral_codec::Contexts;
pub use tesseral_core as core;
pub use tesseral_store as store;
pub use writer::{ArraySpec, CodecSpec, EncodedChunk, EncodedPart, Pending, StoredChunk, Writer};
