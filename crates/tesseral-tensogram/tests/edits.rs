//! Frame-level edits, bytes read by open, and allocations of encoding.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tesseral_core::{DType, ErrorKind, Value};
use tesseral_format::{Conflict, Format, MessageChange, MessageFormat, OpenOptions};
use tesseral_store::test_wrappers::{Counting, Wrapped};
use tesseral_store::{MemoryStore, Store};
use tesseral_tensogram::wire::cbor::{CborItem, Map};
use tesseral_tensogram::{
    DataObjectDescriptor as Descriptor, DecodeOptions, EncodeOptions, GlobalMetadata, Provenance,
    TensogramFormat, ValidateOptions, ValidationMode, decode, encode, validate_buffer, validate_message,
};

/// Counts current and peak allocations.
struct Held;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system allocator; only counters are added.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Held {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    // The system allocator grows and shrinks large blocks in place.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Held = Held;

fn options() -> EncodeOptions {
    EncodeOptions { provenance: Provenance::reproducible(), ..EncodeOptions::default() }
}

fn message(name: &str, cells: &[u8]) -> Vec<u8> {
    let entry = Map::from([("name".to_owned(), CborItem::Text(name.to_owned()))]);
    let extra = Map::from([("from".to_owned(), CborItem::Text(name.to_owned()))]);
    let metadata = GlobalMetadata { base: vec![entry], extra, ..GlobalMetadata::default() };
    encode(&metadata, &[(&Descriptor::raw(DType::UInt8, &[cells.len() as u64]), cells)], &options()).unwrap()
}

fn store(bytes: Vec<u8>) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("file.tgm", bytes))
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

// A single test, because allocations are counted for the whole process.
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
    assert!(MOST.load(Ordering::Relaxed) - held < 1_000_000, "uncompressed cells are not copied");

    // Incompressible data is not in memory twice; compressible data leaves no spare capacity.
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

    // Opening many messages follows their lengths.
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
    assert_eq!(written(&file, 0, &MessageChange::ListsFirst), message("a", &[1; 50]), "unchanged value");
    let keys = [(vec!["deep".to_owned(), "er".to_owned()], Value::Int(-3))];
    let set = written(&file, 0, &MessageChange::Set(&keys));
    let (metadata, objects) = decode(&set, &DecodeOptions::default()).unwrap();
    assert_eq!(metadata.base[0]["deep"], CborItem::map([("er", CborItem::Negative(2))]));
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
        assert_eq!(metadata.extra["from"], CborItem::Text(wanted.to_owned()));
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
