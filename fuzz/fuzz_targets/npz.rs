//! Arbitrary bytes as a `.npz` archive: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::npy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| npy::open_archive(data));
