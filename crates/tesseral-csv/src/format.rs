//! Opening and describing tables.

use std::sync::Arc;

use serde_json::json;
use tesseral_core::{Attributes, Error, ErrorKind, Finding, HistoryRow, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, Format, OpenOptions, Probe, Sniff,
};
use tesseral_store::{Store, StoreExt};

use crate::array::CsvArray;
use crate::dialect;
use crate::table::Table;

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
        let table = store.guarded(|| Table::read(&store, options))?;
        let name = stem(store.location());
        let array = Arc::new(CsvArray::new(&name, table, store.describe(""), options.limits)?);
        Ok(Self { store, name, array, attributes: Attributes::new() })
    }
}

/// The file name without folder and extension.
fn stem(location: &str) -> String {
    let name = location.rsplit(['/', '\\']).next().unwrap_or(location);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    if stem.is_empty() { "table".to_owned() } else { stem.to_owned() }
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
            return Err(Error::not_found("array", index.to_string(), vec![self.name.clone()]));
        }
        Ok(Arc::clone(&self.array) as Arc<dyn ArraySource>)
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &[]
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
        let name = probe.name.to_ascii_lowercase();
        let named = EXTENSIONS.iter().any(|e| name.strip_suffix(e).is_some_and(|n| n.ends_with('.')));
        match probe.entries {
            None if dialect::is_table(probe.name, probe.head) => Sniff::Content,
            // Any text can be a table of one column, but nothing else.
            None if named && !probe.head.contains(&0) => Sniff::Name,
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
        match CsvContainer::open(store, &options.open) {
            Ok(container) => {
                report(Finding::passed("structure", "all rows have as many values as there are columns"));
                let container: Option<Arc<dyn ContainerSource>> = Some(Arc::new(container));
                Ok(AuditReport { container, ..AuditReport::default() })
            }
            Err(e) if matches!(e.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }) => Err(e),
            Err(e) => {
                report(Finding::from_error("structure", &e));
                Ok(AuditReport { uncovered_bytes: len, ..AuditReport::default() })
            }
        }
    }
}
