//! The conformance suite on files of every version and layout, damaged and truncated files, and the schema of a file.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_conformance::{Fixture, WriteCase, read_suite, write_suite};
use tesseral_core::{
    ArraySchema, Attributes, DType, ErrorKind, HistoryRow, Result, Scalar, Selection, Value,
};
use tesseral_format::{
    Access, ArraySpec, ColumnData, ContainerSource, CreateOptions, Format, OpenOptions, Request, Scratch,
};
use tesseral_netcdf3::NetCdf3Format;
use tesseral_store::{MemoryStore, Store};

/// A variable of a file: name, dimension numbers and type number.
type Declared<'a> = (&'a str, &'a [u64], u32);

const SIZES: [usize; 12] = [0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8];

/// Builds files. Cell bytes count up.
struct Builder {
    version: u8,
    bytes: Vec<u8>,
}

impl Builder {
    fn word(&mut self, word: u32) {
        self.bytes.extend(word.to_be_bytes());
    }

    fn count(&mut self, count: u64) {
        match self.version {
            5 => self.bytes.extend(count.to_be_bytes()),
            _ => self.word(u32::try_from(count).unwrap()),
        }
    }

    fn name(&mut self, name: &str) {
        self.count(name.len() as u64);
        self.bytes.extend(name.as_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn fill_attribute(&mut self) {
        self.word(12);
        self.count(1);
        self.name("_FillValue");
        self.word(3);
        self.count(1);
        self.word(9 << 16);
    }

    fn header(&mut self, records: u64, dims: &[(&str, u64)], variables: &[Declared<'_>], begins: &[u64]) {
        self.bytes = vec![b'C', b'D', b'F', self.version];
        self.count(records);
        self.word(10);
        self.count(dims.len() as u64);
        for (name, len) in dims {
            self.name(name);
            self.count(*len);
        }
        self.fill_attribute();
        self.word(11);
        self.count(variables.len() as u64);
        for ((name, own, dtype), begin) in variables.iter().zip(begins) {
            self.name(name);
            self.count(own.len() as u64);
            own.iter().for_each(|dim| self.count(*dim));
            self.fill_attribute();
            self.word(*dtype);
            self.count(4);
            match self.version {
                1 => self.word(u32::try_from(*begin).unwrap()),
                _ => self.bytes.extend(begin.to_be_bytes()),
            }
        }
    }
}

fn file(version: u8, records: u64, dims: &[(&str, u64)], variables: &[Declared<'_>]) -> Vec<u8> {
    let mut builder = Builder { version, bytes: Vec::new() };
    builder.header(records, dims, variables, &vec![0; variables.len()]);
    let mut at = builder.bytes.len() as u64;
    let slab = |(_, own, dtype): &Declared<'_>| {
        let cells: u64 = own.iter().map(|dim| dims[*dim as usize].1.max(1)).product();
        cells * SIZES[*dtype as usize] as u64
    };
    let is_record = |(_, own, _): &Declared<'_>| own.first().is_some_and(|dim| dims[*dim as usize].1 == 0);
    let single = variables.iter().filter(|variable| is_record(variable)).count() == 1;
    let padded =
        |v: &Declared<'_>| if single && is_record(v) { slab(v) } else { slab(v).next_multiple_of(4) };
    let mut begins = vec![0; variables.len()];
    for record in [false, true] {
        for (variable, begin) in variables.iter().zip(&mut begins).filter(|(v, _)| is_record(v) == record) {
            *begin = at;
            at += padded(variable);
        }
    }
    let record: u64 = variables.iter().filter(|v| is_record(v)).map(padded).sum();
    let end = at + record * records.saturating_sub(1);
    builder.header(records, dims, variables, &begins);
    let head = builder.bytes.len() as u64;
    builder.bytes.extend((head..end).map(|n| n as u8));
    builder.bytes
}

fn memory(bytes: Vec<u8>) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("folder/cells.nc", bytes))
}

fn open(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    NetCdf3Format.open(memory(bytes.to_vec()), &OpenOptions::default())
}

const DIMS: [(&str, u64); 3] = [("time", 0), ("y", 3), ("x", 5)];

#[test]
fn files_pass_the_read_suite() {
    let many: [Declared<'_>; 6] = [
        ("a", &[0, 1], 3),
        ("time", &[0], 6),
        ("y", &[1], 4),
        ("b", &[0, 2], 1),
        ("s", &[], 5),
        ("c", &[1, 2], 2),
    ];
    for version in [1, 2, 5] {
        for (records, variables) in
            [(0, &many[..]), (4, &many), (7, &many[..1]), (7, &many[2..3]), (3, &many[3..4])]
        {
            let fixture = Fixture::new(memory(file(version, records, &DIMS, variables)), 7);
            read_suite(&NetCdf3Format, &fixture)
                .unwrap_or_else(|violation| panic!("{version} {records} {}: {violation}", variables.len()));
        }
    }
    let wide: Vec<Declared<'_>> =
        (7..12).map(|dtype| (["a", "b", "c", "d", "e"][dtype - 7], &[0, 2][..], dtype as u32)).collect();
    let fixture = Fixture::new(memory(file(5, 3, &DIMS, &wide)), 7);
    read_suite(&NetCdf3Format, &fixture).unwrap();
}

#[test]
fn headers_determine_the_schema() {
    let container = open(&file(2, 4, &DIMS, &[("t", &[0, 1, 2], 3), ("n", &[0], 6), ("s", &[], 2)])).unwrap();
    assert_eq!((0..3).map(|i| container.name(i)).collect::<Vec<_>>(), ["t", "n", "s"]);
    assert_eq!(container.attributes()["_FillValue"], Value::from(Scalar::from_element(9_i16)));
    let array = container.array(0).unwrap();
    let schema = array.schema();
    let dims: Vec<(&str, Option<u64>)> = schema.dims.iter().map(|d| (d.name.as_str(), d.extent)).collect();
    assert_eq!(dims, [("time", Some(4)), ("y", Some(3)), ("x", Some(5))]);
    assert_eq!(
        (schema.fields[0].dtype, &schema.fields[0].missing[..]),
        (DType::Int16, &[Scalar::from_element(9_i16)][..])
    );
    assert_eq!(container.array(2).unwrap().schema().fields[0].dtype, DType::Char);
    assert_eq!(container.details()["dimensions"][0]["unlimited"], true);
}

/// Large records are separate chunks that can be used in place, small ones are grouped.
#[test]
fn records_are_grouped_by_size() {
    let dims = [("time", 0), ("x", 9), ("y", 40_000)];
    let bytes = file(1, 6, &dims, &[("small", &[0, 1], 4), ("large", &[0, 2], 4)]);
    let container = open(&bytes).unwrap();
    let plan = |index: usize, shape: &[u64]| {
        tesseral_format::plan(
            &*container.array(index).unwrap(),
            container.store(),
            &Request::cells(Selection::all(shape), 0),
        )
        .unwrap()
    };
    let small = plan(0, &[6, 9]);
    assert_eq!((small.chunks.len(), small.chunks[0].parts.len()), (1, 6));
    let large = plan(1, &[6, 40_000]);
    assert_eq!(large.chunks.len(), 6);
    assert!(large.chunks.iter().all(|chunk| matches!(chunk.access, Access::Direct { .. })));
}

#[test]
fn streamed_files_have_the_records_that_fit() {
    let mut bytes = file(1, 4, &DIMS, &[("a", &[0, 1], 3), ("n", &[0], 6)]);
    bytes[4..8].fill(0xff);
    let container = open(&bytes).unwrap();
    assert_eq!(container.array(0).unwrap().schema().dims[0].extent, Some(4));
}

/// Every prefix is an error at open, or reads exactly what the whole file reads, or is an error when it is read.
#[test]
fn truncated_files_are_rejected() {
    let whole = file(1, 3, &DIMS, &[("a", &[0, 1], 3), ("time", &[0], 6), ("c", &[1, 2], 2)]);
    let container = open(&whole).unwrap();
    let shapes: [&[u64]; 3] = [&[3, 3], &[3], &[3, 5]];
    for len in 0..whole.len() {
        let Ok(shorter) = open(&whole[..len]) else { continue };
        let mut failed = 0;
        for (index, shape) in shapes.iter().enumerate() {
            let request = Request::cells(Selection::all(shape), 0);
            match tesseral_format::plan(&*shorter.array(index).unwrap(), shorter.store(), &request) {
                Ok(plan) => assert_eq!(
                    plan,
                    tesseral_format::plan(&*container.array(index).unwrap(), container.store(), &request)
                        .unwrap()
                ),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{len}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 0, "{len}");
    }
}

/// A few bytes that declare 2^60 cells are rejected without work.
#[test]
fn declared_sizes_are_not_trusted() {
    let mut builder = Builder { version: 5, bytes: Vec::new() };
    let dims = [("time", 0), ("x", 1 << 30), ("y", 1 << 30)];
    for (records, variable) in
        [(1 << 60, ("a", &[0_u64][..], 6)), (0, ("b", &[1, 2], 6)), (u64::MAX, ("c", &[0, 1], 1))]
    {
        builder.header(records, &dims, &[variable], &[64]);
        let opened = open(&builder.bytes);
        let shape: Vec<u64> = match &opened {
            Ok(container) => container.array(0).unwrap().schema().shape().unwrap().to_vec(),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
                continue;
            }
        };
        if shape.contains(&0) {
            continue;
        }
        let container = opened.unwrap();
        let array = container.array(0).unwrap();
        let error =
            tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&shape), 0))
                .unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. } | ErrorKind::Limit { .. }), "{error}");
    }
}

