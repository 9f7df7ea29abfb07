//! The conformance suite on tables of every type, and damaged, truncated and mutated ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_arrow::ArrowFormat;
use tesseral_conformance::{WriteCase, write_suite};
use tesseral_core::{ArraySchema, CellLen, DType, ErrorKind, Result, Selection, TimeUnit};
use tesseral_format::{
    ArraySpec, CodecSpec, ColumnData, ColumnMut, ContainerSource, CreateOptions, Format, OpenOptions,
    Request, Scratch,
};
use tesseral_store::{MemoryStore, Store, StoreExt};

fn spec(name: &str, dtype: DType, cell: CellLen, nullable: bool, codec: &str) -> ArraySpec {
    let mut schema = ArraySchema::dense(name, dtype, &[23], &[9]);
    schema.dims[0].name = "row".to_owned();
    schema.fields[0].cell = cell;
    schema.fields[0].nullable = nullable;
    let codecs = if codec.is_empty() { Vec::new() } else { vec![CodecSpec::new(codec)] };
    ArraySpec { codecs: vec![codecs], ..ArraySpec::raw(schema) }
}

/// Columns of one table have one codec.
fn specs(codec: &str) -> Vec<ArraySpec> {
    let (one, var) = (CellLen::One, CellLen::Var);
    let spec = |name: &str, dtype, cell, nullable| spec(name, dtype, cell, nullable, codec);
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

/// A table of two columns, three row groups.
fn table(codec: &str) -> Vec<u8> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("t.arrow"));
    let mut writer = ArrowFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
    let number = spec("n", DType::Int32, CellLen::One, true, codec);
    let text = spec("t", DType::Utf8, CellLen::Var, false, codec);
    let ids = [writer.begin(&number).unwrap(), writer.begin(&text).unwrap()];
    for (chunk, rows) in [9_usize, 9, 5].into_iter().enumerate() {
        let values: Vec<u8> = (0..rows).flat_map(|row| (row as i32 % 3).to_ne_bytes()).collect();
        let valid: Vec<u8> = (0..rows).map(|row| u8::from(row % 4 != 0)).collect();
        let words: Vec<String> = (0..rows).map(|row| format!("word {}", row % 2)).collect();
        let mut end = 0;
        let ends: Vec<u64> = words
            .iter()
            .map(|word| {
                end += word.len() as u64;
                end
            })
            .collect();
        let data = words.concat();
        let columns = [
            ColumnData::Fixed { values: &values, validity: Some(&valid) },
            ColumnData::Var { offsets: &ends, data: data.as_bytes(), validity: None },
        ];
        for (id, column) in ids.iter().zip(columns) {
            let coords = [chunk as u64];
            let encoded =
                writer.encode(*id, &coords, &[column], Vec::new(), &mut Scratch::default()).unwrap();
            writer.push(*id, encoded).unwrap();
        }
    }
    writer.commit().unwrap();
    store.read_all("", 1 << 20).unwrap().to_vec()
}

fn open(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    let store = Arc::new(MemoryStore::with_object("t.arrow", bytes.to_vec()));
    ArrowFormat.open(store, &OpenOptions::default())
}

/// Decodes everything; errors are fine, panics are not.
fn exercise(bytes: &[u8]) -> Result<u64> {
    let container = open(bytes)?;
    let mut cells = 0;
    for number in 0..container.len() {
        let array = container.array(number)?;
        let request = Request::cells(Selection::all(&array.schema().shape().unwrap()), 0);
        let field = &array.schema().fields[0];
        for chunk in tesseral_format::plan(&*array, container.store(), &request)?.chunks {
            array.stats(&chunk, request.columns[0]);
            array.describe(&chunk);
            let mut stored = Vec::new();
            for part in &chunk.parts {
                stored.push(container.store().read("", part.offset..part.offset + part.len)?);
            }
            let count = usize::try_from(chunk.cells).unwrap();
            if count > 1 << 20 {
                continue;
            }
            let (mut valid, mut offsets) = (vec![0; count], Vec::new());
            let mut values = vec![0; count * field.cell_size().unwrap_or(0)];
            let validity = field.nullable.then_some(&mut valid[..]);
            let out = if field.cell == CellLen::Var {
                ColumnMut::Var { offsets: &mut offsets, data: &mut values, validity }
            } else {
                ColumnMut::Fixed { values: &mut values, validity }
            };
            array.decode(
                &chunk,
                request.columns[0],
                &stored,
                0..chunk.cells,
                out,
                &mut Scratch::default(),
            )?;
            cells += chunk.cells;
        }
    }
    Ok(cells)
}

#[test]
fn every_truncation_is_an_error() {
    let whole = table("");
    assert_eq!(exercise(&whole).unwrap(), 46);
    for len in 0..whole.len() {
        let error = open(&whole[..len]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{len}: {error}");
    }
}

/// The parsers below are a dependency: every byte takes other values, in metadata and in pages.
#[test]
fn mutations_do_not_panic() {
    let mut errors = 0;
    for codec in ["", "lz4", "zstd"] {
        errors += mutate(&table(codec));
    }
    assert!(errors > 1000, "{errors}");
}

/// Damages every byte, and returns how many errors there were.
fn mutate(whole: &[u8]) -> u64 {
    let mut state = 7_u64;
    let mut errors = 0;
    for at in 0..whole.len() {
        for step in 0..6_u8 {
            let mut damaged = whole.to_vec();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            damaged[at] = if step < 4 { whole[at] ^ (1 << (2 * step)) } else { (state >> 33) as u8 };
            if step == 5 {
                let other = usize::try_from((state >> 20) % whole.len() as u64).unwrap();
                damaged[other] = (state >> 41) as u8;
            }
            errors += u64::from(exercise(&damaged).is_err());
        }
    }
    errors
}

#[test]
fn what_no_table_holds_is_rejected() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("t.arrow"));
    let mut writer = ArrowFormat.create(store, &CreateOptions::default()).unwrap();
    writer.begin(&spec("a", DType::Int32, CellLen::One, false, "")).unwrap();
    let matrix = ArraySpec::raw(ArraySchema::dense("m", DType::Int32, &[2, 2], &[2, 2]));
    let longer = ArraySpec::raw(ArraySchema::dense("b", DType::Int32, &[24], &[9]));
    let chunks = ArraySpec::raw(ArraySchema::dense("c", DType::Int32, &[23], &[8]));
    let complex = ArraySpec::raw(ArraySchema::dense("d", DType::BFloat16, &[23], &[9]));
    let codec = spec("e", DType::Int32, CellLen::One, false, "bzip2");
    for refused in [matrix, longer, chunks, complex, codec] {
        let error = writer.begin(&refused).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
}
