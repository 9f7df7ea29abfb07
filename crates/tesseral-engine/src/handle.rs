//! Handles: an array and its store, the start of every operation of the engine.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use tesseral_core::packing::Packing;
use tesseral_core::{Advice, ArraySchema, Cancel, ChunkStats, Error, Limits, Result};
use tesseral_format::{
    ArraySource, ChunkPlan, Column, ContainerSource, DigestBlock, DigestSpan, DigestSpans, NonEmpty, Part,
    Planned, PlannedChunk, Request, SourceLayer, Totals, Uncovered,
};
use tesseral_store::{Rounds, Store, StoreExt};

use crate::continued::ContinuedSource;
use crate::fetch::reopen::{Origin, Reopen};
use crate::fetch::{ByteRuns, touched_range};
use crate::options::Options;
use crate::physical::PhysicalSource;

/// Number of bytes hashed at once if the bytes of a digest are not in memory together.
const STREAMED: u64 = 1 << 20;

/// An array, its store, and the set of verified chunks. Cheap to clone; clones share the set.
#[derive(Clone, Debug)]
pub struct Handle {
    source: Arc<dyn ArraySource>,
    store: Arc<dyn Store>,
    /// Metadata reads of a store that answers them at once.
    immediate: Option<Arc<Rounds>>,
    verified: Option<Arc<VerifiedBlocks>>,
    /// How the source is reopened if listed objects are missing.
    pub(crate) origin: Option<Arc<Origin>>,
    limits: Limits,
    /// Packed fields by name, where cells are physical values.
    packings: Option<Arc<[(String, Packing)]>>,
    /// Axes that continue at their start.
    continued: Vec<usize>,
    /// Bytes of mapped files that large operations used.
    pub(crate) used: Arc<AtomicU64>,
}

impl Handle {
    /// Creates a handle of an array of a container. With `digests`, the digest of every block of a chunk is verified on first
    /// read.
    ///
    /// # Errors
    /// As [`ContainerSource::array`].
    pub fn new(container: &dyn ContainerSource, index: usize, digests: bool) -> Result<Self> {
        let source = container.store().guarded(|| container.array(index))?;
        let verified = digests.then(Arc::default);
        let (store, limits) = (Arc::clone(container.store()), Limits::default());
        let immediate = Some(Rounds::new(Arc::clone(&store))).filter(|rounds| rounds.is_immediate());
        Ok(Self {
            source,
            store,
            immediate,
            verified,
            origin: None,
            limits,
            packings: None,
            continued: Vec::new(),
            used: Arc::default(),
        })
    }

    /// Returns the array with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the array through another view with the same chunks.
    #[must_use]
    pub fn with_source(mut self, view: impl FnOnce(Arc<dyn ArraySource>) -> Arc<dyn ArraySource>) -> Self {
        self.source = view(self.source);
        self
    }

    /// Resource limits of operations.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets how the array is reopened if its objects are missing; `name` is its name in the container.
    #[must_use]
    pub fn reopened_by(mut self, reopen: Arc<Reopen>, name: &str) -> Self {
        self.origin = Some(Origin::new(reopen, name));
        self
    }

    /// Returns the array of another state of the source, with the same origin.
    pub(crate) fn of_state(&self, container: &dyn ContainerSource, index: usize) -> Result<Self> {
        let fresh = Self::new(container, index, self.verified.is_some())?.with_limits(self.limits);
        let fresh = Self { origin: self.origin.clone(), ..fresh };
        let fresh = if self.packings.is_some() { fresh.physical() } else { fresh };
        fresh.continued(&self.continued)
    }

