//! Arbitrary bytes as CBOR: a parsed item is written in canonical form, which must parse to the same item.
#![no_main]

use tesseral_tensogram::wire::cbor::{self, ErrorLocation};

const PLACE: ErrorLocation<'_> = ErrorLocation { what: "item", object: "fuzz", offset: 0 };

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok((item, used)) = cbor::parse(data, 64, PLACE) else { return };
    let canonical = cbor::is_canonical(&data[..used], &item);
    let bytes = item.to_bytes();
    assert!(!canonical || bytes == data[..used]);
    let (again, len) = cbor::parse(&bytes, 64, PLACE).expect("written bytes parse");
    assert_eq!((len, again.to_bytes()), (bytes.len(), bytes.clone()));
    assert!(cbor::verify_canonical_cbor(&bytes).is_ok());
});
