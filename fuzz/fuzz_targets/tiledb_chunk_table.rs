//! Arbitrary bytes as the chunk table of a filtered tile.
#![no_main]

use tesseral_fuzz::digests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| digests::chunk_tables(data));
