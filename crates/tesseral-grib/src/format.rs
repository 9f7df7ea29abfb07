//! Detecting and describing GRIB files.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::json;
use tesseral_core::{Attributes, Error, Finding, Result, Value};
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, Format, Groups, OpenOptions,
    Probe, Salvage, Sniff,
};
use tesseral_store::{Store, StoreExt};

use crate::array::GribArray;
use crate::coordinate::{CoordinateArray, CoordinateOrigin, coordinate, grid_coordinate};
use crate::dataset::{self, GribDataset, GribVariable, HeaderKind, HeaderValues};
use crate::grid::Axis;
use crate::scan::{GribScan, MAGIC, UnreadField, scan};

/// GRIB files of editions 1 and 2.
#[derive(Clone, Copy, Debug, Default)]
pub struct GribFormat;

/// Estimated size of an array in memory.
const ARRAY: u64 = 5 << 10;

const EXTENSIONS: [&str; 6] = ["grib", "grib1", "grib2", "grb", "grb1", "grb2"];

/// An opened file.
#[derive(Debug)]
struct GribContainer {
    store: Arc<dyn Store>,
    names: Vec<String>,
    arrays: Vec<Arc<dyn ArraySource>>,
    attributes: Attributes,
    groups: Groups,
    unread: Vec<UnreadField>,
    messages: u64,
    fields: usize,
    between: u64,
    /// Estimated size of its variables in memory.
    held: u64,
}

impl GribContainer {
    /// The container of the readable messages of a file.
    fn new(store: Arc<dyn Store>, scan: GribScan, options: &OpenOptions) -> Result<Self> {
        let object = store.describe("");
        let GribScan { fields, mut unread, messages, between, .. } = scan;
        let count = fields.len();
        let stored = store.len("")?;
        let check = |held: u64| options.limits.check_total("the arrays of a file", held, stored);
        let (datasets, held) = dataset::arrange(fields, &mut unread, &check)?;
        let mut container = Self {
            store,
            names: Vec::new(),
            arrays: Vec::new(),
            attributes: Attributes::new(),
            groups: Groups::new(),
            unread,
            messages,
            fields: count,
            between,
            held,
        };
        for dataset in datasets {
            let attributes = dataset.attributes();
            if dataset.path.is_empty() {
                container.attributes = attributes;
            } else {
                container.attributes.insert("Conventions".to_owned(), Value::from("CF-1.7"));
                container.groups.insert(dataset.path.clone(), attributes);
            }
            container.add(dataset, &object, options)?;
        }
        Ok(container)
    }

    fn open(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let mut scan = scan(&*store, options)?;
        if !scan.faults.is_empty() {
            return Err(scan.faults.swap_remove(0).error);
        }
        if scan.messages == 0 {
            return Err(Error::corrupt("file", store.describe(""), 0, "no GRIB message"));
        }
        Self::new(store, scan, options)
    }

    /// Adds the variables of a dataset, their coordinates first.
    fn add(&mut self, dataset: GribDataset, object: &str, options: &OpenOptions) -> Result<()> {
        let GribDataset { path, variables } = dataset;
        let full = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        let mut coordinates: Vec<CoordinateArray> = Vec::new();
        for variable in &variables {
            for own in coordinates_of(variable, &full)? {
                if coordinates.iter().all(|known| known.schema().name != own.schema().name) {
                    coordinates.push(own);
                }
            }
        }
        // Every field can have its own grid and coordinates, so that a small file can declare very many arrays.
        let count = (coordinates.len() + variables.len()) as u64;
        self.held = self.held.saturating_add(count.saturating_mul(ARRAY));
        options.limits.check_total("the arrays of a file", self.held, self.store.len("")?)?;
        for array in coordinates {
            self.names.push(array.schema().name.clone());
            self.arrays.push(Arc::new(array));
        }
        for variable in variables {
            options.cancel.check()?;
            let name = full(&variable.name);
            let array = GribArray::new(variable, &name, object, options.limits)?;
            self.names.push(name);
            self.arrays.push(Arc::new(array));
        }
        Ok(())
    }
}

