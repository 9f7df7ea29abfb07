//! A read verifies the digests of the blocks that it touches, and of no others; every flip is found by reading all cells.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Case, array, memory, select};
use tesseral::{DType, ErrorKind, Open, Selection};
use tesseral_store::Bytes;

const SHAPE: [u64; 3] = [6, 40, 50];
/// Bytes of one position of the first axis: more than one block.
const PLANE: usize = 40 * 50 * 4;
const BLOCK: usize = 4096;

/// A file of one raw chunk, and the offset of its payload.
fn file() -> (Vec<u8>, usize) {
    let case = Case::counting(DType::UInt32, &SHAPE, &SHAPE, "raw");
    let file = case.write().to_vec();
    let payload = file.windows(64).position(|w| w == &case.cells[..64]).unwrap();
    assert_eq!(&file[payload..payload + case.cells.len()], &case.cells[..]);
    (file, payload)
}

fn read(file: &[u8], selection: &Selection) -> Result<Vec<u8>, tesseral::Error> {
    let array = array(memory(&Bytes::copy_from_slice(file)));
    array.read(selection).map(|dense| dense.bytes().to_vec())
}

#[test]
fn a_read_verifies_the_blocks_it_touches() {
    let (file, payload) = file();
    // A series along the first axis, a window, and one row.
    for slices in [
        [(0, 6, 1), (10, 11, 1), (7, 8, 1)],
        [(1, 5, 2), (3, 9, 1), (0, 50, 1)],
        [(4, 5, 1), (0, 1, 1), (0, 50, 1)],
    ] {
        let selection = select(&SHAPE, &slices);
        let expected = read(&file, &selection).unwrap();
        let touched: std::collections::BTreeSet<usize> = cells(&slices).map(|at| at / BLOCK).collect();
        let blocks = (SHAPE[0] as usize * PLANE).div_ceil(BLOCK);
        assert!(touched.len() < blocks);
        for block in 0..blocks {
            let mut damaged = file.clone();
            damaged[payload + block * BLOCK + 77] ^= 1;
            match read(&damaged, &selection) {
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
                    assert!(touched.contains(&block), "block {block} is not touched by {slices:?}");
                }
                Ok(cells) => {
                    assert!(!touched.contains(&block), "block {block} is touched by {slices:?}");
                    assert_eq!(cells, expected);
                }
            }
            assert!(read(&damaged, &Selection::all(&SHAPE)).is_err(), "block {block}");
        }
    }
}

/// Byte offsets of the cells of a selection.
fn cells(slices: &[(u64, u64, u64); 3]) -> impl Iterator<Item = usize> + use<> {
    let [a, b, c] = slices.map(|(start, end, step)| (start..end).step_by(step as usize));
    a.flat_map(move |i| {
        let c = c.clone();
        b.clone().flat_map(move |j| c.clone().map(move |k| ((i * 40 + j) * 50 + k) as usize * 4))
    })
}

/// Blocks whose damage a read finds are those that it hashes.
#[test]
fn a_window_of_32_kib_hashes_at_most_128_kib() {
    let shape = [24, 91, 90];
    let case = Case::counting(DType::Float32, &shape, &shape, "raw");
    let file = case.write().to_vec();
    let payload = file.windows(64).position(|w| w == &case.cells[..64]).unwrap();
    let hashed = |slices: &[(u64, u64, u64); 3]| {
        let selection = select(&shape, slices);
        let found = |block: &usize| {
            let mut damaged = file.clone();
            damaged[payload + block * BLOCK] ^= 1;
            read(&damaged, &selection).is_err()
        };
        (0..case.cells.len().div_ceil(BLOCK)).filter(found).count() * BLOCK
    };
    // A window of 8×32×32 cells, a series, and a row.
    assert!((32 << 10..=128 << 10).contains(&hashed(&[(3, 11, 1), (17, 49, 1), (29, 61, 1)])));
    assert_eq!(hashed(&[(0, 24, 1), (40, 41, 1), (40, 41, 1)]), 24 * BLOCK);
    assert!(hashed(&[(5, 6, 1), (40, 41, 1), (0, 90, 1)]) <= 2 * BLOCK);
}

#[test]
fn every_flip_of_the_digests_of_blocks_is_found_or_harmless() {
    let (file, payload) = file();
    let all = Selection::all(&SHAPE);
    let expected = read(&file, &all).unwrap();
    let end = payload + SHAPE[0] as usize * PLANE;
    let region = file[end..].windows(4).position(|w| w == b"TDIG").unwrap() + end;
    let blocks = (SHAPE[0] as usize * PLANE).div_ceil(BLOCK);
    // Header, one row, its own digest, digests of blocks.
    let length = 40 + 16 + 8 + 8 * blocks;
    for at in region..region + length {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        let opened = Open::new().open_store(memory(&Bytes::from(damaged)));
        let found = opened.and_then(|container| container.array("a")?.read(&all));
        match at - region {
            // Another version or algorithm: the file is read without digests.
            4..12 => assert_eq!(found.unwrap().bytes(), expected),
            byte => assert!(found.is_err(), "byte {byte} of the region"),
        }
    }
    assert_eq!(read(&file, &all).unwrap(), expected);
}
