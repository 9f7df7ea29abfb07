//! Arbitrary bytes as an index of other files.
#![no_main]

use tesseral_fuzz::index;

libfuzzer_sys::fuzz_target!(|data: &[u8]| index::open(data));
