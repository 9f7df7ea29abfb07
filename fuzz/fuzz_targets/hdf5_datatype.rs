//! Arbitrary bytes as a datatype message.
#![no_main]

use tesseral_fuzz::netcdf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| netcdf::datatype(data));
