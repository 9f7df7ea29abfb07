//! A read is a view of the file if the stored layout equals that of the result, otherwise a copy.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Case, array, behind, memory, select};
use tesseral::{DType, Selection};
use tesseral_store::test_wrappers::Counting;
use tesseral_store::{LocalStore, ReadMode};

fn case(chunk: &[u64], codec: &'static str) -> Case {
    Case::counting(DType::Float32, &[8, 6, 5], chunk, codec)
}

fn borrows(case: &Case, selection: &Selection) -> bool {
    let read = array(memory(&case.write())).read(selection).unwrap();
    assert_eq!(read.bytes(), case.slice(selection));
    read.is_borrowed()
}

#[test]
fn runs_of_raw_chunks_are_views() {
    let shape = [8, 6, 5];
    let one = case(&shape, "raw");
    let slabs = case(&[3, 6, 5], "raw");
    for case in [&one, &slabs] {
        assert!(borrows(case, &Selection::all(&shape)));
        assert!(
            borrows(case, &select(&shape, &[(1, 7, 1), (0, 6, 1), (0, 5, 1)])),
            "whole rows across chunks"
        );
        assert!(borrows(case, &select(&shape, &[(4, 5, 1), (2, 4, 1), (0, 5, 1)])), "a part of one position");
        assert!(borrows(case, &select(&shape, &[(4, 5, 1), (2, 3, 1), (1, 4, 1)])), "a part of one row");
        assert!(
            borrows(case, &select(&shape, &[(4, 5, 2), (2, 3, 9), (1, 4, 1)])),
            "a step over one position has no effect"
        );
    }
}

#[test]
fn other_layouts_are_copies() {
    let shape = [8, 6, 5];
    let tiles = case(&[3, 4, 5], "raw");
    assert!(!borrows(&tiles, &Selection::all(&shape)), "chunks do not follow one another in the result");
    assert!(borrows(&tiles, &select(&shape, &[(3, 4, 1), (4, 6, 1), (0, 5, 1)])), "inside one chunk they do");
    let slabs = case(&[3, 6, 5], "raw");
    assert!(!borrows(&slabs, &select(&shape, &[(0, 8, 1), (0, 3, 1), (0, 5, 1)])), "rows with gaps");
    assert!(!borrows(&slabs, &select(&shape, &[(0, 8, 2), (0, 6, 1), (0, 5, 1)])), "steps");
    assert!(!borrows(&case(&shape, "zstd"), &Selection::all(&shape)), "compressed");
}

#[test]
fn views_outlive_the_container() {
    let case = case(&[3, 6, 5], "raw");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.tet");
    std::fs::write(&path, case.write()).unwrap();
    let all = Selection::all(&case.shape);
    let view = array(Arc::new(LocalStore::new(&path, ReadMode::Map))).read(&all).unwrap();
    assert!(view.is_borrowed());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(view.bytes(), case.cells);
    assert_eq!(view.as_slice::<f32>().unwrap()[7], 7.0);
    assert!(view.as_slice::<i32>().is_none(), "bits are not reinterpreted as another dtype");
    assert_eq!(view.into_bytes(), case.cells);
}

#[test]
fn bytes_that_are_not_resident_are_copied() {
    let case = case(&[3, 6, 5], "raw");
    let read = array(behind(&case.write(), &Arc::new(Counting::default())))
        .read(&Selection::all(&case.shape))
        .unwrap();
    assert!(!read.is_borrowed());
    assert_eq!(read.bytes(), case.cells);
}

/// A misaligned view could not be used as numbers: misaligned payloads are copied.
#[test]
fn misaligned_payloads_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.tet");
    let mut session = tesseral::Create::new().begin(&path, "tet").unwrap();
    let odd = Case::counting(DType::UInt8, &[3], &[3], "raw");
    let wide = Case::counting(DType::Float64, &[4], &[4], "raw");
    let ids = [session.add(&odd.spec("odd")).unwrap(), session.add(&wide.spec("wide")).unwrap()];
    session.write(ids[0], &odd.cells).unwrap();
    session.write(ids[1], &wide.cells).unwrap();
    session.commit().unwrap();
    let read = tesseral::open(&path).unwrap().array("wide").unwrap().read(&Selection::all(&[4])).unwrap();
    assert!(!read.is_borrowed());
    assert_eq!(read.as_slice::<f64>().unwrap(), [0.0, 1.0, 2.0, 3.0]);
}

/// Digests of views are verified as for other reads.
#[test]
fn damaged_bytes_are_not_returned_as_views() {
    let case = case(&[3, 6, 5], "raw");
    let mut bytes = case.write().to_vec();
    let info = array(memory(&bytes.clone().into())).chunks(&Selection::all(&case.shape)).unwrap();
    bytes[info[1].offset as usize + 2] ^= 4;
    let array = array(memory(&bytes.into()));
    let error = array.read(&Selection::all(&case.shape)).unwrap_err();
    assert!(matches!(error.kind(), tesseral::ErrorKind::Corrupt { .. }), "{error:?}");
    assert_eq!((error.array(), error.chunk()), (Some("a"), Some(&[1, 0, 0][..])));
    let sound = select(&case.shape, &[(0, 3, 1), (0, 6, 1), (0, 5, 1)]);
    assert!(array.read(&sound).unwrap().is_borrowed(), "adjacent chunks are readable");
}
