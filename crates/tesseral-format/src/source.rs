//! One array, as the engine sees it.

use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;
use tesseral_core::{ArraySchema, ChunkStats, Coords, Error, Result, Scalar};

use crate::{ChunkPlan, Column, ColumnMut, PlannedChunk, Request, Scratch};

/// What `info --chunks` tells of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Grid coordinates, or for formats without a grid whatever numbers name the chunk.
    pub coords: Coords,
    /// Bytes once decoded.
    pub raw_len: u64,
    /// Bytes as stored.
    pub stored_len: u64,
    /// Codecs, as the format names them.
    pub codec: String,
    /// Where the stored bytes begin.
    pub offset: u64,
}

/// The smallest range of coordinates along each dimension that holds every cell.
pub type NonEmpty = Vec<(Scalar, Scalar)>;

/// What the chunks of an array are all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// How many there are.
    pub chunks: u64,
    /// Bytes they take as stored.
    pub stored_bytes: u64,
}

/// A digest that a format carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Digest {
    /// XXH3-64 with seed 0.
    Xxh3(u64),
}

/// Stored bytes and what they must hash to. The span holds at least the chunk's parts in that object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestSpan {
    /// The object, as [`ArraySource::object`] numbers them.
    pub object: u32,
    /// The bytes covered.
    pub range: Range<u64>,
    /// What they must hash to.
    pub digest: Digest,
}

/// A form of stored cells that several formats have: what one stored, another can take over as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredForm {
    /// Zstandard frames of the cells of the whole chunk, row-major, little-endian, back to back, and nothing else.
    Zstd,
}

/// An array: its schema, its chunks, how to decode them. Cheap to share between threads.
///
/// Nothing here reads payloads. Metadata may be loaded lazily through the container's store.
pub trait ArraySource: Debug + Send + Sync {
    /// What the array is.
    fn schema(&self) -> &ArraySchema;

    /// The name of an object that parts refer to.
    fn object(&self, number: u32) -> &str;

    /// The chunks that serve a request. Costs no more than a small multiple of their number.
    ///
    /// # Errors
    /// `Corrupt` when a chunk that must be there is missing or contradicts the schema; `Limit`; `InvalidRequest`.
    fn plan(&self, request: &Request) -> Result<ChunkPlan>;

    /// All chunks together. Formats that know it without a plan say so without one.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    fn totals(&self, everything: &Request) -> Result<Totals> {
        let plan = self.plan(everything)?;
        Ok(Totals { chunks: plan.chunks.len() as u64, stored_bytes: plan.stored_bytes() })
    }

    /// The smallest range of coordinates along each dimension that holds every cell, for formats that know it; `Some(None)`
    /// for an array without cells.
    ///
    /// # Errors
    /// Whatever loading metadata meets.
    fn non_empty_domain(&self) -> Result<Option<Option<NonEmpty>>> {
        Ok(None)
    }

    /// What is known of a chunk's column without reading it.
    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats;

    /// The one cell, in this machine's byte order, that every cell of a chunk's column equals, where the metadata alone say so. Such a
    /// chunk is checked and aggregated without decoding its cells, however many there are.
    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        let _ = (chunk, column);
        None
    }

    /// The chunk in the format's own words.
    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo;

    /// The digest over the chunk's stored bytes, when the format carries one outside its codecs.
    fn digest(&self, chunk: &PlannedChunk) -> Option<DigestSpan>;

    /// The name of the check that a chunk fails when reading it meets an error.
    fn check_of(&self, error: &Error) -> &'static str {
        let _ = error;
        "chunk_decode"
    }

    /// Stored bytes of a chunk that a checksum among its codecs covers: decoding compares it.
    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        let _ = chunk;
        0
    }

    /// The common form of a chunk's only part, where it is one: a writer that stores the same may take the bytes over.
    fn stored_form(&self, chunk: &PlannedChunk) -> Option<StoredForm> {
        let _ = chunk;
        None
    }

    /// Names of attributes that only repeat what the schema says of dimensions and labels. Another format says it in its own
    /// way, so they are not carried over.
    fn restated(&self) -> &[&str] {
        &[]
    }

    /// Decodes cells of one column. `parts` are the bytes of the chunk's parts of that column, in order; `cells` is a
    /// run of the tile in the schema's cell order: all of it, unless `access` names a granule. Works on
    /// [`Access::Direct`](crate::Access::Direct) chunks too, with the outcome that `access` promises.
    ///
    /// Runs on any thread, writes only to `out`, never panics on any bytes, and either fills `out` or fails.
    ///
    /// # Errors
    /// `Corrupt`, `Codec`, `Unsupported`, `Limit`.
    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()>;
}
