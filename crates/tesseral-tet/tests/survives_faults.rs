//! A write that fails at any call publishes nothing and leaves no files; the intact part of a truncated file is recovered.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use tesseral_core::{ArraySchema, DType, Selection};
use tesseral_format::{CreateOptions, Format, OpenOptions, Request, Uncovered};
use tesseral_store::test_wrappers::{Failure, FaultInjection, Wrapped};
use tesseral_store::{LocalStore, MemoryStore, Overwrite, ReadMode, Store, StoreExt};
use tesseral_tet::TetFormat;

fn inputs() -> Vec<common::Input> {
    vec![
        common::Input::new(
            ArraySchema::dense("raw", DType::UInt16, &[5, 3], &[2, 2]),
            "raw",
            (0..30).collect(),
        ),
        common::Input::new(ArraySchema::dense("zstd", DType::UInt8, &[9], &[4]), "zstd", vec![7; 9]),
    ]
}

fn write_to(store: Arc<dyn Store>, overwrite: Overwrite) -> tesseral_core::Result<()> {
    let options = CreateOptions { overwrite, statistics: true, ..CreateOptions::default() };
    let mut writer = TetFormat.create(store, &options)?;
    common::push_all(&mut *writer, &inputs(), |_| {})?;
    writer.commit()
}

#[test]
fn a_fault_at_any_call_publishes_nothing() {
    let clean = Arc::new(FaultInjection::at(u64::MAX));
    write_to(Arc::new(Wrapped::new(Arc::new(MemoryStore::new("m")), Arc::clone(&clean))), Overwrite::Refuse)
        .unwrap();
    assert!(clean.calls() > 10);
    for (n, failure) in (0..clean.calls()).flat_map(|n| Failure::ALL.map(|failure| (n, failure))) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tet");
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(&path, ReadMode::Map));
        let faulty: Arc<dyn Store> =
            Arc::new(Wrapped::new(local, Arc::new(FaultInjection::with(n, failure))));
        assert!(write_to(faulty, Overwrite::Refuse).is_err(), "call {n}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "call {n} left files");

        std::fs::write(&path, b"old").unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(&path, ReadMode::Map));
        let faulty: Arc<dyn Store> =
            Arc::new(Wrapped::new(local, Arc::new(FaultInjection::with(n, failure))));
        assert!(write_to(faulty, Overwrite::Replace).is_err(), "call {n}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old", "call {n}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "call {n} left files");
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path().join("x.tet"), ReadMode::Map));
    let mut writer = TetFormat.create(store, &CreateOptions::default()).unwrap();
    common::push_all(&mut *writer, &inputs(), |_| {}).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_existing_file_is_not_replaced_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tet");
    std::fs::write(&path, b"old").unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(&path, ReadMode::Map));
    assert!(write_to(Arc::clone(&store), Overwrite::Refuse).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    write_to(store, Overwrite::Replace).unwrap();
    assert!(common::open(std::fs::read(&path).unwrap()).is_ok());
}

#[test]
fn faults_while_opening_are_io_errors() {
    let file = common::write(&inputs(), &CreateOptions::default()).unwrap();
    for n in 0..4 {
        let store: Arc<dyn Store> =
            Arc::new(Wrapped::new(common::memory(file.clone()), Arc::new(FaultInjection::at(n))));
        if let Err(error) = TetFormat.open(store, &OpenOptions::default()) {
            assert!(matches!(error.kind(), tesseral_core::ErrorKind::Io { .. }), "{error:?}");
        }
    }
}

/// All complete chunks of a file that is truncated after the index are recovered.
#[test]
fn the_complete_chunks_of_a_truncated_file_are_recovered() {
    let file = common::write(&inputs(), &CreateOptions::default()).unwrap();
    let summary = tesseral_tet::TetSummary::parse(&file).unwrap();
    let head = summary.superblock.chunk_index_offset + summary.superblock.chunk_index_length;
    for len in 0..file.len() {
        let store = common::memory(file[..len].to_vec());
        let salvage = TetFormat.salvage(store, &OpenOptions::default());
        let fits = |c: &tesseral_tet::ChunkSummary| c.payload_offset + c.stored_byte_len <= len as u64;
        let whole = summary.chunks.iter().filter(|c| fits(c)).count();
        if (len as u64) < head || whole == 0 {
            assert!(salvage.unwrap_err().is_damage(), "{len}");
            continue;
        }
        let salvage = salvage.unwrap();
        let lost = salvage.findings.iter().filter(|f| f.check == "chunk_lost").count();
        assert_eq!(lost, summary.chunks.len() - whole, "{len}");
        assert!(salvage.findings.iter().any(|f| f.check == "footer"), "{len}: the footer is lost as well");
        let mut planned = 0;
        for (i, input) in inputs().iter().enumerate() {
            let array = salvage.container.array(i).unwrap();
            let shape = array.schema().shape().unwrap();
            let plan = tesseral_format::plan(
                &*array,
                salvage.container.store(),
                &Request::cells(Selection::all(&shape), 0),
            )
            .unwrap();
            assert_eq!(plan.uncovered, Uncovered::Fill);
            planned += plan.chunks.len();
            if plan.chunks.len() as u64 == input.spec.schema.grid().unwrap().total() {
                assert_eq!(common::read_flat(&*salvage.container, i).unwrap(), input.flat);
            }
        }
        assert_eq!(planned, whole, "{len}");
    }
}