    /// The same array with some axes that continue at their start for one turn: position `extent + i` is position `i`, so that a
    /// range across the end of a cyclic axis is one box. Coordinates of cells stay the stored ones.
    ///
    /// # Errors
    /// `InvalidRequest` if the array is sparse or an axis does not exist.
    pub fn continued(self, axes: &[usize]) -> Result<Self> {
        let axes: Vec<usize> = axes.iter().copied().filter(|axis| !self.continued.contains(axis)).collect();
        if axes.is_empty() {
            return Ok(self);
        }
        let source = Arc::new(ContinuedSource::new(self.source, &axes)?);
        let continued = self.continued.into_iter().chain(axes).collect();
        Ok(Self { source, continued, ..self })
    }

    /// The stored position of a position of an axis.
    pub(crate) fn stored_position(&self, axis: usize, position: u64) -> u64 {
        let extent = self.schema().dims.get(axis).and_then(|dim| dim.extent);
        match extent.filter(|_| self.continued.contains(&axis)) {
            Some(extent) if position >= extent / 2 => position - extent / 2,
            _ => position,
        }
    }

    /// The same array with physical values in its packed fields and Booleans in its bitmasks; other arrays are unchanged.
    #[must_use]
    pub fn physical(self) -> Self {
        if self.packings.is_some() {
            return self;
        }
        match PhysicalSource::new(&self.source) {
            Some(source) => {
                let packings = Some(source.packings().into());
                Self { source: Arc::new(source), packings, ..self }
            }
            None => self,
        }
    }

    /// How physical values come from stored ones, for each packed field of [`physical`](Self::physical) by name.
    pub fn packings(&self) -> &[(String, Packing)] {
        self.packings.as_deref().unwrap_or_default()
    }

    /// Returns the array without some of its chunks.
    pub(crate) fn without(&self, lost: HashSet<u64>) -> Self {
        let source = Arc::new(MaskedSource { inner: Arc::clone(&self.source), lost });
        Self { source, ..self.clone() }
    }

    /// An array for one request, if the format keeps less for it: loaded and verified data is dropped with it.
    pub(crate) fn portion(&self, request: &Request) -> Result<Option<Self>> {
        let verified = || self.verified.as_ref().map(|_| Arc::default());
        let portion = self.source.portion(request)?;
        Ok(portion.map(|source| Self { source, verified: verified(), ..self.clone() }))
    }

    /// Schema of the array.
    pub fn schema(&self) -> &ArraySchema {
        self.source.schema()
    }

    /// The format's array.
    pub fn source(&self) -> &dyn ArraySource {
        &*self.source
    }

    /// Checks a request and returns the chunks that serve it.
    ///
    /// # Errors
    /// `InvalidRequest`; as [`ArraySource::plan`].
    pub fn plan(&self, request: &Request) -> Result<ChunkPlan> {
        request.check(self.schema())?;
        let plan = match &self.immediate {
            Some(rounds) => tesseral_format::plan_from(&*self.source, rounds, request),
            None => tesseral_format::plan(&*self.source, &self.store, request),
        };
        plan.map_err(|e| e.in_array(&self.schema().name))
    }

    /// Totals over all chunks: those that the format stores, else those of the plan.
    ///
    /// # Errors
    /// As [`plan`](Self::plan) and [`ArraySource::totals`].
    pub fn totals(&self, everything: &Request) -> Result<Totals> {
        if let Some(stored) = self.source.totals(everything)? {
            return Ok(stored);
        }
        let plan = self.plan(everything)?;
        let digests = plan.chunks.first().is_some_and(|chunk| !self.source.digests(chunk).is_empty());
        Ok(Totals { chunks: plan.chunks.len() as u64, stored_bytes: plan.stored_bytes(), digests })
    }

