//! Interrupted appends: readers skip the truncated message; the next append or a repair removes it and nothing else.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tesseral_core::{DType, ErrorKind};
use tesseral_format::{AuditOptions, Format, MessageFormat, OpenOptions, TruncatedTail, append_messages};
use tesseral_store::test_wrappers::{Counting, FaultInjection, Wrapped};
use tesseral_store::{LocalStore, Location, MemoryStore, ReadMode, StorageOptions, Store, StoreExt};
use tesseral_tensogram::{
    DataObjectDescriptor as Descriptor, EncodeOptions, GlobalMetadata, StreamingEncoder, TensogramFile,
    TensogramFormat, encode,
};

fn message(cells: u64) -> Vec<u8> {
    let bytes = vec![7; usize::try_from(cells).unwrap()];
    let descriptor = Descriptor::raw(DType::UInt8, &[cells]);
    encode(&GlobalMetadata::default(), &[(&descriptor, &bytes)], &EncodeOptions::default()).unwrap()
}

/// A message without a declared length.
fn streamed() -> Vec<u8> {
    let descriptor = Descriptor::raw(DType::UInt8, &[5]);
    let mut encoder =
        StreamingEncoder::new(Vec::new(), &GlobalMetadata::default(), &EncodeOptions::default()).unwrap();
    encoder.write_object(&descriptor, &[1, 2, 3, 4, 5]).unwrap();
    encoder.finish().unwrap()
}

fn memory(bytes: &[u8]) -> Arc<dyn Store> {
    let store = MemoryStore::new("m.tgm");
    store.insert("", bytes.to_vec());
    Arc::new(store)
}

fn tail(bytes: &[u8]) -> Option<TruncatedTail> {
    TensogramFormat.truncated_tail(&memory(bytes), &OpenOptions::default()).unwrap()
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.tgm");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn is_sound(store: Arc<dyn Store>) -> bool {
    let mut sound = true;
    TensogramFormat.audit(store, &AuditOptions::default(), &mut |finding| sound &= finding.ok).unwrap();
    sound
}

#[test]
fn a_message_cut_at_any_byte_is_removed_by_the_next_append() {
    let first = message(3);
    for (name, whole) in [("buffered", message(40)), ("streamed", streamed())] {
        for cut in 8..whole.len() {
            let (_folder, path) = file(&[&first[..], &whole[..cut]].concat());
            let reader = TensogramFile::open(&path);
            assert_eq!(reader.message_count().unwrap(), 1, "{name} cut at {cut}");
            assert_eq!(reader.skipped().unwrap().len(), 1, "{name} cut at {cut}");
            TensogramFile::open(&path).append_message(&whole).unwrap();
            assert_eq!(fs::read(&path).unwrap(), [&first[..], &whole].concat(), "{name} cut at {cut}");
        }
    }
}

#[test]
fn the_first_message_of_a_file_can_be_truncated() {
    let whole = message(9);
    let (_folder, path) = file(&whole[..whole.len() - 1]);
    TensogramFile::open(&path).append_message(&whole).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn an_open_handle_recounts_messages_after_a_tail_was_removed() {
    let whole = message(9);
    let (_folder, path) = file(&[&whole[..], &whole[..200]].concat());
    let mut file = TensogramFile::open(&path);
    assert_eq!((file.message_count().unwrap(), file.skipped().unwrap().len()), (1, 1));
    file.append_message(&whole).unwrap();
    file.append_message(&whole).unwrap();
    assert_eq!((file.message_count().unwrap(), file.skipped().unwrap().len()), (3, 0));
    assert_eq!(file.read_message(2).unwrap(), whole);
}

#[test]
fn a_tail_that_is_not_a_truncated_message_is_kept() {
    let whole = message(9);
    let mut later = whole.clone();
    later[9] = 4; // Another version.
    let mut longer = whole.clone();
    longer[16] = 1; // It ends like a message, so its length field is damaged.
    let mut damaged = whole.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1; // It is complete except for the end magic.
    let mut frames = streamed();
    frames[24] = b'X'; // No frame follows the preamble.
    frames.truncate(300);
    let tails: [&[u8]; 7] = [b"garbage", b"TENSOGR", b"\0\0\0\0", &later[..100], &longer, &damaged, &frames];
    for tail_bytes in tails {
        let held = [&whole[..], tail_bytes].concat();
        assert_eq!(tail(&held), None, "{:?}", tail_bytes.escape_ascii().to_string());
        let (_folder, path) = file(&held);
        TensogramFile::open(&path).append_message(&whole).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [&held[..], &whole].concat());
        assert_eq!(TensogramFile::open(&path).message_count().unwrap(), 2);
    }
}

#[test]
fn a_file_without_a_message_is_not_appended_to() {
    let (_folder, path) = file(b"these are notes, not tensors");
    let error = TensogramFile::open(&path).append_message(&message(3)).unwrap_err();
    assert!(matches!(tesseral_core::Error::from(error).kind(), ErrorKind::Corrupt { .. }));
    assert_eq!(fs::read(&path).unwrap(), b"these are notes, not tensors");
}

