//! Detection of files that changed since they were opened.
//!
//! Reading a file while another process writes to it returns a mixture of old and new bytes, which formats cannot reliably
//! detect. Device, inode, length and modification time are therefore recorded when a file is opened, and compared when an
//! operation that used it ends, when its handle is closed, and when it is reopened. Replacing a file by a rename has no effect:
//! the open handle keeps the old file.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::sleep;
use std::time::Duration;

use tesseral_core::{Error, Result};

use crate::handles;

/// How often, and at which interval, a file with a new modification time and its old length is examined for appended bytes.
const APPEND_CHECKS: u32 = 100;
const APPEND_INTERVAL: Duration = Duration::from_millis(2);

/// Properties of a file that change when it is written.
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

    /// Describes how an open file differs from this earlier state; `None` if it does not.
    ///
    /// Systems set the modification time at the start of a write and the length once bytes are copied. A file that is being
    /// appended to can therefore show a new time with the old length, so that such a file is examined again for a short time.
    fn change(&self, file: &File) -> Option<FileChange> {
        let state = || file.metadata().ok().map(|metadata| Self::new(&metadata));
        let mut now = state()?;
        for _ in 0..APPEND_CHECKS {
            let modified_only =
                now != *self && Self { seconds: self.seconds, nanoseconds: self.nanoseconds, ..now } == *self;
            if !modified_only {
                break;
            }
            sleep(APPEND_INTERVAL);
            now = state()?;
        }
        self.difference(&now)
    }

    fn difference(&self, now: &Self) -> Option<FileChange> {
        if self == now {
            return None;
        }
        if (self.device, self.inode) != (now.device, now.inode) {
            return Some(FileChange { grown: false, detail: "the file was replaced".to_owned() });
        }
        let detail = match self.len == now.len {
            true => "the file was modified after it was opened".to_owned(),
            false => {
                format!("the length changed from {} to {} bytes after the file was opened", self.len, now.len)
            }
        };
        Some(FileChange { grown: now.len > self.len, detail })
    }
}

#[derive(Debug)]
struct FileChange {
    /// Returns whether the file grew, which suggests an append.
    grown: bool,
    detail: String,
}

/// The files of one store that have been opened.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// State of objects when first opened, by a hash of their names: there can be hundreds of thousands.
    known: Mutex<HashMap<u64, Identity>>,
    hasher: RandomState,
    open: Mutex<Vec<Weak<OpenFile>>>,
    /// The first change found when a handle was closed: by growth, and any other.
    grown: OnceLock<(String, String)>,
    changed: OnceLock<(String, String)>,
}

impl Identities {
    /// Records an opened file.
    pub(crate) fn opened(
        self: &Arc<Self>,
        object: &str,
        described: String,
        file: File,
        metadata: &Metadata,
    ) -> Result<Arc<OpenFile>> {
        let identity = match metadata.is_file() {
            true => Some(self.known(object, &described, metadata, &file)?),
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

    /// Returns the state of an object when it was first opened. Fails if the object is now another file.
    fn known(&self, object: &str, described: &str, now: &Metadata, file: &File) -> Result<Identity> {
        let key = self.hasher.hash_one(object);
        let now = Identity::new(now);
        let first = *self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(now);
        if first == now {
            return Ok(first);
        }
        match first.change(file) {
            // Appended bytes are not used by any operation yet.
            Some(change) if !change.grown => Err(Error::changed(described, change.detail)),
            _ => Ok(first),
        }
    }

    /// Records an object that was read through a handle that is closed again.
    pub(crate) fn read_once(
        &self,
        object: &str,
        described: &str,
        before: &Metadata,
        file: &File,
    ) -> Result<()> {
        let before = self.known(object, described, before, file)?;
        match before.change(file) {
            Some(change) => Err(Error::changed(described, change.detail)),
            None => Ok(()),
        }
    }

    /// Drops the identity of an object that this store is about to replace or remove.
    pub(crate) fn forget(&self, object: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.hasher.hash_one(object));
    }

    /// Fails if a file changed that operations since number `since` used, or one whose handle was closed.
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
    /// Folders can be opened as well, but not read through the handle.
    identity: Option<Identity>,
    /// Number of the latest operation that had begun when it was last used.
    used: AtomicU64,
    identities: Arc<Identities>,
    _counted: handles::Counted,
}

impl OpenFile {
    /// Marks the file as used by operations up to number `operation`.
    pub(crate) fn used_by(&self, operation: u64) {
        self.used.fetch_max(operation, SeqCst);
    }

    fn change(&self) -> Option<FileChange> {
        self.identity?.change(&self.file)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // No operation might check this handle later: the next operation that ends reports the change.
        if self.used.load(SeqCst) > 0
            && let Some(change) = self.change()
        {
            let found = if change.grown { &self.identities.grown } else { &self.identities.changed };
            let _ = found.set((std::mem::take(&mut self.described), change.detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::SystemTime;

    use super::*;

    /// Sets a new modification time, as the start of a write does.
    fn touch(file: &File) {
        file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn an_append_in_progress_counts_as_growth() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"message").unwrap();
        let before = Identity::new(&file.metadata().unwrap());
        assert!(before.change(&file).is_none());
        touch(&file);
        let mut writer = file.try_clone().unwrap();
        let appending = std::thread::spawn(move || {
            sleep(4 * APPEND_INTERVAL);
            writer.write_all(b"message").unwrap();
        });
        assert!(before.change(&file).unwrap().grown);
        appending.join().unwrap();
    }

    #[test]
    fn a_modification_without_growth_is_a_change() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"message").unwrap();
        let before = Identity::new(&file.metadata().unwrap());
        touch(&file);
        assert!(!before.change(&file).unwrap().grown);
        file.set_len(3).unwrap();
        assert!(!before.change(&file).unwrap().grown);
    }
}