    /// Loads what the statistics of chunks need, in rounds, if requests wait for a network.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn load_stats(&self, chunks: &[PlannedChunk], columns: &[Column]) -> Result<()> {
        if self.immediate.is_some() {
            return Ok(());
        }
        Rounds::run(&self.store, |rounds| {
            self.source.load_stats(chunks, columns, rounds)?;
            rounds.complete()
        })
    }

    /// Statistics of a column of a chunk, adjusted to the definition of missing values.
    pub fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        let stats = self.source.stats(chunk, column);
        match column {
            Column::Field(f) => match self.schema().fields.get(usize::from(f)) {
                Some(field) => crate::missing::statistics(field, stats),
                None => stats,
            },
            _ => stats,
        }
    }

    /// Store of the array.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The same array for one operation, whose requests end when it is canceled.
    fn canceled_by(&self, cancel: &Cancel) -> Cow<'_, Self> {
        match self.store.canceled_by(cancel) {
            // Only stores whose requests wait can be canceled.
            Some(store) => Cow::Owned(Self { store, immediate: None, ..self.clone() }),
            None => Cow::Borrowed(self),
        }
    }

    /// Runs an operation that can be canceled, as [`restartable`](Self::restartable) does.
    ///
    /// # Errors
    /// As [`restartable`](Self::restartable).
    pub fn operate<T>(&self, options: &Options, mut operation: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        self.restartable(|handle| operation(&handle.canceled_by(&options.cancel)))
    }

    /// The store, for threads that outlive a call.
    pub(crate) fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Digest spans of the chunk with blocks that are not verified yet.
    pub(crate) fn pending_digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        let Some(verified) = &self.verified else { return DigestSpans::new() };
        let mut spans = self.source.digests(chunk);
        spans.retain(|span| {
            let object = span.object;
            span.blocks(&span.range).any(|block| !verified.contains(object, block.number))
        });
        spans
    }

    /// Returns whether digests cover all of this chunk's parts and are verified before use.
    pub(crate) fn is_guarded(&self, chunk: &PlannedChunk) -> bool {
        self.verified.is_some() && self.covered_bytes(chunk) == chunk.stored_bytes()
    }

    /// Number of bytes of the chunk's parts that digests cover.
    pub(crate) fn covered_bytes(&self, chunk: &PlannedChunk) -> u64 {
        let spans = self.source.digests(chunk);
        let covered = |part: &&Part| {
            let range = part.offset..part.offset.saturating_add(part.len);
            spans.iter().any(|span| span.covers(part.object, &range))
        };
        chunk.parts.iter().filter(covered).map(|part| part.len).fold(0, u64::saturating_add)
    }

    /// Verifies the digests of blocks of a chunk that intersect `within` (of the object of its only part), or of all blocks of
    /// its parts, with the bytes of `read`, and marks them as verified. Bytes that `read` lacks are streamed from the store.
    pub(crate) fn check_digests<'b>(
        &self,
        chunk: &PlannedChunk,
        within: Option<&ByteRuns>,
        read: impl Fn(u32, &Range<u64>) -> Result<Option<&'b [u8]>>,
    ) -> Result<()> {
        let Some(verified) = &self.verified else { return Ok(()) };
        for span in self.source.digests(chunk) {
            let all = within.map_or_else(|| touched_range(chunk, &span), ByteRuns::bounds);
            match within.filter(|_| !span.is_single()) {
                None => self.check_blocks(verified, &span, &all, &all, &read)?,
                Some(runs) => {
                    runs.iter().try_for_each(|run| self.check_blocks(verified, &span, &run, &all, &read))?
                }
            }
        }
        Ok(())
    }

    /// Verifies the blocks of a span that intersect a range. If `read` lacks one, all blocks of `all` are streamed.
    fn check_blocks<'b>(
        &self,
        verified: &VerifiedBlocks,
        span: &DigestSpan<'_>,
        touched: &Range<u64>,
        all: &Range<u64>,
        read: impl Fn(u32, &Range<u64>) -> Result<Option<&'b [u8]>>,
    ) -> Result<()> {
        for block in span.blocks(touched) {
            if verified.contains(span.object, block.number) {
                continue;
            }
            self.check_root(verified, span)?;
            // Nothing is read for an empty range.
            let bytes = if block.range.is_empty() { Some(&[][..]) } else { read(span.object, &block.range)? };
            let Some(bytes) = bytes else {
                return self.stream_digests(verified, span, all);
            };
            self.compare_digest(span.object, &block, block.compute(bytes))?;
            verified.insert(span.object, block.number);
        }
        Ok(())
    }

    /// Verifies the digests of blocks by the digest over them.
    fn check_root(&self, verified: &VerifiedBlocks, span: &DigestSpan<'_>) -> Result<()> {
        let Some((number, expected, digests)) = span.root() else { return Ok(()) };
        if verified.contains(span.object, number) {
            return Ok(());
        }
        let computed = xxhash_rust::xxh3::xxh3_64(digests);
        if computed != expected {
            let object = self.store.describe(&self.source.object(span.object));
            let detail = format!(
                "checksum mismatch over the digests of its blocks: expected {expected:016x}, computed {computed:016x}"
            );
            return Err(Error::corrupt("a chunk", object, span.range.start, detail)
                .hint(Advice::from("restore the file from a copy").or(Advice::SkipDigests)));
        }
        verified.insert(span.object, number);
        Ok(())
    }

    /// Verifies the digests of blocks that intersect a range by streaming their bytes. Threads that need the same blocks wait
    /// for the first of them.
    fn stream_digests(
        &self,
        verified: &VerifiedBlocks,
        span: &DigestSpan<'_>,
        touched: &Range<u64>,
    ) -> Result<()> {
        let _one_at_a_time = verified.streaming.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_root(verified, span)?;
        let object = self.source.object(span.object);
        // Small blocks are read many at a time.
        let mut held = (0..0, Bytes::new());
        for block in span.blocks(touched) {
            if verified.contains(span.object, block.number) {
                continue;
            }
            let mut hasher = block.hasher();
            let range = &block.range;
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(at.saturating_add(STREAMED));
                if at < held.0.start || held.0.end < end {
                    let ahead = at.saturating_add(STREAMED).min(touched.end).max(end);
                    held = (at..ahead, self.store.read(&object, at..ahead)?);
                }
                let place = |at: u64| usize::try_from(at - held.0.start).unwrap_or(usize::MAX);
                let bytes = held.1.get(place(at)..place(end)).ok_or_else(|| {
                    let name = self.store.describe(&object);
                    Error::truncated("a chunk's bytes", name, at, end - at, held.1.len() as u64)
                })?;
                hasher.update(bytes);
                at = end;
            }
            self.compare_digest(span.object, &block, hasher.finish())?;
            verified.insert(span.object, block.number);
        }
        Ok(())
    }

    /// Compares the computed digest of a range of an object with the stored one.
    fn compare_digest(&self, object: u32, block: &DigestBlock, computed: u64) -> Result<()> {
        let DigestBlock { range, expected, .. } = block;
        if computed != *expected {
            let object = self.store.describe(&self.source.object(object));
            let detail = format!(
                "checksum mismatch over {} stored bytes: expected {expected:016x}, computed {computed:016x}",
                range.end.saturating_sub(range.start)
            );
            return Err(Error::corrupt("a chunk", object, range.start, detail)
                .hint(Advice::from("restore the file from a copy").or(Advice::Recover)));
        }
        Ok(())
    }

    /// Adds the array's name and the chunk's coordinates to an error.
    pub(crate) fn locate(&self, chunk: &PlannedChunk, error: Error) -> Error {
        error.in_array(&self.schema().name).in_chunk(&self.source.describe(chunk).coords)
    }
}

