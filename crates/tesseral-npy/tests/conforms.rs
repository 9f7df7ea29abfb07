//! The conformance suite on files as NumPy writes them, damaged headers, and the schema of a file.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_conformance::{Fixture, read_suite};
use tesseral_core::schema::Order;
use tesseral_core::{ErrorKind, Result, Selection};
use tesseral_format::{Access, ContainerSource, Format, OpenOptions, Request};
use tesseral_npy::NpyFormat;
use tesseral_store::{MemoryStore, Store};

/// A file of version 1 whose cell bytes count up.
fn file(descr: &str, fortran: &str, shape: &str, bytes: usize) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    let text = format!("{text:<117}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
    out.extend(text.as_bytes());
    out.extend((0..bytes).map(|n| n as u8));
    out
}

fn memory(bytes: Vec<u8>) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("folder/cells.npy", bytes))
}

fn open(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    NpyFormat.open(memory(bytes.to_vec()), &OpenOptions::default())
}

#[test]
fn files_pass_the_read_suite() {
    for (descr, fortran, shape, bytes) in [
        ("<f4", "False", "(3, 4)", 48),
        ("<f4", "True", "(3, 4, 2)", 96),
        (">i8", "False", "(5,)", 40),
        (">u2", "True", "(4, 3)", 24),
        ("|b1", "False", "(2, 2)", 4),
        (">c8", "False", "(2, 3)", 48),
        ("|S3", "False", "(4,)", 12),
        ("<M8[D]", "False", "(2,)", 16),
        ("<f8", "False", "()", 8),
        ("<f8", "True", "(0, 3)", 0),
    ] {
        let fixture = Fixture::new(memory(file(descr, fortran, shape, bytes)), 7);
        read_suite(&NpyFormat, &fixture).unwrap_or_else(|violation| panic!("{descr} {shape}: {violation}"));
    }
}

#[test]
fn headers_determine_the_schema() {
    let container = open(&file(">u2", "True", "(4, 3)", 24)).unwrap();
    assert_eq!((container.name(0), container.len()), ("cells", 1));
    let array = container.array(0).unwrap();
    assert_eq!(array.schema().cell_order, Order::ColMajor);
    assert_eq!(array.schema().shape().unwrap().as_slice(), [4, 3]);
    let plan = tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&[4, 3]), 0))
        .unwrap();
    assert_eq!(plan.chunks[0].access, Access::Direct { swapped: true });
    assert_eq!(container.details()["descr"], ">u2");
}

/// Above 4 MiB the cells are divided into chunks along the slowest dimension of the file.
#[test]
fn large_files_are_divided_into_chunks() {
    for (fortran, shape) in [("False", [10, 2, 1 << 18]), ("True", [2, 1 << 18, 10])] {
        let shown = format!("({}, {}, {})", shape[0], shape[1], shape[2]);
        let bytes = file("<u2", fortran, &shown, 10 << 20);
        let container = open(&bytes).unwrap();
        let array = container.array(0).unwrap();
        let plan =
            tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&shape), 0))
                .unwrap();
        let rows: Vec<u64> = plan.chunks.iter().map(|chunk| chunk.cells >> 19).collect();
        assert_eq!(rows, [4, 4, 2]);
        let mut at = 128;
        for chunk in &plan.chunks {
            assert_eq!((chunk.parts[0].offset, chunk.parts[0].len), (at, chunk.cells * 2));
            at += chunk.cells * 2;
        }
        assert_eq!(at, bytes.len() as u64);
    }
}

#[test]
fn truncated_and_oversized_files_are_rejected() {
    let whole = file("<f4", "False", "(3, 4)", 48);
    assert!(open(&whole).is_ok());
    let longer = [&whole[..], &[0]].concat();
    for damaged in (0..whole.len()).map(|len| &whole[..len]).chain([&longer[..]]) {
        let error = open(damaged).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{}: {error}", damaged.len());
    }
}

#[test]
fn more_dimensions_than_numpy_supports_are_rejected() {
    for (rank, opens) in [(64, true), (65, false)] {
        let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({}), }}", "1, ".repeat(rank));
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.push(7);
        assert_eq!(open(&bytes).is_ok(), opens, "{rank}");
    }
}

#[test]
fn other_dtypes_and_versions_are_unsupported() {
    let mut newer = file("<f4", "False", "(1,)", 4);
    newer[6] = 4;
    for (bytes, what) in [
        (file("<U4", "False", "(1,)", 16), "<U4"),
        (file("|O", "False", "(1,)", 8), "|O"),
        (newer, "version 4.0"),
    ] {
        let error = open(&bytes).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unsupported { .. }) && error.to_string().contains(what),
            "{error}"
        );
    }
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    assert!(matches!(open(&long).unwrap_err().kind(), ErrorKind::Limit { .. }));
}
