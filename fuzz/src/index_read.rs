//! Arbitrary bytes as an index whose digests match and whose sources are those bytes: windows, read by the engine.

use std::sync::Arc;

use tesseral_core::Limits;
use tesseral_index::{IndexContent, SourceState, seal};
use tesseral_store::{Bytes, MemoryStore, Store};

use crate::windows;

/// Reads windows. The first four bytes select them, the fifth is the number of entries of the chunk table.
pub fn read(data: &[u8]) {
    let Some((choice, rest)) = data.split_first_chunk() else { return };
    let Some((entries, rest)) = rest.split_first() else { return };
    let (table, metadata) = rest.split_at((usize::from(*entries) * 24).min(rest.len() / 24 * 24));
    let file = Bytes::from(seal(table, metadata));
    let Ok(mut content) = IndexContent::parse(&file, "fuzz", Limits::default()) else { return };
    for source in &mut content.sources {
        "cells".clone_into(&mut source.path);
        source.state = SourceState { len: Some(data.len() as u64), version: None };
    }
    let file = content.to_bytes().expect("what was parsed is written");
    let store = MemoryStore::with_object("fuzz.tix", file);
    store.insert("cells", data.to_vec());
    let store: Arc<dyn Store> = Arc::new(store);
    windows::exercise(&store, *choice);
}
