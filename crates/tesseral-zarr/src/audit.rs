//! Audit of metadata.

use std::sync::Arc;

use tesseral_core::{ErrorKind, Finding, Result};
use tesseral_format::{AuditOptions, AuditReport, ContainerSource};
use tesseral_store::Store;

use crate::open::ZarrContainer;

/// Reports the checks of opening. JSON metadata have no checksums.
pub(crate) fn audit(
    store: Arc<dyn Store>,
    options: &AuditOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<AuditReport> {
    match ZarrContainer::open(store, &options.open) {
        Ok(container) => {
            let detail = format!("the metadata of {} arrays are valid", container.len());
            report(Finding::passed("structure", detail));
            for line in container.unread() {
                report(Finding::warning("unread", line));
            }
            let uncovered_bytes = container.metadata_bytes;
            Ok(AuditReport {
                container: Some(Arc::new(container)),
                uncovered_bytes,
                ..AuditReport::default()
            })
        }
        Err(e) if matches!(e.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }) => Err(e),
        Err(e) => {
            report(Finding::from_error("structure", &e));
            Ok(AuditReport::default())
        }
    }
}