/// Flipped bytes and arbitrary words never panic.
#[test]
fn damaged_headers_never_panic() {
    let whole = file(2, 3, &DIMS, &[("a", &[0, 1], 3), ("time", &[0], 6), ("c", &[1, 2], 2)]);
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            let Ok(container) = open(&damaged) else { continue };
            for index in 0..container.len() {
                let array = container.array(index).unwrap();
                let shape = array.schema().shape().unwrap();
                let _ = tesseral_format::plan(
                    &*array,
                    container.store(),
                    &Request::cells(Selection::all(&shape), 0),
                );
            }
        }
    }
}

fn written(name: &str, dtype: DType, shape: &[u64], chunk: &[u64], dims: &[&str]) -> ArraySpec {
    let mut schema = ArraySchema::dense(name, dtype, shape, chunk);
    for (dim, name) in schema.dims.iter_mut().zip(dims) {
        (*name).clone_into(&mut dim.name);
    }
    ArraySpec::raw(schema)
}

fn kind(kind: &str, unlimited: &str) -> CreateOptions {
    let mut given = Attributes::new();
    given.insert("kind".to_owned(), Value::from(kind));
    if !unlimited.is_empty() {
        given.insert("unlimited".to_owned(), Value::from(unlimited));
    }
    let format = NetCdf3Format.create_options().parse(&given).unwrap();
    CreateOptions { format, ..CreateOptions::default() }
}

