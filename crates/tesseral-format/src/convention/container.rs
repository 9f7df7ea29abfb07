//! A container with the arrays of the data model.

use std::ops::Range;
use std::sync::Arc;

use tesseral_core::{Attributes, HistoryRow, Limits, Result};
use tesseral_store::Store;

use super::marker::Marker;
use super::source::ModelArray;
use super::{Holds, attributes, encoding};
use crate::{ArraySource, ContainerSource, Groups, MemoryBudget, Version};

/// A container read through the storage conventions.
#[derive(Debug)]
pub struct ModelContainer {
    inner: Arc<dyn ContainerSource>,
    holds: Holds,
    limits: Limits,
    attributes: Attributes,
    groups: Groups,
}

impl ModelContainer {
    /// Wraps a container of a format with the given capabilities.
    pub fn new(inner: Arc<dyn ContainerSource>, holds: Holds, limits: Limits) -> Self {
        let stored = inner.attributes();
        let mut groups = inner.groups().clone();
        for own in groups.values_mut() {
            if let Some(list) = Marker::from_attributes(own).and_then(|marker| marker.attributes) {
                *own = attributes::decode(own, &list, holds.container_attribute);
            }
        }
        let attributes = match Marker::from_attributes(stored) {
            None => stored.clone(),
            Some(marker) => {
                let list = marker.attributes.unwrap_or_default();
                for (path, list) in &marker.groups {
                    let own = attributes::decode(&Attributes::new(), list, holds.container_attribute);
                    groups.insert(path.clone(), own);
                }
                attributes::decode(stored, &list, holds.container_attribute)
            }
        };
        Self { inner, holds, limits, attributes, groups }
    }

    /// Decodes one array of the format.
    pub fn decode(source: Arc<dyn ArraySource>, holds: &Holds, limits: Limits) -> Arc<dyn ArraySource> {
        let mut derived = source.derived_attributes().to_vec();
        match encoding::decode(source.schema(), source.given_name(), holds, &mut derived) {
            None => source,
            Some((schema, encoding)) => {
                Arc::new(ModelArray { inner: source, schema, encoding, limits, derived })
            }
        }
    }
}

impl ContainerSource for ModelContainer {
    fn format(&self) -> &'static str {
        self.inner.format()
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.inner.store()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn name(&self, index: usize) -> &str {
        self.inner.name(index)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        Ok(Self::decode(self.inner.array(index)?, &self.holds, self.limits))
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.inner.find(name)
    }

    fn companions(&self, index: usize) -> Range<usize> {
        self.inner.companions(index)
    }

    fn sibling(&self, index: usize, name: &str) -> Option<usize> {
        self.inner.sibling(index, name)
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn groups(&self) -> &Groups {
        &self.groups
    }

    fn history(&self) -> &[HistoryRow] {
        self.inner.history()
    }

    fn versions(&self) -> Result<Vec<Version>> {
        self.inner.versions()
    }

    fn memory_budget(&self) -> Option<MemoryBudget> {
        self.inner.memory_budget()
    }

    fn unread(&self) -> Vec<String> {
        self.inner.unread()
    }

    fn details(&self) -> serde_json::Value {
        self.inner.details()
    }
}
