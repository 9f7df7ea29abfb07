//! Every store keeps the contract of stores.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use tesseral_conformance::store_suite;
use tesseral_store::test_wrappers::{Counting, FaultInjection, Latency, Wrapped, remote_in_memory};
use tesseral_store::{
    ByteRange, Growing, LocalStore, MemoryStore, Overwrite, ReadMode, Store, StoreExt, Upcoming,
};

fn passes(make: impl Fn() -> Arc<dyn Store>) {
    store_suite(&make).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn memory() {
    let store = Arc::new(MemoryStore::new("memory"));
    passes(|| Arc::clone(&store) as Arc<dyn Store>);
}

#[test]
fn local_folders() {
    for access in [ReadMode::Map, ReadMode::Read] {
        let folder = tempfile::tempdir().unwrap();
        passes(|| Arc::new(LocalStore::new(folder.path(), access)));
    }
}

#[test]
fn wrappers() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("memory"));
    passes(|| Arc::new(Growing(Arc::clone(&store))));
    passes(|| Arc::new(Wrapped::new(Arc::clone(&store), Arc::new(Counting::default()))));
    passes(|| Arc::new(Wrapped::new(Arc::clone(&store), Arc::new(Latency(Duration::from_millis(1))))));
    passes(|| Arc::new(Wrapped::new(Arc::clone(&store), Arc::new(FaultInjection::at(u64::MAX)))));
}

#[test]
fn object_stores() {
    for root in ["", "folder/array"] {
        let client = Arc::new(object_store::memory::InMemory::new());
        passes(|| {
            Arc::new(tesseral_store::RemoteStore::with_client("remote", client.clone(), root).unwrap())
        });
    }
}

#[test]
fn object_stores_with_a_cache() {
    let (client, folder) = (Arc::new(object_store::memory::InMemory::new()), tempfile::tempdir().unwrap());
    let kept = tesseral_store::CacheFolder::new(folder.path());
    passes(|| {
        let store = tesseral_store::RemoteStore::with_client("remote", client.clone(), "array").unwrap();
        Arc::new(store.with_cache(&kept))
    });
}

#[test]
fn several_parts_are_one_round_trip() {
    let store = remote_in_memory("data").unwrap();
    let names: Vec<String> = (0..100).map(|i| format!("f{i}")).collect();
    for name in &names {
        store.put(name, &[7; 5000], Overwrite::Refuse).unwrap();
    }
    let before = store.traffic();
    let reads: Vec<_> = names.iter().map(|name| (name.as_str(), ByteRange::Suffix(10))).collect();
    assert!(
        store.read_objects(&reads).unwrap().iter().all(|part| part.len == 5000 && part.bytes.len() == 10)
    );
    let after = store.traffic();
    assert_eq!((after.rounds - before.rounds, after.requests - before.requests), (1, 100));
    // Lengths are known from the answers.
    assert_eq!(store.len("f3").unwrap(), 5000);
    // What was announced is not requested again.
    store.prefetch(&[
        Upcoming::Listing(String::new()),
        Upcoming::Bytes("f1".into(), ByteRange::Exact(0..100)),
    ]);
    assert_eq!(store.list("").unwrap().len(), 100);
    assert_eq!(store.read("f1", 20..40).unwrap().len(), 20);
    assert_eq!(store.traffic().rounds - after.rounds, 1);
}

#[test]
fn an_object_replaced_between_two_reads_is_an_error() {
    let client: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let open = || tesseral_store::RemoteStore::with_client("remote", Arc::clone(&client), "x").unwrap();
    open().put("", &[1; 300_000], Overwrite::Refuse).unwrap();
    let store = open();
    assert_eq!(store.read("", 0..1).unwrap()[0], 1);
    open().put("", &[2; 300_000], Overwrite::Replace).unwrap();
    let error = store.read("", 100_000..100_001).unwrap_err();
    assert!(matches!(error.kind(), tesseral_core::ErrorKind::Changed { .. }), "{error}");
    // Nor is it replaced by one who read the version before.
    let error = store.put("", b"3", Overwrite::Replace).unwrap_err();
    assert!(matches!(error.kind(), tesseral_core::ErrorKind::Changed { .. }), "{error}");
    assert_eq!(open().read("", 0..1).unwrap()[0], 2);
}

#[test]
fn a_prefix_is_a_folder_and_first_contact_is_one_round_trip() {
    let store = remote_in_memory("array").unwrap();
    store.put("a", b"1", Overwrite::Refuse).unwrap();
    let before = store.traffic().rounds;
    let error = store.len("").unwrap_err();
    let is_folder = matches!(error.kind(), tesseral_core::ErrorKind::Io { source, .. }
        if source.kind() == std::io::ErrorKind::IsADirectory);
    assert!(is_folder, "{error}");
    assert_eq!(store.list("").unwrap().len(), 1);
    assert_eq!(store.traffic().rounds - before, 1);
}
