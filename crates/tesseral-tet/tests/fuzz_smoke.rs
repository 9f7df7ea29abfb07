//! The body of the fuzz target `tet_structures` on the structures of the fixtures, changed a little, many times.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/src/tet_structures.rs"]
mod tet_structures;

use tesseral_conformance::testing::{Random, fixtures};

/// Every structure begins with bytes of the file that some offset refers to: windows of the files at multiples of 4 include them all.
#[test]
fn changed_structures_never_panic() {
    let files = fixtures("tet", "tet").unwrap();
    assert!(files.len() > 5);
    let mut random = Random::new(1);
    let mut next = || random.draw();
    for file in files {
        let whole = std::fs::read(file).unwrap();
        for start in (0..whole.len().min(8 << 10)).step_by(4) {
            let window = &whole[start..whole.len().min(start + (next() % 2048) as usize)];
            for which in 0..10 {
                let mut input = [&[which + 10 * (next() % 4) as u8], window].concat();
                tet_structures::structures(&input);
                let at = next() as usize % input.len();
                input[at] = if at == 0 { which } else { next() as u8 };
                tet_structures::structures(&input);
            }
        }
    }
}
