//! Packages: folders `NAME.tet.d` of generations, of which one is current (`docs/formats/tet.md` §9).

use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_store::{Store, StoreExt};

/// Names the current generation.
pub(crate) const CURRENT: &str = "CURRENT";
/// Longest text of a generation's number.
const MAX_CURRENT: u64 = 64;

/// The object that holds the arrays: the store itself when it is a file, the current generation of a package else.
///
/// `CURRENT` is read once, so that a container shows one generation whatever is published meanwhile.
pub(crate) fn locate(store: &Arc<dyn Store>) -> Result<String> {
    let Err(error) = store.len("") else { return Ok(String::new()) };
    match store.exists(CURRENT) {
        Ok(true) => current(store),
        _ => Err(error),
    }
}

fn current(store: &Arc<dyn Store>) -> Result<String> {
    let text = store.read_all(CURRENT, MAX_CURRENT)?;
    let generation = std::str::from_utf8(&text).ok().map(str::trim_end).and_then(|t| t.parse::<u64>().ok());
    let generation = generation.ok_or_else(|| {
        let detail = format!("{:?} is not the number of a generation", text.escape_ascii().to_string());
        Error::corrupt(CURRENT, store.describe(CURRENT), 0, detail)
    })?;
    let object = format!("generations/{generation:08}/packed.tet");
    match store.len(&object) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Err(Error::corrupt(
            CURRENT,
            store.describe(CURRENT),
            0,
            format!("generation {generation} is current and has no packed.tet"),
        )),
        Err(e) => Err(e),
        Ok(_) => Ok(object),
    }
}
