//! Fixes of a source: those of its format, and leftovers.

use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::{Format, OpenOptions, Repair};
use tesseral_store::{CLAIM, Store};

/// Leftovers of writers that ended before publishing.
const LEFTOVERS: &str = "staged_leftovers";

fn leftovers(store: &dyn Store) -> Result<Option<Repair>> {
    let found = store.leftovers()?;
    Ok(found.first().map(|first| Repair {
        code: LEFTOVERS,
        message: format!(
            "{} unpublished files or folders of interrupted writers, first: {first}; the fix removes them",
            found.len()
        ),
        automatic: true,
    }))
}

/// Returns the fixes a source needs.
///
/// # Errors
/// `Io`, `NotFound`.
pub fn repairs(format: &dyn Format, store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
    let mut needed = format.repairs(Arc::clone(store), options)?;
    needed.extend(leftovers(&**store)?);
    Ok(needed)
}

/// An upload of a writer that ended before its dataset became visible.
const UPLOAD: &str = "unfinished_upload";

/// Returns the fixes of a source that is not there, or not whole, because its writer ended before publishing it.
///
/// # Errors
/// `Io`.
pub fn unfinished(store: &dyn Store) -> Result<Option<Repair>> {
    let found = store.leftovers()?;
    // Files of this machine take their names when they are whole, and so do objects.
    if found.is_empty() || store.profile().parallel < 2 || store.len("").is_ok() {
        return Ok(None);
    }
    let claimed = found.iter().any(|name| name.ends_with(CLAIM));
    let objects = match store.list("") {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => 0,
        other => other?.len(),
    };
    // Without a claim, the objects are leftovers of a writer that ended.
    if !claimed && objects > 0 {
        return Ok(None);
    }
    Ok(found.first().map(|first| Repair {
        code: UPLOAD,
        message: format!(
            "a writer did not finish: {} marked objects, first: {first}, and {objects} entries of the output; if no \
             process is writing it, the fix removes them",
            found.len()
        ),
        automatic: true,
    }))
}

/// Removes leftovers of a writer that ended before publishing its output.
///
/// # Errors
/// `InvalidRequest` if there is nothing of one; `Io`.
pub fn remove_unfinished(store: &dyn Store) -> Result<()> {
    if unfinished(store)?.is_none() {
        return Err(Error::invalid(format!("fix {UPLOAD} does not apply to the source")));
    }
    // The claim goes last: until then no other writer begins.
    store.remove_all("")?;
    store.remove_leftovers()
}

/// Applies one automatic fix.
///
/// # Errors
/// `InvalidRequest` if the fix is not needed or not automatic; `Io`.
pub fn apply_repair(
    format: &dyn Format,
    store: Arc<dyn Store>,
    options: &OpenOptions,
    code: &str,
) -> Result<()> {
    if code != LEFTOVERS {
        return format.apply_repair(store, options, code);
    }
    if leftovers(&*store)?.is_none() {
        return Err(Error::invalid(format!("fix {code} does not apply to the source")));
    }
    store.remove_leftovers()
}
