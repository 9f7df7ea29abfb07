//! Arbitrary queries to the server of `tet serve`.
#![no_main]

use tesseral_fuzz::page;

libfuzzer_sys::fuzz_target!(|data: &[u8]| page::query(data));
