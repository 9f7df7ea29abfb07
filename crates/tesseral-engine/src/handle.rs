//! An array with its bytes in reach: what every operation of the engine starts from.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use tesseral_core::{ArraySchema, ChunkStats, Error, Limits, Result};
use tesseral_format::{
    ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Container, Digest, DigestSpan, PlannedChunk,
    Request, Scratch, Uncovered,
};
use tesseral_store::{Store, StoreExt};

/// An array, its store, and which of its chunks were already found sound. Cheap to clone; clones share that knowledge.
#[derive(Clone, Debug)]
pub struct Handle {
    source: Arc<dyn ArraySource>,
    store: Arc<dyn Store>,
    verified: Option<Arc<Verified>>,
    limits: Limits,
}

impl Handle {
    /// An array of an open container. With `digests`, every chunk's digest is checked when the chunk is first read.
    ///
    /// # Errors
    /// As [`Container::array`].
    pub fn new(container: &dyn Container, index: usize, digests: bool) -> Result<Self> {
        let source = container.store().guarded(|| container.array(index))?;
        let verified = digests.then(Arc::default);
        Ok(Self { source, store: Arc::clone(container.store()), verified, limits: Limits::default() })
    }

    /// The same array under other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// What the array may make an operation use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The same array without some of its chunks.
    pub(crate) fn without(&self, lost: HashSet<u64>) -> Self {
        let source = Arc::new(Without { inner: Arc::clone(&self.source), lost });
        Self { source, ..self.clone() }
    }

    /// What the array is.
    pub fn schema(&self) -> &ArraySchema {
        self.source.schema()
    }

    /// The format's view of the array.
    pub fn source(&self) -> &dyn ArraySource {
        &*self.source
    }

    /// Where its bytes are.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Runs an operation that touches stored bytes: every public one is inside one of these. When a mapped file was cut meanwhile, that
    /// takes the place of whatever came of it; nothing that a result holds may be bytes of the store, but for a
    /// [view](tesseral_store::Store::view).
    ///
    /// # Errors
    /// What the operation meets; `Corrupt` when a file was cut.
    pub fn guarded<T>(&self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.store.guarded(operation)
    }

    /// The digest to check before this chunk's bytes are used, if any is left to check.
    pub(crate) fn pending_digest(&self, chunk: &PlannedChunk) -> Option<DigestSpan> {
        let verified = self.verified.as_ref()?;
        if verified.contains(chunk.id) { None } else { self.source.digest(chunk) }
    }

    /// Whether a digest over this chunk's bytes is checked before they are used.
    pub(crate) fn is_guarded(&self, chunk: &PlannedChunk) -> bool {
        self.verified.is_some() && self.source.digest(chunk).is_some()
    }

    /// Checks bytes against a digest and remembers the chunk as sound.
    pub(crate) fn check_digest(&self, chunk: &PlannedChunk, span: &DigestSpan, bytes: &[u8]) -> Result<()> {
        let (expected, found) = match span.digest {
            Digest::Xxh3(expected) => (expected, xxhash_rust::xxh3::xxh3_64(bytes)),
            _ => return Err(Error::unsupported("a digest of unknown kind")),
        };
        if expected != found {
            let object = self.store.describe(self.source.object(span.object));
            let detail = format!(
                "{} stored bytes hash to {found:016x}, the file says {expected:016x}: they changed after they were written",
                bytes.len()
            );
            return Err(Error::corrupt("a chunk", object, span.range.start, detail)
                .hint("restore the file from a copy; `tet verify` lists every damaged chunk, `tet recover` saves the others"));
        }
        if let Some(verified) = &self.verified {
            verified.insert(chunk.id);
        }
        Ok(())
    }

    /// Adds the array's name and the chunk's coordinates to an error.
    pub(crate) fn locate(&self, chunk: &PlannedChunk, error: Error) -> Error {
        error.in_array(&self.schema().name).in_chunk(&self.source.describe(chunk).coords)
    }
}

/// An array some of whose chunks are taken for not there.
#[derive(Debug)]
struct Without {
    inner: Arc<dyn ArraySource>,
    lost: HashSet<u64>,
}

impl ArraySource for Without {
    fn schema(&self) -> &ArraySchema {
        self.inner.schema()
    }

    fn object(&self, number: u32) -> &str {
        self.inner.object(number)
    }

    fn plan(&self, request: &Request) -> Result<ChunkPlan> {
        let mut plan = self.inner.plan(request)?;
        plan.chunks.retain(|chunk| !self.lost.contains(&chunk.id));
        plan.uncovered = Uncovered::Fill;
        Ok(plan)
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        self.inner.stats(chunk, column)
    }

    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        self.inner.constant(chunk, column)
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        self.inner.describe(chunk)
    }

    fn digest(&self, chunk: &PlannedChunk) -> Option<DigestSpan> {
        self.inner.digest(chunk)
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
        self.inner.decode(chunk, column, parts, cells, out, scratch)
    }
}

/// Chunks whose digest was checked: a bitmap in pages, so that any numbering of chunks costs little. Most formats number
/// from 0, and pages of low numbers are found without a lock.
#[derive(Debug)]
struct Verified {
    low: Box<[OnceLock<Box<Page>>]>,
    high: RwLock<HashMap<u64, Box<Page>>>,
}

type Page = [AtomicU64; PAGE_WORDS];

const LOW_PAGES: usize = 256;
const PAGE_WORDS: usize = 64;
const PAGE_BITS: u64 = 64 * PAGE_WORDS as u64;

impl Default for Verified {
    fn default() -> Self {
        Self { low: (0..LOW_PAGES).map(|_| OnceLock::new()).collect(), high: RwLock::default() }
    }
}

fn empty_page() -> Box<Page> {
    Box::new([const { AtomicU64::new(0) }; PAGE_WORDS])
}

impl Verified {
    fn place(id: u64) -> (u64, usize, u64) {
        let bit = id % PAGE_BITS;
        // Below PAGE_WORDS by construction.
        #[allow(clippy::cast_possible_truncation)]
        (id / PAGE_BITS, (bit / 64) as usize, 1 << (bit % 64))
    }

    fn low(&self, page: u64) -> Option<&OnceLock<Box<Page>>> {
        usize::try_from(page).ok().and_then(|page| self.low.get(page))
    }

    fn contains(&self, id: u64) -> bool {
        let (page, word, mask) = Self::place(id);
        let set = |words: &Page| words[word].load(Ordering::Relaxed) & mask != 0;
        match self.low(page) {
            Some(low) => low.get().is_some_and(|words| set(words)),
            None => {
                let pages = self.high.read().unwrap_or_else(PoisonError::into_inner);
                pages.get(&page).is_some_and(|words| set(words))
            }
        }
    }

    fn insert(&self, id: u64) {
        let (page, word, mask) = Self::place(id);
        let set = |words: &Page| words[word].fetch_or(mask, Ordering::Relaxed);
        if let Some(low) = self.low(page) {
            set(low.get_or_init(empty_page));
            return;
        }
        {
            let pages = self.high.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(words) = pages.get(&page) {
                set(words);
                return;
            }
        }
        let mut pages = self.high.write().unwrap_or_else(PoisonError::into_inner);
        set(pages.entry(page).or_insert_with(empty_page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_any_numbering() {
        let verified = Verified::default();
        let low_end = LOW_PAGES as u64 * PAGE_BITS;
        for id in [0, 1, 63, 64, 4095, 4096, low_end - 1, low_end, u64::MAX] {
            assert!(!verified.contains(id));
            verified.insert(id);
            assert!(verified.contains(id));
        }
        assert!(!verified.contains(2));
    }
}
