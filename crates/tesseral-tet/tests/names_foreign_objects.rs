//! Packages with foreign objects are not replaced: the error names the first one.

use std::sync::Arc;

use tesseral_format::Format;
use tesseral_store::MemoryStore;
use tesseral_tet::TetFormat;

fn package(more: &[&str]) -> Arc<MemoryStore> {
    let store = MemoryStore::new("a.tet.d");
    let own = ["CURRENT", "generations/00000001/packed.tet", "generations/00000001/MANIFEST.json"];
    for name in own.iter().chain(more) {
        store.insert(name, b"1".to_vec());
    }
    Arc::new(store)
}

#[test]
fn foreign_objects_of_packages_are_named() {
    assert_eq!(TetFormat.foreign(package(&[])).unwrap(), None);
    let all = ["PROTOCOL", "generations/00000001/ZONE.json", "generations/00000002/INDEX.json"];
    assert_eq!(TetFormat.foreign(package(&all)).unwrap(), None);
    for name in [
        "notes.txt",
        "generations/notes",
        "generations/00000001/notes.txt",
        "generations/mine/packed.tet",
        // Data that is not published yet.
        "staging/s0/part-a.tet",
        "publishing/2/HEARTBEAT",
    ] {
        let found = TetFormat.foreign(package(&[name])).unwrap().unwrap();
        assert!(name.starts_with(&found), "{name}: {found}");
    }
}
