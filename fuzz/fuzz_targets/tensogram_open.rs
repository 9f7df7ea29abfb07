//! Arbitrary bytes as a `.tgm` file: opened, audited, salvaged, planned, decoded.
#![no_main]

use tesseral_fuzz::tensogram;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tensogram::exercise(data));
