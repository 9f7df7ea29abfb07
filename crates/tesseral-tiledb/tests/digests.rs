//! Digests of written arrays: all files are covered, in blocks, and removing a digest is detected.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use tesseral_conformance::{Fixture, digests_match};
use tesseral_core::{ArraySchema, CellLen, DType, Field, Finding, Selection, Value};
use tesseral_format::{
    ArraySpec, AuditOptions, CodecSpec, ColumnData, CreateOptions, Depth, Digest, Format, OpenOptions,
    Request, Scratch,
};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tiledb::TileDbFormat;

const MARK: &str = "d16e5701";

/// Two tiles of 5,000 numbers, unfiltered, and of text.
fn write(options: &CreateOptions) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("memory/array"));
    let mut schema = ArraySchema::dense("array", DType::Float64, &[10_000], &[5_000]);
    let mut text = Field::new("text", DType::Utf8);
    (text.cell, text.nullable) = (CellLen::Var, true);
    schema.fields[0].name = "v".to_owned();
    schema.fields.push(text);
    schema.attributes.insert("title".to_owned(), Value::Text("two fields".to_owned()));
    let spec = ArraySpec { schema, codecs: vec![Vec::new(), vec![CodecSpec::new("zstd")]], text: None };
    let mut writer = TileDbFormat.create(Arc::clone(&store), options).unwrap();
    let array = writer.begin(&spec).unwrap();
    let mut scratch = Scratch::default();
    for tile in 0..2_u64 {
        let values: Vec<u8> = (0..5_000).flat_map(|i| f64::from(i * 3).to_ne_bytes()).collect();
        let ends: Vec<u64> = (1..=5_000).map(|i| i * 3).collect();
        let data = vec![b'x'; 15_000];
        let validity = vec![1; 5_000];
        let columns = [
            ColumnData::Fixed { values: &values, validity: None },
            ColumnData::Var { offsets: &ends, data: &data, validity: Some(&validity) },
        ];
        let chunk = writer.encode(array, &[tile], &columns, Vec::new(), &mut scratch).unwrap();
        writer.push(array, chunk).unwrap();
    }
    writer.commit().unwrap();
    store
}

fn files(store: &dyn Store, folder: &str) -> Vec<String> {
    let mut out = Vec::new();
    for entry in store.list(folder).unwrap() {
        let name = if folder.is_empty() { entry.name.clone() } else { format!("{folder}/{}", entry.name) };
        if entry.is_folder() {
            out.extend(files(store, &name));
        } else {
            out.push(name);
        }
    }
    out
}

fn all(store: &dyn Store) -> BTreeMap<String, Vec<u8>> {
    files(store, "")
        .into_iter()
        .map(|f| (f.clone(), store.read_all(&f, u64::MAX).unwrap().to_vec()))
        .collect()
}

fn memory(files: &BTreeMap<String, Vec<u8>>) -> Arc<dyn Store> {
    let store = MemoryStore::new("memory/array");
    files.iter().for_each(|(name, bytes)| store.insert(name, bytes.clone()));
    Arc::new(store)
}

fn audit(store: Arc<dyn Store>, open: &OpenOptions) -> (u64, u64, Vec<Finding>) {
    let mut findings = Vec::new();
    let options = AuditOptions { open: open.clone(), depth: Depth::Digests, canonical: false };
    let report = TileDbFormat.audit(store, &options, &mut |finding| findings.push(finding)).unwrap();
    (report.covered_bytes, report.uncovered_bytes, findings)
}

/// Returns whether opening, planning or verifying digests detects damage.
fn finds_damage(store: &Arc<dyn Store>) -> bool {
    let (_, _, findings) = audit(Arc::clone(store), &OpenOptions::default());
    !findings.iter().all(|finding| finding.ok || finding.severity != tesseral_core::Severity::Error)
        || digests_match(&TileDbFormat, &Fixture::new(Arc::clone(store), 1)).is_err()
}

#[test]
fn every_file_of_a_new_array_is_covered() {
    let store = write(&CreateOptions::default());
    let (covered, uncovered, findings) = audit(Arc::clone(&store), &OpenOptions::default());
    assert!(findings.iter().all(|finding| finding.ok), "{findings:?}");
    assert_eq!(uncovered, 0);
    let of_tiles = |name: &&String| name.contains("/a") && name.ends_with(".tdb");
    let names = files(store.as_ref(), "");
    let metadata: u64 = names.iter().filter(|n| !of_tiles(n)).map(|n| store.len(n).unwrap()).sum();
    assert_eq!(covered, metadata);
    digests_match(&TileDbFormat, &Fixture::new(store, 1)).unwrap();
}

