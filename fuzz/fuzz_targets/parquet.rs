//! Arbitrary bytes as a Parquet file: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::parquet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| parquet::open(data));
