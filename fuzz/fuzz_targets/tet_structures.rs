//! Arbitrary bytes as one of the structures of a `.tet` file.
#![no_main]

use tesseral_fuzz::tet_structures;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tet_structures::structures(data));
