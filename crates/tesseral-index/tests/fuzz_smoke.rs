//! The fuzz target of this crate on arbitrary bytes, so that it runs on any toolchain.

#[path = "../../../fuzz/src/index.rs"]
mod index;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        index::open(&bytes);
    }
}
