//! Untrusted bytes are rejected quickly, without a panic and with bounded memory.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tesseral_core::{DType, ErrorKind};
use tesseral_format::{AuditOptions, Format, OpenOptions, Request};
use tesseral_store::test_wrappers::{Counting, Wrapped};
use tesseral_store::{MemoryStore, Store};
use tesseral_tensogram::wire::cbor::{self, CborItem, ErrorLocation, Map};
use tesseral_tensogram::wire::{frame, postamble, preamble};
use tesseral_tensogram::{DataObjectDescriptor, GlobalMetadata, ObjectFrame, TensogramFormat};

fn fixture(file: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tensogram").join(file)).unwrap()
}

/// Opens, audits, recovers and reads everything; returns whether all succeeded.
fn use_all(bytes: Vec<u8>) -> bool {
    let begun = Instant::now();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("file.tgm", bytes));
    let _ = TensogramFormat.salvage(Arc::clone(&store), &OpenOptions::default());
    let mut sound = true;
    TensogramFormat.audit(Arc::clone(&store), &AuditOptions::default(), &mut |f| sound &= f.ok).unwrap();
    match TensogramFormat.open(store, &OpenOptions::default()) {
        Ok(container) => {
            for number in 0..container.len() {
                let read = container.array(number).and_then(|array| {
                    let shape = array.schema().shape().unwrap_or_default();
                    if shape.iter().try_fold(1_u64, |n, e| n.checked_mul(*e)).is_none_or(|n| n > 1 << 20) {
                        return tesseral_format::plan(
                            &*array,
                            container.store(),
                            &Request::cells(tesseral_core::Selection::all(&shape), 0),
                        )
                        .map(drop);
                    }
                    let all = tesseral_core::Selection::all(&shape);
                    tesseral_conformance::oracle::read_dense(container.as_ref(), number, 0, &all).map(drop)
                });
                sound &= read.is_ok();
            }
            let _ = container.details();
        }
        Err(_) => sound = false,
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    sound
}

#[test]
fn every_truncation_is_detected() {
    for file in ["metadata.tgm", "streamed.tgm", "mask_small.tgm", "codec_szip.tgm"] {
        let whole = fixture(file);
        assert!(use_all(whole.clone()));
        for len in 1..whole.len() {
            assert!(!use_all(whole[..len].to_vec()), "{file} cut to {len}");
        }
    }
}

#[test]
fn every_length_field_at_its_boundaries() {
    let mut cases = 0;
    for file in ["metadata.tgm", "streamed.tgm", "mask_small.tgm", "hashes_both.tgm"] {
        let whole = fixture(file);
        let mut places = vec![16, whole.len() - 24, whole.len() - 16];
        for at in (0..whole.len() - 16).step_by(8).filter(|at| whole[*at..].starts_with(b"FR")) {
            let len = u64::from_be_bytes(whole[at + 8..at + 16].try_into().unwrap()) as usize;
            places.extend([at + 8, at + len - 20]);
        }
        for at in places {
            let was = u64::from_be_bytes(whole[at..at + 8].try_into().unwrap());
            for n in [
                0,
                1,
                15,
                16,
                27,
                28,
                35,
                36,
                47,
                48,
                was.wrapping_sub(1),
                was.wrapping_add(1),
                was.wrapping_add(8),
                1 << 31,
                1 << 32,
                1 << 63,
                u64::MAX - 7,
                u64::MAX,
            ] {
                let mut bent = whole.clone();
                bent[at..at + 8].copy_from_slice(&n.to_be_bytes());
                use_all(bent);
                cases += 1;
            }
        }
    }
    assert!(cases > 300);
}

