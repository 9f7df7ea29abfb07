//! Arbitrary bytes as a table: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::csv;

libfuzzer_sys::fuzz_target!(|data: &[u8]| csv::open(data));
