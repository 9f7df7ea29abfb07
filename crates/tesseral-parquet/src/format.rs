//! Opening and describing tables.

use std::sync::Arc;

use serde_json::json;
use tesseral_core::{Attributes, Finding, HistoryRow, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format,
    OpenOptions, Probe, Sniff, Writer,
};
use tesseral_store::{Store, StoreExt};

use crate::array::ColumnArray;
use crate::kind::Kind;
use crate::table::{MAGIC, ParquetTable};
use crate::write::TableWriter;

/// Parquet tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetFormat;

/// File extensions.
const EXTENSIONS: [&str; 2] = ["parquet", "pq"];

/// An opened table.
#[derive(Debug)]
struct ParquetContainer {
    store: Arc<dyn Store>,
    table: Arc<ParquetTable>,
    arrays: Vec<Arc<ColumnArray>>,
}

impl ParquetContainer {
    fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let table = Arc::new(store.guarded(|| ParquetTable::read(&store, options))?);
        let object = store.describe("");
        let array = |column| Arc::new(ColumnArray::new(&table, column, &object, options.limits));
        let arrays = table.columns.iter().map(array).collect();
        Ok(Self { store, table, arrays })
    }
}

impl ContainerSource for ParquetContainer {
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
        self.table.columns.get(index).map_or("", |column| &column.name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        let array = self.arrays.get(index).cloned().ok_or_else(|| self.out_of_bounds(index))?;
        Ok(array as Arc<dyn ArraySource>)
    }

    fn attributes(&self) -> &Attributes {
        &self.table.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.table.history
    }

    fn unread(&self) -> Vec<String> {
        self.table.unread.clone()
    }

    fn details(&self) -> serde_json::Value {
        let file = self.table.metadata.file_metadata();
        json!({
            "created_by": file.created_by(),
            "version": file.version(),
            "rows": self.table.rows,
            "row_groups": self.table.metadata.num_row_groups(),
        })
    }
}

impl Format for ParquetFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "Parquet"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &EXTENSIONS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create: true, many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn holds(&self) -> Holds {
        Holds { cells: Kind::holds, nullable: true, scalars: false, table: true, ..Holds::DENSE }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match probe.entries {
            None if probe.head.starts_with(MAGIC) => Sniff::Content,
            None if probe.has_extension(&EXTENSIONS) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(ParquetContainer::open(store, options)?))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(TableWriter::create(&store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = ParquetContainer::open(store, &options.open);
        AuditReport::from_opening(opened, len, report, |container, report| {
            report(Finding::passed("structure", "the metadata describe the columns of all row groups"));
            AuditReport::uncovered(container.table.metadata_bytes)
        })
    }
}
