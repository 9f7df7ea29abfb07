//! Arbitrary text as a condition on cells.
#![no_main]

use tesseral_fuzz::text;

libfuzzer_sys::fuzz_target!(|data: &[u8]| text::conditions(data));
