//! Audit of an array's metadata: the same steps as opening, continued after errors.

use std::collections::HashMap;
use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Finding, Result};
use tesseral_format::{AuditOptions, AuditReport, ContainerSource};
use tesseral_store::{Store, StoreExt};

use crate::array::TileDbArray;
use crate::group;
use crate::metadata_loader::{MetadataLoader, join};
use crate::open::{ArrayListing, TileDbContainer, folder_name};
use crate::wire::name::carries_digest;

/// Returns I/O errors; converts corruption into a finding.
fn finding(check: &'static str, error: Error) -> Result<Finding> {
    match error.kind() {
        ErrorKind::Io { .. } | ErrorKind::Cancelled => Err(error),
        _ => Ok(Finding::from_error(check, &error)),
    }
}

/// Bytes of metadata files that are covered by digests, and of those that are not.
#[derive(Debug, Default)]
struct Coverage {
    covered: u64,
    uncovered: u64,
    /// Files and fragments without digests, with their sizes in bytes.
    without: Vec<(String, u64)>,
}

impl Coverage {
    fn add(&mut self, object: &str, bytes: u64, digest: bool) {
        if digest {
            self.covered = self.covered.saturating_add(bytes);
        } else if bytes > 0 {
            self.uncovered = self.uncovered.saturating_add(bytes);
            self.without.push((object.to_owned(), bytes));
        }
    }

    /// Adds the files of a folder and verifies those whose names announce a digest.
    fn add_folder(
        &mut self,
        reader: &MetadataLoader,
        folder: &str,
        report: &mut dyn FnMut(Finding),
    ) -> Result<()> {
        for entry in reader.list(folder)?.into_iter().filter(|e| !e.is_folder()) {
            let object = join(folder, &entry.name);
            let ending = entry.name.rsplit_once('.').map_or("", |(_, ending)| ending);
            // Commit files are empty.
            if matches!(ending, "wrt" | "ok") {
                continue;
            }
            let digest = reader.verify && carries_digest(&entry.name);
            self.add(&object, reader.store.len(&object)?, digest);
            let checked = match ending {
                _ if !digest => Ok(()),
                "con" | "ign" | "vac" => reader.lines(&object).map(drop),
                _ => reader.check_trailer(&object),
            };
            if let Err(error) = checked {
                report(finding("digests", error)?);
            }
        }
        Ok(())
    }

    fn report(&self, report: &mut dyn FnMut(Finding)) {
        /// Maximum number of names in one finding.
        const NAMED: usize = 16;
        if self.without.is_empty() {
            report(Finding::passed("digests", "all files have digests"));
            return;
        }
        let name = |(object, bytes): &(String, u64)| format!("{object} ({bytes} bytes)");
        let named = self.without.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
        let more = match self.without.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let detail = format!("{} files or fragments have no digests: {named}{more}", self.without.len());
        report(Finding::warning("digests", detail));
    }
}

/// Folders of an array whose files are read completely.
const METADATA_FOLDERS: [&str; 5] =
    ["__schema", "__schema/__enumerations", "__meta", "__commits", "__fragment_meta"];