/// A package is opened, audited and recovered at its current generation; its files are not changed.
#[test]
fn a_package_is_not_repaired_in_place() {
    let folder = common::fixtures().join("package.tet.d");
    let options = OpenOptions::default();
    let package = |change: &dyn Fn(&mut Vec<u8>), current: &str| -> Arc<dyn Store> {
        let store = MemoryStore::new("p.tet.d");
        store.insert("CURRENT", current.to_owned());
        for name in ["MANIFEST.json", "ZONE.json", "INDEX.json", "packed.tet"] {
            let name = format!("generations/00000002/{name}");
            let mut bytes = std::fs::read(folder.join(&name)).unwrap();
            if name.ends_with(".tet") {
                change(&mut bytes);
            }
            store.insert(&name, bytes);
        }
        Arc::new(store)
    };
    let audit = |store: Arc<dyn Store>| {
        let mut failed = Vec::new();
        let see = &mut |f: tesseral_core::Finding| failed.extend((!f.ok).then_some(f.check));
        TetFormat.audit(store, &tesseral_format::AuditOptions::default(), see).unwrap();
        failed
    };
    let codes = |store| -> Vec<_> {
        TetFormat.repairs(store, &options).unwrap().iter().map(|r| (r.code, r.automatic)).collect()
    };
    assert!(audit(package(&|_| {}, "2\n")).is_empty());
    assert!(codes(package(&|_| {}, "2\n")).is_empty());
    let torn = package(&|bytes| bytes.truncate(bytes.len() - 1), "2\n");
    assert_eq!(audit(Arc::clone(&torn)), ["parse"]);
    assert_eq!(codes(Arc::clone(&torn)), [("footer_invalid", false)]);
    assert!(TetFormat.apply_repair(Arc::clone(&torn), &options, "footer_invalid").is_err());
    assert_eq!(TetFormat.salvage(torn, &options).unwrap().container.len(), 2);
    for current in ["", "x", "3", "-1", "2 2"] {
        let lost = package(&|_| {}, current);
        assert!(TetFormat.open(Arc::clone(&lost), &options).unwrap_err().is_damage(), "{current:?}");
        assert_eq!(audit(Arc::clone(&lost)), ["package"]);
        assert_eq!(codes(lost), [("package_corrupt", false)]);
    }
    let nothing: Arc<dyn Store> = Arc::new(MemoryStore::new("nothing"));
    let error = TetFormat.open(nothing, &options).unwrap_err();
    assert!(matches!(error.kind(), tesseral_core::ErrorKind::NotFound { .. }));
}

/// The fix for damage after the payloads keeps all cells and, if they are intact, the digests.
#[test]
fn the_repair_removes_only_a_damaged_footer() {
    let file = common::write(&inputs(), &CreateOptions::default()).unwrap();
    let details = common::open(file.clone()).unwrap().details();
    let json = details["footer"]["json_offset"].as_u64().unwrap() as usize;
    let options = OpenOptions::default();
    let mut broken = vec![file[..json + 3].to_vec(), file[..file.len() - 1].to_vec(), file[..json].to_vec()];
    for at in [json, json + 5, file.len() - 1, file.len() - 10] {
        let mut flipped = file.clone();
        flipped[at] ^= 0x20;
        broken.push(flipped);
    }
    for (i, bytes) in broken.into_iter().enumerate() {
        let store = common::memory(bytes.clone());
        assert!(TetFormat.open(Arc::clone(&store), &options).is_err(), "{i}");
        let repairs = TetFormat.repairs(Arc::clone(&store), &options).unwrap();
        assert_eq!(
            repairs.iter().map(|r| (r.code, r.automatic)).collect::<Vec<_>>(),
            [("footer_invalid", true)],
            "{i}"
        );
        assert!(TetFormat.apply_repair(Arc::clone(&store), &options, "invalid_layout").is_err());
        // A fault during the repair leaves the file unchanged.
        for n in 0..8 {
            let copy: Arc<dyn Store> = common::memory(bytes.clone());
            let faulty: Arc<dyn Store> =
                Arc::new(Wrapped::new(Arc::clone(&copy), Arc::new(FaultInjection::at(n))));
            if TetFormat.apply_repair(faulty, &options, "footer_invalid").is_err() {
                assert_eq!(copy.read_all("", u64::MAX).unwrap(), bytes, "{i}, call {n}");
            }
        }
        TetFormat.apply_repair(Arc::clone(&store), &options, "footer_invalid").unwrap();
        let container = TetFormat.open(Arc::clone(&store), &options).unwrap();
        for (k, input) in inputs().iter().enumerate() {
            assert_eq!(common::read_flat(&*container, k).unwrap(), input.flat, "{i}");
        }
        assert!(container.details()["digests"].is_object(), "{i}: the digests stay");
        assert!(TetFormat.repairs(Arc::clone(&store), &options).unwrap().is_empty());
        assert!(
            TetFormat.apply_repair(store, &options, "footer_invalid").is_err(),
            "no fix needed after the repair"
        );
    }
}
