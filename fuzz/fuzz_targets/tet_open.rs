//! Arbitrary bytes as a `.tet` file: opened, audited, salvaged, planned, decoded.
#![no_main]

use tesseral_fuzz::tet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tet::open(data));
