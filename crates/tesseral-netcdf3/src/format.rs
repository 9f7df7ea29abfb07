//! Opening and describing NetCDF classic files.

use std::sync::Arc;

use serde_json::json;
use tesseral_core::{Attributes, Cursor, DType, Error, Finding, HistoryRow, Limits, Result};
use tesseral_format::convention::{Holds, history, value};
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format,
    OpenOptions, OptionSet, Probe, Sniff, Writer,
};
use tesseral_store::{Store, StoreExt};

use crate::array::{NetCdf3Array, Records};
use crate::header::{Header, MAGIC, NetCdf3Variable};
use crate::write::{self, HISTORY, NetCdf3Writer};

/// Number of bytes that are read first: most headers are shorter.
const FIRST: u64 = 64 << 10;

/// Number of dimensions that are described: a header can have very many.
const SHOWN_DIMS: usize = 10_000;

/// Bytes before the text of a history: magic and length.
const HISTORY_HEAD: u64 = 16;

/// NetCDF classic files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetCdf3Format;

/// An opened file.
#[derive(Debug)]
struct NetCdf3Container {
    store: Arc<dyn Store>,
    header: Header,
    records: Records,
    /// Name of the file for errors, and its length.
    object: String,
    len: u64,
    limits: Limits,
    history: Vec<HistoryRow>,
}

impl NetCdf3Container {
    fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let (object, len) = (store.describe(""), store.len("")?);
        let header = read_header(&*store, len, &object, options)?;
        let records = Records::from_header(&header, len, &object)?;
        let history = read_history(&*store, &header, len, options)?;
        let opened = Self { store, header, records, object, len, limits: options.limits, history };
        for variable in &opened.header.variables {
            options.cancel.check()?;
            opened.array_of(variable)?;
        }
        Ok(opened)
    }

    /// The array of a variable. Headers can have very many of them, so arrays are created on demand.
    fn array_of(&self, variable: &NetCdf3Variable) -> Result<NetCdf3Array> {
        NetCdf3Array::new(&self.header, variable, self.records, self.len, &self.object, self.limits)
    }
}

/// Reads the history between the header and the first variable, where this project stores it.
fn read_history(
    store: &dyn Store,
    header: &Header,
    len: u64,
    options: &OpenOptions,
) -> Result<Vec<HistoryRow>> {
    let first = header.variables.iter().map(|variable| variable.begin).min().unwrap_or(len).min(len);
    let Some(gap) = first.checked_sub(header.len).filter(|gap| *gap >= HISTORY_HEAD) else {
        return Ok(Vec::new());
    };
    let head = store.read("", header.len..header.len + HISTORY_HEAD)?;
    if !head.starts_with(HISTORY) {
        return Ok(Vec::new());
    }
    let mut cursor = Cursor::at_offset("", &head, header.len);
    cursor.take(HISTORY.len(), "history")?;
    let text = u64::from_be_bytes(cursor.array("history")?);
    if text > gap - HISTORY_HEAD {
        let object = store.describe("");
        return Err(Error::truncated("history", &object, header.len, text, gap - HISTORY_HEAD));
    }
    options.limits.check_metadata(text)?;
    let start = header.len + HISTORY_HEAD;
    let text = store.read("", start..start + text)?;
    let json = value::parse(&text, &options.limits)?;
    Ok(history::from_value(json.as_ref().map(value::from_json)))
}

/// Reads the header, whose length is known only when it is parsed.
fn read_header(store: &dyn Store, len: u64, object: &str, options: &OpenOptions) -> Result<Header> {
    let mut end = len.min(FIRST);
    loop {
        options.cancel.check()?;
        options.limits.check_metadata(end)?;
        if let Some(header) = Header::parse(&store.read("", 0..end)?, object)? {
            return Ok(header);
        }
        if end == len {
            return Err(Error::corrupt("header", object, len, "the file ends inside its header"));
        }
        end = len.min(end.saturating_mul(4));
    }
}

impl ContainerSource for NetCdf3Container {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn len(&self) -> usize {
        self.header.variables.len()
    }

    fn name(&self, index: usize) -> &str {
        self.header.variables.get(index).map_or("", |variable| &variable.name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        match self.header.variables.get(index) {
            Some(variable) => Ok(Arc::new(self.array_of(variable)?)),
            None => Err(self.out_of_bounds(index)),
        }
    }

    fn attributes(&self) -> &Attributes {
        &self.header.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    fn details(&self) -> serde_json::Value {
        let dims = self.header.dims.iter().take(SHOWN_DIMS).map(|dim| {
            let unlimited = dim.len == 0;
            let len = if unlimited { self.records.count } else { dim.len };
            json!({"name": dim.name, "length": len, "unlimited": unlimited})
        });
        json!({
            "version": self.header.version,
            "header_bytes": self.header.len,
            "records": self.records.count,
            "record_bytes": self.records.size,
            "dimensions": dims.collect::<Vec<_>>(),
            "dimension_count": self.header.dims.len(),
        })
    }
}

impl Format for NetCdf3Format {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "NetCDF classic"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["nc", "cdf", "nc3"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create: true, many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn holds(&self) -> Holds {
        Holds {
            cells: write::holds,
            text: DType::Char,
            contiguous: true,
            empty: false,
            attribute: write::read_back,
            container_attribute: write::read_back,
            labels: 0,
            ..Holds::DENSE
        }
    }

    fn create_options(&self) -> &'static dyn OptionSet {
        &write::OPTIONS
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(NetCdf3Writer::create(&store, options)?))
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match (probe.entries, probe.head) {
            (None, [a, b, c, 1 | 2 | 5, ..]) if [*a, *b, *c] == MAGIC => Sniff::Content,
            (None, _) if probe.has_extension(&["nc3", "cdf"]) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(NetCdf3Container::open(store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = NetCdf3Container::open(store, &options.open);
        AuditReport::from_opening(opened, len, report, |container, report| {
            report(Finding::passed("structure", "the header is consistent"));
            AuditReport::uncovered(container.header.len)
        })
    }
}