/// A payload can contain messages; the truncated message is the one around them.
#[test]
fn magics_inside_a_truncated_payload_are_ignored() {
    let whole = message(9);
    let inner = [b"TENSOGRM garbage ".as_slice(), &message(30)[..100], b"TENSOGRM"].concat();
    let descriptor = Descriptor::raw(DType::UInt8, &[inner.len() as u64]);
    let objects = [(&descriptor, &inner[..])];
    let outer = encode(&GlobalMetadata::default(), &objects, &EncodeOptions::default()).unwrap();
    let cut = outer.len() - 60;
    let found = tail(&[&whole[..], &outer[..cut]].concat()).unwrap();
    assert_eq!((found.offset, found.len), (whole.len() as u64, cut as u64));
}

#[test]
fn a_failed_append_leaves_the_file_unchanged() {
    let (first, whole) = (message(3), message(40));
    let (_folder, path) = file(&first);
    let (mut out, removed) = append_messages(
        &TensogramFormat,
        &Location::Path(path.clone()),
        &StorageOptions::new(),
        &OpenOptions::default(),
    )
    .unwrap();
    assert_eq!(removed, None);
    out.write(&whole[..100]).unwrap();
    // A concurrent reader sees the old messages.
    assert_eq!(TensogramFile::open(&path).message_count().unwrap(), 1);
    drop(out);
    assert_eq!(fs::read(&path).unwrap(), first);
}

#[test]
fn concurrent_readers_see_complete_messages_only() {
    let whole = message(50_000);
    let (_folder, path) = file(&whole);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..10 {
                        TensogramFile::open(&path).append_message(&whole).unwrap();
                    }
                })
            })
            .collect();
        let mut last = 1;
        while !writers.iter().all(|writer| writer.is_finished()) {
            let store: Arc<dyn Store> = Arc::new(LocalStore::new(&path, ReadMode::Read));
            let container = TensogramFormat.open(store, &OpenOptions::default()).unwrap();
            assert!((last..=21).contains(&container.len()), "{} after {last}", container.len());
            last = container.len();
            container.array(last - 1).unwrap();
        }
    });
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(&path, ReadMode::Read));
    assert_eq!(fs::read(&path).unwrap(), whole.repeat(21));
    assert!(is_sound(store));
}

#[test]
fn tail_detection_reads_only_the_end_of_intact_files() {
    let bytes = message(9).repeat(2000);
    let counting = Arc::new(Counting::default());
    let store: Arc<dyn Store> = Arc::new(Wrapped::new(memory(&bytes), Arc::clone(&counting)));
    assert_eq!(TensogramFormat.truncated_tail(&store, &OpenOptions::default()).unwrap(), None);
    assert!(counting.bytes() <= 64, "{}", counting.bytes());
}

#[test]
fn a_repair_removes_the_tail_and_nothing_else() {
    let (first, whole) = (message(3), message(40));
    let options = OpenOptions::default();
    for cut in [8, 24, 30, 200, whole.len() - 1] {
        let bytes = [&first[..], &whole[..cut]].concat();
        let store = memory(&bytes);
        assert!(!is_sound(Arc::clone(&store)));
        let repairs = TensogramFormat.repairs(Arc::clone(&store), &options).unwrap();
        let codes: Vec<_> = repairs.iter().map(|repair| (repair.code, repair.automatic)).collect();
        assert_eq!(codes, [("truncated_tail", true)], "cut at {cut}");
        // A fault during the repair leaves the file unchanged.
        for n in 0..12 {
            let copy = memory(&bytes);
            let faulty: Arc<dyn Store> =
                Arc::new(Wrapped::new(Arc::clone(&copy), Arc::new(FaultInjection::at(n))));
            if TensogramFormat.apply_repair(faulty, &options, "truncated_tail").is_err() {
                assert_eq!(copy.read_all("", u64::MAX).unwrap(), bytes, "cut at {cut}, call {n}");
            }
        }
        TensogramFormat.apply_repair(Arc::clone(&store), &options, "truncated_tail").unwrap();
        assert_eq!(store.read_all("", u64::MAX).unwrap(), first);
        assert!(is_sound(Arc::clone(&store)));
        assert!(TensogramFormat.repairs(Arc::clone(&store), &options).unwrap().is_empty());
        assert!(
            TensogramFormat.apply_repair(store, &options, "truncated_tail").is_err(),
            "no fix needed after the repair"
        );
    }
}

#[test]
fn damage_without_a_lossless_fix_is_listed_for_recovery() {
    let (first, whole) = (message(3), message(40));
    let options = OpenOptions::default();
    let codes = |bytes: &[u8]| -> Vec<(&'static str, bool)> {
        let repairs = TensogramFormat.repairs(memory(bytes), &options).unwrap();
        repairs.iter().map(|repair| (repair.code, repair.automatic)).collect()
    };
    assert_eq!(codes(&first), []);
    assert_eq!(codes(&[&first[..], b"garbage", &whole].concat()), [("skipped_bytes", false)]);
    assert_eq!(
        codes(&[&first[..], b"garbage", &whole, &whole[..50]].concat()),
        [("truncated_tail", true), ("skipped_bytes", false)]
    );
    // The file would be empty.
    assert_eq!(codes(&whole[..300]), [("truncated_tail", false)]);
    assert!(TensogramFormat.apply_repair(memory(&whole[..300]), &options, "truncated_tail").is_err());
}
