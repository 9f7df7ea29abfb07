//! Fixes that an array needs: leftovers of interrupted writers, which readers do not see.

use std::sync::Arc;

use tesseral_core::{Error, Result};
use tesseral_format::{AuditOptions, OpenOptions, Repair};
use tesseral_store::Store;

use crate::directory::{self, ArrayDirectory};
use crate::group;
use crate::metadata_loader::{MetadataLoader, join};
use crate::wire::name;

/// Folders of uncommitted fragments.
const UNCOMMITTED: &str = "uncommitted_fragments";
/// Lists of replaced fragments that no longer exist.
const STALE_VACUUM: &str = "stale_vacuum_files";

/// Objects that a fix removes.
struct RepairStep {
    code: &'static str,
    objects: Vec<String>,
}

impl RepairStep {
    fn repair(&self) -> Option<Repair> {
        let first = self.objects.first()?;
        let (what, care) = match self.code {
            UNCOMMITTED => {
                ("folders of uncommitted fragments", "; make sure that no process is writing them")
            }
            _ => ("lists of replaced fragments that no longer exist", ""),
        };
        let message = format!("{} {what}, first: {first}; the fix removes them{care}", self.objects.len());
        Some(Repair { code: self.code, message, automatic: true })
    }
}

fn fixes(reader: &MetadataLoader) -> Result<Vec<RepairStep>> {
    Ok(vec![
        RepairStep { code: UNCOMMITTED, objects: directory::uncommitted(reader, "")? },
        RepairStep { code: STALE_VACUUM, objects: stale(reader)? },
    ])
}

/// Lists of replaced fragments none of which exists or can be vacuumed.
fn stale(reader: &MetadataLoader) -> Result<Vec<String>> {
    let directory = ArrayDirectory::scan(reader, "")?;
    let folders = reader.list("__fragments")?;
    let mut found = Vec::new();
    for entry in reader.list("__commits")?.into_iter().filter(|e| !e.is_folder()) {
        let Some(stem) = entry.name.strip_suffix(".vac").filter(|stem| name::parse(stem).is_some()) else {
            continue;
        };
        let object = join("__commits", &entry.name);
        let text = reader.lines(&object)?;
        let named = directory::names(&text);
        let there = |name: &String| {
            folders.iter().any(|e| e.name == *name) || directory.fragments.iter().any(|f| f.name == *name)
        };
        // A list of an uncommitted fragment has no effect, but would if the fragment were committed later.
        let by = directory.fragments.iter().any(|f| f.name == stem) || folders.iter().any(|e| e.name == stem);
        if !named.iter().any(there) || !by {
            found.push(object);
        }
    }
    Ok(found)
}

/// Returns the fixes an array needs.
pub(crate) fn repairs(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
    let reader = MetadataLoader::new(Arc::clone(&store), options)?;
    if group::is_group(&reader)? {
        return Ok(Vec::new());
    }
    let manual = |code, message: String| Repair { code, message, automatic: false };
    let mut repairs: Vec<Repair> = match fixes(&reader) {
        Ok(fixes) => fixes.iter().filter_map(RepairStep::repair).collect(),
        Err(error) if error.is_damage() => {
            return Ok(vec![manual(
                "array_damaged",
                format!("{error}; recover the intact fragments into a new array"),
            )]);
        }
        Err(error) => return Err(error),
    };
    let mut damaged = 0_u64;
    let mut first = None;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    crate::audit::audit(store, &audit, &mut |finding| {
        if !finding.ok {
            damaged += 1;
            first.get_or_insert(finding.detail);
        }
    })?;
    if let Some(first) = first {
        let message = format!("{first}; recover the intact fragments into a new array ({damaged} damaged)");
        repairs.push(manual("metadata_damaged", message));
    }
    Ok(repairs)
}

/// Applies a fix.
pub(crate) fn apply(store: Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
    let reader = MetadataLoader::new(Arc::clone(&store), options)?;
    let fix = fixes(&reader)?.into_iter().find(|fix| fix.code == code && !fix.objects.is_empty());
    let fix = fix.ok_or_else(|| Error::invalid(format!("{code} does not apply to the array")))?;
    // A link to a folder is removed; its target is not.
    fix.objects.iter().try_for_each(|object| store.remove_all(object))
}
