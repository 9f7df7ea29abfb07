//! Arrays around arrays: every call is passed on, and a layer states only what it changes.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkStats, Error, Result};
use tesseral_store::Rounds;

use crate::{
    ArraySource, CellFault, ChunkInfo, Column, ColumnMut, Depth, DigestSpans, ImpliedBytes, NonEmpty, Part,
    Planned, PlannedChunk, Request, Scratch, StoredForm, Totals,
};

/// An array that passes every call on to another one. Implementing it implements [`ArraySource`].
///
/// A layer that changes what cells mean overrides everything that describes them: [`schema`](Self::schema),
/// [`stats`](Self::stats), [`constant`](Self::constant), [`stored_form`](Self::stored_form) and [`decode`](Self::decode).
///
/// ```
/// use std::sync::Arc;
/// use tesseral_format::{ArraySource, Planned, Request, SourceLayer};
/// use tesseral_store::Rounds;
///
/// /// An array whose chunks are planned in reverse order.
/// #[derive(Debug)]
/// struct Reversed(Arc<dyn ArraySource>);
///
/// impl SourceLayer for Reversed {
///     fn inner(&self) -> &dyn ArraySource {
///         &*self.0
///     }
///
///     fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> tesseral_core::Result<Planned> {
///         self.0.plan(request, rounds)?.and_then(|mut plan| {
///             plan.chunks.reverse();
///             Ok(plan)
///         })
///     }
/// }
/// ```
pub trait SourceLayer: Debug + Send + Sync {
    /// The array that calls are passed on to.
    fn inner(&self) -> &dyn ArraySource;

    /// Returns a chunk of this array as the inner array planned it.
    fn inner_chunk<'a>(&self, chunk: &'a PlannedChunk) -> Cow<'a, PlannedChunk> {
        Cow::Borrowed(chunk)
    }

    /// As [`ArraySource::schema`].
    fn schema(&self) -> &ArraySchema {
        self.inner().schema()
    }

    /// As [`ArraySource::plan`].
    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        self.inner().plan(request, rounds)
    }

    /// As [`ArraySource::divide`].
    fn divide(&self, request: &Request) -> Result<Vec<Request>> {
        self.inner().divide(request)
    }

    /// As [`ArraySource::portion`]. A layer without an implementation serves every request itself.
    fn portion(&self, request: &Request) -> Result<Option<Arc<dyn ArraySource>>> {
        let _ = request;
        Ok(None)
    }

    /// As [`ArraySource::totals`].
    fn totals(&self, everything: &Request) -> Result<Option<Totals>> {
        self.inner().totals(everything)
    }

    /// As [`ArraySource::non_empty_domain`].
    fn non_empty_domain(&self) -> Result<Option<Option<NonEmpty>>> {
        self.inner().non_empty_domain()
    }

    /// As [`ArraySource::load_stats`].
    ///
    /// # Errors
    /// As the inner source.
    fn load_stats(&self, chunks: &[PlannedChunk], columns: &[Column], rounds: &Arc<Rounds>) -> Result<()> {
        let inner: Vec<_> = chunks.iter().map(|chunk| self.inner_chunk(chunk).into_owned()).collect();
        self.inner().load_stats(&inner, columns, rounds)
    }

    /// As [`ArraySource::stats`].
    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        self.inner().stats(&self.inner_chunk(chunk), column)
    }

    /// As [`ArraySource::constant`].
    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        self.inner().constant(&self.inner_chunk(chunk), column)
    }

    /// As [`ArraySource::describe`].
    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        self.inner().describe(&self.inner_chunk(chunk))
    }

    /// As [`ArraySource::digests`].
    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        self.inner().digests(&self.inner_chunk(chunk))
    }

    /// As [`ArraySource::run_bytes`].
    fn run_bytes(&self, chunk: &PlannedChunk, cells: &Range<u64>) -> Option<Range<u64>> {
        self.inner().run_bytes(&self.inner_chunk(chunk), cells)
    }

    /// As [`ArraySource::stored_granule`].
    fn stored_granule(&self, chunk: &PlannedChunk, column: Column, parts: &[Bytes]) -> Option<u64> {
        self.inner().stored_granule(&self.inner_chunk(chunk), column, parts)
    }

    /// As [`ArraySource::stored_form`].
    fn stored_form(&self, chunk: &PlannedChunk) -> Option<StoredForm> {
        self.inner().stored_form(&self.inner_chunk(chunk))
    }

    /// As [`ArraySource::derived_attributes`].
    fn derived_attributes(&self) -> &[&'static str] {
        self.inner().derived_attributes()
    }

    /// As [`ArraySource::narrow`].
    fn narrow(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        self.inner().narrow(&self.inner_chunk(chunk), column, cells)
    }

    /// As [`ArraySource::decode`].
    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.inner().decode(&self.inner_chunk(chunk), column, parts, cells, out, scratch)
    }
}

