//! Implementation of [`Format`].

use std::sync::Arc;

use tesseral_core::{CellLen, Finding, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format, OpenOptions, Probe,
    Repair, Salvage, Sniff, Writer,
};
use tesseral_store::Store;

use crate::layout::FileLayout;
use crate::open::{TetCatalog, TetContainer};
use crate::package;
use crate::source::FileBytes;
use crate::wire::metadata::{MAX_ATTRS, MAX_LABELS};
use crate::wire::{directory, superblock};
use crate::write::TetWriter;

/// Tetration `.tet` v1.
#[derive(Clone, Copy, Debug, Default)]
pub struct TetFormat;

impl TetFormat {
    /// Opens a file or package.
    ///
    /// # Errors
    /// As [`Format::open`].
    pub fn open_container(store: Arc<dyn Store>, options: &OpenOptions) -> Result<TetContainer> {
        let name = package::locate(&store)?;
        let source = FileBytes::open(&store, &name)?;
        let layout = FileLayout::read(&source, &options.limits, options.digests).map_err(|f| f.error)?;
        Ok(TetContainer::new(TetCatalog::new(store, name, layout, options.limits, false)))
    }
}

impl Format for TetFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "Tetration .tet"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tet", "tet.d"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: true,
            many_arrays: true,
            attributes: true,
            folder_extensions: &["tet.d"],
            ..Capabilities::default()
        }
    }

    fn holds(&self) -> Holds {
        Holds {
            cells: |dtype, cell| directory::tag_of(dtype).is_some() && cell == CellLen::One,
            scalars: false,
            empty: false,
            attribute: crate::write::held_attribute,
            // One more may declare the fill.
            attributes: MAX_ATTRS,
            ordered: false,
            container_attribute: |name, value| {
                let held = crate::write::FILE_ATTRIBUTES.contains(&name);
                held.then(|| crate::write::held_attribute(name, value))?
            },
            container_order: &crate::write::FILE_ATTRIBUTES,
            labels: MAX_LABELS,
            unlimited: false,
            rank: directory::MAX_RANK,
            ..Holds::DENSE
        }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        match probe.entries {
            None if probe.head.starts_with(&superblock::MAGIC) => Sniff::Content,
            None if probe.has_extension(&["tet"]) => Sniff::Name,
            None => Sniff::No,
            Some(entries) => {
                let has = |name: &str, folder: bool| {
                    entries.iter().any(|e| e.name == name && e.is_folder() == folder)
                };
                // By itself, `CURRENT` is a package whose generations are not listed: writers of packages publish it last.
                let only_current = has(package::CURRENT, false) && entries.len() == 1;
                if only_current || (has(package::CURRENT, false) && has(package::GENERATIONS, true)) {
                    Sniff::Content
                } else if probe.has_extension(&["tet.d"]) {
                    Sniff::Name
                } else {
                    Sniff::No
                }
            }
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(Self::open_container(store, options)?))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(TetWriter::create(&store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        crate::audit::audit(store, options, report)
    }

    fn foreign(&self, store: Arc<dyn Store>) -> Result<Option<String>> {
        package::foreign(&*store)
    }

    fn repairs(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
        crate::repair::repairs(store, options)
    }

    fn apply_repair(&self, store: Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
        crate::repair::apply(&store, options, code)
    }

    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        crate::salvage::salvage(store, options)
    }
}
