//! Hashes of blocks: ranges verify what they touch, every flip that the hash of an object detects is detected, and other messages are as before.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_core::{DType, Selection, Slice, Value};
use tesseral_format::{Format, MessageChange, MessageFormat, OpenOptions, Planned, Request};
use tesseral_store::test_wrappers::{Counting, Wrapped};
use tesseral_store::{MemoryStore, Rounds, Store};
use tesseral_tensogram::wire::block_hashes::KEY;
use tesseral_tensogram::wire::cbor::CborItem;
use tesseral_tensogram::{
    AggregateHash, DataObjectDescriptor as Descriptor, DecodeOptions, EncodeOptions, GlobalMetadata,
    Provenance, StreamingEncoder, TensogramError, TensogramFile, TensogramFormat, ValidateOptions,
    ValidationMode, decode, decode_range, encode, validate_message,
};

const BLOCK: usize = 4096;
const CELLS: u64 = 40_000;

fn options() -> EncodeOptions {
    EncodeOptions { provenance: Provenance::reproducible(), block_hashes: true, ..EncodeOptions::default() }
}

fn cells(count: u64) -> Vec<u8> {
    (0..count).flat_map(|i| (i as f64 * 0.25).to_le_bytes()).collect()
}

fn packed(count: u64) -> Descriptor {
    let mut packed = Descriptor::raw(DType::Float64, &[count]);
    packed.encoding = "simple_packing".to_owned();
    packed.params.insert("sp_bits_per_value".to_owned(), CborItem::UInt(32));
    packed
}

fn message(descriptor: &Descriptor, options: &EncodeOptions) -> Vec<u8> {
    encode(&GlobalMetadata::default(), &[(descriptor, &cells(CELLS))], options).unwrap()
}

/// The position of the payload of the first object.
fn payload(message: &[u8]) -> usize {
    message.windows(4).position(|w| w == [b'F', b'R', 0, 9]).unwrap() + 16
}

fn list(message: &[u8]) -> Option<usize> {
    message.windows(KEY.len()).position(|w| w == KEY.as_bytes())
}

fn range(message: &[u8], range: (u64, u64)) -> Result<Vec<u8>, TensogramError> {
    decode_range(message, 0, &[range], &DecodeOptions::default()).map(|(_, parts)| parts[0].to_vec())
}

fn flipped(message: &[u8], at: usize) -> Vec<u8> {
    let mut damaged = message.to_vec();
    damaged[at] ^= 1 << (at % 8);
    damaged
}

#[test]
fn a_range_of_32_kib_hashes_at_most_128_kib() {
    for (descriptor, stored) in [(Descriptor::raw(DType::Float64, &[CELLS]), 8), (packed(CELLS), 4)] {
        let message = message(&descriptor, &options());
        let (start, blocks) = (payload(&message), (CELLS as usize * stored).div_ceil(BLOCK));
        for (first, count) in [(0, 1), (20_001, 1000), (7, 4096), (CELLS - 3, 3)] {
            let found =
                |block: &usize| range(&flipped(&message, start + block * BLOCK), (first, count)).is_err();
            let hashed: Vec<usize> = (0..blocks).filter(found).collect();
            // The blocks of the cells, and the last one, which holds the descriptor.
            let touched = first as usize * stored / BLOCK..=((first + count) as usize * stored - 1) / BLOCK;
            let expected: Vec<usize> =
                (0..blocks).filter(|b| touched.contains(b) || b + 1 == blocks).collect();
            assert_eq!(hashed, expected, "{first} {count}");
            assert!(hashed.len() * BLOCK <= 128 << 10);
        }
    }
}

#[test]
fn every_flip_that_the_hash_of_an_object_detects_is_detected() {
    let mut shuffled = Descriptor::raw(DType::Float64, &[CELLS]);
    shuffled.filter = "shuffle".to_owned();
    shuffled.params.insert("shuffle_element_size".to_owned(), CborItem::UInt(8));
    for descriptor in [Descriptor::raw(DType::Float64, &[CELLS]), packed(CELLS), shuffled] {
        let message = message(&descriptor, &options());
        let whole = (0, CELLS);
        let expected = range(&message, whole).unwrap();
        let window = range(&message, (30_000, 100)).unwrap();
        let end = list(&message).unwrap_or(message.len());
        for at in (payload(&message)..end).step_by(97).chain(end - 600..message.len()) {
            let damaged = flipped(&message, at);
            let found = range(&damaged, whole);
            if decode(&damaged, &DecodeOptions::default()).is_err() {
                assert!(found.is_err(), "byte {at}");
            }
            assert!(found.is_err() || found.unwrap() == expected, "byte {at}");
            match range(&damaged, (30_000, 100)) {
                Ok(found) => assert_eq!(found, window, "byte {at}"),
                Err(_) => assert!(range(&damaged, whole).is_err(), "byte {at}"),
            }
        }
    }
}

