//! Equal arrays, history and metadata produce the bytes of the reference.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use tesseral_format::{CreateOptions, Format, OpenOptions};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tet::TetFormat;

/// Raw files of the reference's low-level writer, and whether they have zone maps. A secondary index is not written.
const FILES: [(&str, bool); 8] = [
    ("empty.tet", false),
    ("empty_footer_v1.tet", false),
    ("no_footer.tet", false),
    ("ranks_raw_v1.tet", false),
    ("budget_header_v1.tet", false),
    ("history_v1.tet", false),
    ("metadata_spill_v1.tet", false),
    ("wide_values_v2.tet", true),
];

fn copy(name: &str, statistics: bool) -> (Vec<u8>, Vec<u8>) {
    let original = std::fs::read(common::fixtures().join(name)).unwrap();
    let container = common::open(original.clone()).unwrap();
    let memory_budget = container.memory_budget();
    let options = CreateOptions { memory_budget, digests: false, statistics, ..CreateOptions::default() };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("copy.tet"));
    let mut writer = TetFormat.create(Arc::clone(&store), &options).unwrap();
    writer.set_attributes(container.attributes().clone()).unwrap();
    for row in container.history() {
        writer.add_history(row.clone()).unwrap();
    }
    let inputs: Vec<_> = (0..container.len())
        .map(|i| {
            let schema = container.array(i).unwrap().schema().clone();
            common::Input::new(schema, "raw", common::read_flat(&*container, i).unwrap())
        })
        .collect();
    common::push_all(&mut *writer, &inputs, |chunks| chunks.reverse()).unwrap();
    writer.commit().unwrap();
    let copy = store.read_all("", u64::MAX).unwrap().to_vec();
    (original, copy)
}

#[test]
fn copies_of_reference_files_are_the_same_bytes() {
    for (name, statistics) in FILES {
        let (mut original, copy) = copy(name, statistics);
        if name == "budget_header_v1.tet" {
            // The file states its budget in two fields; only the one in bytes is written again.
            original[96..98].fill(0);
        }
        let first = original.iter().zip(&copy).position(|(a, b)| a != b);
        assert!(
            original == copy,
            "{name}: {} bytes for {}, first difference at {first:?}",
            copy.len(),
            original.len()
        );
    }
}

/// Digests only add bytes: everything up to the last payload is unchanged, except the footer flag.
#[test]
fn digests_do_not_change_the_bytes_before_them() {
    let schema = tesseral_core::ArraySchema::dense("a", tesseral_core::DType::UInt8, &[7], &[3]);
    let input = [common::Input::new(schema, "raw", (0..7).collect())];
    let plain = common::write(&input, &common::plain()).unwrap();
    let mut with = common::write(&input, &CreateOptions::default()).unwrap();
    assert_eq!((plain[12], with[12]), (0, 1));
    with[12] = 0;
    assert_eq!(plain, with[..plain.len()]);
    let at = plain.len().next_multiple_of(8);
    assert_eq!(&with[at..at + 4], b"TDIG");
}

/// Other tools can drop the key from the footer; the digests are then found by their offset.
#[test]
fn digests_are_found_without_their_key() {
    let schema = tesseral_core::ArraySchema::dense("a", tesseral_core::DType::UInt8, &[7], &[3]);
    let input = [common::Input::new(schema, "raw", (0..7).collect())];
    let mut file = common::write(&input, &CreateOptions::default()).unwrap();
    let container = common::open(file.clone()).unwrap();
    let json = container.details()["footer"]["json_offset"].as_u64().unwrap() as usize;
    assert_eq!(container.details()["digests"]["in_footer"], true);
    file.truncate(json);
    file.extend(br#"{"history":[]}"#);
    file.extend(14_u64.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file.extend(b"THST");
    let container = common::open(file.clone()).unwrap();
    assert_eq!(container.details()["digests"]["in_footer"], false);
    common::read_flat(&*container, 0).unwrap();
    // A changed payload is detected …
    let payload = container.details()["digests"]["offset"].as_u64().unwrap() as usize - 8;
    let mut flipped = file.clone();
    flipped[payload] ^= 1;
    assert!(common::read_flat(&*common::open(flipped).unwrap(), 0).unwrap_err().is_damage());
    // … and a region that does not match the index is ignored.
    let mut stale = file;
    let at = container.details()["digests"]["offset"].as_u64().unwrap() as usize + 24;
    stale[at] ^= 1;
    let container = common::open(stale).unwrap();
    assert!(container.details()["digests"]["error"].is_string());
    common::read_flat(&*container, 0).unwrap();
}

#[test]
fn digest_verification_can_be_disabled() {
    let schema = tesseral_core::ArraySchema::dense("a", tesseral_core::DType::UInt8, &[7], &[3]);
    let input = [common::Input::new(schema, "raw", (0..7).collect())];
    let mut file = common::write(&input, &CreateOptions::default()).unwrap();
    let region =
        common::open(file.clone()).unwrap().details()["digests"]["offset"].as_u64().unwrap() as usize;
    file[region + 33] ^= 1;
    assert!(common::open(file.clone()).unwrap_err().is_damage());
    let unchecked = OpenOptions { digests: false, ..OpenOptions::default() };
    let container = TetFormat.open(common::memory(file), &unchecked).unwrap();
    common::read_flat(&*container, 0).unwrap();
}
