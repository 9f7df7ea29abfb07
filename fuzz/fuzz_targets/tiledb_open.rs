//! Arbitrary bytes as the files of a TileDB array: opened, audited, decoded.
#![no_main]

use tesseral_fuzz::tiledb;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledb::open(data));
