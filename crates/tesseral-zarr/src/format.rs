//! Implementation of [`Format`].

use std::sync::Arc;

use tesseral_core::{Finding, Result, Value};
use tesseral_format::convention::Holds;
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format,
    OpenOptions, OptionSet, Probe, Sniff, Writer,
};
use tesseral_store::Store;

use crate::open::{V2_ARRAY, V2_CONSOLIDATED, V2_GROUP, V3, ZarrContainer};
use crate::wire::node::{DIMENSION_KEY, FILL_KEY};
use crate::wire::{dtype, json};
use crate::write::{HISTORY, OPTIONS, ZarrWriter};

/// Zarr v2 and v3.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZarrFormat;

/// An attribute as it reads back.
fn read_back(name: &str, value: &Value) -> Option<Value> {
    if [DIMENSION_KEY, HISTORY].contains(&name) {
        return None;
    }
    match value {
        // Declared values of floats have a special notation, also for NaN.
        Value::Float(_) if name == FILL_KEY => Some(value.clone()),
        _ => json::to_json(value).map(json::value_of),
    }
}

impl Format for ZarrFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "Zarr"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["zarr"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: true,
            many_arrays: true,
            attributes: true,
            folder: true,
            chunk_objects: true,
            lossy_codecs: &["fixedscaleoffset", "astype"],
            ..Capabilities::default()
        }
    }

    fn holds(&self) -> Holds {
        Holds {
            cells: |dtype, cell| dtype::names(dtype, cell).is_some(),
            attribute: read_back,
            container_attribute: read_back,
            groups: true,
            labels: 0,
            unlimited: false,
            ..Holds::DENSE
        }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        let Some(entries) = probe.entries else { return Sniff::No };
        if [V3, V2_GROUP, V2_ARRAY, V2_CONSOLIDATED]
            .iter()
            .any(|name| entries.iter().any(|e| e.name == *name))
        {
            return Sniff::Content;
        }
        if probe.has_extension(self.extensions()) { Sniff::Name } else { Sniff::No }
    }

    fn decoder(&self, recipe: &[u8], options: &OpenOptions) -> Result<Arc<dyn ArraySource>> {
        Ok(Arc::new(crate::array::ZarrArray::from_recipe(recipe, options)?))
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(ZarrContainer::open(store, options)?))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(ZarrWriter::create(&store, options)?))
    }

    fn create_options(&self) -> &'static dyn OptionSet {
        &OPTIONS
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        // JSON metadata have no checksums.
        let opened = ZarrContainer::open(store, &options.open);
        AuditReport::from_opening(opened, 0, report, |container, report| {
            let detail = format!("the metadata of {} arrays are valid", container.len());
            report(Finding::passed("structure", detail));
            AuditReport::uncovered(container.metadata_bytes)
        })
    }

    fn foreign(&self, store: Arc<dyn Store>) -> Result<Option<String>> {
        crate::contents::foreign(&store)
    }
}
