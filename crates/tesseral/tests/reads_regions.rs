//! For any shape, chunks, dtype, codec and store, a read equals slicing the flat array.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Case, array, behind, memory, noise, options, select, threads};
use proptest::prelude::*;
use tesseral::{Array, DType, Options, Selection};
use tesseral_store::test_wrappers::Counting;
use tesseral_store::{Bytes, LocalStore, ReadMode, Store};

/// The same bytes in memory, not resident, memory-mapped, and read by `pread`.
fn stores(bytes: &Bytes, folder: &tempfile::TempDir) -> Vec<(&'static str, Arc<dyn Store>)> {
    let path = folder.path().join("case.tet");
    std::fs::write(&path, bytes).unwrap();
    vec![
        ("memory", memory(bytes)),
        ("not resident", behind(bytes, &Arc::new(Counting::default()))),
        ("mapped", Arc::new(LocalStore::new(&path, ReadMode::Map))),
        ("pread", Arc::new(LocalStore::new(&path, ReadMode::Read))),
    ]
}

fn check(case: &Case, array: &Array, selection: &Selection, what: &str) {
    let want = case.slice(selection);
    let got = array.read(selection).unwrap();
    assert_eq!(got.shape, selection.shape().to_vec(), "{what}");
    assert!(got.bytes() == want, "{what}: {selection:?} of {:?} in {:?}", case.shape, case.chunk);
    let mut into = vec![0xAA; want.len()];
    array.read_into(selection, &mut into, None).unwrap();
    assert!(into == want, "{what}, into: {selection:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_array_any_selection((case, selections) in common::any_case_and_selections(), digests in any::<bool>(), zones in any::<bool>()) {
        let bytes = case.write_with(&options(digests, zones, None), Options::default());
        let folder = tempfile::tempdir().unwrap();
        for (what, store) in stores(&bytes, &folder) {
            let array = array(store);
            prop_assert_eq!(array.schema().shape().unwrap().to_vec(), case.shape.clone());
            prop_assert_eq!(array.schema().fields[0].dtype, case.dtype);
            check(&case, &array, &array.all().unwrap(), what);
            for selection in &selections {
                check(&case, &array, selection, what);
            }
        }
    }

    #[test]
    fn blocks_join_to_the_whole((case, selections) in common::any_case_and_selections(), cells in 1_u64..40) {
        let array = array(memory(&case.write()));
        let limit = cells * case.size() as u64;
        for selection in &selections {
            let mut joined = Vec::new();
            for block in array.blocks(selection, limit).unwrap() {
                let block = array.read(&block).unwrap();
                prop_assert!(block.bytes().len() as u64 <= limit);
                joined.extend_from_slice(block.bytes());
            }
            prop_assert_eq!(joined, case.slice(selection));
        }
    }
}

/// Large enough for all threads.
#[test]
fn large_arrays_on_any_number_of_threads() {
    let shape = [300, 210, 11];
    for (codec, chunk) in [("raw", [37, 210, 11]), ("raw", [64, 33, 4]), ("zstd", [37, 50, 11])] {
        let count = shape.iter().product::<u64>() as usize;
        let cells = noise(7).take(count * 4).collect();
        let case = Case { dtype: DType::Float32, shape: shape.to_vec(), chunk: chunk.to_vec(), codec, cells };
        let bytes = case.write();
        let folder = tempfile::tempdir().unwrap();
        let selections = [
            Selection::all(&shape),
            select(&shape, &[(0, 300, 1), (7, 200, 1), (0, 11, 1)]),
            select(&shape, &[(1, 299, 3), (0, 210, 7), (10, 11, 1)]),
            select(&shape, &[(36, 75, 1), (0, 210, 1), (0, 11, 1)]),
        ];
        for (what, store) in stores(&bytes, &folder) {
            for n in [1, 2, 3, 8] {
                let array = array(Arc::clone(&store)).with_options(threads(n));
                for selection in &selections {
                    check(&case, &array, selection, what);
                }
            }
        }
    }
}

/// A read into memory of the wrong length must fail, not be partial.
#[test]
fn memory_of_the_wrong_length_is_rejected() {
    let case = Case::counting(DType::Int32, &[4, 5], &[2, 2], "raw");
    let array = array(memory(&case.write()));
    let all = array.all().unwrap();
    for len in [0, 79, 81] {
        let error = array.read_into(&all, &mut vec![0; len], None).unwrap_err();
        assert!(matches!(error.kind(), tesseral::ErrorKind::InvalidRequest { .. }), "{len}: {error:?}");
    }
}

