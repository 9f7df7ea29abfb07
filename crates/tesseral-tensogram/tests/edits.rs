//! Messages changed at the level of frames, what opening reads, what encoding allocates.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tesseral_core::{DType, ErrorKind, Value};
use tesseral_format::{Conflict, Format, MessageChange, MessageFormat, OpenOptions};
use tesseral_store::wrap::{Counting, Wrapped};
use tesseral_store::{MemoryStore, Store};
use tesseral_tensogram::wire::cbor::{Item, Map};
use tesseral_tensogram::{
    DataObjectDescriptor as Descriptor, DecodeOptions, EncodeOptions, GlobalMetadata, Provenance,
    TensogramFormat, ValidateOptions, ValidationMode, decode, encode, validate_buffer, validate_message,
};

/// Counts what is held, and the most that ever was.
struct Held;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator; only numbers are kept beside it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Held {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    // The system makes large blocks longer and shorter where they are.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Held = Held;

fn options() -> EncodeOptions {
    EncodeOptions { provenance: Provenance::reproducible(), ..EncodeOptions::default() }
}

fn message(name: &str, cells: &[u8]) -> Vec<u8> {
    let entry = Map::from([("name".to_owned(), Item::Text(name.to_owned()))]);
    let extra = Map::from([("from".to_owned(), Item::Text(name.to_owned()))]);
    let metadata = GlobalMetadata { base: vec![entry], extra, ..GlobalMetadata::default() };
    encode(&metadata, &[(&Descriptor::raw(DType::UInt8, &[cells.len() as u64]), cells)], &options()).unwrap()
}

fn store(bytes: Vec<u8>) -> Arc<dyn Store> {
    Arc::new(MemoryStore::of("file.tgm", bytes))
}

fn written(bytes: &[u8], number: usize, change: &MessageChange<'_>) -> Vec<u8> {
    let file = TensogramFormat.open_messages(store(bytes.to_vec()), &OpenOptions::default(), false).unwrap();
    let mut out = Vec::new();
    let put = &mut |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        Ok(())
    };
    file.write(number, change, put).unwrap();
    out
}

// One test, as what is held is counted for the whole process.
#[test]
fn memory_and_reads_stay_small() {
    let cells = vec![5_u8; 32 << 20];
    let descriptor = Descriptor::raw(DType::UInt8, &[cells.len() as u64]);
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let message = encode(&GlobalMetadata::default(), &[(&descriptor, &cells)], &options()).unwrap();
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(most as f64 <= cells.len() as f64 * 1.05, "{most} bytes to encode {}", cells.len());
    MOST.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
    let held = NOW.load(Ordering::Relaxed);
    let (_, objects) = decode(&message, &DecodeOptions::default()).unwrap();
    assert_eq!(objects[0].1.len(), cells.len());
    assert!(MOST.load(Ordering::Relaxed) - held < 1_000_000, "cells stored as they are cost nothing");

    // What does not compress is not held twice either, and what does leaves no room behind.
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    };
    let noise: Vec<u8> = (0..1 << 20).flat_map(|_| random()).collect();
    for (compression, cells) in [("lz4", &noise), ("zstd", &noise), ("lz4", &cells)] {
        let descriptor = Descriptor {
            compression: compression.to_owned(),
            ..Descriptor::raw(DType::UInt8, &[cells.len() as u64])
        };
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let message = encode(&GlobalMetadata::default(), &[(&descriptor, cells)], &options()).unwrap();
        let most = MOST.load(Ordering::Relaxed) - before;
        assert!(most as f64 <= cells.len() as f64 * 1.2 + 2e6, "{most} bytes to encode {}", cells.len());
        assert!(message.capacity() - message.len() < 4096, "{}", message.capacity());
    }

    // Opening many messages hops from one to the next.
    let small = self::message("x", &[1, 2, 3]);
    let many: Vec<u8> = (0..2000).flat_map(|_| small.clone()).collect();
    let counting = Arc::new(Counting::default());
    let large = [&many[..], &message].concat();
    let watched: Arc<dyn Store> = Arc::new(Wrapped::new(store(large), Arc::clone(&counting)));
    let container = TensogramFormat.open(watched, &OpenOptions::default()).unwrap();
    assert!(counting.bytes() < many.len() as u64 * 2 + 20_000, "{}", counting.bytes());
    counting.reset();
    assert_eq!(container.len(), 2001);
    assert_eq!(container.array(2000).unwrap().schema().shape().unwrap()[..], [cells.len() as u64]);
    assert!(counting.bytes() < many.len() as u64 * 4 + 100_000, "{}", counting.bytes());
}

