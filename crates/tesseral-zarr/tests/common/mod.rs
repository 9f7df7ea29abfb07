//! Hierarchies in memory.

#![allow(dead_code)]

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tesseral_core::Result;
use tesseral_format::{ContainerSource, Format, OpenOptions};
use tesseral_store::{MemoryStore, Store};
use tesseral_zarr::ZarrFormat;

/// A store with these objects.
pub fn memory(objects: &[(&str, Vec<u8>)]) -> Arc<dyn Store> {
    let store = MemoryStore::new("folder/x.zarr");
    for (name, bytes) in objects {
        store.insert(name, bytes.clone());
    }
    Arc::new(store)
}

pub fn open(objects: &[(&str, Vec<u8>)]) -> Result<Arc<dyn ContainerSource>> {
    ZarrFormat.open(memory(objects), &OpenOptions::default())
}

/// `zarr.json` of an array.
pub fn v3(data_type: &str, shape: &[u64], chunk: &[u64], codecs: &Json) -> Vec<u8> {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 7, "codecs": codecs,
    })
    .to_string()
    .into_bytes()
}

/// `.zarray`, with other members.
pub fn v2(dtype: &str, shape: &[u64], chunk: &[u64], more: &Json) -> Vec<u8> {
    let mut document = json!({
        "zarr_format": 2, "shape": shape, "chunks": chunk, "dtype": dtype, "compressor": null, "fill_value": null,
        "order": "C", "filters": null,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        document[key] = value.clone();
    }
    document.to_string().into_bytes()
}
