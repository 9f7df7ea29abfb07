//! Access to the metadata bytes of one file: memory-mapped, fetched from a store, or a slice.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tesseral_core::{Error, Result};
use tesseral_store::{Store, StoreExt};

/// Number of bytes fetched from each end of a file that is not resident.
const WINDOW: u64 = 64 << 10;

/// The bytes of one file. Only metadata is read.
#[derive(Debug)]
pub(crate) struct FileBytes<'a> {
    /// Name of the file in errors.
    pub object: String,
    /// Length in bytes.
    pub len: u64,
    bytes: SourceBytes<'a>,
}

#[derive(Debug)]
enum SourceBytes<'a> {
    Resident(Bytes),
    Slice(&'a [u8]),
    /// Start and end of the file are fetched; bytes in between are read on demand.
    Windows {
        store: Arc<dyn Store>,
        name: String,
        head: Bytes,
        tail: Bytes,
        /// Bytes in between that were fetched together, by their offsets.
        between: OnceLock<Vec<(u64, Bytes)>>,
    },
}

impl<'a> FileBytes<'a> {
    /// Opens an object of a store: its resident bytes, or else both ends in one request.
    pub(crate) fn open(store: &Arc<dyn Store>, name: &str) -> Result<Self> {
        let object = store.describe(name);
        if let Some(bytes) = store.resident(name)? {
            return Ok(Self { object, len: bytes.len() as u64, bytes: SourceBytes::Resident(bytes) });
        }
        let len = store.len(name)?;
        let head = 0..len.min(WINDOW);
        let tail = len.saturating_sub(WINDOW).max(head.end)..len;
        let ranges = [head, tail];
        let wanted = if ranges[1].is_empty() { &ranges[..1] } else { &ranges[..] };
        let mut read = store.read_many(name, wanted)?.into_iter();
        let head = read.next().unwrap_or_default();
        let tail = read.next().unwrap_or_default();
        let store = Arc::clone(store);
        let (name, between) = (name.to_owned(), OnceLock::new());
        Ok(Self { object, len, bytes: SourceBytes::Windows { store, name, head, tail, between } })
    }

    /// Wraps borrowed bytes.
    pub(crate) fn slice(bytes: &'a [u8]) -> Self {
        Self { object: "the bytes".to_owned(), len: bytes.len() as u64, bytes: SourceBytes::Slice(bytes) }
    }

    /// Returns whether bytes are available without a read.
    pub(crate) fn is_resident(&self) -> bool {
        !matches!(self.bytes, SourceBytes::Windows { .. })
    }

    /// Returns bytes that need no request.
    pub(crate) fn held(&self, range: &Range<u64>) -> Option<Bytes> {
        match &self.bytes {
            SourceBytes::Resident(bytes) => within(bytes, 0, range),
            SourceBytes::Slice(bytes) => {
                index(range, 0).and_then(|r| bytes.get(r)).map(Bytes::copy_from_slice)
            }
            SourceBytes::Windows { head, tail, between, .. } => within(head, 0, range)
                .or_else(|| within(tail, self.len - tail.len() as u64, range))
                .or_else(|| between.get()?.iter().find_map(|(base, bytes)| within(bytes, *base, range))),
        }
    }

    /// Fetches ranges that are read next, in one round trip. A failure is reported by the reads.
    pub(crate) fn fetch(&self, ranges: &[Range<u64>]) {
        let inside = |range: &&Range<u64>| range.start < range.end && range.end <= self.len;
        let missing = ranges.iter().filter(inside).filter(|range| self.held(range).is_none());
        let missing: Vec<Range<u64>> = missing.cloned().collect();
        if let SourceBytes::Windows { store, name, between, .. } = &self.bytes
            && !missing.is_empty()
            && let Ok(read) = store.read_many(name, &missing)
        {
            between.get_or_init(|| missing.iter().map(|range| range.start).zip(read).collect());
        }
    }

    /// Returns the bytes of a range that contains `what`. Checks the range before allocating.
    pub(crate) fn get(&self, range: Range<u64>, what: &str) -> Result<Bytes> {
        if range.start > range.end || range.end > self.len {
            let found = self.len.saturating_sub(range.start);
            let expected = range.end.saturating_sub(range.start);
            return Err(Error::truncated(what, &self.object, range.start, expected, found));
        }
        let found = match (self.held(&range), &self.bytes) {
            (None, SourceBytes::Windows { store, name, .. }) => Some(store.read(name, range.clone())?),
            (found, _) => found,
        };
        found.ok_or_else(|| Error::truncated(what, &self.object, range.start, range.end - range.start, 0))
    }
}

fn index(range: &Range<u64>, base: u64) -> Option<Range<usize>> {
    let at = |n: u64| usize::try_from(n.checked_sub(base)?).ok();
    Some(at(range.start)?..at(range.end)?)
}

/// Returns the range if the bytes starting at `base` contain it.
fn within(bytes: &Bytes, base: u64, range: &Range<u64>) -> Option<Bytes> {
    let range = index(range, base)?;
    (range.end <= bytes.len()).then(|| bytes.slice(range))
}
