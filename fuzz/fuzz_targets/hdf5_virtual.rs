//! Arbitrary mappings of a virtual dataset.
#![no_main]

use tesseral_fuzz::netcdf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| netcdf::mappings(data));
