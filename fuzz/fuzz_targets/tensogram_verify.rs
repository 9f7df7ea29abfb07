//! Arbitrary bytes as messages, validated at every level.
#![no_main]

use tesseral_fuzz::messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::verifying(data));
