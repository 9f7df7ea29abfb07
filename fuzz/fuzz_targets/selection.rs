//! Arbitrary text as selections, times and codecs.
#![no_main]

use tesseral_fuzz::text;

libfuzzer_sys::fuzz_target!(|data: &[u8]| text::selection(data));
