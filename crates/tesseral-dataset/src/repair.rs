//! Fixes of a source: those of its format, and leftovers.

use std::sync::Arc;

use tesseral_core::{Error, Result};
use tesseral_format::{Format, OpenOptions, Repair};
use tesseral_store::Store;

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
