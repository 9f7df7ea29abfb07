//! Fixes: those of a source's format, and what no format knows of.

use std::sync::Arc;

use tesseral_core::{Error, Result};
use tesseral_format::{Format, OpenOptions, Repair};
use tesseral_store::Store;

/// Files and folders of writers that ended before they published them.
const LEFTOVERS: &str = "staged_leftovers";

fn leftovers(store: &dyn Store) -> Result<Option<Repair>> {
    let found = store.leftovers()?;
    Ok(found.first().map(|first| Repair {
        code: LEFTOVERS,
        message: format!(
            "{} files or folders that a writer began and never published, the first of them {first}; the fix removes them",
            found.len()
        ),
        automatic: true,
    }))
}

/// The fixes a source needs.
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
/// `InvalidRequest` when the fix is not needed or not automatic; `Io`.
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
        return Err(Error::invalid(format!("the source does not need {code}")));
    }
    store.remove_leftovers()
}
