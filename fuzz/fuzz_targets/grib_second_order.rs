//! Second-order packing of edition 1 with arbitrary parameters and data.
#![no_main]

use tesseral_fuzz::grib;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grib::second_order(data));
