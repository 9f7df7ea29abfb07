//! Files of the reference are read bit for bit, memory-mapped and through a store that is not resident.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value as Json;
use tesseral_core::{Attributes, Value};
use tesseral_format::{ContainerSource, Format, OpenOptions, Request};
use tesseral_store::test_wrappers::{Counting, Wrapped};
use tesseral_store::{LocalStore, ReadMode, Store};
use tesseral_tet::TetFormat;

fn manifest() -> Vec<Json> {
    let text = std::fs::read(common::fixtures().join("manifest.json")).unwrap();
    let manifest: Json = serde_json::from_slice(&text).unwrap();
    manifest["fixtures"].as_array().unwrap().clone()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn texts(json: &Json) -> Vec<&str> {
    json.as_array().map_or(Vec::new(), |list| list.iter().map(|t| t.as_str().unwrap()).collect())
}

fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

fn check_dataset(file: &str, container: &dyn ContainerSource, index: usize, want: &Json) {
    let name = want["name"].as_str().unwrap();
    let context = format!("{file}: {name}");
    assert_eq!(container.name(index), name, "{context}");
    let array = container.array(index).unwrap();
    let schema = array.schema();
    assert_eq!(schema.fields[0].dtype.to_string(), want["dtype"].as_str().unwrap(), "{context}");
    assert_eq!(schema.shape().unwrap().to_vec(), numbers(&want["shape"]), "{context}");
    assert_eq!(schema.chunk_shape.as_ref().unwrap().to_vec(), numbers(&want["chunk_shape"]), "{context}");
    let plan = tesseral_format::plan(
        &*array,
        container.store(),
        &Request::cells(tesseral_core::Selection::all(&schema.shape().unwrap()), 0),
    )
    .unwrap();
    assert_eq!(plan.chunks.len() as u64, want["chunks"].as_u64().unwrap(), "{context}");
    let mut codecs: Vec<String> = plan.chunks.iter().map(|c| array.describe(c).codec).collect();
    codecs.sort();
    codecs.dedup();
    assert_eq!(codecs.join("+"), want["codec"].as_str().unwrap(), "{context}");
    let flat = common::read_array(container, &*array).unwrap();
    assert_eq!(sha256(&flat), want["sha256"].as_str().unwrap(), "{context}");

    if let Some(attrs) = want["attrs"].as_object() {
        let attrs: Attributes =
            attrs.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str().unwrap()))).collect();
        assert_eq!(schema.attributes, attrs, "{context}");
    } else {
        assert_eq!(schema.attributes.len() as u64, want["attrs_count"].as_u64().unwrap(), "{context}");
    }
    let names: Vec<&str> = schema.dims.iter().map(|d| d.name.as_str()).filter(|n| !n.is_empty()).collect();
    assert_eq!(names, texts(&want["dim_names"]), "{context}");
    for (axis, labels) in want["coords"].as_object().unwrap() {
        let labels = texts(if labels.is_object() { &labels["labels"] } else { labels });
        let found = schema.dims.iter().filter_map(|d| d.labels.as_ref()).any(|have| {
            have.len() == labels.len()
                && labels.iter().enumerate().all(|(i, l)| have.get(i).unwrap().as_text() == Some(l))
        });
        assert!(found, "{context}: labels of unknown dimension {axis}");
    }
}

#[test]
fn every_fixture_matches_its_manifest() {
    let fixtures = manifest();
    assert!(fixtures.len() >= 30);
    for fixture in &fixtures {
        let file = fixture["file"].as_str().unwrap();
        let path = common::fixtures().join(file);
        assert_eq!(sha256(&std::fs::read(&path).unwrap()), fixture["sha256"].as_str().unwrap(), "{file}");
        for access in [ReadMode::Map, ReadMode::Read] {
            let store: Arc<dyn Store> = Arc::new(LocalStore::new(&path, access));
            let container = TetFormat.open(store, &OpenOptions::default()).unwrap();
            let datasets = fixture["datasets"].as_array().unwrap();
            assert_eq!(container.len(), datasets.len(), "{file}");
            for (i, dataset) in datasets.iter().enumerate() {
                check_dataset(file, &*container, i, dataset);
            }
            let version = container.details()["footer"]["version"].as_u64();
            assert_eq!(version, fixture["history_version"].as_u64(), "{file}");
        }
    }
}

#[test]
fn every_fixture_file_is_in_the_manifest() {
    let known: Vec<String> = manifest().iter().map(|f| f["file"].as_str().unwrap().to_owned()).collect();
    for entry in std::fs::read_dir(common::fixtures()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".tet") {
            assert!(known.contains(&name), "{name} has no entry in the manifest");
        }
    }
}

#[test]
fn a_package_opens_at_its_current_generation() {
    let store: Arc<dyn Store> =
        Arc::new(LocalStore::new(common::fixtures().join("package.tet.d"), ReadMode::Map));
    let container = TetFormat.open(store, &OpenOptions::default()).unwrap();
    assert_eq!((container.len(), container.name(1)), (2, "right"));
    assert_eq!(common::read_flat(&*container, 1).unwrap().len(), 32);
}

#[test]
fn file_metadata_history_and_budget_are_read() {
    let at = |name: &str| {
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(common::fixtures().join(name), ReadMode::Map));
        TetFormat.open(store, &OpenOptions::default()).unwrap()
    };
    let history = at("history_v1.tet");
    assert!(!history.attributes().is_empty());
    let full = history.history().iter().find(|row| !row.params.is_empty()).unwrap();
    assert!(!full.parents.is_empty() && full.extra.contains_key("agent"));
    assert_eq!(
        at("budget_header_v1.tet").memory_budget(),
        Some(tesseral_format::MemoryBudget::Bytes(1 << 20))
    );
    assert_eq!(at("no_footer.tet").memory_budget(), None);
    assert!(at("odd_but_valid_v1.tet").history().len() > 1);
}

#[test]
fn opening_a_store_that_is_not_resident_reads_both_ends_only() {
    let payload = 1 << 20;
    let schema =
        tesseral_core::ArraySchema::dense("a", tesseral_core::DType::UInt8, &[payload], &[payload / 10 + 1]);
    let input = common::Input::new(schema, "raw", vec![7; payload as usize]);
    let file = common::write(&[input], &common::plain()).unwrap();
    let counting = Arc::new(Counting::default());
    let store: Arc<dyn Store> = Arc::new(Wrapped::new(common::memory(file), Arc::clone(&counting)));
    let container = TetFormat.open(store, &OpenOptions::default()).unwrap();
    let array = container.array(0).unwrap();
    let selection = tesseral_core::Selection::all(&[payload]);
    assert_eq!(
        tesseral_format::plan(&*array, container.store(), &Request::cells(selection, 0))
            .unwrap()
            .chunks
            .len(),
        10
    );
    assert_eq!(counting.requests(), 1);
    assert!(counting.bytes() == 128 << 10, "{} bytes", counting.bytes());
}
