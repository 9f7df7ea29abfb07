//! Arbitrary text as a query document.
#![no_main]

use tesseral_fuzz::text;

libfuzzer_sys::fuzz_target!(|data: &[u8]| text::query(data));