/// An array some of whose chunks are treated as missing.
#[derive(Debug)]
struct MaskedSource {
    inner: Arc<dyn ArraySource>,
    lost: HashSet<u64>,
}

impl SourceLayer for MaskedSource {
    fn inner(&self) -> &dyn ArraySource {
        &*self.inner
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        self.inner.plan(request, rounds)?.and_then(|mut plan| {
            plan.chunks.retain(|chunk| !self.lost.contains(&chunk.id));
            plan.uncovered = Uncovered::Fill;
            Ok(plan)
        })
    }

    /// The stored ones include lost chunks.
    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        Ok(None)
    }

    /// The stored one includes cells of lost chunks.
    fn non_empty_domain(&self) -> Result<Option<Option<NonEmpty>>> {
        Ok(None)
    }
}

/// Verified blocks: a bitmap in pages per object, so that any numbering is cheap. The first page, and the first one that hashes
/// to a slot of the table, are found without a lock. The table is made for the second page: most of very many arrays have one.
#[derive(Debug, Default)]
struct VerifiedBlocks {
    /// Held while digests of streamed bytes are computed.
    streaming: Mutex<()>,
    first: Slot,
    table: OnceLock<Box<[Slot]>>,
    others: RwLock<HashMap<PageKey, Box<Page>>>,
}