#[test]
fn written_files_pass_the_suites() {
    let classic = || {
        vec![
            written("t", DType::Int16, &[7, 3], &[2, 3], &["time", "x"]),
            // Chunks that are not consecutive.
            written("u", DType::Float64, &[7, 3, 5], &[3, 2, 2], &["time", "x", "y"]),
            written("v", DType::Char, &[5, 3], &[5, 1], &["y", "x"]),
            written("w", DType::Int8, &[5], &[3], &["y"]),
        ]
    };
    let mut wide = classic();
    wide.push(written("n", DType::UInt64, &[7, 3], &[1, 2], &["time", "x"]));
    wide.push(written("b", DType::UInt8, &[3], &[2], &["x"]));
    for (specs, name) in [(classic(), "classic"), (classic(), "offset64"), (wide, "data64")] {
        for unlimited in ["", "time"] {
            let case = WriteCase { options: kind(name, unlimited), ..WriteCase::new(specs.clone(), 3) };
            let done = write_suite(&NetCdf3Format, &case);
            done.unwrap_or_else(|violation| panic!("{name} {unlimited:?}: {violation}"));
        }
    }
    // The records of a single variable are not padded.
    let single = vec![written("t", DType::Int8, &[7, 3], &[2, 2], &["time", "x"])];
    let case = WriteCase { options: kind("auto", "time"), ..WriteCase::new(single, 4) };
    write_suite(&NetCdf3Format, &case).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn what_a_kind_lacks_is_rejected_before_the_first_chunk() {
    let begin = |options: &CreateOptions, spec: &ArraySpec| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.nc"));
        NetCdf3Format.create(store, options).unwrap().begin(spec).map_err(|e| e.to_string())
    };
    let large = 1 << 31;
    for (name, spec, opens) in [
        ("classic", written("n", DType::UInt8, &[2], &[2], &["x"]), false),
        ("auto", written("n", DType::UInt8, &[2], &[2], &["x"]), true),
        ("classic", written("n", DType::Float64, &[large], &[1 << 20], &["x"]), false),
        ("offset64", written("n", DType::Float64, &[large], &[1 << 20], &["x"]), false),
        ("auto", written("n", DType::Float64, &[large], &[1 << 20], &["x"]), true),
        ("auto", written("a/b", DType::Int8, &[2], &[2], &["x"]), false),
        ("auto", written("n", DType::Complex64, &[2], &[2], &["x"]), false),
    ] {
        assert_eq!(begin(&kind(name, ""), &spec).is_ok(), opens, "{name} {}", spec.schema.name);
    }
    let second = written("n", DType::Int8, &[2, 2], &[2, 2], &["x", "time"]);
    assert!(begin(&kind("auto", "time"), &second).unwrap_err().contains("time"));
}

#[test]
fn history_is_between_header_and_cells() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.nc"));
    let mut writer = NetCdf3Format.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
    let number = writer.begin(&written("n", DType::Int8, &[2], &[2], &["x"])).unwrap();
    let row = HistoryRow { op: "convert".to_owned(), source: "a source".to_owned(), ..HistoryRow::default() };
    writer.add_history(row.clone()).unwrap();
    let column = ColumnData::Fixed { values: &[1, 2], validity: None };
    let chunk = writer.encode(number, &[0], &[column], Vec::new(), &mut Scratch::default()).unwrap();
    writer.push(number, chunk).unwrap();
    assert!(writer.add_history(row.clone()).is_err());
    writer.commit().unwrap();
    let container = NetCdf3Format.open(store, &OpenOptions::default()).unwrap();
    assert_eq!(container.history(), [row]);
}
