//! The conformance suite on tables of every type, and damaged, truncated and mutated ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_conformance::testing::tables::{
    TABLE_CELLS, column, damage_table, decode_table, open_table, table,
};
use tesseral_conformance::{WriteCase, write_suite};
use tesseral_core::{ArraySchema, CellLen, DType, ErrorKind, TimeUnit};
use tesseral_format::{ArraySpec, CreateOptions, Format};
use tesseral_parquet::ParquetFormat;
use tesseral_store::{MemoryStore, Store};

fn specs() -> Vec<ArraySpec> {
    let (one, var) = (CellLen::One, CellLen::Var);
    vec![
        column("bool", DType::Bool, one, false, ""),
        column("i8", DType::Int8, one, true, "zstd"),
        column("u16", DType::UInt16, one, false, "snappy"),
        column("u32", DType::UInt32, one, true, "gzip"),
        column("i64", DType::Int64, one, false, "lz4"),
        column("u64", DType::UInt64, one, false, "zstd"),
        column("half", DType::Float16, one, true, ""),
        column("float", DType::Float32, one, true, "zstd"),
        column("double", DType::Float64, one, false, ""),
        column("time", DType::DateTime(TimeUnit::Microsecond), one, true, "zstd"),
        column("text", DType::Utf8, var, true, "zstd"),
        column("blob", DType::Bytes, var, false, "snappy"),
        column("fixed", DType::Bytes, CellLen::Fixed(5), true, ""),
    ]
}

#[test]
fn written_tables_pass_the_suites() {
    for (n, spec) in specs().into_iter().enumerate() {
        let name = spec.schema.name.clone();
        let case = WriteCase::new(vec![spec], n as u64);
        write_suite(&ParquetFormat, &case).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
    write_suite(&ParquetFormat, &WriteCase::new(specs(), 5))
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn every_truncation_is_an_error() {
    let whole = table(&ParquetFormat, ["snappy", "zstd"]).unwrap();
    assert_eq!(decode_table(&ParquetFormat, &whole).unwrap(), TABLE_CELLS);
    for len in 0..whole.len() {
        let error = open_table(&ParquetFormat, &whole[..len]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{len}: {error}");
    }
}

/// The parsers below are a dependency: every byte takes other values, in metadata and pages.
#[test]
fn mutations_do_not_panic() {
    let errors = damage_table(&ParquetFormat, &table(&ParquetFormat, ["snappy", "zstd"]).unwrap());
    assert!(errors > 500, "{errors}");
}

#[test]
fn what_no_table_holds_is_rejected() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("t.parquet"));
    let mut writer = ParquetFormat.create(store, &CreateOptions::default()).unwrap();
    writer.begin(&column("a", DType::Int32, CellLen::One, false, "")).unwrap();
    let matrix = ArraySpec::raw(ArraySchema::dense("m", DType::Int32, &[2, 2], &[2, 2]));
    let longer = ArraySpec::raw(ArraySchema::dense("b", DType::Int32, &[24], &[9]));
    let chunks = ArraySpec::raw(ArraySchema::dense("c", DType::Int32, &[23], &[8]));
    let complex = ArraySpec::raw(ArraySchema::dense("d", DType::Complex64, &[23], &[9]));
    let codec = column("e", DType::Int32, CellLen::One, false, "bzip2");
    for refused in [matrix, longer, chunks, complex, codec] {
        let error = writer.begin(&refused).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
}
