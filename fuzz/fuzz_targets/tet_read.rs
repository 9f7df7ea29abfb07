//! Arbitrary bytes as a `.tet` file, read in windows by the engine.
#![no_main]

use std::sync::Arc;

use tesseral_fuzz::messages::choice;
use tesseral_fuzz::windows;
use tesseral_store::{MemoryStore, Store};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("fuzz.tet", data.to_vec()));
    windows::exercise(&store, choice(data));
});
