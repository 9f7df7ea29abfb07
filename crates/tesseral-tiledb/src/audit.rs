//! Checking an array's metadata: the same walk as opening, which goes on after a fault.

use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Finding, Result};
use tesseral_format::{AuditOptions, AuditReport, Container};
use tesseral_store::Store;

use crate::group;
use crate::open::{Opening, TileDbContainer, folder_name};
use crate::reader::Reader;

/// What keeps a source from being looked at is an error; damage is a finding.
fn finding(check: &'static str, error: Error) -> Result<Finding> {
    match error.kind() {
        ErrorKind::Io { .. } | ErrorKind::Cancelled => Err(error),
        _ => Ok(Finding::from_error(check, &error)),
    }
}

pub(crate) fn audit(
    store: Arc<dyn Store>,
    options: &AuditOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<AuditReport> {
    let reader = Arc::new(Reader::new(store, &options.open)?);
    if group::is_group(&reader)? {
        return match group::open(&reader, &options.open) {
            Ok(container) => {
                report(Finding::passed("group", format!("{} arrays", container.arrays.len())));
                Ok(AuditReport {
                    container: Some(Arc::new(container) as Arc<dyn Container>),
                    ..AuditReport::default()
                })
            }
            Err(error) => {
                report(finding("group", error)?);
                Ok(AuditReport::default())
            }
        };
    }
    let mut opening = match Opening::new(&reader, "", &options.open) {
        Ok(opening) => opening,
        Err(error) => {
            report(finding("schema", error)?);
            return Ok(AuditReport::default());
        }
    };
    report(Finding::passed("schema", format!("{} schemas", opening.directory.schemas.len())));
    for folder in crate::directory::uncommitted(&reader, "")? {
        report(Finding::warning(
            "uncommitted_fragment",
            format!("{folder} has no commit file and is not read"),
        ));
    }
    for entry in &opening.hidden {
        let detail = format!("{} is replaced by a consolidated fragment and can be vacuumed", entry.name);
        report(Finding::warning("vacuumable_fragment", detail));
    }
    let mut fragments = Vec::new();
    let mut uncovered = 0_u64;
    let mut sound = true;
    for entry in std::mem::take(&mut opening.visible) {
        let name = entry.name.clone();
        let checked = opening.fragment(&reader, entry).and_then(|f| f.check_sections(&reader).map(|()| f));
        match checked {
            Ok(fragment) => {
                uncovered = uncovered.saturating_add(fragment.metadata_len(&reader)?);
                fragments.push(fragment);
            }
            Err(error) => {
                sound = false;
                let mut found = finding("fragment_metadata", error)?;
                found.detail = format!("{name}: {}", found.detail);
                report(found);
            }
        }
    }
    if sound {
        report(Finding::passed("fragment_metadata", format!("{} fragments", fragments.len())));
    }
    if let Err(error) = opening.footers(&reader) {
        report(finding("consolidated_footers", error)?);
    }
    let name = folder_name(reader.store.location()).to_owned();
    match opening.finish(Arc::clone(&reader), &name, fragments) {
        Ok(array) => {
            let container = TileDbContainer::of(reader, name, array);
            Ok(AuditReport {
                container: Some(Arc::new(container)),
                uncovered_bytes: uncovered,
                ..AuditReport::default()
            })
        }
        Err(error) => {
            report(finding("array", error)?);
            Ok(AuditReport { uncovered_bytes: uncovered, ..AuditReport::default() })
        }
    }
}
