//! Opening and describing `.npy` files.

use std::sync::Arc;

use serde_json::json;
use tesseral_core::{Attributes, Error, Finding, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, Format, OpenOptions, Probe, Sniff,
    file_stem,
};
use tesseral_store::{Store, StoreExt};

use crate::array::{CellsPlace, NpyArray};
use crate::header::{self, NpyHeader};

/// NumPy `.npy` files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NpyFormat;

/// An opened file.
#[derive(Debug)]
struct NpyContainer {
    store: Arc<dyn Store>,
    name: String,
    header: NpyHeader,
    array: Arc<NpyArray>,
    /// Bytes before the cells.
    head: u64,
    attributes: Attributes,
}

impl NpyContainer {
    fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let (object, len) = (store.describe(""), store.len("")?);
        let first = store.read("", 0..len.min(header::FIRST))?;
        let dictionary = header::dictionary_range(&first, &object)?;
        if dictionary.end > len {
            return Err(Error::truncated(
                "header",
                &object,
                dictionary.start,
                dictionary.end - dictionary.start,
                len.saturating_sub(dictionary.start),
            ));
        }
        let header = NpyHeader::parse(&store.read("", dictionary.clone())?, &object, dictionary.start)?;
        let name = file_stem(store.location(), &["npy"], "array");
        let place = CellsPlace { range: dictionary.end..len, packed: None };
        let array = NpyArray::new(&name, &header, place, &object, options.limits)?;
        let (array, attributes) = (Arc::new(array), Attributes::new());
        Ok(Self { store, name, header, array, head: dictionary.end, attributes })
    }
}

impl ContainerSource for NpyContainer {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn len(&self) -> usize {
        1
    }

    fn name(&self, _index: usize) -> &str {
        &self.name
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        if index > 0 {
            return Err(self.out_of_bounds(index));
        }
        Ok(Arc::clone(&self.array) as Arc<dyn ArraySource>)
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn details(&self) -> serde_json::Value {
        let NpyHeader { descr, fortran, .. } = &self.header;
        json!({"descr": descr, "fortran_order": fortran, "header_bytes": self.head})
    }
}

impl Format for NpyFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "NumPy .npy"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["npy"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn holds(&self) -> Holds {
        Holds { chunks: false, ..Holds::DENSE }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match probe.entries {
            None if probe.head.starts_with(&header::MAGIC) => Sniff::Content,
            None if probe.has_extension(self.extensions()) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(NpyContainer::open(store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = NpyContainer::open(store, &options.open);
        AuditReport::from_opening(opened, len, report, |container, report| {
            report(Finding::passed("structure", "the file length matches the header"));
            AuditReport::uncovered(container.head)
        })
    }
}
