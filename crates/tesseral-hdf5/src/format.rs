//! Implementation of [`Format`] for HDF5 files.

use std::sync::Arc;

use serde_json::json;
use tesseral_core::{Attributes, Finding, HistoryRow, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    ArraySource, AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format, Groups,
    OpenOptions, OptionSet, Probe, Sniff, Writer,
};
use tesseral_store::Store;

use crate::open::{OpenedFile, SIGNATURE};
use crate::write::{self, Hdf5Writer};

/// HDF5 files, among them NetCDF-4.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hdf5Format;

/// File extensions.
const EXTENSIONS: [&str; 6] = ["h5", "hdf5", "nc", "nc4", "he5", "hdf"];

/// An opened file.
#[derive(Debug)]
struct Hdf5Container {
    opened: OpenedFile,
}

impl Hdf5Container {
    fn open(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        Ok(Self { opened: OpenedFile::new(store, options, 0)? })
    }
}

impl ContainerSource for Hdf5Container {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.opened.store
    }

    fn len(&self) -> usize {
        self.opened.arrays.len()
    }

    fn name(&self, index: usize) -> &str {
        self.opened.names.get(index).map_or("", String::as_str)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        match self.opened.arrays.get(index) {
            Some(array) => Ok(Arc::clone(array)),
            None => Err(self.out_of_bounds(index)),
        }
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.opened.find(name)
    }

    fn attributes(&self) -> &Attributes {
        &self.opened.attributes
    }

    fn groups(&self) -> &Groups {
        &self.opened.groups
    }

    fn history(&self) -> &[HistoryRow] {
        &self.opened.history
    }

    fn unread(&self) -> Vec<String> {
        let absent = self.opened.virtuals.iter().filter_map(|array| array.absent());
        self.opened.unread.iter().map(ToString::to_string).chain(absent).collect()
    }

    fn details(&self) -> serde_json::Value {
        let superblock = self.opened.file.parser.superblock();
        let dims = self.opened.dims.iter();
        let dims =
            dims.map(|(path, dim)| json!({"name": path, "length": dim.extent, "unlimited": dim.unlimited}));
        json!({
            "superblock": superblock.version,
            "user_block_bytes": self.opened.file.storage.base(),
            "dimensions": dims.collect::<Vec<_>>(),
        })
    }
}

impl Format for Hdf5Format {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "HDF5 and NetCDF-4"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &EXTENSIONS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create: true, many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    /// The data model of NetCDF-4, which is smaller than that of HDF5: other programs read everything that is written.
    fn holds(&self) -> Holds {
        Holds {
            cells: write::holds,
            attribute: write::read_back,
            container_attribute: write::read_back,
            groups: true,
            labels: 0,
            ..Holds::DENSE
        }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        let signed = |at: &usize| probe.head.get(*at..).is_some_and(|rest| rest.starts_with(&SIGNATURE));
        match probe.entries {
            None if [0, 512, 1024, 2048].iter().any(signed) => Sniff::Content,
            None if probe.has_extension(&EXTENSIONS) => Sniff::Name,
            _ => Sniff::No,
        }
    }

    fn decoder(&self, recipe: &[u8], options: &OpenOptions) -> Result<Arc<dyn ArraySource>> {
        crate::recipe::decoder(recipe, options.limits)
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(Hdf5Container::open(&store, options)?))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Hdf5Writer::create(&store, options)?))
    }

    fn create_options(&self) -> &'static dyn OptionSet {
        &write::OPTIONS
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let len = store.len("")?;
        let opened = Hdf5Container::open(&store, &options.open);
        AuditReport::from_opening(opened, len, report, |container, report| {
            report(Finding::passed("structure", "all object headers are readable"));
            AuditReport::uncovered(container.opened.file.storage.bytes_read().min(len))
        })
    }
}
