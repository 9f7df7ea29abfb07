//! Implementation of [`Format`].

use std::sync::Arc;

use tesseral_core::{CellLen, DType, Finding, Result, Value};
use tesseral_format::convention::Holds;
use tesseral_format::{
    AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format, MessageFormat,
    OpenOptions, OptionSet, Probe, Repair, Salvage, Sniff, Writer,
};
use tesseral_store::Store;

use crate::array::DERIVED;
use crate::audit::{self, skipped_finding};
use crate::object_name::VARIABLE_NAME;
use crate::open::{HISTORY, MessageCatalog, TensogramContainer};
use crate::wire::cbor::CborItem;
use crate::wire::metadata::{BASE, EXTRA, RESERVED};
use crate::wire::{descriptor, preamble};
use crate::write::TensogramWriter;

/// Maximum number of labels of a dimension in the keys of an object; more are a separate object.
const LABELS: usize = 64;

/// Tensogram `.tgm` v3.
#[derive(Clone, Copy, Debug, Default)]
pub struct TensogramFormat;

impl TensogramFormat {
    /// Opens a `.tgm` file.
    ///
    /// # Errors
    /// As [`Format::open`].
    pub fn open_container(store: Arc<dyn Store>, options: &OpenOptions) -> Result<TensogramContainer> {
        let catalog = MessageCatalog::load(&store, options, false)?;
        match catalog.refusal()? {
            Some(error) => Err(error),
            None => TensogramContainer::new(catalog),
        }
    }
}

impl Format for TensogramFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "Tensogram .tgm"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tgm"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: true,
            many_arrays: true,
            attributes: true,
            folder: false,
            folder_extensions: &[],
            chunk_objects: false,
            lossy_codecs: &["simple_packing", "zfp", "sz3"],
        }
    }

    fn holds(&self) -> Holds {
        fn read_back(value: &Value) -> Option<Value> {
            let item = CborItem::from_value(value).ok()?;
            item.fits_i64().then(|| item.to_value())
        }
        Holds {
            cells: |dtype, cell| match cell {
                CellLen::One => descriptor::DTYPES.contains(&dtype),
                CellLen::Fixed(n) => n == 2 && matches!(dtype, DType::Float32 | DType::Float64),
                CellLen::Var => false,
            },
            chunks: false,
            attribute: |name, value| {
                (name != RESERVED && name != VARIABLE_NAME && !DERIVED.contains(&name))
                    .then(|| read_back(value))?
            },
            ordered: false,
            // These keys have a special meaning in a message.
            container_attribute: |name, value| {
                (![RESERVED, BASE, EXTRA, HISTORY, "version"].contains(&name)).then(|| read_back(value))?
            },
            labels: LABELS,
            unlimited: false,
            ..Holds::DENSE
        }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        if probe.entries.is_some() {
            return Sniff::No;
        }
        // Messages can follow garbage, but the magic can also occur in other formats.
        if probe.head.starts_with(&preamble::MAGIC) {
            Sniff::Content
        } else if probe.has_extension(self.extensions())
            || memchr::memmem::find(probe.head, &preamble::MAGIC).is_some()
        {
            Sniff::Name
        } else {
            Sniff::No
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(Self::open_container(store, options)?))
    }

    fn messages(&self) -> Option<&dyn MessageFormat> {
        Some(self)
    }

    fn create_options(&self) -> &'static dyn OptionSet {
        &crate::create_options::OPTIONS
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(TensogramWriter::create(&store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        audit::audit(&store, options, report)
    }

    fn repairs(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
        crate::repair::repairs(&store, &options.cancel)
    }

    fn apply_repair(&self, store: Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
        crate::repair::apply(&store, &options.cancel, code)
    }

    /// Returns intact messages, and the intact objects of truncated messages.
    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        let catalog = MessageCatalog::load(&store, options, true)?;
        let mut findings: Vec<Finding> = catalog.skipped.iter().map(skipped_finding).collect();
        let mut objects = 0;
        for number in 0..catalog.len() {
            options.cancel.check()?;
            let message = catalog.message(number)?;
            findings
                .extend(message.faults.iter().chain(&message.lost).map(crate::message::FrameFault::finding));
            objects += message.object_count();
        }
        if objects == 0
            && let Some(error) = MessageCatalog::load(&store, options, false)?.refusal()?
        {
            return Err(error);
        }
        Ok(Salvage {
            container: Arc::new(TensogramContainer::new(catalog)?),
            gaps_are_losses: true,
            findings,
        })
    }
}
