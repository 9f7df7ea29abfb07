//! Which fixes an array needs: what writers that were cut short left behind, none of which a reader sees.

use std::sync::Arc;

use tesseral_core::{Error, Result};
use tesseral_format::{AuditOptions, OpenOptions, Repair};
use tesseral_store::Store;

use crate::directory::{self, Directory};
use crate::group;
use crate::reader::{Reader, join};
use crate::wire::name;

/// Folders of fragments that nobody committed.
const UNCOMMITTED: &str = "uncommitted_fragments";
/// Lists of replaced fragments that replace nothing.
const STALE_VACUUM: &str = "stale_vacuum_files";

/// What a fix removes.
struct Fix {
    code: &'static str,
    objects: Vec<String>,
}

impl Fix {
    fn repair(&self) -> Option<Repair> {
        let first = self.objects.first()?;
        let (what, care) = match self.code {
            UNCOMMITTED => {
                ("folders of fragments that nobody committed", "; make sure that nobody is writing them")
            }
            _ => ("lists of replaced fragments that are gone", ""),
        };
        let message =
            format!("{} {what}, the first of them {first}; the fix removes them{care}", self.objects.len());
        Some(Repair { code: self.code, message, automatic: true })
    }
}

fn fixes(reader: &Reader) -> Result<Vec<Fix>> {
    Ok(vec![
        Fix { code: UNCOMMITTED, objects: directory::uncommitted(reader, "")? },
        Fix { code: STALE_VACUUM, objects: stale(reader)? },
    ])
}

/// Lists of replaced fragments none of which is there any more, nor waits to be vacuumed.
fn stale(reader: &Reader) -> Result<Vec<String>> {
    let directory = Directory::scan(reader, "")?;
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
        // One that belongs to a fragment which was never committed hides nothing, but would if that were committed yet.
        let by = directory.fragments.iter().any(|f| f.name == stem) || folders.iter().any(|e| e.name == stem);
        if !named.iter().any(there) || !by {
            found.push(object);
        }
    }
    Ok(found)
}

/// The fixes an array needs.
pub(crate) fn repairs(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
    let reader = Reader::new(Arc::clone(&store), options)?;
    if group::is_group(&reader)? {
        return Ok(Vec::new());
    }
    let manual = |code, message: String| Repair { code, message, automatic: false };
    let mut repairs: Vec<Repair> = match fixes(&reader) {
        Ok(fixes) => fixes.iter().filter_map(Fix::repair).collect(),
        Err(error) if error.is_damage() => {
            return Ok(vec![manual(
                "array_damaged",
                format!("{error}; recover what is whole into a new array"),
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
        let message = format!("{first}; recover what is whole into a new array ({damaged} such)");
        repairs.push(manual("metadata_damaged", message));
    }
    Ok(repairs)
}

/// Applies a fix.
pub(crate) fn apply(store: Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
    let reader = Reader::new(Arc::clone(&store), options)?;
    let fix = fixes(&reader)?.into_iter().find(|fix| fix.code == code && !fix.objects.is_empty());
    let fix = fix.ok_or_else(|| Error::invalid(format!("the array does not need {code}")))?;
    // A link to a folder elsewhere goes itself; the folder stays.
    fix.objects.iter().try_for_each(|object| store.remove_all(object))
}
