//! Any bytes as a condition of a delete.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::conditions(data));
