//! Arbitrary bytes as a message that is decoded in ranges.
#![no_main]

use tesseral_fuzz::messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::ranges(data));
