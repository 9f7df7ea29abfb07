//! Arbitrary bytes as an R-tree.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::rtrees(data));
