//! The conformance suite on files of the reference, and damaged, truncated and crafted ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use tesseral_conformance::{Fixture, WriteCase, read_suite, write_suite};
use tesseral_core::{ArraySchema, CellLen, DType, ErrorKind, Region, Result, Scalar, Selection, Value};
use tesseral_format::{
    ArraySpec, CodecSpec, ColumnData, ColumnMut, ContainerSource, CreateOptions, Format, FormatOptions,
    OpenOptions, PlannedChunk, Request, Scratch,
};
use tesseral_hdf5::{Hdf5Format, NetCdf4Options};
use tesseral_store::{MemoryStore, Store, StoreExt};

const FILES: [&str; 4] = ["earliest.h5", "latest.h5", "netcdf4.nc", "virtual.h5"];

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hdf5").join(name)).unwrap()
}

/// A file, with others beside it that hold cells of its datasets.
fn memory(bytes: &[u8]) -> Arc<dyn Store> {
    let store = MemoryStore::with_object("folder/cells.h5", bytes.to_vec());
    store.insert("latest.h5", fixture("latest.h5"));
    store.insert("a.raw", (0_u8..11).collect::<Vec<_>>());
    store.insert("b.raw", (11_u8..25).collect::<Vec<_>>());
    Arc::new(store)
}

fn open(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    Hdf5Format.open(memory(bytes), &OpenOptions::default())
}

fn plan(
    container: &dyn ContainerSource,
    name: &str,
) -> (Arc<dyn tesseral_format::ArraySource>, Vec<PlannedChunk>) {
    let array = container.array(container.find(name).unwrap()).unwrap();
    let shape = array.schema().shape().unwrap();
    let plan = tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&shape), 0))
        .unwrap();
    (array, plan.chunks)
}

/// Opens a file and decodes every chunk; errors are expected, panics are not.
fn read_all(bytes: &[u8]) -> Result<u64> {
    let container = open(bytes)?;
    let (store, mut read) = (container.store(), 0);
    for index in 0..container.len() {
        let array = container.array(index)?;
        let field = &array.schema().fields[0];
        let shape = array.schema().shape().unwrap();
        let request = Request::cells(Selection::all(&shape), 0);
        for chunk in tesseral_format::plan(&*array, container.store(), &request)?.chunks {
            let bytes = chunk
                .parts
                .iter()
                .map(|part| store.read(&array.object(part.object), part.offset..part.offset + part.len));
            let stored = bytes.collect::<Result<Vec<_>>>()?;
            let mut scratch = Scratch::default();
            let column = request.columns[0];
            let Some(size) = field.cell_size() else {
                let (mut offsets, mut data) = (Vec::new(), Vec::new());
                let out = ColumnMut::Var { offsets: &mut offsets, data: &mut data, validity: None };
                array.decode(&chunk, column, &stored, 0..chunk.cells, out, &mut scratch)?;
                continue;
            };
            if chunk.cells * size as u64 > 1 << 20 {
                continue;
            }
            let mut values = vec![0; usize::try_from(chunk.cells).unwrap() * size];
            let out = ColumnMut::Fixed { values: &mut values, validity: None };
            array.decode(&chunk, column, &stored, 0..chunk.cells, out, &mut scratch)?;
            read += values.len() as u64;
        }
    }
    Ok(read)
}

