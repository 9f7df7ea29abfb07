//! Arbitrary bytes as a fragment footer, and as consolidated footers.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::footers(data));
