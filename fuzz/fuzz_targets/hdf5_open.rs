//! Arbitrary bytes as an HDF5 file: opened, audited, planned, decoded.
#![no_main]

use tesseral_fuzz::netcdf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| netcdf::hdf5(data));