#[test]
fn garbage_is_skipped_quickly() {
    let message = fixture("metadata.tgm");
    // Four megabytes of message starts, then a message.
    let mut junk = b"TENSOGR".repeat(600_000);
    junk.extend_from_slice(&message);
    assert!(!use_all(junk.clone()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("file.tgm", junk));
    assert_eq!(TensogramFormat.open(store, &OpenOptions::default()).unwrap().len(), 2);
    // Many starts of streams that all lead into one long chain of frames without an end.
    let mut frame = b"FR\0\x01\0\x01\0\0\0\0\0\0\0\0\0\x20".to_vec();
    frame.extend_from_slice(&[0; 12]);
    frame.extend_from_slice(b"ENDF");
    let mut start = b"TENSOGRM\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    start.extend_from_slice(&frame);
    let chain = [start.repeat(8_000), frame.repeat(16_000)].concat();
    assert!(!use_all(chain));
}

#[test]
fn bombs_are_rejected() {
    let place = ErrorLocation { what: "test", object: "bytes", offset: 0 };
    // Deep nesting, and lengths beyond the input.
    for bytes in
        [vec![0x81; 100_000], vec![0xa1; 100_000], vec![0xc1; 100_000], vec![0x9f; 100_000], vec![0xd8; 9]]
    {
        assert!(cbor::parse(&bytes, 64, place).is_err());
    }
    for head in [0x5b_u8, 0x7b, 0x9b, 0xbb] {
        let mut bytes = vec![head];
        bytes.extend_from_slice(&u64::MAX.to_be_bytes());
        assert!(cbor::parse(&bytes, 64, place).is_err());
    }
    // A shape whose cells would fill the memory, with a few bytes of payload.
    let mut file = fixture("codec_zstd.tgm");
    let at = file.windows(8).rposition(|w| w == b"eshape\x81\x18").unwrap();
    assert_eq!(file[at + 8], 60);
    file.splice(at + 7..at + 9, [0x1b, 0, 0, 0x10, 0, 0, 0, 0, 0]);
    let grow = 7;
    let frame = file.windows(4).rposition(|w| w == [b'F', b'R', 0, 9]).unwrap();
    for at in [frame + 8, 16, file.len() - 24, file.len() - 16] {
        let n = u64::from_be_bytes(file[at..at + 8].try_into().unwrap()) + grow;
        file[at..at + 8].copy_from_slice(&n.to_be_bytes());
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("file.tgm", file));
    let container = TensogramFormat.open(store, &OpenOptions::default()).unwrap();
    let array = container.array(0).unwrap();
    let all = tesseral_core::Selection::all(&array.schema().shape().unwrap());
    let error = tesseral_format::plan(&*array, container.store(), &Request::cells(all, 0)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}

#[test]
fn an_unsupported_version_is_reported() {
    let mut file = fixture("metadata.tgm");
    file[9] = 2;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("file.tgm", file));
    let error = TensogramFormat.open(store, &OpenOptions::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
}

#[test]
fn cbor_is_written_in_canonical_form() {
    let place = ErrorLocation { what: "test", object: "bytes", offset: 0 };
    let item = CborItem::map([
        ("bb", CborItem::Float(1.5)),
        ("a", CborItem::Float(0.1)),
        ("c", CborItem::Float(f64::from(0.1_f32))),
        ("aa", CborItem::Negative(u64::MAX)),
        ("n", CborItem::Float(f64::from_bits(0x7ff8_0000_0000_0001))),
        ("z", CborItem::Float(-0.0)),
        (
            "i",
            CborItem::Array(vec![
                CborItem::UInt(23),
                CborItem::UInt(24),
                CborItem::UInt(256),
                CborItem::UInt(65_536),
                CborItem::UInt(1 << 32),
            ]),
        ),
        ("t", CborItem::Tag(42, Box::new(CborItem::Bytes(vec![1, 2])))),
        (
            "s",
            CborItem::Array(vec![
                CborItem::Bool(true),
                CborItem::Null,
                CborItem::Undefined,
                CborItem::Simple(99),
            ]),
        ),
    ]);
    let bytes = item.to_bytes();
    // Shorter keys first, then bytewise.
    assert_eq!(&bytes[..3], [0xa9, 0x61, b'a']);
    assert!(bytes.windows(6).any(|w| w == [0x62, b'b', b'b', 0xf9, 0x3e, 0x00]));
    let (back, len) = cbor::parse(&bytes, 64, place).unwrap();
    assert_eq!(len, bytes.len());
    assert_eq!(back.to_bytes(), bytes);
    assert!(cbor::is_canonical(&bytes, &back));
    // Other encodings of the same items are read.
    for (odd, plain) in [
        (&[0x18, 0x05][..], CborItem::UInt(5)),
        (&[0x9f, 0x01, 0xff], CborItem::Array(vec![CborItem::UInt(1)])),
        (&[0x7f, 0x61, b'a', 0x61, b'b', 0xff], CborItem::Text("ab".to_owned())),
        (&[0xbf, 0x61, b'a', 0x01, 0xff], CborItem::map([("a", CborItem::UInt(1))])),
        (&[0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0], CborItem::Float(1.5)),
    ] {
        let (item, _) = cbor::parse(odd, 64, place).unwrap();
        assert_eq!(item, plain);
        assert!(!cbor::is_canonical(odd, &item));
    }
    for bad in [&[0x1c][..], &[0x61, 0xff], &[0xff], &[0xf8, 0x10], &[0x3f], &[0x5f, 0x61, b'a', 0xff]] {
        assert!(cbor::parse(bad, 64, place).is_err(), "{bad:?}");
    }
}

/// Found by flipping bits: an array without cells has no chunk, so its digest was not verified.
#[test]
fn a_shape_damaged_to_empty_is_detected() {
    use tesseral_tensogram::{DataObjectDescriptor, EncodeOptions, GlobalMetadata, encode};
    let descriptor = DataObjectDescriptor::raw(tesseral_core::DType::UInt8, &[4]);
    let objects = [(&descriptor, &[1_u8, 2, 3, 4][..])];
    let mut message = encode(&GlobalMetadata::default(), &objects, &EncodeOptions::default()).unwrap();
    let open = |bytes: Vec<u8>| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("file.tgm", bytes));
        TensogramFormat.open(store, &OpenOptions::default()).unwrap().array(0)
    };
    assert!(open(message.clone()).is_ok());
    // The last one is in the descriptor; the metadata repeats it.
    let shape = b"eshape\x81";
    let at = message.windows(shape.len()).rposition(|bytes| bytes == shape).unwrap() + shape.len();
    message[at] ^= 4;
    let error = open(message).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error:?}");
}

