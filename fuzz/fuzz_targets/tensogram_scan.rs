//! Arbitrary bytes as messages: found from both ends, decoded.
#![no_main]

use tesseral_fuzz::messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::scanning(data));
