//! The conformance suite on tables of every type, and damaged, truncated and random ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use proptest::prelude::*;
use tesseral_conformance::{Fixture, read_suite};
use tesseral_core::{DType, ErrorKind, Result, Selection, TimeUnit};
use tesseral_csv::CsvFormat;
use tesseral_format::{ColumnMut, ContainerSource, Format, OpenOptions, Request, Scratch, Workers};
use tesseral_store::{MemoryStore, Store, StoreExt};

fn memory(bytes: &[u8]) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("folder/rows.csv", bytes.to_vec()))
}

fn open(bytes: &[u8]) -> Result<Arc<dyn ContainerSource>> {
    CsvFormat.open(memory(bytes), &OpenOptions::default())
}

/// The values of a column as they are decoded: bytes of all cells and validity.
fn column(bytes: &[u8], name: &str) -> (Vec<u8>, Vec<u8>) {
    let container = open(bytes).unwrap();
    let array = container.array(0).unwrap();
    let number = array.schema().field(name).unwrap();
    let field = &array.schema().fields[number];
    let request =
        Request::cells(Selection::all(&array.schema().shape().unwrap()), u16::try_from(number).unwrap());
    let (mut cells, mut valid) = (Vec::new(), Vec::new());
    for chunk in tesseral_format::plan(&*array, container.store(), &request).unwrap().chunks {
        let part = &chunk.parts[0];
        let stored = memory(bytes).read("", part.offset..part.offset + part.len).unwrap();
        let count = usize::try_from(chunk.cells).unwrap();
        let (mut own, mut values, mut offsets) = (vec![9; count], vec![0; count * 8], Vec::new());
        let validity = field.nullable.then_some(&mut own[..]);
        let out = if field.dtype == DType::Utf8 {
            values.clear();
            ColumnMut::Var { offsets: &mut offsets, data: &mut values, validity }
        } else {
            ColumnMut::Fixed { values: &mut values, validity }
        };
        array
            .decode(&chunk, request.columns[0], &[stored], 0..chunk.cells, out, &mut Scratch::default())
            .unwrap();
        cells.extend(values);
        valid.extend(own);
    }
    (cells, valid)
}

fn ints(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

const TABLE: &str = "\u{feff}day,n,x,\"name, quoted\"\r\n2012/01/01,1,0.5,\"a,\"\"b\"\"\nc\"\r\n\r\n2012/01/02,,-0,é\r\n2012-01-03,3,nan,\r\n";

#[test]
fn tables_pass_the_read_suite() {
    let long: String = (0..3000).map(|n| format!("{n},{}.5,word {}\n", n * 7, n % 13)).collect();
    for table in [TABLE, "a;b\n1,5;2\n", "1,2\n2,3\n3,4\n", &format!("n,x,w\n{long}")] {
        let fixture = Fixture::new(memory(table.as_bytes()), 3);
        read_suite(&CsvFormat, &fixture).unwrap_or_else(|violation| panic!("{table:.60}: {violation}"));
    }
}

#[test]
fn columns_have_their_type_and_empty_values_are_null() {
    let container = open(TABLE.as_bytes()).unwrap();
    let array = container.array(0).unwrap();
    let schema = array.schema();
    let fields: Vec<_> = schema.fields.iter().map(|f| (f.name.as_str(), f.dtype, f.nullable)).collect();
    let expected = [
        ("day", DType::DateTime(TimeUnit::Day), false),
        ("n", DType::Int64, true),
        ("x", DType::Float64, false),
        ("name, quoted", DType::Utf8, true),
    ];
    assert_eq!(fields, expected);
    assert_eq!((schema.name.as_str(), schema.shape().unwrap().as_slice()), ("rows", &[3_u64][..]));
    assert_eq!(column(TABLE.as_bytes(), "day").0, ints(&[15340, 15341, 15342]));
    assert_eq!(column(TABLE.as_bytes(), "n"), (ints(&[1, 0, 3]), vec![1, 0, 1]));
    assert_eq!(column(TABLE.as_bytes(), "name, quoted"), ("a,\"b\"\ncé".as_bytes().to_vec(), vec![1, 1, 0]));
}

#[test]
fn tables_can_have_one_column_or_no_rows() {
    assert_eq!(column(b"1\n2\n3\n", "column_1").0, ints(&[1, 2, 3]));
    let empty = open(b"only,a,header\n").unwrap().array(0).unwrap();
    assert_eq!(empty.schema().shape().unwrap().as_slice(), [0]);
    assert_eq!(empty.schema().fields.len(), 3);
}

#[test]
fn errors_name_the_line_and_the_column() {
    let cases: [(&[u8], &str); 3] =
        [(b"a,b\n1,2\n3\n", "line 3"), (b"a,b\n1,\xff\n", "\"b\""), (b"", "no rows")];
    for (table, part) in cases {
        let error = open(table).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Corrupt { detail, .. } if detail.contains(part)),
            "{error}"
        );
    }
}