/// Found by exchanging bytes: an exchanged object has a valid hash and was read under the other's name.
#[test]
fn exchanged_objects_are_detected() {
    use tesseral_tensogram::{DataObjectDescriptor, EncodeOptions, GlobalMetadata, encode};
    let descriptor = DataObjectDescriptor::raw(tesseral_core::DType::UInt8, &[8]);
    let objects = [(&descriptor, &[1_u8; 8][..]), (&descriptor, &[2_u8; 8][..])];
    let message = encode(&GlobalMetadata::default(), &objects, &EncodeOptions::default()).unwrap();
    let open = |bytes: Vec<u8>, digests| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("file.tgm", bytes));
        let options = OpenOptions { digests, ..OpenOptions::default() };
        TensogramFormat.open(store, &options).unwrap().array(0)
    };
    assert!(open(message.clone(), true).is_ok());
    // Object frames have type 9.
    let frame = b"FR\0\x09";
    let starts: Vec<_> = (0..message.len()).filter(|at| message[*at..].starts_with(frame)).collect();
    let [first, second] = starts[..] else { panic!("{starts:?}") };
    let len = second - first;
    let mut swapped = message.clone();
    swapped[first..second].copy_from_slice(&message[second..second + len]);
    swapped[second..second + len].copy_from_slice(&message[first..second]);
    let error = open(swapped.clone(), true).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error:?}");
    assert!(open(swapped, false).is_ok());
}

/// A message of many objects whose metadata has one entry too many.
fn crowded(objects: usize) -> Vec<u8> {
    let entry = Map::from([("a".to_owned(), CborItem::Text("bcdefg".to_owned()))]);
    let metadata = GlobalMetadata { base: vec![entry; objects + 1], ..GlobalMetadata::default() };
    let mut frames = vec![0; 24];
    frame::write(frame::FrameKind::HeaderMetadata, &metadata.to_bytes(), true, &mut frames);
    for _ in 0..objects {
        let object = ObjectFrame::new(DataObjectDescriptor::raw(DType::UInt8, &[1]), vec![7].into(), true);
        object
            .write(|bytes| {
                frames.extend_from_slice(bytes);
                Ok::<(), ()>(())
            })
            .unwrap();
    }
    let end = frames.len() as u64;
    let total_length = end + postamble::LEN;
    let mut message = Vec::new();
    preamble::Preamble { flags: 0x81, total_length }.write(&mut message);
    message.extend_from_slice(&frames[24..]);
    postamble::Postamble { first_footer_offset: end, total_length }.write(&mut message);
    message
}

/// The metadata was parsed again for each object: a file of half a megabyte took many seconds.
#[test]
fn damaged_metadata_is_parsed_once_for_all_objects() {
    let bytes = crowded(500);
    let counting = Arc::new(Counting::default());
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::with_object("crowded.tgm", bytes.clone()));
    let store: Arc<dyn Store> = Arc::new(Wrapped::new(inner, Arc::clone(&counting)));
    let container = TensogramFormat.open(store, &OpenOptions::default()).unwrap();
    assert_eq!(container.len(), 500);
    counting.reset();
    for index in 0..container.len() {
        let error = container.array(index).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { what, .. } if what == "metadata"), "{error}");
        assert_eq!(error.array(), Some(container.name(index)));
    }
    assert!(counting.bytes() < 8 * bytes.len() as u64, "{} of {}", counting.bytes(), bytes.len());
}

#[test]
fn open_audit_and_recovery_can_be_canceled() {
    let store =
        || -> Arc<dyn Store> { Arc::new(MemoryStore::with_object("file.tgm", fixture("metadata.tgm"))) };
    let open = OpenOptions::default();
    open.cancel.cancel();
    let cancelled = |error: tesseral_core::Error| matches!(error.kind(), ErrorKind::Cancelled);
    assert!(cancelled(TensogramFormat.open(store(), &open).unwrap_err()));
    assert!(cancelled(TensogramFormat.salvage(store(), &open).unwrap_err()));
    assert!(cancelled(TensogramFormat.repairs(store(), &open).unwrap_err()));
    let options = AuditOptions { open, ..AuditOptions::default() };
    assert!(cancelled(TensogramFormat.audit(store(), &options, &mut |_| ()).unwrap_err()));
}
