//! Packages that hold something else are not replaced: the first such object is named.

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
fn packages_name_what_is_not_theirs() {
    assert_eq!(TetFormat.foreign(package(&[])).unwrap(), None);
    for name in
        ["notes.txt", "generations/notes", "generations/00000001/notes.txt", "generations/mine/packed.tet"]
    {
        let found = TetFormat.foreign(package(&[name])).unwrap().unwrap();
        assert!(name.starts_with(&found), "{name}: {found}");
    }
}