#[test]
fn files_pass_the_read_suite() {
    // Sources of virtual datasets are opened while a request is planned, not in rounds, which a rule of the suite demands.
    for name in FILES.into_iter().filter(|name| *name != "virtual.h5") {
        let fixture = Fixture::new(memory(&fixture(name)), 7);
        read_suite(&Hdf5Format, &fixture).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}

#[test]
fn netcdf_dimensions_and_attributes_are_those_of_the_model() {
    let container = open(&fixture("netcdf4.nc")).unwrap();
    let names: Vec<&str> = (0..container.len()).map(|i| container.name(i)).collect();
    assert_eq!(names, ["time", "air", "short", "names", "kind", "inner/y"]);
    assert_eq!(container.attributes()["title"], Value::from("a fixture"));
    assert_eq!(container.groups().keys().collect::<Vec<_>>(), ["inner"]);
    let (air, chunks) = plan(&*container, "air");
    let schema = air.schema();
    assert_eq!(schema.dims.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["time", "x"]);
    assert_eq!(schema.fields[0].missing, [Scalar::from_element(-999_i16)]);
    assert_eq!(schema.attributes["scale_factor"], Value::from(Scalar::from_element(0.1_f32)));
    assert!(!schema.attributes.contains_key("DIMENSION_LIST"));
    assert_eq!((chunks.len(), chunks[1].tile.is_some()), (2, true));
    // The variable has one record, its dimension three: the others are fill values.
    let (short, _) = plan(&*container, "short");
    assert_eq!(short.schema().dims[0].extent, Some(3));
    assert_eq!(container.array(3).unwrap().schema().fields[0].dtype, DType::Char);
    assert_eq!(container.array(4).unwrap().schema().attributes["flag_meanings"], Value::from("low high"));
    let names: Vec<String> =
        container.details()["dimensions"].as_array().unwrap().iter().map(|d| d["name"].to_string()).collect();
    assert_eq!(names, ["\"time\"", "\"x\""]);
}

/// Cells of a box of an array, painted chunk by chunk.
fn cells(container: &dyn ContainerSource, name: &str, selection: Selection) -> Vec<u8> {
    let array = container.array(container.find(name).unwrap()).unwrap();
    let size = array.schema().fields[0].cell_size().unwrap();
    let (window, request) = (selection.bounds(), Request::cells(selection, 0));
    let mut plan = tesseral_format::plan(&*array, container.store(), &request).unwrap().chunks;
    plan.sort_by_key(|chunk| chunk.layer);
    let mut out = vec![0xee; usize::try_from(window.cells().unwrap()).unwrap() * size];
    for chunk in &plan {
        let part = |part: &tesseral_format::Part| {
            container.store().read(&array.object(part.object), part.offset..part.offset + part.len).unwrap()
        };
        let parts: Vec<_> = chunk.parts.iter().map(part).collect();
        let mut values = vec![0; usize::try_from(chunk.cells).unwrap() * size];
        let to = ColumnMut::Fixed { values: &mut values, validity: None };
        array.decode(chunk, request.columns[0], &parts, 0..chunk.cells, to, &mut Scratch::default()).unwrap();
        let (tile, cover) = (chunk.tile_region().unwrap(), chunk.cover.region().unwrap());
        for y in cover.start(0).max(window.start(0))..cover.end(0).min(window.end(0)) {
            for x in cover.start(1).max(window.start(1))..cover.end(1).min(window.end(1)) {
                let from = ((y - tile.start(0)) * tile.extent(1) + x - tile.start(1)) as usize * size;
                let to = ((y - window.start(0)) * window.extent(1) + x - window.start(1)) as usize * size;
                out[to..to + size].copy_from_slice(&values[from..from + size]);
            }
        }
    }
    out
}

fn words<T, const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|word| number(*word)).collect()
}

#[test]
fn virtual_datasets_are_boxes_of_their_sources() {
    let container = open(&fixture("virtual.h5")).unwrap();
    let all = |shape: &[u64]| Selection::all(shape);
    let beside = words(&cells(&*container, "beside", all(&[4, 8])), i32::from_ne_bytes);
    #[rustfmt::skip]
    assert_eq!(beside, [
        0, 1, 2, 3, -1, -1, -1, -1,
        4, 5, 6, 7, -1, 1, 2, 3,
        8, 9, 10, 11, -1, 5, 6, 7,
        -1, -1, -1, -1, -1, 9, 10, 11,
    ]);
    let elsewhere = words(&cells(&*container, "elsewhere", all(&[6, 10])), f32::from_ne_bytes);
    for (at, value) in elsewhere.iter().enumerate() {
        let (row, column) = (at / 10, at % 10);
        let source = ((3 + row / 2) * 10 + column) * 7 % 31;
        assert_eq!(*value, if row % 2 == 0 { source as f32 } else { 2.5 }, "{row} {column}");
    }
    // Parts of chunks, and steps.
    let window = Selection::from_region(&Region::new([(1, 5), (2, 9)]));
    let part = words(&cells(&*container, "elsewhere", window), f32::from_ne_bytes);
    let expected: Vec<f32> = (1..5).flat_map(|row| elsewhere[row * 10 + 2..row * 10 + 9].to_vec()).collect();
    assert_eq!(part, expected);
    let raw = words(&cells(&*container, "raw", all(&[4, 3])), i16::from_ne_bytes);
    let bytes: Vec<u8> = (1..25).collect();
    assert_eq!(raw, words(&bytes, i16::from_be_bytes));
    assert!(container.unread().iter().any(|line| line.contains("absent.h5")), "{:?}", container.unread());
}

