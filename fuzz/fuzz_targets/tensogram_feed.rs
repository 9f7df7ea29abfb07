//! Arbitrary bytes as a stream of messages that arrives in pieces.
#![no_main]

use tesseral_fuzz::messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::feeding(data));