#[test]
fn a_list_that_does_not_fit_its_object_is_rejected() {
    let message = message(&Descriptor::raw(DType::Float64, &[CELLS]), &options());
    let at = list(&message).unwrap();
    let end = message.len() - 24;
    for at in at..end {
        let damaged = flipped(&message, at);
        // Padding belongs to no frame.
        if at < end - 7 {
            assert!(range(&damaged, (0, 1)).is_err(), "byte {at}");
        }
        let report = validate_message(&damaged, &ValidateOptions::default());
        assert!(!report.is_ok() || at >= end - 7, "byte {at}");
    }
}

#[test]
fn only_large_objects_have_blocks_and_only_where_the_list_follows_them() {
    let small = Descriptor::raw(DType::UInt8, &[128 << 10]);
    let bytes = vec![3; 128 << 10];
    let message_of = |descriptor: &Descriptor, cells: &[u8], options: &EncodeOptions| {
        encode(&GlobalMetadata::default(), &[(descriptor, cells)], options).unwrap()
    };
    let without = EncodeOptions { block_hashes: false, ..options() };
    // The descriptor is part of the body.
    let smaller = Descriptor::raw(DType::UInt8, &[127 << 10]);
    assert_eq!(
        message_of(&smaller, &bytes[..127 << 10], &options()),
        message_of(&smaller, &bytes[..127 << 10], &without)
    );
    assert!(list(&message_of(&small, &bytes, &options())).is_some());
    for aggregate_hash in [AggregateHash::None, AggregateHash::Header] {
        let given = EncodeOptions { aggregate_hash, ..options() };
        assert_eq!(list(&message_of(&small, &bytes, &given)), None);
    }
    let unhashed = EncodeOptions { hashing: false, ..options() };
    assert_eq!(list(&message_of(&small, &bytes, &unhashed)), None);
    let mut stream = StreamingEncoder::new(Vec::new(), &GlobalMetadata::default(), &options()).unwrap();
    stream.write_object(&small, &bytes).unwrap();
    let stream = stream.finish().unwrap();
    assert!(list(&stream).is_some());
    let full = ValidateOptions { mode: ValidationMode::Full, ..ValidateOptions::default() };
    for message in [message_of(&small, &bytes, &options()), stream] {
        assert!(range(&flipped(&message, payload(&message) + 5000), (5000, 1)).is_err());
        assert!(validate_message(&message, &full).is_ok());
    }
}

#[test]
fn files_verify_each_block_once() {
    let message = message(&Descriptor::raw(DType::Float64, &[CELLS]), &options());
    let counting = Arc::new(Counting::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("large.tgm", message.clone()));
    let file = TensogramFile::open_store(Arc::new(Wrapped::new(store, Arc::clone(&counting))));
    let read = || {
        counting.reset();
        let (_, parts) = file.decode_range(0, 0, &[(20_000, 10)], &DecodeOptions::default()).unwrap();
        assert_eq!(parts[0], cells(CELLS)[160_000..160_080]);
        counting.bytes()
    };
    let (first, second) = (read(), read());
    assert!(first < 60_000 && second < first, "{first} {second}");
}

#[test]
fn arrays_verify_the_blocks_they_touch() {
    let message = message(&Descriptor::raw(DType::Float64, &[CELLS]), &options());
    let start = payload(&message);
    let open = |message: &[u8]| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("a.tgm", message.to_vec()));
        TensogramFormat.open(store, &OpenOptions::default()).unwrap()
    };
    let container = open(&message);
    let array = container.array(0).unwrap();
    let request =
        |first: u64, end: u64| Request::cells(Selection::new([Slice::new(first, end)], &[CELLS]).unwrap(), 0);
    let rounds = Rounds::new(Arc::new(MemoryStore::new("none")));
    let plan = array.plan(&request(100, 200), &rounds).unwrap();
    let Planned::Ready(plan) = plan else { panic!("metadata is resident") };
    let spans = array.digests(&plan.chunks[0]);
    let touched: Vec<_> = spans[0].blocks(&((start + 800) as u64..(start + 1600) as u64)).collect();
    assert_eq!(touched.len(), 1);
    assert_eq!(touched[0].compute(&message[start..start + BLOCK]), touched[0].expected);
    // A flip in the descriptor is found by every plan.
    let at = message.windows(7).rposition(|w| w == b"float64").unwrap();
    let damaged = flipped(&message, at - 20);
    let container = open(&damaged);
    assert!(container.array(0).and_then(|array| array.plan(&request(0, 1), &rounds)).is_err());
}

#[test]
fn edits_keep_the_hashes_of_blocks() {
    let message = message(&Descriptor::raw(DType::Float64, &[CELLS]), &options());
    let open = |truncated| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("a.tgm", message.clone()));
        TensogramFormat.open_messages(store, &OpenOptions::default(), truncated).unwrap()
    };
    let keys = [(vec!["units".to_owned()], Value::Text("K".to_owned()))];
    for change in [MessageChange::Set(&keys), MessageChange::Objects(&[0])] {
        let mut out = Vec::new();
        let put = &mut |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        open(false).write(0, &change, put).unwrap();
        let at = payload(&out) + 30 * BLOCK;
        assert!(
            range(&flipped(&out, at), (30 * 512, 1)).is_err() && range(&flipped(&out, at), (0, 1)).is_ok()
        );
        assert!(validate_message(&out, &ValidateOptions::default()).is_ok());
    }
}
