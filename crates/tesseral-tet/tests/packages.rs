//! Packages: written with one generation, and audited by the digests of their manifest.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use tesseral_core::{ArraySchema, DType, Finding};
use tesseral_format::{AuditOptions, CreateOptions, Depth, Format, OpenOptions, Probe, Sniff};
use tesseral_store::{LocalStore, MemoryStore, ObjectInfo, ObjectKind, ReadMode, Store, StoreExt};
use tesseral_tet::TetFormat;

const FOLDER: &str = "generations/00000001";

fn input() -> common::Input {
    let cells = (0..24_i32).flat_map(|n| (n * n).to_ne_bytes()).collect();
    common::Input::new(ArraySchema::dense("a", DType::Int32, &[4, 6], &[3, 4]), "raw", cells)
}

fn package(options: &CreateOptions) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new("a.tet.d"));
    let options = CreateOptions { folder: true, ..options.clone() };
    let mut writer = TetFormat.create(Arc::clone(&store) as Arc<dyn Store>, &options).unwrap();
    common::push_all(&mut *writer, &[input()], |_| ()).unwrap();
    writer.commit().unwrap();
    store
}

fn failures(store: Arc<dyn Store>, depth: Depth) -> Vec<Finding> {
    let mut found = Vec::new();
    let options = AuditOptions { depth, ..AuditOptions::default() };
    TetFormat.audit(store, &options, &mut |finding| found.push(finding)).unwrap();
    found.retain(|finding| !finding.ok);
    found
}

fn objects(store: &MemoryStore) -> Vec<String> {
    let mut names = vec!["CURRENT".to_owned(), "PROTOCOL".to_owned()];
    names.extend(store.list(FOLDER).unwrap().into_iter().map(|entry| format!("{FOLDER}/{}", entry.name)));
    names
}

#[test]
fn a_package_has_one_generation() {
    for (digests, chunk_statistics) in [(true, None), (false, None), (false, Some(true))] {
        let options = CreateOptions { digests, chunk_statistics, ..CreateOptions::default() };
        let store = package(&options);
        let all = ["MANIFEST.json", "ZONE.json", "packed.tet"].map(|name| format!("{FOLDER}/{name}"));
        assert_eq!(objects(&store)[2..], all);
        assert_eq!(&store.read_all("CURRENT", 9).unwrap()[..], b"1\n");
        let container =
            TetFormat.open(Arc::clone(&store) as Arc<dyn Store>, &OpenOptions::default()).unwrap();
        assert_eq!(common::read_flat(&*container, 0).unwrap(), input().flat);
        assert_eq!(TetFormat.foreign(Arc::clone(&store) as Arc<dyn Store>).unwrap(), None);
        for depth in [Depth::Structure, Depth::Usual, Depth::Full] {
            assert_eq!(failures(Arc::clone(&store) as Arc<dyn Store>, depth), []);
        }
    }
}

/// Every byte of the file and of its zone maps is covered by the manifest, also without digests of chunks.
#[test]
fn every_changed_byte_is_found() {
    let whole = package(&CreateOptions { digests: false, ..CreateOptions::default() });
    for name in ["packed.tet", "ZONE.json"].map(|name| format!("{FOLDER}/{name}")) {
        let bytes = whole.read_all(&name, 1 << 20).unwrap();
        for at in 0..bytes.len() {
            let store = MemoryStore::new("a.tet.d");
            for other in objects(&whole) {
                store.insert(&other, whole.read_all(&other, 1 << 20).unwrap());
            }
            let mut changed = bytes.to_vec();
            changed[at] ^= 0x10;
            store.insert(&name, changed);
            assert_ne!(failures(Arc::new(store), Depth::Usual), [], "{name} at {at}");
        }
    }
}

#[test]
fn truncated_objects_are_findings() {
    let whole = package(&CreateOptions::default());
    for name in objects(&whole).into_iter().filter(|name| name != "PROTOCOL") {
        let bytes = whole.read_all(&name, 1 << 20).unwrap();
        // Without their final newline, texts say the same.
        let is_text = name == "CURRENT" || name.ends_with("MANIFEST.json");
        let lengths = 0..bytes.len() - usize::from(is_text);
        for len in lengths {
            let store = MemoryStore::new("a.tet.d");
            for other in objects(&whole) {
                store.insert(&other, whole.read_all(&other, 1 << 20).unwrap());
            }
            store.insert(&name, bytes.slice(..len));
            assert_ne!(failures(Arc::new(store), Depth::Usual), [], "{name} of {len} bytes");
        }
    }
}

#[test]
fn changed_manifests_are_findings_or_say_the_same() {
    let whole = package(&CreateOptions::default());
    let name = format!("{FOLDER}/MANIFEST.json");
    let bytes = whole.read_all(&name, 1 << 20).unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    for (from, to) in [
        ("\"packed_byte_len\": ", "\"packed_byte_len\": 1"),
        ("\"packed_sha256\": \"", "\"packed_sha256\": \"0"),
        ("\"zone_maps_sha256\": \"", "\"zone_maps_sha256\": \"0"),
        ("\"omitted\"", "\"present\", \"secondary_indexes_sha256\": \"00\""),
        ("{", "["),
    ] {
        let store = MemoryStore::new("a.tet.d");
        for other in objects(&whole) {
            store.insert(&other, whole.read_all(&other, 1 << 20).unwrap());
        }
        store.insert(&name, text.replacen(from, to, 1).into_bytes());
        assert_ne!(failures(Arc::new(store), Depth::Usual), [], "{to}");
    }
}

#[test]
fn packages_of_the_reference_match_their_manifests() {
    let fixture = common::fixtures().join("package.tet.d");
    assert_eq!(failures(Arc::new(LocalStore::new(&fixture, ReadMode::Map)), Depth::Usual), []);
    // Generation 1 has metadata; the digest of the manifest is of a file with a footer.
    let store = MemoryStore::new("a.tet.d");
    store.insert("CURRENT", b"1".to_vec());
    for entry in std::fs::read_dir(fixture.join(FOLDER)).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{FOLDER}/{}", path.file_name().unwrap().to_str().unwrap());
        store.insert(&name, std::fs::read(&path).unwrap());
    }
    assert_eq!(failures(Arc::new(store), Depth::Usual), []);
}

#[test]
fn names_decide_on_folders() {
    for (name, folder) in [("a.tet", false), ("a.tet.d", true), ("b/A.TET.D/", true), ("tet.d", false)] {
        assert_eq!(TetFormat.is_folder(name), folder, "{name}");
    }
    let entries = [ObjectInfo::new("CURRENT", ObjectKind::File), ObjectInfo::new("x", ObjectKind::File)];
    let sniff = |entries| TetFormat.sniff(&Probe { name: "a", head: &[], entries: Some(entries) });
    assert_eq!(sniff(&entries[..1]), Sniff::Content);
    assert_eq!(sniff(&entries), Sniff::No);
}
