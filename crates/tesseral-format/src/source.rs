//! One array, as the engine sees it.

use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkStats, Coords, Error, Result, Scalar};

use crate::{ChunkPlan, Column, ColumnMut, Part, PlannedChunk, Request, Scratch};

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
pub enum Digest<'a> {
    /// XXH3-64 with seed 0 over all bytes of a span.
    Xxh3(u64),
    /// XXH3-64 with seed 0 of each block of `block` bytes; the last block may be shorter.
    Xxh3Blocks {
        /// Bytes of a block.
        block: u64,
        /// One digest per block.
        digests: &'a [u64],
    },
}

/// Stored bytes and what they must hash to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestSpan<'a> {
    /// The object, as [`ArraySource::object`] numbers them.
    pub object: u32,
    /// The bytes covered.
    pub range: Range<u64>,
    /// Number of the first block. No two blocks of an object share a number, so that it is enough to remember which were checked.
    pub number: u64,
    /// What they must hash to.
    pub digest: Digest<'a>,
}

impl<'a> DigestSpan<'a> {
    /// A span with a single digest.
    pub fn single(object: u32, range: Range<u64>, number: u64, xxh3: u64) -> Self {
        Self { object, range, number, digest: Digest::Xxh3(xxh3) }
    }

    /// Blocks of the span that touch `within`: their number, their bytes and the expected digest. A span without bytes is one block.
    pub fn blocks(&self, within: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>, u64)> + use<'a> {
        let (single, block, digests) = match self.digest {
            Digest::Xxh3(digest) => (Some(digest), u64::MAX, &[][..]),
            Digest::Xxh3Blocks { block, digests } => (None, block.max(1), digests),
        };
        let (number, range) = (self.number, self.range.clone());
        let index = |at: u64| usize::try_from(at.saturating_sub(range.start) / block).unwrap_or(usize::MAX);
        let first = index(within.start).min(digests.len());
        let end = index(within.end.saturating_sub(1)).saturating_add(1).clamp(first, digests.len());
        let touched = range.is_empty() || (within.start < range.end && range.start < within.end);
        let each = single.into_iter().chain(digests[first..end].iter().copied()).filter(move |_| touched);
        (first as u64..).zip(each).map(move |(i, digest)| {
            let start = range.start.saturating_add(i.saturating_mul(block)).min(range.end);
            (number.saturating_add(i), start..start.saturating_add(block).min(range.end), digest)
        })
    }

    /// Whether the span holds all of a range of an object.
    pub fn covers(&self, object: u32, range: &Range<u64>) -> bool {
        let held = match self.digest {
            Digest::Xxh3(_) => true,
            Digest::Xxh3Blocks { block, digests } => {
                (digests.len() as u64).saturating_mul(block)
                    >= self.range.end.saturating_sub(self.range.start)
            }
        };
        held && self.object == object && self.range.start <= range.start && range.end <= self.range.end
    }
}

/// Spans with digests, almost always one per part.
pub type DigestSpans<'a> = SmallVec<[DigestSpan<'a>; 1]>;

/// Bytes beside a chunk's parts that a reader skips because they follow from the rest of the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpliedBytes {
    /// The object, as [`ArraySource::object`] numbers them.
    pub object: u32,
    /// Where they begin.
    pub offset: u64,
    /// What they must be.
    pub bytes: SmallVec<[u8; 24]>,
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

    /// Whether the array as it was opened relies on an object of the store. When that object is missing, it is lost if a fresh listing
    /// still relies on it, and was replaced if not.
    fn needs(&self, object: &str) -> bool {
        let _ = object;
        true
    }

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

    /// Digests over the chunk's stored bytes, where the format carries some outside its codecs. Each part is covered by one span or
    /// by none.
    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_>;

    /// Bytes of the chunk's only part that decoding a run of cells reads; `None` where it may be any of them.
    fn run_bytes(&self, chunk: &PlannedChunk, cells: &Range<u64>) -> Option<Range<u64>> {
        let _ = (chunk, cells);
        None
    }

    /// Bytes beside the chunk's parts that are skipped on read because they can hold one value only. An audit compares them.
    fn implied_bytes(&self, chunk: &PlannedChunk) -> SmallVec<[ImpliedBytes; 1]> {
        let _ = chunk;
        SmallVec::new()
    }

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

    /// The stored bytes that decoding a run of a [coded](crate::Access::Coded) chunk's cells needs, where those are fewer than all
    /// of them: parts that replace the column's own. `cells` begins and ends with a granule, or ends with the tile.
    /// [`decode`](Self::decode) accepts a chunk with such parts for cells of that run. `None` where every run needs all stored
    /// bytes.
    ///
    /// Tables of offsets inside the stored form may be loaded through the container's store.
    ///
    /// # Errors
    /// What loading such a table meets.
    fn narrow(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        let _ = (chunk, column, cells);
        Ok(None)
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
