//! Random access to the bytes of one file or buffer.

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use memchr::memmem::Finder;
use tesseral_core::{Error, Result};
use tesseral_store::{ByteRange, Growing, Store, StoreExt, Upcoming};

use crate::wire::block_hashes::BlockHashes;

/// Number of bytes read first around a small structure, for stores that are not resident.
const FIRST: u64 = 4 << 10;
/// Number of bytes read at once for consecutive small structures.
const WINDOW: u64 = 256 << 10;
/// The same where each read waits for a network.
const DISTANT: u64 = 1 << 20;
/// Number of ranges that are held. A message is read at both ends, and by several passes over its structures.
const WINDOWS: usize = 4;
/// Number of bytes before and after a boundary of messages that are requested if it is expected, besides hashes of blocks.
const AROUND: (u64, u64) = (4 << 10, 12 << 10);
/// Largest size of the hashes of blocks, which end a message, that are requested with its boundary.
const MAX_BLOCK_HASHES: u64 = 128 << 10;
/// Number of boundaries that are requested at once: at first, and at most.
const GUESSES: (u64, u64) = (8, 512);
/// Number of bytes searched at once.
const BLOCK: u64 = 4 << 20;

/// Input for parsing frames.
pub(crate) trait Input {
    /// Bytes of a range.
    type ByteSlice: Deref<Target = [u8]>;

    /// Whether decoded cells become shared bytes, which can be in memory of any kind.
    const KEEPS: bool;

    /// Name of the input in errors.
    fn name(&self) -> &str;

    /// Length in bytes.
    fn len(&self) -> u64;

    /// Returns the bytes of a range inside the input.
    fn take(&self, range: Range<u64>) -> Result<Self::ByteSlice>;

    /// Returns a part of a piece.
    fn slice(piece: &Self::ByteSlice, range: Range<usize>) -> Self::ByteSlice;

    /// Maximum size of a request that needs no allocation check.
    fn at_once(&self) -> u64;

    /// Announces that messages of this length may follow one another from an offset on.
    fn expect(&self, from: u64, message: u64) {
        let _ = (from, message);
    }

    /// Returns the bytes of a range that contains `what`. Checks the range before allocating.
    fn get(&self, range: Range<u64>, what: &str) -> Result<Self::ByteSlice> {
        if range.start > range.end || range.end > self.len() {
            let found = self.len().saturating_sub(range.start);
            let expected = range.end.saturating_sub(range.start);
            return Err(Error::truncated(what, self.name(), range.start, expected, found));
        }
        self.take(range)
    }

    /// Returns up to `len` bytes from `offset`, fewer at the end.
    fn read_at_most(&self, offset: u64, len: u64) -> Result<Self::ByteSlice> {
        let start = offset.min(self.len());
        self.take(start..start.saturating_add(len).min(self.len()))
    }

    /// Returns the offset of a short pattern at or after `from` that ends before `end`.
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
pub(crate) struct SliceInput<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
}

impl<'a> Input for SliceInput<'a> {
    type ByteSlice = &'a [u8];

    const KEEPS: bool = false;

    fn name(&self) -> &str {
        self.name
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn take(&self, range: Range<u64>) -> Result<&'a [u8]> {
        Ok(&self.bytes[range.start as usize..range.end as usize])
    }

    fn slice(piece: &&'a [u8], range: Range<usize>) -> &'a [u8] {
        &piece[range]
    }

    fn at_once(&self) -> u64 {
        u64::MAX
    }
}

/// The bytes of one file.
#[derive(Debug)]
pub(crate) struct MessageBytes {
    pub store: Arc<dyn Store>,
    /// Name of the file in errors.
    pub object: String,
    pub len: u64,
    resident: Option<Bytes>,
    windows: Mutex<VecDeque<ReadWindow>>,
    /// Largest range of small structures.
    most: u64,
    guess: Mutex<Guess>,
}

/// Boundaries of messages that were announced because earlier messages have one length.
#[derive(Debug, Default)]
struct Guess {
    /// Length of the messages.
    message: u64,
    /// End of the part of the file whose boundaries are announced.
    end: u64,
    /// Number of boundaries announced last.
    count: u64,
}

/// A range that was read.
#[derive(Debug)]
struct ReadWindow {
    start: u64,
    bytes: Bytes,
}

impl ReadWindow {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Whether a structure at `from` follows what was read.
    fn leads_to(&self, from: u64) -> bool {
        from >= self.start && from <= self.end() + FIRST
    }
}

/// Number of bytes to read for a structure that is not held: grows with sequential access, small after a jump.
fn ahead(windows: &VecDeque<ReadWindow>, from: u64, most: u64) -> u64 {
    let before = windows.iter().find(|window| window.leads_to(from));
    before.map_or(FIRST, |window| (window.bytes.len() as u64).saturating_mul(2).clamp(FIRST, most))
}

impl MessageBytes {
    pub(crate) fn open(store: &Arc<dyn Store>) -> Result<Self> {
        let resident = store.resident("")?;
        let len = match &resident {
            Some(bytes) => bytes.len() as u64,
            None => store.len("")?,
        };
        let object = store.describe("");
        let most = if store.profile().parallel < 2 { WINDOW } else { DISTANT };
        // Files can grow while they are read, because messages are appended.
        let store: Arc<dyn Store> = Arc::new(Growing(Arc::clone(store)));
        let (windows, guess) = (Mutex::default(), Mutex::default());
        Ok(Self { store, object, len, resident, windows, most, guess })
    }