/// The coordinates of a variable.
fn coordinates_of(variable: &GribVariable, full: &dyn Fn(&str) -> String) -> Result<Vec<CoordinateArray>> {
    let mut out = Vec::new();
    let mut valid_time = (None, None);
    for own in &variable.coordinates {
        let values = own.values();
        match (own.header, &values) {
            (HeaderKind::Time, HeaderValues::Integers(times)) => valid_time.0 = Some(times.clone()),
            (HeaderKind::Step, HeaderValues::Floats(steps)) => {
                valid_time.1 = Some(steps.iter().map(|hours| hours * 3600.0).collect::<Vec<f64>>());
            }
            _ => {}
        }
        let dims = [(own.name.as_str(), own.len() as u64)];
        let dims = if own.len() > 1 { &dims[..] } else { &[] };
        let origin = CoordinateOrigin::Headers(values);
        out.push(coordinate(&full(&own.name), dims, own.attributes(), origin)?);
    }
    for axis in [Axis::Latitude, Axis::Longitude] {
        out.push(grid_coordinate(&full(axis.name()), &variable.grid, axis)?);
    }
    if let (Some(times), Some(steps)) = valid_time {
        let dims = [("time", times.len() as u64), ("step", steps.len() as u64)];
        let dims: Vec<(&str, u64)> = dims.into_iter().filter(|(_, extent)| *extent > 1).collect();
        let texts = [
            ("units", "seconds since 1970-01-01T00:00:00"),
            ("calendar", "proleptic_gregorian"),
            ("standard_name", "time"),
            ("long_name", "time"),
        ];
        let attributes = texts.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        let origin = CoordinateOrigin::ValidTime(times, steps);
        out.push(coordinate(&full("valid_time"), &dims, attributes, origin)?);
    }
    Ok(out)
}

impl ContainerSource for GribContainer {
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
        self.names.get(index).map_or("", String::as_str)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        self.arrays.get(index).map(Arc::clone).ok_or_else(|| self.out_of_bounds(index))
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn groups(&self) -> &Groups {
        &self.groups
    }

    fn unread(&self) -> Vec<String> {
        lines(&self.unread)
    }

    fn details(&self) -> serde_json::Value {
        json!({
            "messages": self.messages,
            "fields": self.fields,
            "bytes_between_messages": self.between,
            "unread_fields": self.unread.len(),
        })
    }
}

/// One line per reason: the number of fields, and the place of the first.
fn lines(unread: &[UnreadField]) -> Vec<String> {
    let mut reasons: IndexMap<String, (u64, u64)> = IndexMap::new();
    for own in unread {
        reasons.entry(own.error.to_string()).or_insert((own.message, 0)).1 += 1;
    }
    let line = |(reason, (first, count)): (String, (u64, u64))| match count {
        1 => format!("a field of the message at byte {first}: {reason}"),
        count => format!("{count} fields, the first in the message at byte {first}: {reason}"),
    };
    reasons.into_iter().map(line).collect()
}

impl Format for GribFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "GRIB"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &EXTENSIONS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match probe.entries {
            None if probe.head.starts_with(&MAGIC) && matches!(probe.head.get(7), Some(1 | 2)) => {
                Sniff::Content
            }
            None if probe.has_extension(&EXTENSIONS) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(GribContainer::open(store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let (mut headers, mut intact) = (0, None);
        let opened = scan(&*store, &options.open).and_then(|mut scan| {
            let faults = std::mem::take(&mut scan.faults);
            for fault in &faults {
                report(Finding::from_error("structure", &fault.error));
            }
            if scan.messages == 0 && faults.is_empty() {
                return Err(Error::corrupt("file", store.describe(""), 0, "no GRIB message"));
            }
            headers = scan.header_bytes;
            intact = faults.is_empty().then_some(scan.messages);
            GribContainer::new(Arc::clone(&store), scan, &options.open)
        });
        AuditReport::from_opening(opened, len, report, |_, report| {
            if let Some(messages) = intact {
                let detail = format!("{messages} messages with consistent lengths and end marks");
                report(Finding::passed("structure", detail));
            }
            AuditReport::uncovered(headers)
        })
    }

    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        let mut scan = scan(&*store, options)?;
        let faults = std::mem::take(&mut scan.faults);
        if scan.messages == 0 {
            return Err(Error::corrupt("file", store.describe(""), 0, "no intact GRIB message"));
        }
        let findings = faults.iter().map(|fault| Finding::from_error("structure", &fault.error)).collect();
        let container = Arc::new(GribContainer::new(store, scan, options)?);
        Ok(Salvage { container, gaps_are_losses: false, findings })
    }
}