impl<L: SourceLayer> ArraySource for L {
    fn schema(&self) -> &ArraySchema {
        SourceLayer::schema(self)
    }

    fn given_name(&self) -> Option<&str> {
        self.inner().given_name()
    }

    fn object(&self, number: u32) -> Cow<'_, str> {
        self.inner().object(number)
    }

    fn needs(&self, object: &str) -> bool {
        self.inner().needs(object)
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        SourceLayer::plan(self, request, rounds)
    }

    fn divide(&self, request: &Request) -> Result<Vec<Request>> {
        SourceLayer::divide(self, request)
    }

    fn portion(&self, request: &Request) -> Result<Option<Arc<dyn ArraySource>>> {
        SourceLayer::portion(self, request)
    }

    fn totals(&self, everything: &Request) -> Result<Option<Totals>> {
        SourceLayer::totals(self, everything)
    }

    fn non_empty_domain(&self) -> Result<Option<Option<NonEmpty>>> {
        SourceLayer::non_empty_domain(self)
    }

    fn load_stats(&self, chunks: &[PlannedChunk], columns: &[Column], rounds: &Arc<Rounds>) -> Result<()> {
        SourceLayer::load_stats(self, chunks, columns, rounds)
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        SourceLayer::stats(self, chunk, column)
    }

    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        SourceLayer::constant(self, chunk, column)
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        SourceLayer::describe(self, chunk)
    }

    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        SourceLayer::digests(self, chunk)
    }

    fn run_bytes(&self, chunk: &PlannedChunk, cells: &Range<u64>) -> Option<Range<u64>> {
        SourceLayer::run_bytes(self, chunk, cells)
    }

    fn stored_granule(&self, chunk: &PlannedChunk, column: Column, parts: &[Bytes]) -> Option<u64> {
        SourceLayer::stored_granule(self, chunk, column, parts)
    }

    fn implied_bytes(&self, chunk: &PlannedChunk) -> SmallVec<[ImpliedBytes; 1]> {
        self.inner().implied_bytes(&self.inner_chunk(chunk))
    }

    fn check_of(&self, error: &Error, depth: Depth) -> &'static str {
        self.inner().check_of(error, depth)
    }

    fn cell_faults(
        &self,
        column: Column,
        parts: &[Bytes],
        cells: &Range<u64>,
        values: &[u8],
    ) -> Result<SmallVec<[CellFault; 2]>> {
        self.inner().cell_faults(column, parts, cells, values)
    }

    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        self.inner().checked_bytes(&self.inner_chunk(chunk))
    }

    fn stored_form(&self, chunk: &PlannedChunk) -> Option<StoredForm> {
        SourceLayer::stored_form(self, chunk)
    }

    fn derived_attributes(&self) -> &[&'static str] {
        SourceLayer::derived_attributes(self)
    }

    fn narrow(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        SourceLayer::narrow(self, chunk, column, cells)
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        SourceLayer::decode(self, chunk, column, parts, cells, out, scratch)
    }
}
