//! The bodies of the fuzz targets for digest tables, trailers and chunk tables on structures that writers made, changed a little, many times.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/src/digests.rs"]
mod digests;

use tesseral_conformance::testing::mutations;

#[test]
fn changed_digest_tables_never_panic() {
    // At byte 200: two sections, two files with lists of 3 and 1 digests.
    let numbers = |values: &[u32]| values.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let row = |number: u32, blocks: u64| {
        [numbers(&[number, 0]), blocks.to_le_bytes().to_vec(), vec![7; 8]].concat()
    };
    let directory = [numbers(&[16384, 2, 2, 0]), vec![1; 8], vec![2; 16], row(0, 3), row(4, 1)].concat();
    mutations(&[vec![200, 0], directory].concat(), digests::digest_tables);
}

#[test]
fn changed_trailers_never_panic() {
    let tile = [b"a generic tile".to_vec(), b"TSRLXXH3".to_vec(), 14_u64.to_le_bytes().to_vec(), vec![5; 8]]
        .concat();
    mutations(&tile, digests::trailers);
    let lines = "/__fragments/a\n/__fragments/__1_2_0123456789abcdefd16e5701d16e5701_22\n";
    mutations(lines.as_bytes(), digests::trailers);
    mutations(b"__18446744073709551615_1_0123456789abcdef01234567d16e5701_4294967295", digests::trailers);
}

#[test]
fn changed_chunk_tables_never_panic() {
    let mut tile = 3_u64.to_le_bytes().to_vec();
    for (plain, stored) in [(10_u32, 4_u32), (10, 9), (5, 0)] {
        [plain, stored, 1].iter().for_each(|n| tile.extend_from_slice(&n.to_le_bytes()));
        tile.extend(vec![6; 1 + stored as usize]);
    }
    mutations(&[vec![9], tile].concat(), digests::chunk_tables);
}