/// Runs parts on threads of their own, the last one first.
#[derive(Debug)]
struct Backwards;

impl Workers for Backwards {
    fn run(&self, count: usize, _bytes: u64, part: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            (0..count).rev().for_each(|number| drop(scope.spawn(move || part(number))));
        });
    }
}

/// Blocks are divided at line ends, of which most are inside quotes here.
#[test]
fn line_ends_in_quotes_are_not_the_ends_of_blocks() {
    for lines in [0, 1, 3, 40, 20_000] {
        let mut text = "n,word\n".to_owned();
        let (mut numbers, mut words) = (Vec::new(), Vec::new());
        for n in 0_i64.. {
            if text.len() > 1 << 20 {
                break;
            }
            let word = "1,2\n".repeat(usize::try_from(n).unwrap() % (lines + 1));
            text.push_str(&format!("{n},\"{word}\"\n"));
            words.extend(word.bytes());
            numbers.push(n);
        }
        let read = |options: &OpenOptions| {
            let array = CsvFormat.open(memory(text.as_bytes()), options).unwrap().array(0).unwrap();
            let request = Request::cells(Selection::all(&array.schema().shape().unwrap()), 0);
            tesseral_format::plan(&*array, &memory(text.as_bytes()), &request).unwrap().chunks
        };
        let chunks = read(&OpenOptions::default());
        assert_eq!(chunks, read(&OpenOptions::default().with_workers(Arc::new(Backwards))), "{lines}");
        assert_eq!(chunks.iter().map(|chunk| chunk.cells).sum::<u64>(), numbers.len() as u64);
        assert_eq!(column(text.as_bytes(), "n").0, ints(&numbers), "{lines}");
        assert_eq!(column(text.as_bytes(), "word").0, words, "{lines}");
        // An error in the last row has the number of its line.
        let wrong = format!("{text}\n1,2,3\n");
        let line = wrong.lines().count();
        let error = open(wrong.as_bytes()).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Corrupt { detail, .. } if detail.contains(&format!("line {line} "))),
            "{error}"
        );
    }
    let open_quote = format!("a,b\n1,\"{}", "x\n".repeat(1 << 19));
    assert_eq!(column(open_quote.as_bytes(), "b").0.len(), 2 << 19);
}

/// A file that changes after it was opened is an error or other values, never a panic.
#[test]
fn changed_rows_are_errors() {
    let table = b"a,b\n1,2\n3,4\n";
    let container = open(table).unwrap();
    let array = container.array(0).unwrap();
    let request = Request::cells(Selection::all(&[2]), 0);
    let chunk = tesseral_format::plan(&*array, container.store(), &request).unwrap().chunks.remove(0);
    for changed in [&b"1,2\nx,4\n"[..], b"1,2\n3\n", b"", b"\"\"\"\"\"", b"1,2\n\xff,4\n"] {
        let mut values = [0; 16];
        let out = ColumnMut::Fixed { values: &mut values, validity: None };
        let parts = [bytes::Bytes::copy_from_slice(changed)];
        let error = array.decode(&chunk, request.columns[0], &parts, 0..2, out, &mut Scratch::default());
        assert!(matches!(error.unwrap_err().kind(), ErrorKind::Corrupt { .. }));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b','), Just(b'\n'), Just(b'"'), Just(b'1')], 0..200)) {
        if let Ok(container) = open(&bytes) {
            let array = container.array(0).unwrap();
            for field in &array.schema().fields {
                column(&bytes, &field.name);
            }
        }
    }

    #[test]
    fn numbers_are_read_back(values in proptest::collection::vec(any::<i64>(), 1..300)) {
        let text: String = values.iter().map(|value| format!("{value},x\n")).collect();
        prop_assert_eq!(column(format!("n,t\n{text}").as_bytes(), "n").0, ints(&values));
    }
}
