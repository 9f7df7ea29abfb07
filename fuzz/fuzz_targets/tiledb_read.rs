//! Arbitrary bytes as the files of a TileDB array, read in windows by the engine.
#![no_main]

use std::sync::Arc;

use tesseral_fuzz::messages::choice;
use tesseral_fuzz::{tiledb, windows};
use tesseral_store::Store;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let store: Arc<dyn Store> = Arc::new(tiledb::archive(data));
    windows::exercise(&store, choice(data));
});
