//! JPEG 2000 packing with arbitrary parameters and data.
#![no_main]

use tesseral_fuzz::grib;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grib::packing(40, data));
