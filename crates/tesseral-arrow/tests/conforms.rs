//! The conformance suite on tables of every type, and damaged, truncated and mutated ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_arrow::ArrowFormat;
use tesseral_conformance::testing::tables::{
    TABLE_CELLS, column, damage_table, decode_table, open_table, table,
};
use tesseral_conformance::{WriteCase, write_suite};
use tesseral_core::{ArraySchema, CellLen, DType, ErrorKind, TimeUnit};
use tesseral_format::{ArraySpec, CodecSpec, ColumnData, CreateOptions, Format, Scratch};
use tesseral_store::{MemoryStore, Store, StoreExt};

/// Columns of one table have one codec.
fn specs(codec: &str) -> Vec<ArraySpec> {
    let (one, var) = (CellLen::One, CellLen::Var);
    let spec = |name: &str, dtype, cell, nullable| column(name, dtype, cell, nullable, codec);
    vec![
        spec("bool", DType::Bool, one, false),
        spec("flag", DType::Bool, one, true),
        spec("i8", DType::Int8, one, true),
        spec("u16", DType::UInt16, one, false),
        spec("u32", DType::UInt32, one, true),
        spec("i64", DType::Int64, one, false),
        spec("u64", DType::UInt64, one, false),
        spec("half", DType::Float16, one, true),
        spec("float", DType::Float32, one, true),
        spec("double", DType::Float64, one, false),
        spec("complex", DType::Complex64, one, true),
        spec("pair", DType::Complex128, CellLen::Fixed(2), false),
        spec("triple", DType::Float32, CellLen::Fixed(3), false),
        spec("list", DType::Int16, var, true),
        spec("time", DType::DateTime(TimeUnit::Microsecond), one, true),
        spec("text", DType::Utf8, var, true),
        spec("ascii", DType::Ascii, var, false),
        spec("blob", DType::Bytes, var, false),
        spec("fixed", DType::Bytes, CellLen::Fixed(5), true),
        spec("chars", DType::Char, CellLen::Fixed(2), false),
    ]
}

#[test]
fn written_tables_pass_the_suites() {
    for codec in ["", "lz4", "zstd"] {
        for (n, spec) in specs(codec).into_iter().enumerate() {
            let name = spec.schema.name.clone();
            let case = WriteCase::new(vec![spec], n as u64);
            write_suite(&ArrowFormat, &case)
                .unwrap_or_else(|violation| panic!("{name} {codec}: {violation}"));
        }
        write_suite(&ArrowFormat, &WriteCase::new(specs(codec), 5))
            .unwrap_or_else(|violation| panic!("{codec}: {violation}"));
    }
}

#[test]
fn every_truncation_is_an_error() {
    let whole = table(&ArrowFormat, ["", ""]).unwrap();
    assert_eq!(decode_table(&ArrowFormat, &whole).unwrap(), TABLE_CELLS);
    for len in 0..whole.len() {
        let error = open_table(&ArrowFormat, &whole[..len]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{len}: {error}");
    }
}

/// The parsers below are a dependency: every byte takes other values, in metadata and buffers.
#[test]
fn mutations_do_not_panic() {
    for codecs in [["", ""], ["lz4", "lz4"], ["zstd", "zstd"]] {
        let errors = damage_table(&ArrowFormat, &table(&ArrowFormat, codecs).unwrap());
        assert!(errors > 500, "{errors}");
    }
}

#[test]
fn what_no_table_holds_is_rejected() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("t.arrow"));
    let mut writer = ArrowFormat.create(store, &CreateOptions::default()).unwrap();
    writer.begin(&column("a", DType::Int32, CellLen::One, false, "")).unwrap();
    let matrix = ArraySpec::raw(ArraySchema::dense("m", DType::Int32, &[2, 2], &[2, 2]));
    let longer = ArraySpec::raw(ArraySchema::dense("b", DType::Int32, &[24], &[9]));
    let chunks = ArraySpec::raw(ArraySchema::dense("c", DType::Int32, &[23], &[8]));
    let complex = ArraySpec::raw(ArraySchema::dense("d", DType::BFloat16, &[23], &[9]));
    let codec = column("e", DType::Int32, CellLen::One, false, "bzip2");
    for refused in [matrix, longer, chunks, complex, codec] {
        let error = writer.begin(&refused).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
}

/// Offsets of empty texts compress to nothing, and take memory for each of them.
#[test]
fn millions_of_empty_texts_are_bounded() {
    let written = |rows: usize| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("table"));
        let mut writer = ArrowFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
        let extent = rows as u64;
        let mut schema = ArraySchema::dense("t", DType::Utf8, &[extent], &[extent]);
        schema.fields[0].cell = CellLen::Var;
        let spec = ArraySpec { codecs: vec![vec![CodecSpec::new("zstd")]], ..ArraySpec::raw(schema) };
        let id = writer.begin(&spec).unwrap();
        let cells = ColumnData::Var { offsets: &vec![0; rows], data: &[], validity: None };
        let chunk = writer.encode(id, &[0], &[cells], Vec::new(), &mut Scratch::default()).unwrap();
        writer.push(id, chunk).unwrap();
        writer.commit().unwrap();
        store.read_all("", u64::MAX).unwrap().to_vec()
    };
    assert!(decode_table(&ArrowFormat, &written(1 << 20)).is_ok());
    let file = written(2 << 20);
    assert!(file.len() < 1 << 20);
    let error = decode_table(&ArrowFormat, &file).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}
