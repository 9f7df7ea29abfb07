//! An array with its bytes in reach: what every operation of the engine starts from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use tesseral_core::{ArraySchema, Error, Result};
use tesseral_format::{ArraySource, Container, Digest, DigestSpan, PlannedChunk};
use tesseral_store::Store;

/// An array, its store, and which of its chunks were already found sound. Cheap to clone; clones share that knowledge.
#[derive(Clone, Debug)]
pub struct Handle {
    source: Arc<dyn ArraySource>,
    store: Arc<dyn Store>,
    verified: Option<Arc<Verified>>,
}

impl Handle {
    /// An array of an open container. With `digests`, every chunk's digest is checked when the chunk is first read.
    ///
    /// # Errors
    /// As [`Container::array`].
    pub fn new(container: &dyn Container, index: usize, digests: bool) -> Result<Self> {
        let source = container.array(index)?;
        let verified = digests.then(Arc::default);
        Ok(Self { source, store: Arc::clone(container.store()), verified })
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

    /// The digest to check before this chunk's bytes are used, if any is left to check.
    pub(crate) fn pending_digest(&self, chunk: &PlannedChunk) -> Option<DigestSpan> {
        let verified = self.verified.as_ref()?;
        let digest = self.source.digest(chunk)?;
        (!verified.contains(chunk.id)).then_some(digest)
    }

    /// Checks bytes against a digest and remembers the chunk as sound.
    pub(crate) fn check_digest(&self, chunk: &PlannedChunk, span: &DigestSpan, bytes: &Bytes) -> Result<()> {
        let (expected, found) = match span.digest {
            Digest::Xxh3(expected) => (expected, xxhash_rust::xxh3::xxh3_64(bytes)),
            _ => return Err(Error::unsupported("a digest of unknown kind")),
        };
        if expected != found {
            let object = tesseral_store::StoreExt::describe(&*self.store, self.source.object(span.object));
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

/// Chunks whose digest was checked. A bitmap in pages, so that any numbering of chunks costs little.
#[derive(Debug, Default)]
struct Verified {
    pages: RwLock<HashMap<u64, Box<[AtomicU64; PAGE_WORDS]>>>,
}

const PAGE_WORDS: usize = 64;
const PAGE_BITS: u64 = 64 * PAGE_WORDS as u64;

impl Verified {
    fn place(id: u64) -> (u64, usize, u64) {
        let bit = id % PAGE_BITS;
        // Below PAGE_WORDS by construction.
        #[allow(clippy::cast_possible_truncation)]
        (id / PAGE_BITS, (bit / 64) as usize, 1 << (bit % 64))
    }

    fn contains(&self, id: u64) -> bool {
        let (page, word, mask) = Self::place(id);
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        pages.get(&page).is_some_and(|words| words[word].load(Ordering::Relaxed) & mask != 0)
    }

    fn insert(&self, id: u64) {
        let (page, word, mask) = Self::place(id);
        {
            let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(words) = pages.get(&page) {
                words[word].fetch_or(mask, Ordering::Relaxed);
                return;
            }
        }
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let words = pages.entry(page).or_insert_with(|| Box::new([const { AtomicU64::new(0) }; PAGE_WORDS]));
        words[word].fetch_or(mask, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_any_numbering() {
        let verified = Verified::default();
        for id in [0, 1, 63, 64, 4095, 4096, u64::MAX] {
            assert!(!verified.contains(id));
            verified.insert(id);
            assert!(verified.contains(id));
        }
        assert!(!verified.contains(2));
    }
}
