//! Registry of unpublished temporary paths, for removal when the process must end immediately.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Paths to remove if the process ends without publishing them.
static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Locked for reading while an entry is renamed, for writing once no entry can be renamed any more.
static PUBLISHING: RwLock<()> = RwLock::new(());

/// Registers a path that [`abandon`] removes, until dropped. Register before creating the path.
#[derive(Debug)]
pub struct Unpublished(PathBuf);

impl Unpublished {
    /// Registers a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        PATHS.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        Self(path)
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        PATHS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Blocks [`abandon`] during a sequence of renames, in which no entry can be removed safely.
pub(crate) fn publishing() -> RwLockReadGuard<'static, ()> {
    PUBLISHING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all registered paths. Afterwards nothing can be staged or published: threads that try block forever, so the caller
/// must end the process immediately.
pub fn abandon() {
    std::mem::forget(PUBLISHING.write().unwrap_or_else(PoisonError::into_inner));
    let paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
    for path in paths.iter() {
        remove(path);
    }
    std::mem::forget(paths);
}

/// Writers can still add files to a folder while it is removed; a second pass removes them.
fn remove(path: &Path) {
    for _ in 0..3 {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        // An entry that cannot be removed is a leftover, marked by its name.
        let _ = if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}
