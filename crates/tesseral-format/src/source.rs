//! The [`ArraySource`] trait: one array as seen by the engine.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkStats, Coords, Error, Result, Scalar};
use tesseral_store::Rounds;

use crate::{Column, ColumnMut, Depth, DigestSpans, Part, Planned, PlannedChunk, Request, Scratch};

/// Description of a chunk for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Grid coordinates, or other numbers that identify the chunk in formats without a grid.
    pub coords: Coords,
    /// Decoded size in bytes.
    pub raw_len: u64,
    /// Stored size in bytes.
    pub stored_len: u64,
    /// Codec names of the format.
    pub codec: String,
    /// Offset of the stored bytes.
    pub offset: u64,
}

/// The non-empty domain: the smallest coordinate range along each dimension that contains every cell.
pub type NonEmpty = Vec<(Scalar, Scalar)>;

/// Totals over the chunks of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Number of chunks.
    pub chunks: u64,
    /// Stored size in bytes.
    pub stored_bytes: u64,
    /// Whether they carry digests.
    pub digests: bool,
}

/// Bytes outside a chunk's parts that a reader skips because they follow from other metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpliedBytes {
    /// Index of the object, for [`ArraySource::object`].
    pub object: u32,
    /// Offset in bytes.
    pub offset: u64,
    /// The expected bytes.
    pub bytes: SmallVec<[u8; 24]>,
}

/// Cells that a format's own validator rejects although they decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellFault {
    /// Stable name of the check.
    pub check: &'static str,
    /// Description of the first such cell.
    pub detail: String,
}

/// An encoding of chunks that several formats share, so that stored bytes can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredForm {
    /// Zstandard frames of the row-major little-endian cells of the whole chunk, contiguous, and nothing else.
    Zstd,
}

/// An array: its schema, its chunks, and their decoding. Cheap to share between threads.
///
/// No method reads payloads. Metadata can be loaded lazily through the container's store.
pub trait ArraySource: Debug + Send + Sync {
    /// Schema of the array.
    fn schema(&self) -> &ArraySchema;

    /// User-defined name of the array, if its name in the container is a number.
    fn given_name(&self) -> Option<&str> {
        None
    }