#[test]
fn edits_keep_object_frames() {
    let file = [message("a", &[1; 50]), message("b", &[2; 60])].concat();
    assert_eq!(written(&file, 1, &MessageChange::None), message("b", &[2; 60]));
    assert_eq!(written(&file, 0, &MessageChange::ListsFirst), message("a", &[1; 50]), "it was so before");
    let keys = [(vec!["deep".to_owned(), "er".to_owned()], Value::Int(-3))];
    let set = written(&file, 0, &MessageChange::Set(&keys));
    let (metadata, objects) = decode(&set, &DecodeOptions::default()).unwrap();
    assert_eq!(metadata.base[0]["deep"], Item::map([("er", Item::Negative(2))]));
    assert_eq!(&objects[0].1[..], [1; 50]);
    assert!(
        validate_message(
            &set,
            &ValidateOptions { mode: ValidationMode::Full, canonical: true, ..Default::default() }
        )
        .issues
        .is_empty()
    );

    let files = [store(file.clone()), store(message("c", &[3; 70]))];
    for (conflict, wanted) in [(Conflict::First, "a"), (Conflict::Last, "c")] {
        let mut out = Vec::new();
        let put = &mut |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        assert_eq!(TensogramFormat.merge(&files, &OpenOptions::default(), conflict, put).unwrap(), 3);
        let (metadata, objects) = decode(&out, &DecodeOptions::default()).unwrap();
        assert_eq!(metadata.extra["from"], Item::Text(wanted.to_owned()));
        assert_eq!(objects.iter().map(|(_, cells)| cells.len()).collect::<Vec<_>>(), [50, 60, 70]);
        let middle = written(&out, 0, &MessageChange::Objects(&[1]));
        assert_eq!(&decode(&middle, &DecodeOptions::default()).unwrap().1[0].1[..], [2; 60]);
    }
    let refused = TensogramFormat.merge(&files, &OpenOptions::default(), Conflict::Refuse, &mut |_| Ok(()));
    assert!(matches!(refused.unwrap_err().kind(), ErrorKind::InvalidRequest { .. }));
}

#[test]
fn every_flipped_bit_that_a_hash_covers_is_an_issue() {
    let whole = message("a", &[7; 40]);
    let quick = ValidateOptions { mode: ValidationMode::Quick, ..ValidateOptions::default() };
    let sound = validate_message(&whole, &ValidateOptions::default());
    assert!(sound.is_ok() && sound.hash_verified && sound.object_count == 1);
    let mut frames = 0;
    let mut at = 24;
    while whole[at..].starts_with(b"FR") {
        let len = u64::from_be_bytes(whole[at + 8..at + 16].try_into().unwrap()) as usize;
        let footer = if whole[at + 3] == 9 { 20 } else { 12 };
        for place in at + 16..at + len - footer {
            let mut bent = whole.clone();
            bent[place] ^= 4;
            for mode in [ValidationMode::Checksum, ValidationMode::Default, ValidationMode::Full] {
                let report = validate_message(&bent, &ValidateOptions { mode, ..ValidateOptions::default() });
                assert!(report.issues.iter().any(|issue| issue.code == "hash_mismatch"), "{place} {mode:?}");
                assert!(!report.is_ok() && !report.hash_verified);
            }
            assert!(validate_message(&bent, &quick).is_ok());
        }
        frames += 1;
        at += len.next_multiple_of(8);
    }
    assert_eq!(frames, 4);
    for (cut, code) in [(20, "buffer_too_short"), (whole.len() - 1, "total_length_exceeds_buffer")] {
        assert_eq!(validate_message(&whole[..cut], &quick).issues[0].code, code);
    }
    let file = [&b"junk"[..], &whole, &whole[..100]].concat();
    let report = validate_buffer(&file, &ValidateOptions::default()).unwrap();
    assert_eq!((report.messages.len(), report.file_issues.len(), report.is_ok()), (1, 2, false));
}
