//! Verification of many objects: digests are compared on all threads, nothing with a digest is decoded unless requested, and findings
//! keep their order.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral::{AuditOptions, DType, Depth, Finding, Options};
use tesseral_store::MemoryStore;
use tesseral_tensogram::{
    DataObjectDescriptor, EncodeOptions, GlobalMetadata, TensogramFormat, encode, encode_pre_encoded,
};

const CELLS: u64 = 500;

fn verify(file: Vec<u8>, depth: Depth, threads: usize) -> (bool, Vec<Finding>) {
    let store = Arc::new(MemoryStore::with_object("a file", file));
    let checks = AuditOptions { depth, ..AuditOptions::default() };
    let options = Options::default().with_threads(threads).unwrap();
    let mut findings = Vec::new();
    let report = &mut |finding: Finding| findings.push(finding);
    let verified = tesseral_engine::verify_to(&TensogramFormat, store, &checks, &options, report).unwrap();
    (verified.ok, findings)
}

fn message(seed: u64) -> Vec<u8> {
    let cells: Vec<u8> = (0..CELLS).flat_map(|i| ((i * seed) as f64).to_ne_bytes()).collect();
    let mut descriptor = DataObjectDescriptor::raw(DType::Float64, &[CELLS]);
    descriptor.compression = if seed.is_multiple_of(2) { "zstd" } else { "none" }.to_owned();
    encode(&GlobalMetadata::default(), &[(&descriptor, &cells)], &EncodeOptions::default()).unwrap()
}

#[test]
fn findings_of_many_objects_keep_their_order() {
    let mut file = Vec::new();
    let mut damaged = Vec::new();
    for number in 0..150 {
        let message = message(number + 1);
        // A byte in the middle of the payload of the object.
        if number % 7 == 3 {
            damaged.push((file.len() + message.len() / 2, format!("{number}/0")));
        }
        file.extend(message);
    }
    assert!(verify(file.clone(), Depth::Usual, 2).0);
    for (at, _) in &damaged {
        file[*at] ^= 0x10;
    }
    for depth in [Depth::Digests, Depth::Usual, Depth::Deep] {
        for threads in [1, 4] {
            let (ok, findings) = verify(file.clone(), depth, threads);
            let failed: Vec<&str> =
                findings.iter().filter(|f| !f.ok).filter_map(|f| f.array.as_deref()).collect();
            let expected: Vec<&str> = damaged.iter().map(|(_, name)| name.as_str()).collect();
            assert!(!ok);
            assert_eq!(failed, expected, "{depth:?} {threads}");
        }
    }
}

#[test]
fn payloads_with_a_digest_are_decoded_on_request() {
    let mut descriptor = DataObjectDescriptor::raw(DType::Float64, &[CELLS]);
    descriptor.compression = "zstd".to_owned();
    let encode = |hashing: bool| {
        let options = EncodeOptions { hashing, ..EncodeOptions::default() };
        let object = (&descriptor, &b"no frame of zstd"[..]);
        encode_pre_encoded(&GlobalMetadata::default(), &[object], &options).unwrap()
    };
    assert!(verify(encode(true), Depth::Usual, 2).0);
    assert!(!verify(encode(true), Depth::Deep, 2).0);
    assert!(!verify(encode(true), Depth::Full, 2).0);
    // Without one, decoding is the only check.
    assert!(!verify(encode(false), Depth::Usual, 2).0);
}