/// Without its file, a source is fill values, and a raw file an error; both only where they are needed.
#[test]
fn sources_that_do_not_exist_are_fill_values_or_errors() {
    let bytes = fixture("virtual.h5");
    let alone: Arc<dyn Store> = Arc::new(MemoryStore::with_object("folder/cells.h5", bytes.clone()));
    let container = Hdf5Format.open(Arc::clone(&alone), &OpenOptions::default()).unwrap();
    let elsewhere = words(&cells(&*container, "elsewhere", Selection::all(&[6, 10])), f32::from_ne_bytes);
    assert!(elsewhere.iter().all(|value| *value == 2.5));
    let (array, chunks) = plan(&*container, "raw");
    assert!(container.store().len(&array.object(chunks[0].parts[0].object)).is_err());
    let strict = Hdf5Format.open(alone, &OpenOptions { strict: true, ..OpenOptions::default() }).unwrap();
    let array = strict.array(strict.find("elsewhere").unwrap()).unwrap();
    let request = Request::cells(Selection::all(&[6, 10]), 0);
    let error = tesseral_format::plan(&*array, strict.store(), &request).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound { .. }), "{error}");
}

#[test]
fn both_generations_of_structures_hold_the_same_cells() {
    let (old, new) = (fixture("earliest.h5"), fixture("latest.h5"));
    let names = |bytes: &[u8]| -> Vec<String> {
        let container = open(bytes).unwrap();
        (0..container.len()).map(|i| container.name(i).to_owned()).collect()
    };
    assert_eq!(names(&old), names(&new));
    assert_eq!(read_all(&old).unwrap(), read_all(&new).unwrap());
}

/// A file that ends early is rejected as a whole, as by the reference.
#[test]
fn truncated_files_are_rejected() {
    for name in FILES {
        let whole = fixture(name);
        assert!(read_all(&whole).is_ok());
        for len in (0..whole.len()).step_by(7).chain(whole.len() - 9..whole.len()) {
            let error = open(&whole[..len]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{name} {len}: {error}");
        }
    }
}

/// Flipped bits give an error or other cells, never a panic, and never much work.
#[test]
fn flipped_bits_never_panic() {
    for name in FILES {
        let whole = fixture(name);
        let step = (whole.len() / 1500).max(1);
        for at in (0..whole.len()).step_by(step) {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let _ = read_all(&damaged);
            }
        }
    }
}

