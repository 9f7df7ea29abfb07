//! Reading of a source whose objects another process removes.
//!
//! Formats with many objects list them when a source is opened. A vacuum can remove some of them before they are read. A
//! missing object is therefore looked up in a new listing: if it is still listed, it is lost, which is damage. Otherwise it was
//! replaced, and the operation restarts on the new state, at the same time, unless cells of the old state were already
//! returned: cells of two states must not be mixed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::{ContainerSource, Format};
use tesseral_store::{Growing, Store};

use crate::Handle;

/// Maximum number of restarts of an operation. Each requires that another process removed an object.
const ATTEMPTS: usize = 16;

/// Reopens a source at the same time.
pub type Reopen = dyn Fn() -> Result<Arc<dyn ContainerSource>> + Send + Sync;

/// Name of the object that an error reports as missing.
fn missing(error: &Error) -> Option<&str> {
    match error.kind() {
        ErrorKind::Missing { name, .. } => Some(name),
        _ => None,
    }
}

/// Opens a source by `open`, and again if a listed object is missing. The same object missing twice is lost.
///
/// # Errors
/// Errors of `open`.
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

/// The store of a source, as used by operations on that format.
pub fn watched(format: &dyn Format, store: Arc<dyn Store>) -> Arc<dyn Store> {
    if format.messages().is_some() { Arc::new(Growing(store)) } else { store }
}

/// Returns whether an array of a container depends on an object.
fn needs(container: &dyn ContainerSource, object: &str) -> bool {
    (0..container.len()).any(|index| container.array(index).is_ok_and(|array| array.needs(object)))
}

/// Converts an error about a missing object according to a new listing: the source is out of date, or the object is lost.
pub fn missing_or_stale(
    error: Error,
    location: &str,
    reopen: &dyn Fn() -> Result<Arc<dyn ContainerSource>>,
) -> Error {
    match (missing(&error), object(&error)) {
        (Some(name), Some(object)) => match reopen() {
            Ok(fresh) if !needs(&*fresh, name) => Error::stale(location, object),
            Ok(_) => error,
            // The whole source was removed.
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

/// Origin of an array.
pub(crate) struct Origin {
    reopen: Arc<Reopen>,
    name: String,
    /// Whether an operation has returned a result.
    handed_out: AtomicBool,
    /// The array of the newest state, if the opened one is out of date.
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

    /// Returns the array of a new listing, to restart an operation that failed.
    fn fresh(&self, old: &Handle, error: Error) -> Result<Handle> {
        let (Some(name), Some(object)) = (missing(&error), object(&error)) else { return Err(error) };
        let location = old.store().location();
        let container = match (self.reopen)() {
            Ok(container) => container,
            Err(_) => return Err(missing_or_stale(error, location, &*self.reopen)),
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
    /// The array of the newest state that an operation used.
    pub(crate) fn latest(&self) -> Self {
        self.origin.as_ref().and_then(|origin| origin.latest()).unwrap_or_else(|| self.clone())
    }

    /// Returns the array for an operation with an independent result: it can restart on a newer state regardless of earlier
    /// reads.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut latest = self.latest();
        latest.origin =
            self.origin.as_ref().map(|origin| Origin::new(Arc::clone(&origin.reopen), &origin.name));
        latest
    }

    /// Runs an operation on stored bytes that cannot restart. Otherwise as [`restartable`](Self::restartable).
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
            Err(error) => Err(missing_or_stale(error, self.store().location(), &*origin.reopen)),
        }
    }

    /// Runs an operation on stored bytes, as every public operation does. If a file changed meanwhile, that error replaces the
    /// result; a result must not contain bytes of the store, except a [view](tesseral_store::Store::view). If an object is
    /// missing that a new listing does not contain, the operation restarts on the array of that listing, unless an earlier one
    /// returned a result.
    ///
    /// # Errors
    /// Errors of the operation; `Changed` if a file was written to, `Corrupt` if it was truncated, `Stale` if objects were
    /// removed and the operation could not restart.
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
