//! Any bytes as a filter pipeline and a tile that went through it.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::filters(data));
