//! Run-length packing with arbitrary parameters and data.
#![no_main]

use tesseral_fuzz::grib;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grib::packing(200, data));
