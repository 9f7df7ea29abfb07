//! Arbitrary bytes as a delete condition.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::conditions(data));
