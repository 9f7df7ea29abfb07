//! Any bytes as the stream of any codec.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run codec fuzz/corpus/codec`
#![no_main]

#[path = "../src/codec.rs"]
mod codec;

libfuzzer_sys::fuzz_target!(|data: &[u8]| codec::exercise(data));
