//! Arbitrary bytes as a filter pipeline and a filtered tile.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::filters(data));
