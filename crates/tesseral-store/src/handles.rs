//! Limit on open files of this process, and release of cached handles.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Maximum number of open files that one store caches, if the process limit is high.
const MAX_OPEN: usize = 256;

/// Number of files that stores have open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static CACHES: Mutex<Vec<Weak<dyn HandleCache>>> = Mutex::new(Vec::new());

/// Handles that are cached for later reads and can be closed at any time.
pub(crate) trait HandleCache: Send + Sync {
    /// Closes the handles that are not in use.
    fn close_all(&self);
}

/// Counts one open file until dropped.
#[derive(Debug)]
pub(crate) struct Counted(());

impl Counted {
    pub(crate) fn new() -> Self {
        OPEN.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}

/// The process limit on open files.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    })
}

/// Number of open files that one store caches.
pub(crate) fn most_kept() -> usize {
    (limit() / 8).clamp(2, MAX_OPEN)
}

/// Returns whether so many files are open that further ones should be closed right after a read: maps keep their files open,
/// and the number of maps of an operation is not bounded.
pub(crate) fn are_scarce() -> bool {
    OPEN.load(Relaxed) >= limit() / 2
}

/// Registers the handles of a cache for release.
pub(crate) fn share(cache: &Arc<impl HandleCache + 'static>) {
    let cache: Arc<dyn HandleCache> = Arc::clone(cache) as Arc<dyn HandleCache>;
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    caches.retain(|cache| cache.strong_count() > 0);
    caches.push(Arc::downgrade(&cache));
}

/// Opens a file by `open`. If the process has no handles left, cached ones are closed and the call is retried once.
pub(crate) fn open<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(error) if is_exhausted(&error) => {
            close_kept();
            open()
        }
        other => other,
    }
}

/// Closes every cached handle.
pub(crate) fn close_kept() {
    let caches: Vec<_> = {
        let caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
        caches.iter().filter_map(Weak::upgrade).collect()
    };
    caches.iter().for_each(|cache| cache.close_all());
}

/// A file being written whose handle is closed when the process runs out of handles, and reopened on demand.
pub(crate) struct ReopenedFile {
    reopen: Box<dyn Fn() -> io::Result<File> + Send + Sync>,
    file: Mutex<Option<Arc<File>>>,
}

impl std::fmt::Debug for ReopenedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reopened").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ReopenedFile {
    /// An open file and the function that reopens it.
    pub(crate) fn new(
        file: File,
        reopen: impl Fn() -> io::Result<File> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let kept = Arc::new(Self { reopen: Box::new(reopen), file: Mutex::new(Some(Arc::new(file))) });
        share(&kept);
        kept
    }

    /// Returns the open file.
    pub(crate) fn get(&self) -> io::Result<Arc<File>> {
        if let Some(file) = &*self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(open(&self.reopen)?);
        let mut kept = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(kept.get_or_insert(file)))
    }
}

impl HandleCache for ReopenedFile {
    fn close_all(&self) {
        let closed = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(closed);
    }
}

/// Returns whether an error means too many open files, of the process or of the system.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_closed_for_lack_of_handles_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let again = path.clone();
        let kept = ReopenedFile::new(File::create_new(&path).unwrap(), move || {
            File::options().read(true).write(true).open(&again)
        });
        kept.get().unwrap().write_all_at(b"abcd", 0).unwrap();
        kept.close_all();
        kept.get().unwrap().write_all_at(b"efgh", 4).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"abcdefgh");
    }

    #[test]
    fn cached_handles_are_released_once() {
        #[derive(Debug, Default)]
        struct Counting(AtomicUsize);
        impl HandleCache for Counting {
            fn close_all(&self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let cache = Arc::new(Counting::default());
        share(&cache);
        let exhausted = || io::Error::from_raw_os_error(libc::EMFILE);
        let mut calls = 0;
        let opened = open(|| {
            calls += 1;
            if cache.0.load(Relaxed) == 0 { Err(exhausted()) } else { Ok(calls) }
        });
        assert_eq!(opened.unwrap(), 2);
        assert!(open(|| Err::<(), _>(exhausted())).is_err());
        assert_eq!(cache.0.load(Relaxed), 2);
        assert!(open(|| Err::<(), _>(io::Error::from_raw_os_error(libc::ENOENT))).is_err());
        assert_eq!(cache.0.load(Relaxed), 2, "other errors do not release handles");
    }
}