    /// Name of an object that parts refer to. Default: the only object of a store of one file.
    fn object(&self, number: u32) -> Cow<'_, str> {
        let _ = number;
        Cow::Borrowed("")
    }

    /// Returns whether the opened array depends on an object of the store. If that object is missing, it is lost if a new
    /// listing still depends on it, otherwise it was replaced.
    fn needs(&self, object: &str) -> bool {
        let _ = object;
        true
    }

    /// Returns the chunks that serve a request, which the caller has [checked](Request::check), or the metadata that must be
    /// fetched before they are known. The cost is proportional to the number of chunks.
    ///
    /// Metadata that is not in memory yet is read from `rounds`, never from the container's store: such a read does not wait.
    /// The method names everything that is known to be needed before it returns [`Planned::Needs`], is then called again with the
    /// same `rounds`, and keeps what it parsed, so that later requests are `Ready` at once. [`plan`](crate::plan) is the loop
    /// around it.
    ///
    /// # Errors
    /// `Corrupt` if a required chunk is missing or contradicts the schema; `Limit`; `InvalidRequest`.
    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned>;

    /// Requests that together select the cells of `request`, each over few chunks. A format whose metadata can be too large to
    /// keep in memory divides requests for cells of sparse arrays; requests for positions are divided by the caller, along the
    /// chunk grid.
    ///
    /// # Errors
    /// Errors of loading metadata.
    fn divide(&self, request: &Request) -> Result<Vec<Request>> {
        Ok(vec![request.clone()])
    }

    /// An array that serves only `request`, for formats that would have to keep the metadata of very many chunks otherwise:
    /// what it loads is dropped with it. `None` if this array serves the request as well.
    ///
    /// # Errors
    /// Errors of loading metadata.
    fn portion(&self, request: &Request) -> Result<Option<Arc<dyn ArraySource>>> {
        let _ = request;
        Ok(None)
    }

    /// Totals over all chunks, for formats that store them; `None` if they follow from the plan of `everything`.
    ///
    /// # Errors
    /// Errors of loading metadata.
    fn totals(&self, everything: &Request) -> Result<Option<Totals>> {
        let _ = everything;
        Ok(None)
    }

    /// Returns the non-empty domain, for formats that store it; `Some(None)` for an array without cells.
    ///
    /// # Errors
    /// Errors of loading metadata.
    fn non_empty_domain(&self) -> Result<Option<Option<NonEmpty>>> {
        Ok(None)
    }

    /// Loads what [`stats`](Self::stats) reads of these chunks and columns, so that each of them needs no request. Called only if
    /// requests wait for a network, in rounds as [`plan`](Self::plan). Statistics that cannot be read are unknown.
    ///
    /// # Errors
    /// `Pending` if `rounds` has to be fetched first.
    fn load_stats(&self, chunks: &[PlannedChunk], columns: &[Column], rounds: &Arc<Rounds>) -> Result<()> {
        let _ = (chunks, columns, rounds);
        Ok(())
    }

    /// Statistics of a chunk's column, known without reading it. Default: the number of cells only.
    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        let _ = column;
        ChunkStats::unknown(chunk.cells)
    }

    /// The value of all cells of a chunk's column, in native byte order, if the metadata determine it. Such a chunk is verified
    /// and aggregated without decoding its cells.
    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        let _ = (chunk, column);
        None
    }

    /// Describes a chunk in the format's terms.
    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo;

    /// Digests of the chunk's stored bytes, if the format has any outside its codecs. Each part is covered by at most one span.
    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        let _ = chunk;
        DigestSpans::new()
    }

    /// Byte range of the chunk's only part that decoding a range of cells reads; `None` if unknown.
    fn run_bytes(&self, chunk: &PlannedChunk, cells: &Range<u64>) -> Option<Range<u64>> {
        let _ = (chunk, cells);
        None
    }

    /// The alignment at which decoding a column can start, of a chunk whose [`Access`](crate::Access) has no granule because only its stored
    /// bytes show it; `None` if it cannot start in the middle. [`decode`](Self::decode) accepts ranges so aligned with the same bytes.
    fn stored_granule(&self, chunk: &PlannedChunk, column: Column, parts: &[Bytes]) -> Option<u64> {
        let _ = (chunk, column, parts);
        None
    }

    /// Bytes outside the chunk's parts that are skipped on read because their value is determined. An audit compares them.
    fn implied_bytes(&self, chunk: &PlannedChunk) -> SmallVec<[ImpliedBytes; 1]> {
        let _ = chunk;
        SmallVec::new()
    }

    /// Name of the check that a chunk fails if reading it returns an error in a verification of some depth.
    fn check_of(&self, error: &Error, depth: Depth) -> &'static str {
        let _ = (error, depth);
        "chunk_decode"
    }

    /// Rules of the format for values that decode without an error; a [full](Depth::Full) verification checks them. `values`
    /// are the cells of `cells` as [`decode`](Self::decode) returned them from `parts`, or as stored ones of a direct chunk.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn cell_faults(
        &self,
        column: Column,
        parts: &[Bytes],
        cells: &Range<u64>,
        values: &[u8],
    ) -> Result<SmallVec<[CellFault; 2]>> {
        let _ = (column, parts, cells, values);
        Ok(SmallVec::new())
    }

    /// Stored bytes of a chunk that a checksum codec covers; decoding verifies it.
    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        let _ = chunk;
        0
    }

    /// Shared encoding of a chunk's only part, if it has one: a writer with the same encoding can copy the bytes.
    fn stored_form(&self, chunk: &PlannedChunk) -> Option<StoredForm> {
        let _ = chunk;
        None
    }

    /// Bytes from which [`Format::decoder`](crate::Format::decoder) restores the decoding of this array's chunks without the
    /// source. `None` if decoding needs other bytes of the source, or the bytes of a chunk and its place in the array do not
    /// determine its cells.
    fn recipe(&self) -> Option<Vec<u8>> {
        None
    }

    /// Names of attributes that only repeat dimensions and labels of the schema. Other formats store these in their own way, so
    /// the attributes are not copied.
    fn derived_attributes(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the parts needed to decode a range of a [coded](crate::Access::Coded) chunk's cells, if they are smaller than
    /// the column's own. `cells` is aligned to granules, or ends with the tile. [`decode`](Self::decode) accepts a chunk with
    /// such parts for that range. `None` if every range needs all stored bytes.
    ///
    /// Tables of offsets inside the stored bytes can be loaded through the container's store.
    ///
    /// # Errors
    /// Errors of loading such a table.
    fn narrow(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        let _ = (chunk, column, cells);
        Ok(None)
    }

    /// Decodes cells of one column. `parts` are the bytes of the chunk's parts of that column, in order; `cells` is a range of
    /// the tile in the schema's cell order: all of it, unless `access` has a granule. Supports
    /// [`Access::Direct`](crate::Access::Direct) chunks too, with the same result as a direct copy.
    ///
    /// Runs on any thread, writes only to `out`, never panics, and either fills `out` or returns an error.
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
