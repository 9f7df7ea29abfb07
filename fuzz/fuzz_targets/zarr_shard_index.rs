//! Arbitrary bytes as the index of a Zarr shard.
#![no_main]

use tesseral_fuzz::zarr;

libfuzzer_sys::fuzz_target!(|data: &[u8]| zarr::shard_index(data));
