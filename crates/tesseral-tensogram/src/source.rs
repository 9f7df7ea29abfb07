//! The bytes of one file, read where needed.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use memchr::memmem::Finder;
use tesseral_core::{Error, Result};
use tesseral_store::{Store, StoreExt};

/// How much is read around a small structure, from stores that must be asked.
const WINDOW: u64 = 64 << 10;
/// How much is searched at once.
const BLOCK: u64 = 4 << 20;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) struct Source {
    pub store: Arc<dyn Store>,
    /// What messages call it.
    pub object: String,
    pub len: u64,
    resident: Option<Bytes>,
    /// What was read last, and where it begins.
    window: Mutex<(u64, Bytes)>,
}

impl Source {
    pub(crate) fn open(store: &Arc<dyn Store>) -> Result<Self> {
        let resident = store.resident("")?;
        let len = match &resident {
            Some(bytes) => bytes.len() as u64,
            None => store.len("")?,
        };
        let (store, object) = (Arc::clone(store), store.describe(""));
        Ok(Self { store, object, len, resident, window: Mutex::default() })
    }

    /// The bytes of a range, which holds `what`. Nothing is allocated for a range that the file does not have.
    pub(crate) fn get(&self, range: Range<u64>, what: &str) -> Result<Bytes> {
        if range.start > range.end || range.end > self.len {
            let found = self.len.saturating_sub(range.start);
            let expected = range.end.saturating_sub(range.start);
            return Err(Error::truncated(what, &self.object, range.start, expected, found));
        }
        if let Some(bytes) = &self.resident {
            return Ok(slice(bytes, 0, &range));
        }
        if range.end - range.start > WINDOW {
            return self.store.read("", range);
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if range.start < window.0 || range.end > window.0 + window.1.len() as u64 {
            let end = range.start.saturating_add(WINDOW).min(self.len);
            *window = (range.start, self.store.read("", range.start..end)?);
        }
        Ok(slice(&window.1, window.0, &range))
    }

    /// Up to `len` bytes from `offset` on, as far as there are any.
    pub(crate) fn some(&self, offset: u64, len: u64, what: &str) -> Result<Bytes> {
        let start = offset.min(self.len);
        self.get(start..start.saturating_add(len).min(self.len), what)
    }

    /// Where a pattern of a few bytes begins, at or after `from` and ending before `end`.
    pub(crate) fn find(&self, pattern: &[u8], mut from: u64, end: u64) -> Result<Option<u64>> {
        let finder = Finder::new(pattern);
        let end = end.min(self.len);
        let overlap = pattern.len() as u64 - 1;
        while from + overlap < end {
            let until = match self.resident {
                Some(_) => end,
                None => from.saturating_add(BLOCK).min(end),
            };
            let block = self.get(from..until, "the file")?;
            if let Some(at) = finder.find(&block) {
                return Ok(Some(from + at as u64));
            }
            from = until - overlap;
            if until == end {
                break;
            }
        }
        Ok(None)
    }
}

/// A range that the bytes are known to hold.
fn slice(bytes: &Bytes, base: u64, range: &Range<u64>) -> Bytes {
    #[allow(clippy::cast_possible_truncation)]
    bytes.slice((range.start - base) as usize..(range.end - base) as usize)
}
