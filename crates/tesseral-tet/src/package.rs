//! Packages: folders `NAME.tet.d` of generations, one of which is current (`docs/formats/tet.md` §9).

use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Finding, Result};
use tesseral_store::{ObjectInfo, ObjectKind, Store, StoreExt};

use crate::wire::json::JsonObject;

/// Object with the number of the current generation.
pub(crate) const CURRENT: &str = "CURRENT";
/// Folder with one folder per generation.
const GENERATIONS: &str = "generations";
/// Maximum length of a generation number in bytes.
const MAX_CURRENT: u64 = 64;

/// Returns the object with the arrays: the store itself if it is a file, the current generation if it is a package.
///
/// `CURRENT` is read once, so that a container is a snapshot of one generation.
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
        let detail = format!("invalid generation number {:?}", text.escape_ascii().to_string());
        Error::corrupt(CURRENT, store.describe(CURRENT), 0, detail)
    })?;
    let object = format!("generations/{generation:08}/packed.tet");
    match store.len(&object) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Err(Error::corrupt(
            CURRENT,
            store.describe(CURRENT),
            0,
            format!("packed.tet is missing in the current generation {generation}"),
        )),
        Err(e) => Err(e),
        Ok(_) => Ok(object),
    }
}

/// Returns the first object of a folder that is not part of a package.
pub(crate) fn foreign(store: &dyn Store) -> Result<Option<String>> {
    let generation = |name: &str| name.len() == 8 && name.bytes().all(|b| b.is_ascii_digit());
    let find = |folder: &str, known: &dyn Fn(&ObjectInfo) -> bool| -> Result<Option<String>> {
        let found = store.list(folder)?.into_iter().find(|entry| !known(entry));
        Ok(found.map(|entry| format!("{folder}{}{}", if folder.is_empty() { "" } else { "/" }, entry.name)))
    };
    let top = find("", &|e| match e.kind {
        ObjectKind::File => e.name == CURRENT,
        ObjectKind::Folder => e.name == GENERATIONS,
        ObjectKind::Link { .. } => false,
    })?;
    let inner = find(GENERATIONS, &|e| e.kind == ObjectKind::Folder && generation(&e.name))?;
    if top.is_some() || inner.is_some() {
        return Ok(top.or(inner));
    }
    for entry in store.list(GENERATIONS)? {
        let known = |e: &ObjectInfo| {
            e.kind == ObjectKind::File && matches!(e.name.as_str(), "packed.tet" | "MANIFEST.json")
        };
        if let Some(found) = find(&format!("{GENERATIONS}/{}", entry.name), &known)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Compares the manifest of the generation of `object` with the file.
pub(crate) fn audit(
    store: &Arc<dyn Store>,
    object: &str,
    file_len: u64,
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    const MAX_MANIFEST: u64 = 1 << 20;
    #[derive(serde::Deserialize)]
    struct Manifest {
        packed_byte_len: u64,
    }
    let name = object.replace("packed.tet", "MANIFEST.json");
    let text = match store.read_all(&name, MAX_MANIFEST) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::Io { .. }) => return Err(e),
        Err(e) => {
            report(Finding::from_error("package", &e));
            return Ok(());
        }
    };
    report(match serde_json::from_slice::<JsonObject<Manifest>>(&text) {
        Err(e) => Finding::failed("package", format!("{name}: {e}")),
        Ok(JsonObject(manifest)) if manifest.packed_byte_len != file_len => {
            let declared = manifest.packed_byte_len;
            Finding::failed("package", format!("{object} has {file_len} bytes, the manifest has {declared}"))
        }
        Ok(_) => Finding::passed("package", object.to_owned()),
    });
    Ok(())
}
