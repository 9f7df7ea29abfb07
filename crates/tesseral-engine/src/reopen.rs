//! Reading a source that another process cleans up: what was listed may be gone when it is read.
//!
//! Formats that keep a source in many objects list them when it is opened. A vacuum may remove some of them before they are read. A
//! missing object is therefore looked up in a fresh listing: one that is still named is lost, and that is damage. One that is not
//! was replaced, and the operation starts again on the new state, as of the same time, unless cells of the old state were already
//! handed out: those and cells of another state may not belong together.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::{Container, Format};
use tesseral_store::{Growing, Store};

use crate::Handle;

/// How often an operation starts again before it gives up. Every time another process must have removed something in between.
const ATTEMPTS: usize = 16;

/// Opens a source once more, as of the same time.
pub type Reopen = dyn Fn() -> Result<Arc<dyn Container>> + Send + Sync;

/// The name of the object that an error reports as missing.
fn missing(error: &Error) -> Option<&str> {
    match error.kind() {
        ErrorKind::Missing { name, .. } => Some(name),
        _ => None,
    }
}

/// Opens a source by `open`, and again when an object is gone that was listed a moment ago. The same object missing twice is lost.
///
/// # Errors
/// What `open` meets.
pub fn open_listed<T>(mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let mut last = None;
    for _ in 1..ATTEMPTS {
        let error = match open() {
            Err(error) if missing(&error).is_some_and(|name| last.as_deref() != Some(name)) => error,
            other => return other,
        };
        last = missing(&error).map(str::to_owned);
    }
    open()
}

/// The store of a source, as operations on a source of that format watch it.
pub fn watched(format: &dyn Format, store: Arc<dyn Store>) -> Arc<dyn Store> {
    if format.capabilities().grows { Arc::new(Growing(store)) } else { store }
}

/// Whether one of the arrays of a container relies on an object.
fn needs(container: &dyn Container, object: &str) -> bool {
    (0..container.len()).any(|index| container.array(index).is_ok_and(|array| array.needs(object)))
}

/// An error about a missing object, as a fresh listing lets it appear: the source is out of date, or the object is lost.
pub fn judge(error: Error, location: &str, reopen: &dyn Fn() -> Result<Arc<dyn Container>>) -> Error {
    match (missing(&error), object(&error)) {
        (Some(name), Some(object)) => match reopen() {
            Ok(fresh) if !needs(&*fresh, name) => Error::stale(location, object),
            Ok(_) => error,
            // All of it was removed.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Error::stale(location, object),
            Err(_) => error,
        },
        _ => error,
    }
}

fn object(error: &Error) -> Option<&str> {
    match error.kind() {
        ErrorKind::Missing { object, .. } => Some(object),
        _ => None,
    }
}

/// Where an array came from.
pub(crate) struct Origin {
    reopen: Arc<Reopen>,
    name: String,
    /// Whether an operation gave a result.
    handed_out: AtomicBool,
    /// The array of the newest state, where the one that was opened is out of date.
    latest: Mutex<Option<Handle>>,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Origin {
    pub(crate) fn new(reopen: Arc<Reopen>, name: &str) -> Arc<Self> {
        let (name, handed_out) = (name.to_owned(), AtomicBool::new(false));
        Arc::new(Self { reopen, name, handed_out, latest: Mutex::default() })
    }

    fn latest(&self) -> Option<Handle> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hand_out(&self) {
        if !self.handed_out.load(Relaxed) {
            self.handed_out.store(true, Relaxed);
        }
    }

    /// The array of a fresh listing, for an operation that met an error and starts again.
    fn fresh(&self, old: &Handle, error: Error) -> Result<Handle> {
        let (Some(name), Some(object)) = (missing(&error), object(&error)) else { return Err(error) };
        let location = old.store().location();
        let container = match (self.reopen)() {
            Ok(container) => container,
            Err(_) => return Err(judge(error, location, &*self.reopen)),
        };
        let index = (0..container.len()).find(|index| container.name(*index) == self.name);
        let Some(index) = index else { return Err(Error::stale(location, object)) };
        let fresh = old.of_state(&*container, index)?;
        if fresh.source().needs(name) {
            return Err(error);
        }
        if self.handed_out.load(Relaxed) || fresh.schema() != old.schema() {
            return Err(Error::stale(location, object));
        }
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh.clone());
        Ok(fresh)
    }
}

impl Handle {
    /// The array as of the newest state that an operation had to turn to.
    pub(crate) fn latest(&self) -> Self {
        self.origin.as_ref().and_then(|origin| origin.latest()).unwrap_or_else(|| self.clone())
    }

    /// The same array for an operation whose result stands by itself: it may start again on a newer state, whatever was read before.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut latest = self.latest();
        latest.origin =
            self.origin.as_ref().map(|origin| Origin::new(Arc::clone(&origin.reopen), &origin.name));
        latest
    }

    /// Runs an operation that touches stored bytes and cannot start again. As [`restartable`](Self::restartable) otherwise.
    ///
    /// # Errors
    /// As [`restartable`](Self::restartable).
    pub fn guarded<T>(&self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = tesseral_store::StoreExt::guarded(self.store(), operation);
        let Some(origin) = &self.origin else { return result };
        match result {
            Ok(value) => {
                origin.hand_out();
                Ok(value)
            }
            Err(error) => Err(judge(error, self.store().location(), &*origin.reopen)),
        }
    }

    /// Runs an operation that touches stored bytes: every public one is inside one of these. When a file changed meanwhile, that takes
    /// the place of whatever came of it; nothing that a result holds may be bytes of the store, but for a
    /// [view](tesseral_store::Store::view). When an object is gone that a fresh listing does not name any more, the operation starts again
    /// on the array of that listing, unless an earlier one gave a result.
    ///
    /// # Errors
    /// What the operation meets; `Changed` when a file was written to, `Corrupt` when it was cut, `Stale` when objects were removed and
    /// the operation could not start again.
    pub fn restartable<T>(&self, mut operation: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        let Some(origin) = &self.origin else {
            return tesseral_store::StoreExt::guarded(self.store(), || operation(self));
        };
        let mut handle = self.latest();
        for _ in 1..ATTEMPTS {
            let error = match tesseral_store::StoreExt::guarded(handle.store(), || operation(&handle)) {
                Err(error) if missing(&error).is_some() => error,
                other => {
                    if other.is_ok() {
                        origin.hand_out();
                    }
                    return other;
                }
            };
            handle = origin.fresh(&handle, error)?;
        }
        handle.guarded(|| operation(&handle))
    }
}
