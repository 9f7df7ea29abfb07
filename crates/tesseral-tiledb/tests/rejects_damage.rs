//! Damage in each file of an array: an error that names the file; no panic and no wrong cell of a field with checksums.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use tesseral_conformance::oracle::Dense;
use tesseral_core::ErrorKind;
use tesseral_format::{AuditOptions, Format, OpenOptions, Probe, Sniff};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tiledb::TileDbFormat;

fn objects(store: &dyn Store, folder: &str) -> Vec<String> {
    let mut out = Vec::new();
    for entry in store.list(folder).unwrap() {
        let is_folder = entry.is_folder();
        let name = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
        if is_folder { out.extend(objects(store, &name)) } else { out.push(name) }
    }
    out
}

fn find(store: &dyn Store, ending: &str) -> String {
    objects(store, "").into_iter().find(|name| name.ends_with(ending)).unwrap()
}

fn changed(store: &MemoryStore, object: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = store.read_all(object, u64::MAX).unwrap().to_vec();
    change(&mut bytes);
    store.insert(object, bytes);
}

#[test]
fn unsupported_versions_are_rejected() {
    for version in [0_u32, 24, u32::MAX] {
        let store = common::memory("evolved");
        for object in objects(&store, "__schema") {
            changed(&store, &object, |bytes| bytes[..4].copy_from_slice(&version.to_le_bytes()));
        }
        let error = TileDbFormat.open(Arc::new(store), &OpenOptions::default()).unwrap_err();
        let ErrorKind::Unsupported { feature } = error.kind() else { panic!("{error}") };
        assert!(feature.contains(&version.to_string()));
    }
}

#[test]
fn a_truncated_footer_is_reported_on_first_use_with_its_file() {
    let whole = common::memory("dense_overlay");
    let object = find(&whole, "__fragment_metadata.tdb");
    let len = whole.len(&object).unwrap();
    for cut in [0, 7, 8, len / 2, len - 9, len - 1] {
        let store = common::memory("dense_overlay");
        changed(&store, &object, |bytes| bytes.truncate(usize::try_from(cut).unwrap()));
        let store: Arc<dyn Store> = Arc::new(store);
        // The schema is readable without it.
        let container = TileDbFormat.open(Arc::clone(&store), &OpenOptions::default()).unwrap();
        let array = container.array(0).unwrap();
        assert!(container.details()["error"].is_string());
        for error in [
            Dense::load(container.as_ref(), 0, 0).unwrap_err(),
            array.non_empty_domain().unwrap_err(),
            container.versions().unwrap_err(),
        ] {
            match error.kind() {
                ErrorKind::Corrupt { object: named, .. } => assert!(named.ends_with(&object), "{named}"),
                ErrorKind::Unsupported { .. } => {}
                _ => panic!("{error}"),
            }
        }
        let mut found = Vec::new();
        TileDbFormat.audit(store, &AuditOptions::default(), &mut |finding| found.push(finding)).unwrap();
        assert!(found.iter().any(|f| f.check == "fragment_metadata" && !f.ok), "{found:?}");
    }
}

#[test]
fn checksums_find_flips_in_tiles() {
    let source = TileDbFormat.open(common::store("filters"), &OpenOptions::default()).unwrap();
    let schema = source.array(0).unwrap().schema().clone();
    for name in ["md5", "sha256", "many"] {
        let field = schema.field(name).unwrap();
        let whole = common::memory("filters");
        let object = find(&whole, &format!("/a{field}.tdb"));
        let len = usize::try_from(whole.len(&object).unwrap()).unwrap();
        // The cells are at the end of the file.
        for at in len - 8..len {
            let store = common::memory("filters");
            changed(&store, &object, |bytes| bytes[at] ^= 0x10);
            let container = TileDbFormat.open(Arc::new(store), &OpenOptions::default()).unwrap();
            let error = Dense::load(container.as_ref(), 0, u16::try_from(field).unwrap()).unwrap_err();
            assert!(error.is_damage(), "{name} {at}: {error}");
        }
    }
}

#[test]
fn an_uncommitted_fragment_is_not_visible() {
    let store = common::memory("dense_overlay");
    for object in objects(&store, "__commits") {
        store.remove(&object).unwrap();
    }
    let container = TileDbFormat.open(Arc::new(store), &OpenOptions::default()).unwrap();
    assert!(container.details()["fragments"].as_array().unwrap().is_empty());
}

#[test]
fn recognizes_arrays_and_groups_by_their_content() {
    for name in ["evolved", "group"] {
        let entries = common::memory(name).list("").unwrap();
        let probe = Probe { name: "x", head: &[], entries: Some(&entries) };
        assert_eq!(TileDbFormat.sniff(&probe), Sniff::Content, "{name}");
    }
    let probe = Probe { name: "x.tdb", head: b"x", entries: None };
    assert_eq!(TileDbFormat.sniff(&probe), Sniff::No);
}

/// The checks that warn.
fn warnings(store: MemoryStore) -> Vec<&'static str> {
    let mut found = Vec::new();
    let report = &mut |finding: tesseral_core::Finding| {
        if finding.severity == tesseral_core::Severity::Warning && finding.check != "digests" {
            found.push(finding.check);
        }
    };
    TileDbFormat.audit(Arc::new(store), &AuditOptions::default(), report).unwrap();
    found
}

/// An array is valid without the file: it looks like a write that was never committed, or a group without members.
#[test]
fn what_a_missing_commit_or_group_file_leaves_is_reported() {
    let removed = |name: &str, ending: &str| {
        let store = common::memory(name);
        let object = find(&store, ending);
        store.remove(&object).unwrap();
        warnings(store)
    };
    assert_eq!(warnings(common::memory("dense_overlay")), [""; 0]);
    assert_eq!(removed("dense_overlay", ".wrt"), ["uncommitted_fragment"]);
    assert!(!warnings(common::memory("group")).contains(&"unlisted_member"));
    let store = common::memory("group");
    for object in objects(&store, "__group") {
        store.remove(&object).unwrap();
    }
    assert!(warnings(store).contains(&"unlisted_member"));
}
