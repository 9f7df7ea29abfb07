//! The bytes of one file or buffer, read where needed.

use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use memchr::memmem::Finder;
use tesseral_core::{Error, Result};
use tesseral_store::{Growing, Store, StoreExt};

/// How much is read around a small structure at first, from stores that must be asked.
const FIRST: u64 = 4 << 10;
/// How much is read at once when one small structure follows another.
const WINDOW: u64 = 256 << 10;
/// How much is searched at once.
const BLOCK: u64 = 4 << 20;

/// Bytes that frames are looked for in.
pub(crate) trait Input {
    /// Bytes of a range.
    type Piece: Deref<Target = [u8]>;

    /// What messages call it.
    fn name(&self) -> &str;

    /// Bytes of it.
    fn len(&self) -> u64;

    /// The bytes of a range that is known to be there.
    fn take(&self, range: Range<u64>) -> Result<Self::Piece>;

    /// A part of a piece.
    fn cut(piece: &Self::Piece, range: Range<usize>) -> Self::Piece;

    /// How much may be asked for at once without allocating it.
    fn at_once(&self) -> u64;

    /// The bytes of a range, which holds `what`. Nothing is allocated for a range that is not there.
    fn get(&self, range: Range<u64>, what: &str) -> Result<Self::Piece> {
        if range.start > range.end || range.end > self.len() {
            let found = self.len().saturating_sub(range.start);
            let expected = range.end.saturating_sub(range.start);
            return Err(Error::truncated(what, self.name(), range.start, expected, found));
        }
        self.take(range)
    }

    /// Up to `len` bytes from `offset` on, as far as there are any.
    fn some(&self, offset: u64, len: u64) -> Result<Self::Piece> {
        let start = offset.min(self.len());
        self.take(start..start.saturating_add(len).min(self.len()))
    }

    /// Where a pattern of a few bytes begins, at or after `from` and ending before `end`.
    fn find(&self, pattern: &Finder<'_>, mut from: u64, end: u64) -> Result<Option<u64>> {
        let end = end.min(self.len());
        let overlap = pattern.needle().len().saturating_sub(1) as u64;
        while from.saturating_add(overlap) < end {
            let until = from.saturating_add(self.at_once()).min(end);
            let block = self.take(from..until)?;
            if let Some(at) = pattern.find(&block) {
                return Ok(Some(from + at as u64));
            }
            if until == end {
                break;
            }
            from = until - overlap;
        }
        Ok(None)
    }
}

/// A buffer in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
}

impl<'a> Input for Slice<'a> {
    type Piece = &'a [u8];

    fn name(&self) -> &str {
        self.name
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn take(&self, range: Range<u64>) -> Result<&'a [u8]> {
        #[allow(clippy::cast_possible_truncation)]
        Ok(&self.bytes[range.start as usize..range.end as usize])
    }

    fn cut(piece: &&'a [u8], range: Range<usize>) -> &'a [u8] {
        &piece[range]
    }

    fn at_once(&self) -> u64 {
        u64::MAX
    }
}

/// The bytes of one file.
#[derive(Debug)]
pub(crate) struct Source {
    pub store: Arc<dyn Store>,
    /// What messages call it.
    pub object: String,
    pub len: u64,
    resident: Option<Bytes>,
    window: Mutex<Window>,
}

/// What was read last.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Bytes,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// How much to read for a structure that is not here: more each time one follows the other, little after a jump.
    fn next(&self, from: u64) -> u64 {
        if self.bytes.is_empty() || from < self.start || from > self.end() + FIRST {
            FIRST
        } else {
            (self.bytes.len() as u64 * 2).clamp(FIRST, WINDOW)
        }
    }
}

impl Source {
    pub(crate) fn open(store: &Arc<dyn Store>) -> Result<Self> {
        let resident = store.resident("")?;
        let len = match &resident {
            Some(bytes) => bytes.len() as u64,
            None => store.len("")?,
        };
        let object = store.describe("");
        // Messages are appended to files that others read.
        let store: Arc<dyn Store> = Arc::new(Growing(Arc::clone(store)));
        Ok(Self { store, object, len, resident, window: Mutex::default() })
    }

    /// Says that the operation under way touches the file. Fails when it is mapped and was cut since it was opened.
    pub(crate) fn check(&self) -> Result<()> {
        if self.resident.is_some() {
            self.store.resident("")?;
        }
        Ok(())
    }

    /// An operation that touches the file.
    pub(crate) fn guarded<T, E: From<Error>>(
        &self,
        operation: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.store.guarded(|| {
            self.check()?;
            operation()
        })
    }

    /// Bytes that were taken, to be kept after the operation.
    pub(crate) fn lasting(&self, bytes: Bytes) -> Result<Bytes> {
        let Some(all) = &self.resident else { return Ok(bytes) };
        let start = (bytes.as_ptr() as usize).checked_sub(all.as_ptr() as usize);
        match start.filter(|start| start.saturating_add(bytes.len()) <= all.len()) {
            Some(start) => self.store.view("", start as u64..(start + bytes.len()) as u64),
            // Decoded, not borrowed.
            None => Ok(bytes),
        }
    }
}

impl Input for Source {
    type Piece = Bytes;

    fn name(&self) -> &str {
        &self.object
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn take(&self, range: Range<u64>) -> Result<Bytes> {
        if let Some(bytes) = &self.resident {
            return Ok(slice(bytes, 0, &range));
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if range.start >= window.start && range.end <= window.end() {
            return Ok(slice(&window.bytes, window.start, &range));
        }
        let ahead = window.next(range.start);
        if range.end - range.start > ahead {
            drop(window);
            return self.store.read("", range);
        }
        let end = range.start.saturating_add(ahead).min(self.len);
        *window = Window { start: range.start, bytes: self.store.read("", range.start..end)? };
        Ok(slice(&window.bytes, window.start, &range))
    }

    fn cut(piece: &Bytes, range: Range<usize>) -> Bytes {
        piece.slice(range)
    }

    fn at_once(&self) -> u64 {
        if self.resident.is_some() { u64::MAX } else { BLOCK }
    }
}

/// A range that the bytes are known to hold.
fn slice(bytes: &Bytes, base: u64, range: &Range<u64>) -> Bytes {
    #[allow(clippy::cast_possible_truncation)]
    bytes.slice((range.start - base) as usize..(range.end - base) as usize)
}
