//! Any bytes as a message that ranges of are decoded.
#![no_main]

use tesseral_fuzz::messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::ranges(data));
