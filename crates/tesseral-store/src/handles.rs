//! How many files this process may hold open, and giving handles back when there are no more.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Files that one store keeps open, where the process may open many.
const MOST_KEPT: usize = 256;

/// Files that stores hold open at this moment.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static CACHES: Mutex<Vec<Weak<dyn Cache>>> = Mutex::new(Vec::new());

/// Handles that are kept for the next read and can be closed at any time.
pub(crate) trait Cache: Send + Sync {
    /// Closes those that are not in use.
    fn close_all(&self);
}

/// Counts one open file for as long as it lives.
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

/// The number of files that the process may have open.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    })
}

/// The number of files that one store keeps open.
pub(crate) fn most_kept() -> usize {
    (limit() / 8).clamp(2, MOST_KEPT)
}

/// Whether so many files are open that further ones should be closed right after they were read: maps keep their files open, and
/// an operation may use any number of maps at once.
pub(crate) fn are_scarce() -> bool {
    OPEN.load(Relaxed) >= limit() / 2
}

/// Makes the handles of a cache available to whoever needs one.
pub(crate) fn share(cache: &Arc<impl Cache + 'static>) {
    let cache: Arc<dyn Cache> = Arc::clone(cache) as Arc<dyn Cache>;
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    caches.retain(|cache| cache.strong_count() > 0);
    caches.push(Arc::downgrade(&cache));
}

/// Opens a file by `open`. When the process has no handle left, those that are only kept are closed, and it is tried once more.
pub(crate) fn open<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(error) if is_exhausted(&error) => {
            let caches: Vec<_> = {
                let caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
                caches.iter().filter_map(Weak::upgrade).collect()
            };
            caches.iter().for_each(|cache| cache.close_all());
            open()
        }
        other => other,
    }
}

/// Whether an error says that there are too many open files, of the process or of the system.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
