//! Metadata reads of the HDF5 parser, through the store and within a budget.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hdf5_reader::error::Error as ParserError;
use hdf5_reader::{Storage, StorageBuffer};
use tesseral_core::{Cancel, Error, ErrorKind, Result};
use tesseral_store::{ByteRange, Rounds, Store, StoreExt, Upcoming};

use crate::header_messages::Patches;

/// Bytes that the metadata of any file can take.
const FREE: u64 = 128 << 20;
/// Times that metadata can be read again: parsers read some structures once per object that refers to them.
const REREADS: u64 = 64;
/// Size of a block of a file that is not resident, and the number of blocks that are kept.
const BLOCK: u64 = 64 << 10;
const BLOCKS: usize = 256;
/// Power of two of the blocks that are read ahead at most: 4 MiB.
const FURTHEST: u64 = 6;
/// Cost of a read in addition to its bytes.
const READ_COST: u64 = 256;

/// The bytes of a file from the signature on. HDF5 addresses are relative to it.
pub(crate) struct MetadataStorage {
    store: Arc<dyn Store>,
    /// Offset of the signature.
    base: u64,
    /// Bytes from the signature to the end of the file.
    len: u64,
    cancel: Cancel,
    /// Bytes that can still be read: structures that refer to one another must not cause endless work.
    budget: AtomicU64,
    /// Bytes read so far.
    bytes_read: AtomicU64,
    /// Recently read blocks of a file that is not resident: parsers read many small structures next to one another.
    blocks: Mutex<HashMap<u64, Bytes>>,
    /// Number of blocks that are requested together.
    ahead: u64,
    /// Bytes that the parser sees instead of those of the file, by address: layouts that it does not know.
    shown: Mutex<BTreeMap<u64, Vec<u8>>>,
}

/// Most bytes that are shown at one place.
const SHOWN: u64 = 8;

impl fmt::Debug for MetadataStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataStorage").field("base", &self.base).finish_non_exhaustive()
    }
}

impl MetadataStorage {
    pub(crate) fn new(store: Arc<dyn Store>, base: u64, len: u64, cancel: Cancel) -> Self {
        let (budget, bytes_read) = (AtomicU64::new(0), AtomicU64::new(0));
        let storage = Self {
            store,
            base,
            len,
            cancel,
            budget,
            bytes_read,
            blocks: Mutex::default(),
            ahead: 1,
            shown: Mutex::default(),
        };
        storage.renew();
        storage
    }

    /// The same bytes, read in rounds. A tree is found node by node: each round reads further ahead than the one before.
    pub(crate) fn through(&self, rounds: &Arc<Rounds>) -> Self {
        let store = Arc::clone(rounds) as Arc<dyn Store>;
        let ahead = if rounds.is_immediate() { 1 } else { 1 << rounds.number().min(FURTHEST) };
        Self { ahead, ..Self::new(store, self.base, self.len, self.cancel.clone()) }
    }

    /// Shows the parser other bytes than those of the file, at most [`SHOWN`] at a place.
    pub(crate) fn show(&self, patches: Patches) {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).extend(patches);
    }

    /// Ends an operation that was canceled.
    pub(crate) fn check_canceled(&self) -> Result<()> {
        self.cancel.check()
    }

    /// Bytes as the parser sees them.
    fn patched(&self, offset: u64, bytes: Bytes) -> Bytes {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset.saturating_add(bytes.len() as u64);
        let mut patches = shown.range(offset.saturating_sub(SHOWN)..end).peekable();
        if patches.peek().is_none() {
            return bytes;
        }
        let mut out = bytes.to_vec();
        for (at, patch) in patches {
            for (at, byte) in (*at..).zip(patch) {
                let place = at.checked_sub(offset).and_then(|at| out.get_mut(usize::try_from(at).ok()?));
                if let Some(place) = place {
                    *place = *byte;
                }
            }
        }
        out.into()
    }

    /// Location of the file.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Begins an operation with a full budget.
    pub(crate) fn renew(&self) {
        let budget = self.len.saturating_mul(REREADS).saturating_add(FREE);
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// Offset of the signature in the file.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Name of the file for errors.
    pub(crate) fn describe(&self) -> String {
        self.store.describe("")
    }

    /// Bytes at an address, within the file and the budget.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        self.cancel.check()?;
        let object = || self.describe();
        let start = offset.checked_add(self.base);
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let Some(range) = range.filter(|_| within) else {
            let found = self.len.saturating_sub(offset);
            return Err(Error::truncated("metadata", object(), offset, len, found));
        };
        let cost = len.saturating_add(READ_COST);
        let spent = |budget: u64| budget.checked_sub(cost);
        if self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_err() {
            let allowed = self.len.saturating_mul(REREADS).saturating_add(FREE);
            return Err(Error::limit(
                "metadata read from an HDF5 file",
                allowed.saturating_add(cost),
                allowed,
            ));
        }
        self.bytes_read.fetch_add(len, Ordering::Relaxed);
        if self.store.resident("")?.is_some() || len > BLOCK {
            return self.store.read("", range);
        }
        let (first, last) = (range.start / BLOCK, range.end.saturating_sub(1).max(range.start) / BLOCK);
        // A range of at most a block touches at most two.
        let head = self.block(first)?;
        let at = usize::try_from(range.start % BLOCK).unwrap_or(0);
        let wanted = usize::try_from(len).unwrap_or(0);
        if first == last {
            return Ok(head.slice(at..at + wanted));
        }
        let tail = self.block(last)?;
        let mut joined = head[at..].to_vec();
        joined.extend_from_slice(&tail[..wanted - joined.len()]);
        Ok(joined.into())
    }

    /// A block of the file; the last one can be shorter.
    fn block(&self, number: u64) -> Result<Bytes> {
        let lock = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = lock().get(&number) {
            return Ok(block.clone());
        }
        let end = self.base.saturating_add(self.len);
        let range = number * BLOCK..end.min((number + 1) * BLOCK);
        let block = match self.store.read("", range.clone()) {
            Err(error) if matches!(error.kind(), ErrorKind::Pending) && self.ahead > 1 => {
                let further = end.min(number.saturating_add(self.ahead).saturating_mul(BLOCK));
                let part = ByteRange::Exact(range.start..further);
                self.store.prefetch(&[Upcoming::Bytes(String::new(), part)]);
                return Err(error);
            }
            other => other?,
        };
        let mut blocks = lock();
        if blocks.len() >= BLOCKS {
            blocks.clear();
        }
        blocks.insert(number, block.clone());
        Ok(block)
    }
}

impl Storage for MetadataStorage {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_range(&self, offset: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let bytes = self
            .read(offset, len as u64)
            .map(|bytes| self.patched(offset, bytes))
            // The parser passes the error through; `error::of_parser` unwraps it.
            .map_err(|error| ParserError::Io(std::io::Error::other(error)))?;
        StorageBuffer::from_shared_owner(Arc::new(bytes), 0, len)
    }
}
