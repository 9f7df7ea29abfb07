//! Arbitrary bytes as one of the smaller structures: enumerations, metadata, groups, lists.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::structures(data));
