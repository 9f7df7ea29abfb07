//! When written bytes are made durable.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::{Error, Result};

use crate::folder::{Folder, io};

/// Whether an output survives a loss of power once it is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Files and folders are durable before the output is visible under its name.
    #[default]
    Full,
    /// Nothing is forced to the device: a published output can be lost or incomplete after a loss of power, though not after the end
    /// of the process. For scratch data.
    None,
}

impl std::str::FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "full" => Ok(Self::Full),
            "none" => Ok(Self::None),
            _ => Err(Error::invalid(format!("unknown durability {text:?}")).hint("available: full, none")),
        }
    }
}

/// Number of files, and of folders, that wait together. More would keep too many handles open.
const MAX_PENDING: usize = 16;
/// Number of files and folders made durable at the same time. A journal commits them together, and a device flushes once for all that
/// wait.
const TOGETHER: usize = 16;

/// Files and folders of an output that is not visible yet: each is made durable once, before the output is published, instead of
/// each time it changes.
#[derive(Debug, Default)]
pub struct Unsynced {
    durability: Durability,
    waiting: Mutex<UnsyncedNames>,
}

#[derive(Debug, Default)]
struct UnsyncedNames {
    files: Vec<(Arc<File>, Box<Path>)>,
    folders: Vec<Arc<Folder>>,
}

impl Unsynced {
    /// Creates an empty list.
    pub fn new(durability: Durability) -> Arc<Self> {
        Arc::new(Self { durability, waiting: Mutex::default() })
    }

    /// The durability of the output.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, UnsyncedNames> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file that is completely written.
    pub(crate) fn add_file(&self, file: Arc<File>, path: &Path) -> Result<()> {
        if self.durability == Durability::None {
            return Ok(());
        }
        let mut waiting = self.waiting();
        waiting.files.push((file, path.into()));
        if waiting.files.len() < MAX_PENDING {
            return Ok(());
        }
        let files = std::mem::take(&mut waiting.files);
        drop(waiting);
        sync_all(&files, &[])
    }

    /// Adds a folder whose entries changed.
    pub(crate) fn add_folder(&self, folder: &Arc<Folder>) -> Result<()> {
        if self.durability == Durability::None {
            return Ok(());
        }
        let mut waiting = self.waiting();
        if waiting.folders.iter().any(|known| known.path() == folder.path()) {
            return Ok(());
        }
        waiting.folders.push(Arc::clone(folder));
        if waiting.folders.len() < MAX_PENDING {
            return Ok(());
        }
        // One that changes again is added again.
        let folders = std::mem::take(&mut waiting.folders);
        drop(waiting);
        sync_all(&[], &folders)
    }

    /// Makes everything durable, in any order: nothing has to survive by itself before the output takes its name.
    ///
    /// # Errors
    /// `Io`.
    pub fn settle(&self) -> Result<()> {
        let UnsyncedNames { files, folders } = std::mem::take(&mut *self.waiting());
        sync_all(&files, &folders)
    }
}

fn sync_all(files: &[(Arc<File>, Box<Path>)], folders: &[Arc<Folder>]) -> Result<()> {
    let count = files.len() + folders.len();
    let synchronize = |number: usize| match files.get(number) {
        Some((file, path)) => file.sync_all().map_err(|e| io("sync", path, e)),
        None => folders.get(number - files.len()).map_or(Ok(()), |folder| folder.sync()),
    };
    if count < 2 {
        return (0..count).try_for_each(synchronize);
    }
    let (synchronize, threads) = (&synchronize, count.min(TOGETHER));
    std::thread::scope(|scope| {
        let share = |first: usize| move || (first..count).step_by(threads).try_for_each(synchronize);
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(share(first))).collect();
        running.into_iter().try_for_each(|share| {
            share.join().map_err(|_| Error::internal("a thread that makes files durable panicked"))?
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalStore, Overwrite, ReadMode, StoreExt};

    fn waiting(unsynced: &Unsynced) -> (usize, usize) {
        let waiting = unsynced.waiting();
        (waiting.files.len(), waiting.folders.len())
    }

    #[test]
    fn every_file_and_folder_is_made_durable_once() {
        let folder = tempfile::tempdir().unwrap();
        for durability in [Durability::Full, Durability::None] {
            let unsynced = Unsynced::new(durability);
            let root = folder.path().join(format!("{durability:?}"));
            let store = LocalStore::new(&root, ReadMode::Read).unsynced(Arc::clone(&unsynced));
            for name in ["a/one", "a/two", "b/three", "a/one"] {
                store.put(name, name.as_bytes(), Overwrite::Replace).unwrap();
            }
            assert_eq!(&store.read("a/one", 0..5).unwrap()[..], b"a/one");
            // The root, where objects are staged, and both folders.
            let expected = if durability == Durability::Full { (4, 3) } else { (0, 0) };
            assert_eq!(waiting(&unsynced), expected);
            unsynced.settle().unwrap();
            assert_eq!(waiting(&unsynced), (0, 0));
        }
    }

    #[test]
    fn handles_of_very_many_files_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let unsynced = Unsynced::new(Durability::Full);
        let store = LocalStore::new(folder.path(), ReadMode::Read).unsynced(Arc::clone(&unsynced));
        for number in 0..MAX_PENDING + 3 {
            store.put(&number.to_string(), b"x", Overwrite::Refuse).unwrap();
        }
        assert_eq!(waiting(&unsynced).0, 3);
        assert!("sometimes".parse::<Durability>().is_err());
    }
}
