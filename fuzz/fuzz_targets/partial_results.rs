//! Arbitrary bytes as jobs and partial results of a fold.
#![no_main]

use tesseral_fuzz::reductions;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reductions::partial_results(data));
