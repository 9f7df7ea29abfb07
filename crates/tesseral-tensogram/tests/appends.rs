//! Appends that were stopped midway: readers skip what they left, the next append or a repair removes it, and nothing else.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tesseral_core::{DType, ErrorKind};
use tesseral_format::{AuditOptions, Format, MessageFormat, OpenOptions, TruncatedTail, append_messages};
use tesseral_store::wrap::{Counting, Fault, Wrapped};
use tesseral_store::{Access, LocalStore, MemoryStore, Store, StoreExt};
use tesseral_tensogram::{
    DataObjectDescriptor as Descriptor, EncodeOptions, GlobalMetadata, StreamingEncoder, TensogramFile,
    TensogramFormat, encode,
};

fn message(cells: u64) -> Vec<u8> {
    let bytes = vec![7; usize::try_from(cells).unwrap()];
    let descriptor = Descriptor::raw(DType::UInt8, &[cells]);
    encode(&GlobalMetadata::default(), &[(&descriptor, &bytes)], &EncodeOptions::default()).unwrap()
}

/// A message that does not say how long it is.
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
fn the_first_message_of_a_file_may_be_the_truncated_one() {
    let whole = message(9);
    let (_folder, path) = file(&whole[..whole.len() - 1]);
    TensogramFile::open(&path).append_message(&whole).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn a_handle_that_knew_the_file_counts_what_is_there_after_a_tail_was_removed() {
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
fn a_tail_that_is_no_truncated_message_stays() {
    let whole = message(9);
    let mut later = whole.clone();
    later[9] = 4; // Another version.
    let mut longer = whole.clone();
    longer[16] = 1; // It ends like a message, so its length is what is damaged.
    let mut damaged = whole.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1; // It is all there, but for its end magic.
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

/// A payload may hold messages, whole or not: what is truncated is the message around them.
#[test]
fn magics_inside_a_truncated_payload_do_not_hide_where_it_begins() {
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
fn an_append_that_is_given_up_leaves_the_file_as_it_was() {
    let (first, whole) = (message(3), message(40));
    let (_folder, path) = file(&first);
    let (mut out, removed) = append_messages(&TensogramFormat, &path, &OpenOptions::default()).unwrap();
    assert_eq!(removed, None);
    out.write(&whole[..100]).unwrap();
    // A reader sees the old messages meanwhile.
    assert_eq!(TensogramFile::open(&path).message_count().unwrap(), 1);
    drop(out);
    assert_eq!(fs::read(&path).unwrap(), first);
}

#[test]
fn readers_see_one_message_more_or_not_while_others_append() {
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
            let store: Arc<dyn Store> = Arc::new(LocalStore::new(&path, Access::Read));
            let container = TensogramFormat.open(store, &OpenOptions::default()).unwrap();
            assert!((last..=21).contains(&container.len()), "{} after {last}", container.len());
            last = container.len();
            container.array(last - 1).unwrap();
        }
    });
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(&path, Access::Read));
    assert_eq!(fs::read(&path).unwrap(), whole.repeat(21));
    assert!(is_sound(store));
}

#[test]
fn looking_for_a_tail_reads_the_end_of_sound_files_only() {
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
        // A fault on the way leaves the file as it was.
        for n in 0..12 {
            let copy = memory(&bytes);
            let faulty: Arc<dyn Store> = Arc::new(Wrapped::new(Arc::clone(&copy), Arc::new(Fault::at(n))));
            if TensogramFormat.apply_repair(faulty, &options, "truncated_tail").is_err() {
                assert_eq!(copy.read_all("", u64::MAX).unwrap(), bytes, "cut at {cut}, call {n}");
            }
        }
        TensogramFormat.apply_repair(Arc::clone(&store), &options, "truncated_tail").unwrap();
        assert_eq!(store.read_all("", u64::MAX).unwrap(), first);
        assert!(is_sound(Arc::clone(&store)));
        assert!(TensogramFormat.repairs(Arc::clone(&store), &options).unwrap().is_empty());
        assert!(TensogramFormat.apply_repair(store, &options, "truncated_tail").is_err(), "not needed twice");
    }
}

#[test]
fn what_cannot_be_repaired_without_loss_is_listed_for_recovery() {
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
    // Nothing would be left of it.
    assert_eq!(codes(&whole[..300]), [("truncated_tail", false)]);
    assert!(TensogramFormat.apply_repair(memory(&whole[..300]), &options, "truncated_tail").is_err());
}
