//! The format as a whole.

use std::sync::Arc;

use tesseral_core::{Finding, Result};
use tesseral_format::{
    AuditOptions, AuditReport, Capabilities, Container, Format, OpenOptions, Probe, Sniff,
};
use tesseral_store::Store;

use crate::open::TileDbContainer;

/// TileDB arrays and groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct TileDbFormat;

impl Format for TileDbFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "TileDB array"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tdb", "tiledb"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: false,
            many_arrays: true,
            sparse: true,
            versions: true,
            nullable: true,
            attributes: true,
        }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        let Some(entries) = probe.entries else { return Sniff::No };
        let has = |name: &str| entries.iter().any(|e| e.name == name);
        if has("__schema") || has("__array_schema.tdb") || has(crate::group::MARKER) || has("__group") {
            return Sniff::Content;
        }
        let named = probe.name.trim_end_matches('/');
        let known =
            self.extensions().iter().any(|e| named.strip_suffix(e).is_some_and(|stem| stem.ends_with('.')));
        if known || has("__fragments") || has("__commits") { Sniff::Name } else { Sniff::No }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn Container>> {
        Ok(Arc::new(TileDbContainer::open(store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        crate::audit::audit(store, options, report)
    }
}
