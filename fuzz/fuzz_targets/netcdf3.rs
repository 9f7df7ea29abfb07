//! Arbitrary bytes as a NetCDF classic file: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::netcdf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| netcdf::classic(data));
