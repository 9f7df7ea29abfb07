//! Names that belong to an array or group. A folder with other names is not replaced.

use std::sync::Arc;

use tesseral_core::Result;
use tesseral_format::OpenOptions;
use tesseral_store::{ObjectInfo, ObjectKind, Store};

use crate::group;
use crate::metadata_loader::{MetadataLoader, join};
use crate::wire::name;

/// Files of the array folder without a timestamp in their name.
const FILES: [&str; 4] = [group::MARKER, "__array_schema.tdb", "__lock.tdb", "__tiledb_kv.tdb"];
/// Extensions of timestamped files.
const ENDINGS: [&str; 9] = ["wrt", "ok", "del", "upd", "con", "ign", "vac", "meta", "tmp"];

/// Returns the first object of a folder that does not belong to an array or group.
pub(crate) fn foreign(store: Arc<dyn Store>) -> Result<Option<String>> {
    let reader = MetadataLoader::new(store, &OpenOptions::default())?;
    container(&reader, "", reader.limits.depth)
}

fn container(reader: &MetadataLoader, prefix: &str, depth: usize) -> Result<Option<String>> {
    let mut members = None;
    for entry in reader.list(prefix)? {
        let path = join(prefix, &entry.name);
        let known = match (entry.kind, entry.name.as_str()) {
            (ObjectKind::Folder, "__schema") => first_unknown(reader, &path, &|inner| match inner.kind {
                ObjectKind::Folder => inner.name == "__enumerations",
                _ => is_timed(inner),
            })?
            .or(first_unknown(reader, &join(&path, "__enumerations"), &|inner| {
                inner.kind == ObjectKind::File && inner.name.starts_with("__")
            })?),
            (ObjectKind::Folder, "__fragments") => fragments(reader, &path)?,
            (ObjectKind::Folder, "__commits" | "__fragment_meta" | "__meta" | "__group") => {
                first_unknown(reader, &path, &is_timed)?
            }
            (ObjectKind::Folder, "__labels") if depth > 0 => {
                let mut found = first_unknown(reader, &path, &|label| label.kind == ObjectKind::Folder)?;
                for label in reader.list(&path)? {
                    found = found.map_or_else(
                        || container(reader, &join(&path, &label.name), depth - 1),
                        |found| Ok(Some(found)),
                    )?;
                }
                found
            }
            // Before version 12, fragments are in the array folder itself.
            (ObjectKind::Folder, name) if is_fragment(name) || name::parse_before_5(name).is_some() => {
                first_unknown(reader, &path, &is_data)?
            }
            (ObjectKind::Folder, name) if depth > 0 => {
                if members.is_none() {
                    // An array that cannot be read, because it is damaged or encrypted, does not account for any object.
                    members = Some(group::members(reader, prefix).unwrap_or_default());
                }
                let is_member = members.iter().flatten().any(|m| m.relative && m.uri == name);
                if is_member { container(reader, &path, depth - 1)? } else { Some(path) }
            }
            (ObjectKind::File, name) if FILES.contains(&name) || is_timed(&entry) => None,
            _ => Some(path),
        };
        if known.is_some() {
            return Ok(known);
        }
    }
    Ok(None)
}

/// Returns the first object of a folder that `known` rejects.
fn first_unknown(
    reader: &MetadataLoader,
    folder: &str,
    known: &dyn Fn(&ObjectInfo) -> bool,
) -> Result<Option<String>> {
    let found = reader.list(folder)?.into_iter().find(|entry| !known(entry));
    Ok(found.map(|entry| join(folder, &entry.name)))
}

fn fragments(reader: &MetadataLoader, folder: &str) -> Result<Option<String>> {
    for entry in reader.list(folder)? {
        let path = join(folder, &entry.name);
        if entry.kind != ObjectKind::Folder || !is_fragment(&entry.name) {
            return Ok(Some(path));
        }
        if let Some(found) = first_unknown(reader, &path, &is_data)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn is_fragment(name: &str) -> bool {
    name::parse(name).is_some_and(|name| name.version.is_some())
}

fn is_data(entry: &ObjectInfo) -> bool {
    entry.kind == ObjectKind::File && (entry.name.ends_with(".tdb") || entry.name.starts_with("__"))
}

/// Returns whether the name is timestamped, with or without a known extension.
fn is_timed(entry: &ObjectInfo) -> bool {
    let stem = match entry.name.rsplit_once('.') {
        Some((stem, ending)) if ENDINGS.contains(&ending) => stem,
        _ => entry.name.as_str(),
    };
    entry.kind == ObjectKind::File && name::parse(stem).is_some()
}
