//! Arbitrary bytes as a generic tile.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::generic_tile(data));
