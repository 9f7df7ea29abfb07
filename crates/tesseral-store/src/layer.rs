//! Stores around stores: every call is passed on, and a layer states only what it changes.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::{Cancel, Error, ErrorKind, Result};

use crate::durability::Unsynced;
use crate::sigbus::OperationGuard;
use crate::store::{ByteRange, ObjectBytes, ObjectInfo, Overwrite, Profile, Staged, Store, Upcoming};
use crate::unpublished::Unpublished;

/// A store that passes every call on to another one. Implementing it implements [`Store`].
///
/// ```
/// use std::sync::Arc;
/// use tesseral_store::{MemoryStore, Store, StoreExt, StoreLayer};
///
/// #[derive(Debug)]
/// struct Plain(Arc<dyn Store>);
///
/// impl StoreLayer for Plain {
///     fn inner(&self) -> &dyn Store {
///         self.0.as_ref()
///     }
/// }
///
/// let store = Plain(Arc::new(MemoryStore::with_object("demo", b"0123".to_vec())));
/// assert_eq!(&store.read("", 1..3)?[..], b"12");
/// # Ok::<(), tesseral_core::Error>(())
/// ```
pub trait StoreLayer: Debug + Send + Sync {
    /// The store that calls are passed on to.
    fn inner(&self) -> &dyn Store;

    /// Replaces the error of a call that reads an object or its length.
    fn read_error(&self, object: &str, error: Error) -> Error {
        let _ = object;
        error
    }

    /// The same layer over another view of its store; `None` if operations on it cannot be canceled while they wait, and its objects
    /// cannot be made durable together.
    fn over(&self, inner: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let _ = inner;
        None
    }

    /// Adjusts the guard of an operation that begins.
    fn operation(&self, guard: OperationGuard) -> OperationGuard {
        guard
    }
}

impl<L: StoreLayer> Store for L {
    fn location(&self) -> &str {
        self.inner().location()
    }

    fn len(&self, object: &str) -> Result<u64> {
        self.inner().len(object).map_err(|e| self.read_error(object, e))
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner().read_many(object, ranges).map_err(|e| self.read_error(object, e))
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        self.inner().resident(object).map_err(|e| self.read_error(object, e))
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner().view(object, range).map_err(|e| self.read_error(object, e))
    }

    fn release(&self, object: &str) {
        self.inner().release(object);
    }

    fn watch(&self) -> Result<OperationGuard> {
        self.inner().watch().map(|guard| self.operation(guard))
    }

    fn read_objects(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<ObjectBytes>> {
        self.inner().read_objects(reads).map_err(|error| {
            if !matches!(error.kind(), ErrorKind::NotFound { .. }) {
                return error;
            }
            // The error of many objects does not identify the missing one; the length of each does.
            reads.iter().find_map(|(object, _)| self.len(object).err()).unwrap_or(error)
        })
    }

    fn read_existing(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<Option<ObjectBytes>>> {
        self.inner().read_existing(reads)
    }

    fn etag(&self, object: &str) -> Option<String> {
        self.inner().etag(object)
    }

    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        self.inner().beside(name)
    }

    fn prefetch(&self, upcoming: &[Upcoming]) {
        self.inner().prefetch(upcoming);
    }

    fn canceled_by(&self, cancel: &Cancel) -> Option<Arc<dyn Store>> {
        self.inner().canceled_by(cancel).and_then(|inner| self.over(inner))
    }

    fn profile(&self) -> Profile {
        self.inner().profile()
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        self.inner().list(folder)
    }

    fn leftovers(&self) -> Result<Vec<String>> {
        self.inner().leftovers()
    }

    fn remove_leftovers(&self) -> Result<()> {
        self.inner().remove_leftovers()
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        self.inner().stage(object, overwrite)
    }

    fn remove(&self, object: &str) -> Result<()> {
        self.inner().remove(object)
    }

    fn remove_all(&self, object: &str) -> Result<()> {
        self.inner().remove_all(object)
    }

    fn deferred(&self) -> Option<(Arc<dyn Store>, Arc<Unsynced>)> {
        let (inner, list) = self.inner().deferred()?;
        Some((self.over(inner)?, list))
    }

    fn unpublished(&self, object: &str) -> Option<Unpublished> {
        self.inner().unpublished(object)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemoryStore;

    #[derive(Debug)]
    struct Named(Arc<dyn Store>);

    impl StoreLayer for Named {
        fn inner(&self) -> &dyn Store {
            self.0.as_ref()
        }

        fn read_error(&self, object: &str, _: Error) -> Error {
            Error::invalid(format!("layer: {object}"))
        }
    }

    #[test]
    fn every_read_reports_the_error_of_the_layer() {
        let inner = MemoryStore::new("m");
        inner.insert("a", b"0123".to_vec());
        let store = Named(Arc::new(inner));
        let end = ObjectBytes { start: 2, len: 4, bytes: Bytes::from_static(b"23") };
        assert_eq!(store.read_objects(&[("a", ByteRange::Suffix(2))]).unwrap(), [end]);
        let both = [("a", ByteRange::Suffix(2)), ("b", ByteRange::Suffix(2))];
        let errors = [
            store.len("b").unwrap_err(),
            store.read_many("b", &[]).unwrap_err(),
            store.view("b", 0..1).unwrap_err(),
            store.read_objects(&both).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains("layer: b"), "{error}");
        }
    }
}
