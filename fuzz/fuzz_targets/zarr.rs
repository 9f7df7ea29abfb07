//! Arbitrary bytes as an object of a Zarr store: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::zarr;

libfuzzer_sys::fuzz_target!(|data: &[u8]| zarr::open(data));
