//! The conformance suite on files as NumPy writes them, damaged headers, and the schema of a file.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_codec::checksum::Checksum;
use tesseral_codec::zlib;
use tesseral_conformance::{Fixture, WriteCase, read_suite, write_suite};
use tesseral_core::schema::Order;
use tesseral_core::{ArraySchema, CellLen, DType, ErrorKind, Result, Selection, TimeUnit};
use tesseral_format::{Access, ArraySpec, ColumnMut, ContainerSource, Format, OpenOptions, Request, Scratch};
use tesseral_npy::{NpyFormat, NpzFormat};
use tesseral_store::{MemoryStore, Store, StoreExt};

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

fn spec(name: &str, dtype: DType, cell: CellLen, chunk: &[u64]) -> ArraySpec {
    let shape: Vec<u64> = chunk.iter().map(|n| n * 2 + 1).collect();
    let mut schema = ArraySchema::dense(name, dtype, &shape, chunk);
    schema.fields[0].cell = cell;
    ArraySpec::raw(schema)
}

fn specs() -> Vec<ArraySpec> {
    vec![
        spec("scalar", DType::Float64, CellLen::One, &[]),
        spec("line", DType::Int16, CellLen::One, &[4]),
        // Chunks that are not consecutive.
        spec("group/box", DType::Float32, CellLen::One, &[2, 2, 3]),
        spec("flags", DType::Bool, CellLen::One, &[1, 5]),
        spec("complex", DType::Complex64, CellLen::One, &[3]),
        spec("time", DType::DateTime(TimeUnit::Second), CellLen::One, &[3]),
        spec("text", DType::Ascii, CellLen::Fixed(3), &[2]),
    ]
}

#[test]
fn written_archives_pass_the_suites() {
    for (n, spec) in specs().into_iter().enumerate().skip(1) {
        let name = spec.schema.name.clone();
        let case = WriteCase::new(vec![spec], n as u64);
        write_suite(&NpzFormat, &case).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
    write_suite(&NpzFormat, &WriteCase::new(specs(), 5)).unwrap_or_else(|violation| panic!("{violation}"));
}

/// An archive as NumPy writes it: one member as it is, one as a deflate stream.
fn archive() -> Vec<u8> {
    let (plain, packed) = (file("<f4", "False", "(3, 4)", 48), file("<i8", "True", "(5,)", 40));
    let mut stream = Vec::new();
    zlib::encode(&packed, 6, &mut stream).unwrap();
    let stream = stream[2..stream.len() - 4].to_vec();
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, method, content, stored) in
        [("plain.npy", 0_u16, &plain, &plain), ("packed.npy", 8, &packed, &stream)]
    {
        let crc = Checksum::Crc32.compute(content);
        let mut common = Vec::new();
        common.extend([20, 0, method, 0, 0x21].iter().flat_map(|n: &u16| n.to_le_bytes()));
        let words = [crc, stored.len() as u32, content.len() as u32];
        common.extend(words.iter().flat_map(|n| n.to_le_bytes()));
        common.extend([name.len() as u16, 0].iter().flat_map(|n| n.to_le_bytes()));
        directory.extend([&b"PK\x01\x02\x14\0"[..], &common, &[0; 10]].concat());
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend([&b"PK\x03\x04"[..], &common, name.as_bytes(), stored].concat());
    }
    let place = [directory.len() as u32, out.len() as u32];
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    out.extend(place.iter().flat_map(|n| n.to_le_bytes()));
    out.extend([0, 0]);
    out
}

fn open_archive(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    let store = Arc::new(MemoryStore::with_object("cells.npz", bytes.to_vec()));
    NpzFormat.open(store, &OpenOptions::default())
}

#[test]
fn archives_of_numpy_pass_the_read_suite() {
    let store = Arc::new(MemoryStore::with_object("cells.npz", archive()));
    read_suite(&NpzFormat, &Fixture::new(store, 7)).unwrap_or_else(|violation| panic!("{violation}"));
    let container = open_archive(&archive()).unwrap();
    assert_eq!([container.name(0), container.name(1)], ["plain", "packed"]);
}

/// Reads all cells of a compressed member.
fn packed_cells(bytes: &[u8]) -> Result<Vec<u8>> {
    let container = open_archive(bytes)?;
    let array = container.array(1)?;
    let request = Request::cells(Selection::all(&[5]), 0);
    let plan = tesseral_format::plan(&*array, container.store(), &request)?;
    let chunk = &plan.chunks[0];
    let part = chunk.parts[0];
    let stored = container.store().read("", part.offset..part.offset + part.len)?;
    let mut values = vec![0; 40];
    let out = ColumnMut::Fixed { values: &mut values, validity: None };
    array.decode(chunk, part.column, &[stored], 0..5, out, &mut Scratch::default())?;
    Ok(values)
}

#[test]
fn damaged_archives_are_rejected() {
    let whole = archive();
    assert_eq!(packed_cells(&whole).unwrap(), (0..40).collect::<Vec<u8>>());
    for len in 0..whole.len() {
        let error = open_archive(&whole[..len]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{len}: {error}");
    }
    // No changed byte gives other cells: their checksum is compared.
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        if let Ok(cells) = packed_cells(&damaged) {
            assert_eq!(cells, (0..40).collect::<Vec<u8>>(), "{at}");
        }
    }
}
