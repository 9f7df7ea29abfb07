//! Arbitrary bytes as the masks of an object.
#![no_main]

use tesseral_fuzz::messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::masks(data));
