//! Arbitrary bytes as a `.npy` file: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::npy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| npy::open(data));
