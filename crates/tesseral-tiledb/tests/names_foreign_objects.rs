//! Arrays and groups with foreign objects are not replaced: the error names the first one.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use tesseral_format::Format;
use tesseral_store::{LocalStore, MemoryStore, ReadMode, Store, StoreExt};
use tesseral_tiledb::TileDbFormat;

/// A fixture in memory, with additional objects.
fn fixture(name: &str, more: &[&str]) -> Arc<MemoryStore> {
    fn copy(from: &dyn Store, folder: &str, to: &MemoryStore) {
        for entry in from.list(folder).unwrap() {
            let is_folder = entry.is_folder();
            let name = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
            match is_folder {
                true => copy(from, &name, to),
                false => to.insert(&name, from.read_all(&name, 1 << 20).unwrap()),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tiledb").join(name);
    let store = MemoryStore::new(name);
    copy(&LocalStore::new(root, ReadMode::Read), "", &store);
    more.iter().for_each(|name| store.insert(name, b"1".to_vec()));
    Arc::new(store)
}

#[test]
fn fixtures_contain_no_foreign_objects() {
    for name in [
        "dense_columns",
        "dense_overlay",
        "enumerated",
        "evolved",
        "filters",
        "group",
        "soma",
        "sparse_history",
    ] {
        assert_eq!(TileDbFormat.foreign(fixture(name, &[])).unwrap(), None, "{name}");
    }
}

#[test]
fn foreign_objects_are_named() {
    for name in [
        "notes.txt",
        "photos/a.jpg",
        "__fragments/notes.txt",
        "__fragments/mine/a0.tdb",
        "__commits/notes.txt",
        "__meta/notes.txt",
        "__schema/notes.txt",
        "__schema/mine/x",
        "__mine/x",
    ] {
        for array in ["dense_overlay", "group"] {
            let found = TileDbFormat.foreign(fixture(array, &[name])).unwrap();
            assert!(
                found.as_ref().is_some_and(|found| name.starts_with(found.as_str())),
                "{array} {name}: {found:?}"
            );
        }
    }
}