    /// All bytes of a resident file: small structures are parsed in place, without a shared slice of each.
    pub(crate) fn as_slice(&self) -> Option<SliceInput<'_>> {
        self.resident.as_deref().map(|bytes| SliceInput { name: &self.object, bytes })
    }

    /// Registers an operation on the file. Fails if the file is memory-mapped and was truncated since it was opened.
    pub(crate) fn check(&self) -> Result<()> {
        if self.resident.is_some() {
            self.store.resident("")?;
        }
        Ok(())
    }

    /// Guard of an operation on the file.
    pub(crate) fn guarded<T, E: From<Error>>(
        &self,
        operation: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.store.guarded(|| {
            self.check()?;
            operation()
        })
    }

    /// Returns bytes that outlive the operation.
    pub(crate) fn lasting(&self, bytes: Bytes) -> Result<Bytes> {
        let Some(all) = &self.resident else { return Ok(bytes) };
        let start = (bytes.as_ptr() as usize).checked_sub(all.as_ptr() as usize);
        match start.filter(|start| start.saturating_add(bytes.len()) <= all.len()) {
            Some(start) => self.store.view("", start as u64..(start + bytes.len()) as u64),
            // Decoded bytes are owned.
            None => Ok(bytes),
        }
    }
}

impl Input for MessageBytes {
    type ByteSlice = Bytes;

    const KEEPS: bool = true;

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
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |window: &&ReadWindow| range.start >= window.start && range.end <= window.end();
        if let Some(window) = windows.iter().find(holds) {
            return Ok(slice(&window.bytes, window.start, &range));
        }
        let ahead = ahead(&windows, range.start, self.most);
        if range.end - range.start > ahead {
            drop(windows);
            return self.store.read("", range);
        }
        let end = range.start.saturating_add(ahead).min(self.len);
        let read = ReadWindow { start: range.start, bytes: self.store.read("", range.start..end)? };
        let found = slice(&read.bytes, read.start, &range);
        windows.truncate(WINDOWS - 1);
        windows.push_front(read);
        Ok(found)
    }

    fn slice(piece: &Bytes, range: Range<usize>) -> Bytes {
        piece.slice(range)
    }

    /// The boundaries of equal messages are requested together, where each would otherwise be a round trip. More of them each
    /// time that they are found, and all at once if the file is a multiple of the length.
    fn expect(&self, from: u64, message: u64) {
        if self.resident.is_some() || message < WINDOW || self.store.profile().parallel < 2 {
            return;
        }
        let mut guess = self.guess.lock().unwrap_or_else(PoisonError::into_inner);
        if guess.message == message && from < guess.end {
            return;
        }
        let (first, most) = GUESSES;
        guess.count = match guess.message == message {
            _ if self.len.is_multiple_of(message) => most,
            true => guess.count.saturating_mul(8).min(most),
            false => first,
        };
        guess.message = message;
        guess.end = from.saturating_add(message.saturating_mul(guess.count));
        let (before, after) = AROUND;
        // The blocks of an object, which is shorter than the message, can be half as long.
        let hashes = message / (BlockHashes::block_of(message) / 2) * size_of::<u64>() as u64;
        let before = before + hashes.min(MAX_BLOCK_HASHES);
        let boundaries =
            (0..guess.count).map(|i| message.checked_mul(i).and_then(|skip| from.checked_add(skip)));
        let ranges = boundaries.map_while(|at| at.filter(|at| *at < self.len)).map(|at| {
            let range = at.saturating_sub(before)..at.saturating_add(after).min(self.len);
            Upcoming::Bytes(String::new(), ByteRange::Exact(range))
        });
        self.store.prefetch(&ranges.collect::<Vec<_>>());
    }

    fn at_once(&self) -> u64 {
        if self.resident.is_some() { u64::MAX } else { BLOCK }
    }
}

/// Returns a range that is known to be inside the bytes.
fn slice(bytes: &Bytes, base: u64, range: &Range<u64>) -> Bytes {
    bytes.slice((range.start - base) as usize..(range.end - base) as usize)
}
