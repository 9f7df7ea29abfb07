//! A container with the arrays of the data model.

use std::ops::Range;
use std::sync::Arc;

use tesseral_core::{Attributes, HistoryRow, Limits, Result};
use tesseral_store::Store;

use super::attributes::AttributeList;
use super::marker::Marker;
use super::source::ModelArray;
use super::{Holds, attributes, encoding};
use crate::{ArraySource, ContainerPart, ContainerSource, Groups, MemoryBudget, Version};

/// A container read through the storage conventions.
#[derive(Debug)]
pub struct ModelContainer {
    inner: Arc<dyn ContainerSource>,
    holds: Holds,
    limits: Limits,
    /// Restored attributes; `None` if they are stored as they are.
    attributes: Option<Attributes>,
    /// Restored groups; `None` if they are stored as they are.
    groups: Option<Groups>,
}

impl ModelContainer {
    /// Wraps a container of a format with the given capabilities.
    ///
    /// # Errors
    /// `Limit` if the values of a marker would take too much memory.
    pub fn new(inner: Arc<dyn ContainerSource>, holds: Holds, limits: Limits) -> Result<Self> {
        let (attributes, groups) = restore(inner.attributes(), inner.groups(), &holds, &limits)?;
        Ok(Self { inner, holds, limits, attributes, groups })
    }

    /// Decodes one array of the format.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn decode(
        source: Arc<dyn ArraySource>,
        holds: &Holds,
        limits: Limits,
    ) -> Result<Arc<dyn ArraySource>> {
        let mut derived = source.derived_attributes().to_vec();
        let schema = source.schema();
        let marker = Marker::from_attributes(&schema.attributes, &limits)?;
        Ok(match encoding::decode(schema, marker, source.given_name(), holds, &mut derived) {
            None => source,
            Some((schema, encoding)) => {
                Arc::new(ModelArray { inner: source, schema, encoding, limits, derived })
            }
        })
    }
}

/// Attributes of a container and of its groups, where they differ from the stored ones.
fn restore(
    stored: &Attributes,
    own: &Groups,
    holds: &Holds,
    limits: &Limits,
) -> Result<(Option<Attributes>, Option<Groups>)> {
    let restored =
        |own: &Attributes, list: &AttributeList| attributes::decode(own, list, holds.container_attribute);
    let mut groups = None;
    for (path, attributes) in own {
        if let Some(list) = Marker::from_attributes(attributes, limits)?.and_then(|marker| marker.attributes)
        {
            groups.get_or_insert_with(|| own.clone()).insert(path.clone(), restored(attributes, &list));
        }
    }
    let attributes = Marker::from_attributes(stored, limits)?.map(|marker| {
        for (path, list) in &marker.groups {
            let attributes = restored(&Attributes::new(), list);
            groups.get_or_insert_with(|| own.clone()).insert(path.clone(), attributes);
        }
        restored(stored, &marker.attributes.unwrap_or_default())
    });
    Ok((attributes, groups))
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
        Self::decode(self.inner.array(index)?, &self.holds, self.limits)
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
        self.attributes.as_ref().unwrap_or_else(|| self.inner.attributes())
    }

    fn groups(&self) -> &Groups {
        self.groups.as_ref().unwrap_or_else(|| self.inner.groups())
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }

    fn part(&self, number: usize) -> Result<ContainerPart> {
        let mut part = self.inner.part(number)?;
        let (attributes, groups) = restore(&part.attributes, &part.groups, &self.holds, &self.limits)?;
        part.attributes = attributes.unwrap_or(part.attributes);
        part.groups = groups.unwrap_or(part.groups);
        Ok(part)
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