#[test]
fn large_results_are_painted_strip_by_strip() {
    // Large enough for strips; chunks that do not divide the shape, in memory order and across it.
    for (shape, chunk) in
        [([31, 310, 330], [7, 60, 111]), ([2, 1200, 1500], [2, 250, 400]), ([1100, 60, 50], [1000, 17, 50])]
    {
        let case = Case::counting(DType::Float32, &shape, &chunk, "raw");
        let bytes = case.write();
        let array = array(memory(&bytes));
        let most = |d: usize| shape[d];
        check(&case, &array, &array.all().unwrap(), "whole");
        let inner = select(&shape, &[(0, most(0), 1), (1, most(1), 1), (2, most(2) - 1, 1)]);
        check(&case, &array, &inner, "a box");
        // A damaged byte in the middle: detected although its chunk is part of many strips.
        let mut damaged = bytes.to_vec();
        let middle = array.chunks(&array.all().unwrap()).unwrap();
        let middle = &middle[middle.len() / 2];
        damaged[(middle.offset + middle.stored_len / 2) as usize] ^= 4;
        let array = common::array(memory(&damaged.into()));
        let error = array.read(&array.all().unwrap()).unwrap_err();
        assert!(matches!(error.kind(), tesseral::ErrorKind::Corrupt { .. }), "{error}");
    }
}

/// A Tensogram object is one chunk: threads share it if its compression supports random access.
#[test]
fn one_large_chunk_is_decoded_in_pieces() {
    use tesseral_tensogram::wire::cbor::CborItem;
    use tesseral_tensogram::{DataObjectDescriptor, DecodeOptions, decode, encode};

    let count = 200_003_u64;
    let cells: Vec<u8> = (0..count).flat_map(|i| ((i * i % 4099) as f64 / 8.0).to_le_bytes()).collect();
    for compression in ["szip", "blosc2", "none"] {
        let mut descriptor = DataObjectDescriptor::raw(DType::Float64, &[count]);
        "simple_packing".clone_into(&mut descriptor.encoding);
        compression.clone_into(&mut descriptor.compression);
        for (key, value) in
            [("sp_bits_per_value", 16), ("szip_rsi", 128), ("szip_block_size", 16), ("szip_flags", 8)]
        {
            descriptor.params.insert(key.to_owned(), CborItem::UInt(value));
        }
        let message = encode(&Default::default(), &[(&descriptor, &cells)], &Default::default()).unwrap();
        let alone = DecodeOptions { threads: 1, ..DecodeOptions::default() };
        let expected = decode(&message, &alone).unwrap().1[0].1.to_vec();
        let bytes = Bytes::from(message);
        for n in [1, 2, 3, 5] {
            let array = common::open(memory(&bytes)).array("0/0").unwrap().with_options(threads(n));
            let all = array.all().unwrap();
            assert!(array.read(&all).unwrap().bytes() == expected, "{compression}, {n} threads");
            // Most of it, and every other cell of that.
            for step in [1, 2] {
                let some = select(&[count], &[(3, count - 5, step)]);
                let wanted: Vec<u8> = (3..count - 5)
                    .step_by(step as usize)
                    .flat_map(|i| expected[i as usize * 8..][..8].to_vec())
                    .collect();
                assert!(array.read(&some).unwrap().bytes() == wanted, "{compression}, {n} threads");
            }
        }
    }
}

#[test]
fn field_numbers_out_of_range_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tet");
    let mut session = tesseral::Create::new().begin(&path, "tet").unwrap();
    let schema = tesseral::ArraySchema::dense("a", tesseral::DType::UInt8, &[2], &[2]);
    let id = session.add(&tesseral::ArraySpec::raw(schema)).unwrap();
    session.write(id, &[1, 2]).unwrap();
    session.commit().unwrap();
    let array = tesseral::open(&path).unwrap().array("a").unwrap();
    assert_eq!(array.clone().field_at(0).unwrap().selected_field().name, array.selected_field().name);
    for number in [1, 99, u16::MAX] {
        let error = array.clone().field_at(number).unwrap_err();
        assert!(matches!(error.kind(), tesseral::ErrorKind::InvalidRequest { .. }), "{error}");
        assert_eq!(error.array(), Some("a"));
    }
}
