//! Any bytes as the footer of a fragment, and as many footers in one file.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::footers(data));
