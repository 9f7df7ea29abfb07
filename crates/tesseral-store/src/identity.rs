//! Whether files are still what they were when they were opened.
//!
//! A file that another process writes to while it is read gives a mixture of old and new bytes, which no format can be relied on to
//! notice. So the device, inode, length and time of the last modification are noted when a file is opened, and compared when an
//! operation that used it ends, when its handle is closed, and when it is opened once more. A file that is replaced by a rename is
//! not affected: the open handle keeps the old one, whole.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tesseral_core::{Error, Result};

use crate::handles;

/// What stays the same as long as nobody writes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Identity {
    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }

    /// How a later state of the same object differs; `None` when it does not.
    fn change(&self, now: &Self) -> Option<Change> {
        if self == now {
            return None;
        }
        if (self.device, self.inode) != (now.device, now.inode) {
            return Some(Change { grown: false, detail: "another file took its place".to_owned() });
        }
        let detail = match self.len == now.len {
            true => "it was written to after it was opened".to_owned(),
            false => format!("it had {} bytes when it was opened, now it has {}", self.len, now.len),
        };
        Some(Change { grown: now.len > self.len, detail })
    }
}

#[derive(Debug)]
struct Change {
    /// The file got longer: bytes were probably appended.
    grown: bool,
    detail: String,
}

/// The files of one store that were opened so far.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// What objects were when they were first opened, by a hash of their names: there may be hundreds of thousands.
    known: Mutex<HashMap<u64, Identity>>,
    hasher: RandomState,
    open: Mutex<Vec<Weak<OpenFile>>>,
    /// The first change found when a handle was closed: one that left more bytes than before, and any other.
    grown: OnceLock<(String, String)>,
    changed: OnceLock<(String, String)>,
}

impl Identities {
    /// Notes a file that was opened.
    pub(crate) fn opened(
        self: &Arc<Self>,
        object: &str,
        described: String,
        file: File,
        metadata: &Metadata,
    ) -> Result<Arc<OpenFile>> {
        let identity = match metadata.is_file() {
            true => Some(self.known(object, &described, Identity::new(metadata))?),
            false => None,
        };
        let opened = Arc::new(OpenFile {
            described,
            file,
            identity,
            used: AtomicU64::new(0),
            identities: Arc::clone(self),
            _counted: handles::Counted::new(),
        });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|file| file.strong_count() > 0);
        open.push(Arc::downgrade(&opened));
        Ok(opened)
    }

    /// What an object was when it was first opened. An object that is another file since then is an error.
    fn known(&self, object: &str, described: &str, now: Identity) -> Result<Identity> {
        let key = self.hasher.hash_one(object);
        let first = *self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(now);
        match first.change(&now) {
            // What was appended belongs to no operation yet.
            Some(change) if !change.grown => Err(Error::changed(described, change.detail)),
            _ => Ok(first),
        }
    }

    /// Notes an object that was read through a handle which is closed again.
    pub(crate) fn read_once(
        &self,
        object: &str,
        described: &str,
        before: &Metadata,
        file: &File,
    ) -> Result<()> {
        let before = self.known(object, described, Identity::new(before))?;
        match file.metadata().ok().and_then(|now| before.change(&Identity::new(&now))) {
            Some(change) => Err(Error::changed(described, change.detail)),
            None => Ok(()),
        }
    }

    /// Forgets an object that this store is about to replace or remove.
    pub(crate) fn forget(&self, object: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.hasher.hash_one(object));
    }

    /// Fails when a file changed that operations since the one of that number used, or one whose handle was closed.
    pub(crate) fn check(&self, since: u64, may_grow: bool) -> Result<()> {
        let error = |(object, detail): &(String, String)| Error::changed(object, detail);
        let closed = self.changed.get().or_else(|| self.grown.get().filter(|_| !may_grow));
        if let Some(found) = closed {
            return Err(error(found));
        }
        let open: Vec<Arc<OpenFile>> = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.iter().filter_map(Weak::upgrade).filter(|file| file.used.load(SeqCst) >= since).collect()
        };
        let found = open.iter().find_map(|file| {
            let change = file.change().filter(|change| !(change.grown && may_grow))?;
            Some((file.described.clone(), change.detail))
        });
        found.map_or(Ok(()), |found| Err(error(&found)))
    }
}

/// An open file of a store.
#[derive(Debug)]
pub(crate) struct OpenFile {
    described: String,
    pub(crate) file: File,
    /// Folders open, too; nothing of them is read through the handle.
    identity: Option<Identity>,
    /// The number of the last operation that had begun when it was last used.
    used: AtomicU64,
    identities: Arc<Identities>,
    _counted: handles::Counted,
}

impl OpenFile {
    /// Notes that operations up to the one of that number use it.
    pub(crate) fn used_by(&self, operation: u64) {
        self.used.fetch_max(operation, SeqCst);
    }

    fn change(&self) -> Option<Change> {
        let now = self.file.metadata().ok()?;
        self.identity.and_then(|identity| identity.change(&Identity::new(&now)))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // Nobody may be left to ask about this handle: the next operation that ends reports it.
        if self.used.load(SeqCst) > 0
            && let Some(change) = self.change()
        {
            let found = if change.grown { &self.identities.grown } else { &self.identities.changed };
            let _ = found.set((std::mem::take(&mut self.described), change.detail));
        }
    }
}