pub(crate) fn audit(
    store: Arc<dyn Store>,
    options: &AuditOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<AuditReport> {
    let reader = Arc::new(MetadataLoader::new(store, &options.open)?);
    let mut coverage = Coverage::default();
    let container = if group::is_group(&reader)? {
        for folder in ["__group", "__meta"] {
            coverage.add_folder(&reader, folder, report)?;
        }
        let opened = group::open_with(&reader, &reader, &options.open, |folder, name| {
            audit_array(&reader, folder, name, options, &mut coverage, report)
        });
        match opened {
            Ok(container) => {
                report(Finding::passed("group", format!("{} arrays", container.arrays.len())));
                for (listed, line) in container.group.iter().flat_map(group::Group::unread) {
                    let detail = format!("member {line}, not checked");
                    report(match listed.state {
                        group::MemberState::Missing | group::MemberState::Empty => {
                            Finding::failed("group_member", detail)
                        }
                        _ => Finding::warning("group_member", detail),
                    });
                }
                for folder in group::unlisted(&reader, &container)? {
                    let detail = format!("{folder} is an array or a group that no group lists, not checked");
                    report(Finding::warning("unlisted_member", detail));
                }
                Some(container)
            }
            Err(error) => {
                report(finding("group", error)?);
                None
            }
        }
    } else {
        let name = folder_name(reader.store.location()).to_owned();
        audit_array(&reader, "", &name, options, &mut coverage, report)?
            .map(|array| TileDbContainer::from_array(Arc::clone(&reader), name, array))
    };
    let container = container
        .map(|container| audit_labels(&reader, container, options, &mut coverage, report))
        .transpose()?;
    coverage.report(report);
    Ok(AuditReport {
        container: container.map(|container| Arc::new(container) as Arc<dyn ContainerSource>),
        covered_bytes: coverage.covered,
        uncovered_bytes: coverage.uncovered,
    })
}

/// Audits the arrays of labels, and adds those without damage.
fn audit_labels(
    reader: &Arc<MetadataLoader>,
    container: TileDbContainer,
    options: &AuditOptions,
    coverage: &mut Coverage,
    report: &mut dyn FnMut(Finding),
) -> Result<TileDbContainer> {
    for array in &container.arrays {
        for label in &array.current.wire.labels {
            if let Some(folder) = crate::label::folder(reader, &array.prefix, label)
                && !reader.list(&folder)?.is_empty()
            {
                audit_array(reader, &folder, &label.name, options, coverage, report)?;
            }
        }
    }
    let container = container.with_labels_or(reader, &options.open, |name, error| {
        let mut found = finding("dimension_label", error)?;
        found.detail = format!("{name}: {}", found.detail);
        report(found);
        Ok(())
    })?;
    for label in &container.unread_labels {
        report(Finding::warning("dimension_label", format!("label {label}, not checked")));
    }
    Ok(container)
}

/// Audits the metadata of one array; `None` if it cannot be opened.
fn audit_array(
    reader: &Arc<MetadataLoader>,
    prefix: &str,
    name: &str,
    options: &AuditOptions,
    coverage: &mut Coverage,
    report: &mut dyn FnMut(Finding),
) -> Result<Option<TileDbArray>> {
    for folder in METADATA_FOLDERS {
        coverage.add_folder(reader, &join(prefix, folder), report)?;
    }
    let mut opening = match ArrayListing::new(reader, prefix, &options.open) {
        Ok(opening) => opening,
        Err(error) => {
            report(finding("schema", error)?);
            return Ok(None);
        }
    };
    report(Finding::passed("schema", format!("{} schemas", opening.directory.schemas.len())));
    for folder in crate::directory::uncommitted(reader, prefix)? {
        report(Finding::warning(
            "uncommitted_fragment",
            format!("{folder} has no commit file and is ignored"),
        ));
    }
    for entry in &opening.hidden {
        let detail = format!("{} is replaced by a consolidated fragment and can be vacuumed", entry.name);
        report(Finding::warning("vacuumable_fragment", detail));
    }
    let footers = match opening.footers(reader) {
        Ok(footers) => footers,
        Err(error) => {
            report(finding("consolidated_footers", error)?);
            HashMap::new()
        }
    };
    let mut fragments = Vec::new();
    let mut sound = true;
    for entry in std::mem::take(&mut opening.visible) {
        let fragment_name = entry.name.clone();
        let folder = entry.folder.clone();
        let checked = opening.fragment(reader, entry).and_then(|f| f.check_sections(reader).map(|()| f));
        match checked {
            Ok(fragment) => {
                if footers.get(&fragment_name).is_some_and(|copy| !fragment.has_footer(copy)) {
                    let detail = format!(
                        "the consolidated footer of {fragment_name} differs from the one in its metadata file"
                    );
                    let at = reader.store.describe(&join(prefix, "__fragment_meta"));
                    let error = Error::corrupt("a consolidated footer", at, None, detail);
                    report(finding("consolidated_footers", error)?);
                }
                let digests = fragment.carries_digests() && options.open.digests;
                coverage.add(&folder, fragment.metadata_len(reader)?, digests);
                // The engine counts tiles.
                if let (false, Some((_, bytes))) = (digests, coverage.without.last_mut()) {
                    *bytes = bytes.saturating_add(fragment.data_bytes());
                }
                fragments.push(fragment);
            }
            Err(error) => {
                sound = false;
                let mut found = finding("fragment_metadata", error)?;
                found.detail = format!("{fragment_name}: {}", found.detail);
                report(found);
            }
        }
    }
    if sound {
        report(Finding::passed("fragment_metadata", format!("{} fragments", fragments.len())));
    }
    match opening.finish(Arc::clone(reader), name, fragments) {
        Ok(array) => Ok(Some(array)),
        Err(error) => {
            report(finding("array", error)?);
            Ok(None)
        }
    }
}