#[test]
fn every_flipped_bit_is_detected() {
    let whole = all(write(&CreateOptions::default()).as_ref());
    assert!(!finds_damage(&memory(&whole)));
    for (name, bytes) in &whole {
        // Every byte of small files, some of large ones.
        let step = (bytes.len() / 300).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut damaged = whole.clone();
            damaged.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
            assert!(finds_damage(&memory(&damaged)), "byte {at} of {name}");
        }
    }
}

#[test]
fn large_tiles_are_hashed_in_blocks() {
    let store = write(&CreateOptions::default());
    let container = TileDbFormat.open(store, &OpenOptions::default()).unwrap();
    let array = container.array(0).unwrap();
    let plan =
        tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&[10_000]), 0))
            .unwrap();
    let mut numbers = Vec::new();
    for chunk in &plan.chunks {
        let spans = array.digests(chunk);
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        let Digest::Xxh3Blocks { block, digests } = span.digest else { panic!("{span:?}") };
        assert_eq!((block, digests.len()), (16 << 10, 3));
        numbers.extend(span.blocks(&span.range).map(|block| block.number));
        // A window reads only the blocks that contain it.
        let start = span.range.start;
        let window =
            span.blocks(&(start + 20_000..start + 20_008)).map(|block| (block.range.start, block.range.end));
        assert_eq!(window.collect::<Vec<_>>(), [(start + 16_384, start + 32_768)]);
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn without_digests_no_bytes_are_added() {
    let with = all(write(&CreateOptions::default()).as_ref());
    let store = write(&CreateOptions { digests: false, ..CreateOptions::default() });
    let without = all(store.as_ref());
    assert!(without.keys().all(|name| !name.contains(MARK)));
    assert!(with.keys().all(|name| name.contains(MARK)));
    assert_eq!(with.len(), without.len());
    // Data files are equal; files of one generic tile are 24 bytes shorter.
    let by_kind = |files: &BTreeMap<String, Vec<u8>>| {
        let kind = |name: &str| match name.rsplit_once('/') {
            Some((folder, file)) if folder.starts_with("__fragments") => file.to_owned(),
            Some((folder, _)) => folder.to_owned(),
            None => name.to_owned(),
        };
        files.iter().map(|(name, bytes)| (kind(name), bytes.clone())).collect::<BTreeMap<_, _>>()
    };
    let (with, without) = (by_kind(&with), by_kind(&without));
    for (kind, bytes) in &without {
        let more = &with[kind];
        match kind.as_str() {
            "__fragment_metadata.tdb" => assert!(more.len() > bytes.len() + 24),
            "__schema" | "__meta" => assert_eq!(more.len(), bytes.len() + 24, "{kind}"),
            _ => assert_eq!(more, bytes, "{kind}"),
        }
        assert!(!bytes.windows(4).any(|w| w == b"TSRL"), "{kind}");
    }
    let (covered, uncovered, findings) = audit(store, &OpenOptions::default());
    assert_eq!(covered, 0);
    assert!(uncovered > 0);
    let warned = |f: &Finding| f.check == "digests" && f.severity == tesseral_core::Severity::Warning;
    assert!(findings.iter().any(warned), "{findings:?}");
}

#[test]
fn encrypted_arrays_carry_digests_of_stored_bytes() {
    let key = vec![7; 32];
    let store = write(&CreateOptions { key: Some(key.clone()), ..CreateOptions::default() });
    let open = OpenOptions { key: Some(key), ..OpenOptions::default() };
    let (_, uncovered, findings) = audit(Arc::clone(&store), &open);
    assert!(uncovered == 0 && findings.iter().all(|f| f.ok), "{findings:?}");
    let mut fixture = Fixture::new(store, 1);
    fixture.options = open;
    digests_match(&TileDbFormat, &fixture).unwrap();
}

#[test]
fn damage_is_readable_with_verification_disabled() {
    let whole = all(write(&CreateOptions::default()).as_ref());
    let mut damaged = whole;
    let (_, schema) = damaged.iter_mut().find(|(name, _)| name.starts_with("__schema")).unwrap();
    schema.truncate(schema.len() - 24);
    let store = memory(&damaged);
    assert!(TileDbFormat.open(Arc::clone(&store), &OpenOptions::default()).is_err());
    let open = OpenOptions { digests: false, ..OpenOptions::default() };
    TileDbFormat.open(store, &open).unwrap();
}
