//! A container of the test formats.

use std::sync::Arc;

use serde_json::Value as Json;
use tesseral_core::{Attributes, Result};
use tesseral_format::{ArraySource, ContainerSource};
use tesseral_store::Store;

/// The arrays of a parsed directory.
#[derive(Debug)]
pub(super) struct TestContainer<A> {
    pub format: &'static str,
    pub store: Arc<dyn Store>,
    pub arrays: Vec<Arc<A>>,
    pub attributes: Attributes,
    pub details: Json,
}

impl<A: ArraySource + 'static> ContainerSource for TestContainer<A> {
    fn format(&self) -> &'static str {
        self.format
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn len(&self) -> usize {
        self.arrays.len()
    }

    fn name(&self, index: usize) -> &str {
        self.arrays.get(index).map_or("", |array| &array.schema().name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        match self.arrays.get(index) {
            Some(array) => Ok(Arc::<A>::clone(array)),
            None => Err(self.out_of_bounds(index)),
        }
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn details(&self) -> Json {
        self.details.clone()
    }
}
