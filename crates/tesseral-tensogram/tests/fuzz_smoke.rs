//! Runs the fuzz target `tensogram_open` on mutated fixtures.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/src/tensogram.rs"]
mod tensogram;

use tesseral_conformance::testing::{Random, fixtures};

#[test]
fn changed_files_never_panic() {
    let files = fixtures("tensogram", "tgm").unwrap();
    assert!(files.len() > 5);
    let mut random = Random::new(1);
    let mut next = || random.draw();
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
