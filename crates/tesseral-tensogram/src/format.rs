//! The format as a whole.

use std::sync::Arc;

use tesseral_core::{Error, Finding, Result};
use tesseral_format::{
    AuditOptions, AuditReport, Capabilities, Container, CreateOptions, Format, MessageFormat, OpenOptions,
    Probe, Repair, Salvage, Sniff, Writer,
};
use tesseral_store::Store;

use crate::audit::{self, skipped_finding};
use crate::open::{Catalog, TensogramContainer};
use crate::wire::preamble;
use crate::write::TensogramWriter;

/// Tensogram `.tgm` v3.
#[derive(Clone, Copy, Debug, Default)]
pub struct TensogramFormat;

impl TensogramFormat {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Format::open`].
    pub fn open_container(store: Arc<dyn Store>, options: &OpenOptions) -> Result<TensogramContainer> {
        if options.as_of.is_some() {
            return Err(Error::unsupported("reading .tgm as of a time: it keeps no versions"));
        }
        let catalog = Catalog::load(&store, options, false)?;
        match catalog.refusal()? {
            Some(error) => Err(error),
            None => Ok(TensogramContainer::new(catalog)),
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
            numbered: true,
            whole_arrays: true,
            grows: true,
            ..Capabilities::default()
        }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        if probe.entries.is_some() {
            return Sniff::No;
        }
        // Messages may come after garbage, but other formats may hold the magic too.
        if probe.head.starts_with(&preamble::MAGIC) {
            Sniff::Content
        } else if probe.name.ends_with(".tgm") || memchr::memmem::find(probe.head, &preamble::MAGIC).is_some()
        {
            Sniff::Name
        } else {
            Sniff::No
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn Container>> {
        Ok(Arc::new(Self::open_container(store, options)?))
    }

    fn messages(&self) -> Option<&dyn MessageFormat> {
        Some(self)
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

    /// Whole messages, and the whole objects of messages that are cut.
    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        let catalog = Catalog::load(&store, options, true)?;
        let mut findings: Vec<Finding> = catalog.skipped.iter().map(skipped_finding).collect();
        let mut objects = 0;
        for number in 0..catalog.len() {
            options.cancel.check()?;
            let message = catalog.message(number)?;
            findings.extend(message.faults.iter().chain(&message.lost).map(crate::message::Fault::finding));
            objects += message.object_count();
        }
        if objects == 0
            && let Some(error) = Catalog::load(&store, options, false)?.refusal()?
        {
            return Err(error);
        }
        Ok(Salvage { container: Arc::new(TensogramContainer::new(catalog)), gaps_are_losses: true, findings })
    }
}