/// A dataset whose shape declares 2^40 cells, none of which is written, is opened and rejected without work.
#[test]
fn claimed_shapes_are_limited() {
    let mut file = fixture("earliest.h5");
    let dims: Vec<u8> = [3_u64, 4].iter().flat_map(|n| n.to_le_bytes()).collect();
    let at = file.windows(16).position(|window| window == dims).unwrap();
    let huge: Vec<u8> = [1_u64 << 20, 1 << 20].iter().flat_map(|n| n.to_le_bytes()).collect();
    file[at..at + 16].copy_from_slice(&huge);
    let container = open(&file).unwrap();
    let array = container.array(container.find("unwritten").unwrap()).unwrap();
    let request = |n: u64| Request::cells(Selection::all(&[n, n]), 0);
    let error = tesseral_format::plan(&*array, container.store(), &request(1 << 20)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}

fn spec(name: &str, dtype: DType, shape: &[u64], chunk: &[u64], codecs: &[&str]) -> ArraySpec {
    let mut spec = ArraySpec::raw(ArraySchema::dense(name, dtype, shape, chunk));
    spec.codecs[0].extend(codecs.iter().map(|name| CodecSpec::new(*name)));
    for (number, dim) in spec.schema.dims.iter_mut().enumerate() {
        dim.name = format!("{name}_{number}").replace('/', "_");
    }
    spec
}

/// Contiguous and chunked, with filters and without, scalars, text, no cells, unlimited and unnamed dimensions, groups.
fn specs() -> Vec<ArraySpec> {
    let mut text = spec("texts", DType::Utf8, &[5], &[3], &["gzip"]);
    text.schema.fields[0].cell = CellLen::Var;
    let mut unnamed = spec("unnamed", DType::Int8, &[3, 2], &[3, 2], &[]);
    unnamed.schema.dims[0].name.clear();
    vec![
        spec("a", DType::Float32, &[5, 3], &[3, 2], &["gzip"]),
        spec("grows", DType::Int16, &[70, 3], &[1, 2], &["shuffle", "deflate", "fletcher32"]),
        spec("empty", DType::Float64, &[0, 4], &[1, 4], &[]),
        unnamed,
        text,
        spec("g/raw", DType::Float64, &[5, 4], &[5, 4], &[]),
        spec("g/h/scalar", DType::UInt64, &[], &[], &["gzip"]),
    ]
}

#[test]
fn written_files_pass_the_suites() {
    let options = NetCdf4Options { unlimited: vec!["grows_0".to_owned()] };
    let options = CreateOptions { format: FormatOptions::new(options), ..CreateOptions::default() };
    let case = WriteCase { options, ..WriteCase::new(specs(), 17) };
    write_suite(&Hdf5Format, &case).unwrap_or_else(|violation| panic!("{violation}"));
}

/// A dimension has one length in its group; a group around it can have another.
#[test]
fn dimensions_are_those_of_groups() {
    let dims = |name: &str, extent: u64| {
        let mut spec = spec(name, DType::Int8, &[extent], &[extent], &[]);
        spec.schema.dims[0].name = "x".to_owned();
        spec
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("a.nc"));
    let mut writer = Hdf5Format.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
    for (name, extent) in [("b", 3), ("g/x", 4), ("g/c", 4), ("h/d", 3), ("h/i/e", 5)] {
        let number = writer.begin(&dims(name, extent)).unwrap();
        let cells: Vec<u8> = (0..extent).map(|n| n as u8).collect();
        let column = ColumnData::Fixed { values: &cells, validity: None };
        let chunk = writer.encode(number, &[0], &[column], Vec::new(), &mut Scratch::default()).unwrap();
        writer.push(number, chunk).unwrap();
    }
    assert!(matches!(writer.begin(&dims("a", 4)).unwrap_err().kind(), ErrorKind::Unsupported { .. }));
    writer.commit().unwrap();
    let container = Hdf5Format.open(store, &OpenOptions::default()).unwrap();
    let found = container.details()["dimensions"].clone();
    let found: Vec<(&str, u64)> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|dim| (dim["name"].as_str().unwrap(), dim["length"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("x", 3), ("g/x", 4), ("h/i/x", 5)]);
    for index in 0..container.len() {
        assert_eq!(container.array(index).unwrap().schema().dims[0].name, "x");
    }
}

#[test]
fn what_netcdf_lacks_is_rejected_when_it_is_declared() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("a.nc"));
    let mut writer = Hdf5Format.create(store, &CreateOptions::default()).unwrap();
    let mut nullable = spec("a", DType::Int8, &[3], &[3], &[]);
    nullable.schema.fields[0].nullable = true;
    let rejected = [
        nullable,
        spec("a", DType::Float16, &[3], &[3], &[]),
        spec("a", DType::Int8, &[3], &[3], &["zstd"]),
        spec("a", DType::Float64, &[1 << 31, 4], &[1 << 30, 1], &[]),
        spec("_nc4_non_coord_a", DType::Int8, &[3], &[3], &[]),
        spec("a//b", DType::Int8, &[3], &[3], &[]),
    ];
    for spec in rejected {
        let error = writer.begin(&spec).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
}

/// Truncated and damaged files that we wrote are rejected or read without a panic.
#[test]
fn damaged_files_of_our_own_never_panic() {
    let store = MemoryStore::new("folder/cells.h5");
    let store: Arc<dyn Store> = Arc::new(store);
    let mut writer = Hdf5Format.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
    let number = writer.begin(&spec("a", DType::Int16, &[70, 2], &[1, 2], &["gzip"])).unwrap();
    for row in 0..70 {
        let column = ColumnData::Fixed { values: &[1, 2, 3, row as u8], validity: None };
        let coords = [row, 0];
        let chunk = writer.encode(number, &coords, &[column], Vec::new(), &mut Scratch::default()).unwrap();
        writer.push(number, chunk).unwrap();
    }
    writer.commit().unwrap();
    let whole = store.read("", 0..store.len("").unwrap()).unwrap();
    assert_eq!(read_all(&whole).unwrap(), 280);
    for len in (0..whole.len()).step_by(61) {
        assert!(open(&whole[..len]).is_err(), "{len}");
    }
    for at in (0..whole.len()).step_by(11) {
        let mut damaged = whole.to_vec();
        damaged[at] ^= 0x41;
        let _ = read_all(&damaged);
    }
}
