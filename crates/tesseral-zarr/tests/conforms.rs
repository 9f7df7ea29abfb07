//! The conformance suite on written hierarchies of both versions and on crafted ones.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{memory, v2, v3};
use serde_json::json;
use tesseral_conformance::{Fixture, WriteCase, read_suite, write_suite};
use tesseral_core::{ArraySchema, CellLen, DType, Order};
use tesseral_format::{ArraySpec, CodecSpec, CreateOptions, Format, FormatOptions, OpenOptions};
use tesseral_store::{MemoryStore, Store};
use tesseral_zarr::{ZarrFormat, ZarrOptions};

fn spec(name: &str, dtype: DType, shape: &[u64], chunk: &[u64], codec: Option<&str>) -> ArraySpec {
    let mut spec = ArraySpec::raw(ArraySchema::dense(name, dtype, shape, chunk));
    spec.codecs[0].extend(codec.map(CodecSpec::new));
    spec
}

fn specs() -> Vec<ArraySpec> {
    let mut text = spec("texts", DType::Utf8, &[5], &[3], Some("zstd"));
    text.schema.fields[0].cell = CellLen::Var;
    let mut columns = spec("columns", DType::Int16, &[5, 4], &[2, 3], Some("zstd"));
    columns.schema.cell_order = Order::ColMajor;
    vec![
        spec("a", DType::Float32, &[5, 3], &[3, 2], Some("zstd")),
        spec("g/h/scalar", DType::Complex64, &[], &[], Some("gzip")),
        text,
        columns,
    ]
}

#[test]
fn written_hierarchies_pass_the_suites() {
    let shards = Some("4,4".parse().unwrap());
    for (version, digests, shards) in [(3, true, None), (3, false, shards), (2, true, None)] {
        let format = FormatOptions::new(ZarrOptions { version, shards });
        let options = CreateOptions { digests, format, ..CreateOptions::default() };
        let case = WriteCase { options, traceless: false, ..WriteCase::new(specs(), 11 + version) };
        write_suite(&ZarrFormat, &case).unwrap_or_else(|violation| panic!("version {version}: {violation}"));
    }
}

/// Absent chunks, shards with unwritten chunks, byte orders, orders of axes, filters.
#[test]
fn crafted_hierarchies_pass_the_read_suite() {
    let cells: Vec<u8> = (0..48).collect();
    let bytes = json!([{"name": "bytes", "configuration": {"endian": "big"}}]);
    let entry = |offset: u64, len: u64| [offset.to_le_bytes(), len.to_le_bytes()].concat();
    let absent = entry(u64::MAX, u64::MAX);
    let index = [entry(0, 8), absent.clone(), absent, entry(8, 8)].concat();
    let shard = [&cells[..16], &index].concat();
    let sharded = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 2], "codecs": [{"name": "bytes"}],
        "index_codecs": [{"name": "bytes"}]}}]);
    let transposed = json!([{"name": "transpose", "configuration": {"order": [1, 0, 2]}}, {"name": "bytes"}]);
    let delta = json!({"filters": [{"id": "delta", "dtype": "<i2"}, {"id": "shuffle", "elementsize": 2}]});
    let cases: Vec<(&str, Arc<dyn Store>)> = vec![
        (
            "big",
            memory(&[("zarr.json", v3("int16", &[5, 4], &[3, 4], &bytes)), ("c/0/0", cells[..24].to_vec())]),
        ),
        ("sharded", memory(&[("zarr.json", v3("uint16", &[5, 4], &[4, 4], &sharded)), ("c/0/0", shard)])),
        (
            "transposed",
            memory(&[
                ("zarr.json", v3("int16", &[2, 3, 4], &[2, 3, 4], &transposed)),
                ("c/0/0/0", cells.clone()),
            ]),
        ),
        ("delta", memory(&[(".zarray", v2("<i2", &[7], &[4], &delta)), ("1", cells[..8].to_vec())])),
        (
            "unicode",
            memory(&[
                (".zarray", v2("<U2", &[3], &[2], &json!({}))),
                ("0", "a\0\0\0b\0\0\0\0\0\0\0\0\0\0\0".into()),
            ]),
        ),
        (
            "fortran",
            memory(&[(".zarray", v2(">f4", &[3, 4], &[3, 4], &json!({"order": "F"}))), ("0.0", cells)]),
        ),
        ("empty", memory(&[(".zarray", v2("<f8", &[0, 3], &[1, 3], &json!({})))])),
    ];
    for (name, store) in cases {
        read_suite(&ZarrFormat, &Fixture::new(store, 5))
            .unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}

#[test]
fn old_hierarchies_are_replaced_and_others_are_not() {
    let options = CreateOptions { overwrite: tesseral_store::Overwrite::Replace, ..CreateOptions::default() };
    let old = MemoryStore::new("x.zarr");
    old.insert(".zarray", v2("<i2", &[2], &[2], &json!({})));
    old.insert("0", vec![0; 4]);
    let old: Arc<dyn Store> = Arc::new(old);
    assert!(ZarrFormat.create(Arc::clone(&old), &CreateOptions::default()).is_err());
    ZarrFormat.create(Arc::clone(&old), &options).unwrap().commit().unwrap();
    assert_eq!(ZarrFormat.open(Arc::clone(&old), &OpenOptions::default()).unwrap().len(), 0);
    assert!(old.len("0").is_err());
    let other = MemoryStore::new("x.zarr");
    other.insert(".zgroup", br#"{"zarr_format": 2}"#.to_vec());
    other.insert("thesis.txt", vec![0; 4]);
    let other: Arc<dyn Store> = Arc::new(other);
    assert_eq!(ZarrFormat.foreign(Arc::clone(&other)).unwrap().as_deref(), Some("thesis.txt"));
    assert!(ZarrFormat.create(other, &options).is_err());
}
