//! The files of an open array: a missing one is damage, not a mistyped name.

use std::sync::Arc;

use tesseral_core::{Error, ErrorKind};
use tesseral_store::{Store, StoreExt, StoreLayer};

/// A store whose objects are the files of one array.
#[derive(Debug)]
pub(crate) struct ArrayStore(pub Arc<dyn Store>);

impl StoreLayer for ArrayStore {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    fn over(&self, inner: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self(inner)))
    }

    fn read_error(&self, object: &str, error: Error) -> Error {
        // The marker of groups is optional; every other object is required.
        let needed = !object.is_empty() && object != crate::group::MARKER;
        if !needed || !matches!(error.kind(), ErrorKind::NotFound { .. }) {
            return error;
        }
        Error::missing("a file of the array", self.0.describe(object), object)
    }
}
