//! Opening an index.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::json;
use tesseral_core::{Attributes, Finding, Result};
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, Format, Groups, OpenOptions,
    Probe, Sniff,
};
use tesseral_store::{JoinedStore, Store, StoreExt};

use crate::array::VirtualArray;
use crate::sources::Sources;
use crate::wire::{FormKind, IndexContent, MAGIC};

/// Finds a format by its id.
pub type FindFormat = fn(&str) -> Result<&'static dyn Format>;

/// Indexes. The formats of the sources are found by a function.
#[derive(Clone, Copy)]
pub struct IndexFormat {
    /// Finds the formats of sources.
    pub find: FindFormat,
}

impl fmt::Debug for IndexFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexFormat").finish_non_exhaustive()
    }
}

/// An opened index.
#[derive(Debug)]
struct IndexContainer {
    /// The index and its sources.
    store: Arc<dyn Store>,
    arrays: Vec<(String, Arc<VirtualArray>)>,
    attributes: Attributes,
    groups: Groups,
    sources: usize,
    /// Number of arrays that are read through the formats of their sources.
    opened: usize,
    len: u64,
}

impl IndexContainer {
    fn open(store: Arc<dyn Store>, options: &OpenOptions, find: FindFormat) -> Result<Self> {
        let object = store.describe("");
        let len = store.len("")?;
        options.limits.check_metadata(len)?;
        let file = store.view("", 0..len)?;
        let content = IndexContent::parse(&file, &object, options.limits)?;
        let sources = Arc::new(Sources::new(store, content.sources, options, find));
        let decoders = Arc::new(content.forms.iter().map(|_| OnceLock::new()).collect::<Vec<_>>());
        let forms = Arc::new(content.forms);
        let through = |form: u32| forms.get(form as usize).is_some_and(|form| form.kind == FormKind::Opened);
        let opened = content.arrays.iter().filter(|a| a.pieces.iter().any(|p| through(p.form))).count();
        let arrays = content.arrays.into_iter().map(|array| {
            let name = array.schema.name.clone();
            (name, Arc::new(VirtualArray::new(array, &forms, &decoders, &content.table, &sources)))
        });
        Ok(Self {
            arrays: arrays.collect(),
            attributes: content.attributes,
            groups: content.groups,
            sources: sources.len(),
            opened,
            len,
            store: Arc::new(JoinedStore::new(sources)),
        })
    }
}

impl ContainerSource for IndexContainer {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn len(&self) -> usize {
        self.arrays.len()
    }

    fn name(&self, index: usize) -> &str {
        self.arrays.get(index).map_or("", |(name, _)| name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        match self.arrays.get(index) {
            Some((_, array)) => Ok(Arc::clone(array) as Arc<dyn ArraySource>),
            None => Err(self.out_of_bounds(index)),
        }
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn groups(&self) -> &Groups {
        &self.groups
    }

    fn details(&self) -> serde_json::Value {
        json!({"sources": self.sources, "bytes": self.len, "opened_arrays": self.opened})
    }
}

impl Format for IndexFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "index of other files"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tix"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match probe.entries {
            None if probe.head.starts_with(&MAGIC) => Sniff::Content,
            None if probe.has_extension(self.extensions()) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(IndexContainer::open(store, options, self.find)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = IndexContainer::open(store, &options.open, self.find);
        AuditReport::from_opening(opened, len, report, |container, report| {
            let detail = format!("the index of {} sources is valid", container.sources);
            report(Finding::passed("structure", detail));
            AuditReport { covered_bytes: container.len, ..AuditReport::default() }
        })
    }
}
