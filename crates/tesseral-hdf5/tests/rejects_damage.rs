//! Damaged files: errors, never a panic.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;

use tesseral_format::{Format, OpenOptions};
use tesseral_hdf5::Hdf5Format;
use tesseral_store::MemoryStore;

/// A contiguous layout of version 1 has extents that no dataset can have; their product overflows.
#[test]
fn contiguous_extents_that_overflow_are_no_panic() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hdf5_open");
    for name in ["contiguous_extents_overflow", "contiguous_extents_overflow_in_a_group"] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let store = Arc::new(MemoryStore::with_object(name, bytes));
        let opened = Hdf5Format.open(store, &OpenOptions::default());
        assert!(opened.is_err() || opened.is_ok_and(|container| container.is_empty()), "{name}");
    }
}
