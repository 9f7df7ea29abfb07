//! Arbitrary bytes as a GRIB file: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::grib;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grib::open(data));
