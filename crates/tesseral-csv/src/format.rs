//! Opening and describing tables.

use std::sync::Arc;

use serde_json::json;
use tesseral_core::{Attributes, Finding, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, Format, OpenOptions, Probe, Sniff,
    file_stem,
};
use tesseral_store::{Store, StoreExt};

use crate::array::CsvArray;
use crate::dialect;
use crate::table::CsvTable;

/// Tables of comma-separated values.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvFormat;

/// File extensions.
const EXTENSIONS: [&str; 2] = ["csv", "tsv"];

/// An opened table.
#[derive(Debug)]
struct CsvContainer {
    store: Arc<dyn Store>,
    name: String,
    array: Arc<CsvArray>,
    attributes: Attributes,
}

impl CsvContainer {
    fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let table = store.guarded(|| CsvTable::read(&store, options))?;
        // Text with any extension can be a table.
        let extension = store.location().rsplit_once('.').map_or("", |(_, extension)| extension);
        let name = file_stem(store.location(), &[extension], "table");
        let array = Arc::new(CsvArray::new(&name, table, store.describe(""), options.limits));
        Ok(Self { store, name, array, attributes: Attributes::new() })
    }
}

impl ContainerSource for CsvContainer {
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
        let table = &self.array.table;
        json!({"separator": char::from(table.separator).to_string(), "header": table.header})
    }
}

impl Format for CsvFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "CSV"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &EXTENSIONS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn holds(&self) -> Holds {
        Holds { many_fields: true, nullable: true, ..Holds::DENSE }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match probe.entries {
            None if dialect::is_table(probe.name, probe.head) => Sniff::Content,
            // Any text can be a table of one column, but nothing else.
            None if probe.has_extension(&EXTENSIONS) && !probe.head.contains(&0) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(CsvContainer::open(store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = CsvContainer::open(store, &options.open);
        AuditReport::from_opening(opened, len, report, |_, report| {
            report(Finding::passed("structure", "all rows have as many values as there are columns"));
            AuditReport::default()
        })
    }
}
