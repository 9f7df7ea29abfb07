//! Each file of an array missing, truncated, with changed bytes and length fields at their limits: an error of the right kind,
//! no panic, bounded memory.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tesseral_conformance::oracle::{Dense, Sparse};
use tesseral_core::{ErrorKind, Limits, Result};
use tesseral_format::{AuditOptions, Format, OpenOptions};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tiledb::TileDbFormat;

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

fn objects(store: &dyn Store, folder: &str) -> Vec<String> {
    let mut out = Vec::new();
    for entry in store.list(folder).unwrap() {
        let is_folder = entry.is_folder();
        let name = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
        if is_folder { out.extend(objects(store, &name)) } else { out.push(name) }
    }
    out
}

/// Reads everything.
fn read(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<()> {
    let container = TileDbFormat.open(Arc::clone(store), options)?;
    container.details();
    let _ = container.versions();
    for array in 0..container.len() {
        let schema = container.array(array)?.schema().clone();
        if schema.sparse {
            Sparse::load(container.as_ref(), array)?;
        } else {
            for field in (0..).take(schema.fields.len()) {
                Dense::load(container.as_ref(), array, field)?;
            }
        }
    }
    Ok(())
}

/// Reads and audits a damaged array; returns whether reading failed.
fn check(store: MemoryStore, options: &OpenOptions, context: &str) -> bool {
    let store: Arc<dyn Store> = Arc::new(store);
    let begun = Instant::now();
    let failed = match read(&store, options) {
        Ok(()) => false,
        Err(error) => {
            let typed = matches!(
                error.kind(),
                ErrorKind::Corrupt { .. }
                    | ErrorKind::Missing { .. }
                    | ErrorKind::Codec { .. }
                    | ErrorKind::Unsupported { .. }
                    | ErrorKind::Limit { .. }
                    | ErrorKind::NotFound { .. }
            );
            assert!(typed, "{context}: {error:?}");
            if let ErrorKind::Corrupt { object, .. } = error.kind() {
                assert!(!object.is_empty(), "{context}: the error does not name the file");
            }
            true
        }
    };
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    TileDbFormat.audit(store, &audit, &mut |_| ()).unwrap_or_else(|e| {
        assert!(matches!(e.kind(), ErrorKind::NotFound { .. }), "{context}: {e:?}");
        Default::default()
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{context} took too long");
    failed
}

fn changed(name: &str, object: &str, change: impl FnOnce(&mut Vec<u8>)) -> MemoryStore {
    let store = common::memory(name);
    let mut bytes = store.read_all(object, u64::MAX).unwrap().to_vec();
    change(&mut bytes);
    store.insert(object, bytes);
    store
}

#[test]
fn files_missing_and_cut() {
    for name in common::arrays() {
        let whole = common::memory(&name);
        let options = OpenOptions { limits: LIMITS, ..common::options(&name) };
        let details = TileDbFormat.open(common::store(&name), &options).unwrap().details();
        let fragments = details["fragments"].as_array().cloned().unwrap_or_default();
        let visible: Vec<String> = fragments.iter().map(|f| f["name"].as_str().unwrap().to_owned()).collect();
        for object in objects(&whole, "") {
            let store = common::memory(&name);
            store.remove(&object).unwrap();
            let failed = check(store, &options, &format!("{name} without {object}"));
            // Never read: offsets of strings that a filter stores with them, numbers of delete conditions.
            let seen = visible.iter().any(|fragment| object.contains(fragment.as_str()));
            let needed =
                seen && object.ends_with(".tdb") && !object.ends_with("dci.tdb") && name != "filters";
            if needed {
                assert!(failed, "{name} reads without {object}");
            }
            let len = usize::try_from(whole.len(&object).unwrap()).unwrap();
            // Every length at both ends, where headers and footers are, and samples in between.
            let cuts = (0..len).filter(|cut| *cut < 24 || len - cut < 24 || cut % 101 == 0);
            for cut in cuts {
                let store = changed(&name, &object, |bytes| bytes.truncate(cut));
                let failed = check(store, &options, &format!("{name} {object} cut at {cut}"));
                if needed {
                    assert!(failed, "{name} reads with {object} cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn bytes_changed() {
    let mut failures = 0;
    for name in common::arrays() {
        let whole = common::memory(&name);
        let options = OpenOptions { limits: LIMITS, ..common::options(&name) };
        for (number, object) in objects(&whole, "").iter().enumerate() {
            let len = usize::try_from(whole.len(object).unwrap()).unwrap();
            for at in (0..len).filter(|at| (at + number) % 67 == 0 || len - at <= 12) {
                let store = changed(&name, object, |bytes| bytes[at] ^= 1 << (at % 8));
                failures += usize::from(check(store, &options, &format!("{name} {object} flipped at {at}")));
            }
            // A length field at its limits, at every possible offset.
            for at in (0..len.saturating_sub(8)).filter(|at| (at + number) % 199 == 0 || len - at <= 10) {
                for value in [u64::MAX, i64::MAX as u64, 1 << 32, 1 << 20] {
                    let store = changed(&name, object, |bytes| {
                        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    });
                    failures +=
                        usize::from(check(store, &options, &format!("{name} {object} {value} at {at}")));
                }
            }
        }
    }
    assert!(failures > 100, "too little damage was detected: {failures}");
}

#[test]
fn a_missing_file_is_corrupt() {
    let store = common::memory("dense_overlay");
    let gone = objects(&store, "").into_iter().filter(|name| name.ends_with(".tdb")).collect::<Vec<_>>();
    assert!(gone.len() > 10);
    for name in gone {
        let store = common::memory("dense_overlay");
        store.remove(&name).unwrap();
        let error = read(&(Arc::new(store) as Arc<dyn Store>), &OpenOptions::default()).unwrap_err();
        let named =
            matches!(error.kind(), ErrorKind::Missing { object, .. } if object.ends_with(name.as_str()));
        assert!(named && error.is_damage(), "{name}: {error:?}");
    }
}

#[test]
fn trailing_bytes_and_empty_conditions_are_corrupt() {
    use tesseral_tiledb::wire::condition::Node;
    let constant = [1_u8, 254, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(Node::parse("c", &constant, &LIMITS).is_ok());
    let more = [&constant[..], b"more"].concat();
    let of_nothing = [0_u8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for bytes in [&more[..], &of_nothing] {
        let error = Node::parse("c", bytes, &LIMITS).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error:?}");
    }
}
