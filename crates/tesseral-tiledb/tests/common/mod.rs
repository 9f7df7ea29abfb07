//! Fixtures: arrays of the reference, and the values it reads back.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tesseral_format::{OpenOptions, TimeRange};
use tesseral_store::{MemoryStore, Store};

/// Key of the encrypted fixture.
pub const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

/// Folder of fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tiledb")
}

/// Names of all arrays.
pub fn arrays() -> Vec<String> {
    manifest()["arrays"].as_object().unwrap().keys().cloned().collect()
}

/// The values that the reference reads.
pub fn manifest() -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(fixtures().join("manifest.json")).unwrap()).unwrap()
}

/// A fixture in memory.
pub fn memory(name: &str) -> MemoryStore {
    let store = MemoryStore::new(format!("memory/{name}"));
    fill(&store, &fixtures().join(name), "");
    store
}

fn fill(store: &MemoryStore, folder: &Path, prefix: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            fill(store, &path, &format!("{name}/"));
        } else {
            store.insert(&name, std::fs::read(&path).unwrap());
        }
    }
}

/// A fixture in memory as a trait object.
pub fn store(name: &str) -> Arc<dyn Store> {
    Arc::new(memory(name))
}

/// Options to open a fixture.
pub fn options(name: &str) -> OpenOptions {
    let key = (name == "encrypted").then(|| KEY.to_vec());
    OpenOptions { key, ..OpenOptions::default() }
}

/// Options to open a fixture in a time range.
pub fn options_at(name: &str, as_of: &serde_json::Value) -> OpenOptions {
    let range = TimeRange { start: as_of[0].as_u64().unwrap(), end: as_of[1].as_u64().unwrap() };
    OpenOptions { as_of: Some(range), ..options(name) }
}
