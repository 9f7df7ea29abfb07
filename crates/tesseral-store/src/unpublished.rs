//! What was made under a temporary name and is not published yet, so that a process that has to end at once can remove it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Paths to remove when the process ends without publishing them.
static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Held for reading while something is put in place, for writing once nothing may be any more.
static PUBLISHING: RwLock<()> = RwLock::new(());

/// Registers a path that [`abandon`] removes, until this is dropped. Register before the path is made.
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

/// Keeps [`abandon`] waiting while renames put something in place: between two of them there is nothing that could be removed safely.
pub(crate) fn publishing() -> RwLockReadGuard<'static, ()> {
    PUBLISHING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Removes everything that is registered. Afterwards nothing can be staged or published any more: threads that try wait forever, so the
/// caller must end the process at once.
pub fn abandon() {
    std::mem::forget(PUBLISHING.write().unwrap_or_else(PoisonError::into_inner));
    let paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
    for path in paths.iter() {
        remove(path);
    }
    std::mem::forget(paths);
}

/// Writers may still add files to a folder while it is removed; a second pass finds them.
fn remove(path: &Path) {
    for _ in 0..3 {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        // What cannot be removed is a leftover, which its name tells.
        let _ = if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}
