//! Arbitrary bytes as an Arrow IPC file or stream: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::arrow;

libfuzzer_sys::fuzz_target!(|data: &[u8]| arrow::open(data));
