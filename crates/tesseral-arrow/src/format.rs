//! Opening and describing files and streams.

use std::sync::Arc;

use serde_json::json;
use tesseral_core::{Attributes, Finding, HistoryRow, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format,
    OpenOptions, Probe, Sniff, Writer,
};
use tesseral_store::{Store, StoreExt};

use crate::array::ArrowColumn;
use crate::kind::ArrowKind;
use crate::table::{ArrowTable, MAGIC, is_stream};
use crate::write::ArrowWriter;

/// Arrow IPC files and streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrowFormat;

/// File extensions.
const EXTENSIONS: [&str; 4] = ["arrow", "feather", "ipc", "arrows"];

/// An opened table.
#[derive(Debug)]
struct ArrowContainer {
    store: Arc<dyn Store>,
    table: Arc<ArrowTable>,
    arrays: Vec<Arc<ArrowColumn>>,
}

impl ArrowContainer {
    fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let table = Arc::new(store.guarded(|| ArrowTable::read(&store, options))?);
        let object = store.describe("");
        let array = |number| ArrowColumn::new(&table, number, &object, options.limits).map(Arc::new);
        let arrays = (0..table.columns.columns.len()).map(array).collect::<Result<_>>()?;
        Ok(Self { store, table, arrays })
    }
}

impl ContainerSource for ArrowContainer {
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
        self.table.columns.columns.get(index).map_or("", |column| &column.name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        let array = self.arrays.get(index).cloned().ok_or_else(|| self.out_of_bounds(index))?;
        Ok(array as Arc<dyn ArraySource>)
    }

    fn attributes(&self) -> &Attributes {
        &self.table.columns.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.table.history
    }

    fn unread(&self) -> Vec<String> {
        self.table.columns.unread.clone()
    }

    fn details(&self) -> serde_json::Value {
        json!({
            "stream": self.table.stream,
            "rows": self.table.rows,
            "record_batches": self.table.batches.len(),
            "dictionaries": self.table.dictionaries.len(),
        })
    }
}

impl Format for ArrowFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "Arrow IPC"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &EXTENSIONS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create: true, many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn holds(&self) -> Holds {
        Holds { cells: ArrowKind::holds, nullable: true, scalars: false, table: true, ..Holds::DENSE }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match probe.entries {
            None if probe.head.starts_with(MAGIC) || is_stream(probe.head) => Sniff::Content,
            // Version 1 of Feather is another format.
            None if probe.head.starts_with(b"FEA1") => Sniff::No,
            None if probe.has_extension(&EXTENSIONS) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(ArrowContainer::open(store, options)?))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(ArrowWriter::create(&store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = ArrowContainer::open(store, &options.open);
        AuditReport::from_opening(opened, len, report, |container, report| {
            report(Finding::passed("structure", "the metadata describe the buffers of all record batches"));
            AuditReport::uncovered(container.table.metadata_bytes)
        })
    }
}
