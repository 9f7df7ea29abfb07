//! Files that are appended to while they are read.

use std::sync::Arc;

use crate::layer::StoreLayer;
use crate::sigbus::OperationGuard;
use crate::store::Store;

/// A store of append-only files. Operations do not fail when a file grows.
#[derive(Debug)]
pub struct Growing(pub Arc<dyn Store>);

impl StoreLayer for Growing {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    fn over(&self, inner: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self(inner)))
    }

    fn operation(&self, guard: OperationGuard) -> OperationGuard {
        guard.of_growing_files()
    }
}
