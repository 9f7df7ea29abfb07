//! Names that belong to a hierarchy. A folder with other names is not replaced.

use std::sync::Arc;

use tesseral_core::Result;
use tesseral_format::OpenOptions;
use tesseral_store::{ObjectInfo, ObjectKind, Store, StoreExt};

use crate::open::{V2_ARRAY, V2_ATTRIBUTES, V2_CONSOLIDATED, V2_GROUP, V3, join};

const DOCUMENTS: [&str; 5] = [V3, V2_ARRAY, V2_GROUP, V2_ATTRIBUTES, V2_CONSOLIDATED];

/// Returns the first object of a folder that does not belong to a hierarchy.
pub(crate) fn foreign(store: &Arc<dyn Store>) -> Result<Option<String>> {
    node(store.as_ref(), "", OpenOptions::default().limits.depth)
}

fn node(store: &dyn Store, folder: &str, depth: usize) -> Result<Option<String>> {
    let entries = store.list(folder)?;
    let has = |name: &str| entries.iter().any(|e| e.name == name && e.kind == ObjectKind::File);
    let array = has(V2_ARRAY) || has(V3) && is_array(store, &join(folder, V3))?;
    if !array && !has(V3) && !has(V2_GROUP) && !has(V2_CONSOLIDATED) {
        return Ok(entries.first().map(|entry| join(folder, &entry.name)));
    }
    for entry in &entries {
        let path = join(folder, &entry.name);
        let found = match entry.kind {
            ObjectKind::File if DOCUMENTS.contains(&entry.name.as_str()) => None,
            _ if array => chunks(store, &path, entry, depth)?,
            ObjectKind::Folder if depth > 0 => node(store, &path, depth - 1)?,
            _ => Some(path),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn is_array(store: &dyn Store, object: &str) -> Result<bool> {
    let bytes = store.read_all(object, OpenOptions::default().limits.metadata_bytes)?;
    // A damaged document does not account for any chunk.
    let document = crate::wire::json::parse(&bytes, object).unwrap_or_default();
    Ok(document.get("node_type").is_some_and(|kind| kind == "array"))
}

/// Returns the first object that has not the name of a chunk, or of a folder of chunks.
fn chunks(store: &dyn Store, path: &str, entry: &ObjectInfo, depth: usize) -> Result<Option<String>> {
    let rest = entry.name.strip_prefix('c').unwrap_or(&entry.name);
    let known = rest.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match entry.kind {
        ObjectKind::File if known => Ok(None),
        ObjectKind::Folder if known && depth > 0 => {
            for inner in store.list(path)? {
                let found = chunks(store, &join(path, &inner.name), &inner, depth - 1)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        }
        _ => Ok(Some(path.to_owned())),
    }
}
