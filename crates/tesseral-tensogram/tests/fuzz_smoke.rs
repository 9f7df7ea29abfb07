//! Runs the fuzz target `tensogram_open` on mutated fixtures.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/src/tensogram.rs"]
mod tensogram;

use std::path::Path;

#[test]
fn changed_files_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tensogram");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "tgm"));
    files.sort();
    assert!(files.len() > 5);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for file in files {
        let whole = std::fs::read(file).unwrap();
        if whole.len() > 64 << 10 {
            continue;
        }
        tensogram::exercise(&whole);
        for _ in 0..60 {
            let mut bent = whole.clone();
            for _ in 0..=next() % 4 {
                let at = next() as usize % bent.len();
                bent[at] = next() as u8;
            }
            if next() % 6 == 0 {
                bent.truncate(next() as usize % bent.len());
            }
            tensogram::exercise(&bent);
        }
    }
}
