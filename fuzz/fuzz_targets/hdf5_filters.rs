//! Arbitrary filters and parameters on arbitrary bytes.
#![no_main]

use tesseral_fuzz::netcdf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| netcdf::filters(data));