type Page = [AtomicU64; PAGE_WORDS];

/// The first page that hashes to a slot of the table.
type Slot = OnceLock<(PageKey, Box<Page>)>;

/// The object, and the index of the page in the object.
type PageKey = (u32, u64);

const SLOTS: u64 = 1024;
const PAGE_WORDS: usize = 8;
const PAGE_BITS: u64 = 64 * PAGE_WORDS as u64;

fn empty_page() -> Box<Page> {
    Box::new([const { AtomicU64::new(0) }; PAGE_WORDS])
}

impl VerifiedBlocks {
    fn position(object: u32, number: u64) -> (PageKey, usize, u64) {
        let bit = number % PAGE_BITS;
        // Below PAGE_WORDS by construction.
        ((object, number / PAGE_BITS), (bit / 64) as usize, 1 << (bit % 64))
    }

    /// Slot of a page in the table.
    fn slot(table: &[Slot], key: PageKey) -> &Slot {
        // Objects of one fragment are numbered in threes: a coprime factor distributes them over the table.
        let hash = key.1.wrapping_add(u64::from(key.0).wrapping_mul(89));
        // Below SLOTS by construction.
        &table[(hash % SLOTS) as usize]
    }

    fn contains(&self, object: u32, number: u64) -> bool {
        let (key, word, mask) = Self::position(object, number);
        let set = |words: &Page| words[word].load(Ordering::Relaxed) & mask != 0;
        match self.first.get() {
            None => return false,
            Some((held, words)) if *held == key => return set(words),
            Some(_) => {}
        }
        match self.table.get().and_then(|table| Self::slot(table, key).get()) {
            None => false,
            Some((held, words)) if *held == key => set(words),
            Some(_) => {
                let pages = self.others.read().unwrap_or_else(PoisonError::into_inner);
                pages.get(&key).is_some_and(|words| set(words))
            }
        }
    }

    fn insert(&self, object: u32, number: u64) {
        let (key, word, mask) = Self::position(object, number);
        let set = |words: &Page| words[word].fetch_or(mask, Ordering::Relaxed);
        let table = || self.table.get_or_init(|| (0..SLOTS).map(|_| OnceLock::new()).collect());
        let slots = [&self.first].into_iter().chain(std::iter::once_with(|| Self::slot(table(), key)));
        for slot in slots {
            let (held, words) = slot.get_or_init(|| (key, empty_page()));
            if *held == key {
                set(words);
                return;
            }
        }
        {
            let pages = self.others.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(words) = pages.get(&key) {
                set(words);
                return;
            }
        }
        let mut pages = self.others.write().unwrap_or_else(PoisonError::into_inner);
        set(pages.entry(key).or_insert_with(empty_page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supports_any_numbering() {
        let verified = VerifiedBlocks::default();
        let end = SLOTS * PAGE_BITS;
        for object in [0, 1, 3, 256, u32::MAX] {
            for id in [0, 1, 63, 64, 4095, 4096, end - 1, end, u64::MAX] {
                assert!(!verified.contains(object, id));
                verified.insert(object, id);
                assert!(verified.contains(object, id));
            }
            assert!(!verified.contains(object, 2));
        }
    }
}
