//! The format as a whole.

use std::sync::Arc;

use tesseral_core::{Error, Finding, Result};
use tesseral_format::{
    AuditOptions, AuditReport, Capabilities, Container, CreateOptions, Format, OpenOptions, Probe, Salvage,
    Sniff, Writer,
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
        match catalog.refusal() {
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
            sparse: false,
            versions: false,
            nullable: false,
            attributes: true,
            folder: false,
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

    /// Whole messages, and the whole objects of messages that are cut.
    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        let mut catalog = Catalog::load(&store, options, true)?;
        let mut findings: Vec<Finding> = catalog.skipped.iter().map(skipped_finding).collect();
        for message in &mut catalog.messages {
            findings.extend(message.faults.iter().map(crate::message::Fault::finding));
            // What was found before the damage is whole.
            message.torn |= message.fault().is_some();
            message.faults.retain(|fault| fault.harmless);
        }
        if catalog.messages.iter().all(|message| message.objects().next().is_none())
            && let Some(error) = catalog.refusal()
        {
            return Err(error);
        }
        Ok(Salvage { container: Arc::new(TensogramContainer::new(catalog)), findings })
    }
}
