//! Arbitrary bytes as an index and its sources, read in windows by the engine.
#![no_main]

use tesseral_fuzz::index_read;

libfuzzer_sys::fuzz_target!(|data: &[u8]| index_read::read(data));
