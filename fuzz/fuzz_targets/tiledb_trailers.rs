//! Arbitrary bytes as a file that ends in a digest, and as names.
#![no_main]

use tesseral_fuzz::digests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| digests::trailers(data));
