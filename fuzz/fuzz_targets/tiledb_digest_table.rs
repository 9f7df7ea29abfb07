//! Arbitrary bytes as the digest table of a fragment.
#![no_main]

use tesseral_fuzz::digests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| digests::digest_tables(data));
