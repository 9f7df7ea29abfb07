//! Any bytes as a `.tgm` file.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run tensogram_open fuzz/corpus/tensogram_open fixtures/tensogram`
#![no_main]

#[path = "../src/tensogram.rs"]
mod tensogram;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tensogram::exercise(data));
