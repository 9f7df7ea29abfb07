//! The conformance suite for writers on TileDB arrays.

#![allow(clippy::unwrap_used, clippy::panic)]

use tesseral_conformance::oracle::Row;
use tesseral_conformance::{Effort, SparseCase, WriteCase, sparse_write_suite, write_suite};
use tesseral_core::{ArraySchema, CellLen, Coords, DType, Dimension, Field, Order, Scalar};
use tesseral_format::{ArraySpec, CodecSpec, CreateOptions, FormatOptions};
use tesseral_tiledb::{TileDbCreateOptions, TileDbFormat};

fn fields() -> Vec<(Field, Vec<CodecSpec>)> {
    let codecs = |names: &[&str]| names.iter().map(|n| CodecSpec::new(*n)).collect::<Vec<_>>();
    let field = |name: &str, dtype, cell, nullable| {
        let mut field = Field::new(name, dtype);
        (field.cell, field.nullable) = (cell, nullable);
        field
    };
    vec![
        (field("plain", DType::Int32, CellLen::One, false), codecs(&[])),
        (field("packed", DType::Float64, CellLen::One, false), codecs(&["byteshuffle", "zstd"])),
        (field("holes", DType::UInt16, CellLen::One, true), codecs(&["bit_width_reduction", "lz4"])),
        (field("three", DType::Float32, CellLen::Fixed(3), false), codecs(&["gzip", "checksum_sha256"])),
        (field("words", DType::Utf8, CellLen::Var, true), codecs(&["rle", "zstd"])),
        (field("names", DType::Ascii, CellLen::Var, false), codecs(&["dictionary"])),
        (field("numbers", DType::Int64, CellLen::Var, false), codecs(&["double_delta"])),
        (
            field("when", DType::DateTime(tesseral_core::TimeUnit::Day), CellLen::One, true),
            codecs(&["delta"]),
        ),
    ]
}

fn spec(name: &str, shape: &[u64], chunk: &[u64], order: Order, which: &[usize]) -> ArraySpec {
    let all = fields();
    let chosen: Vec<_> = which.iter().map(|i| all[*i].clone()).collect();
    let mut schema = ArraySchema::dense(name, DType::UInt8, shape, chunk);
    schema.chunk_shape = Some(Coords::from_slice(chunk));
    schema.cell_order = order;
    let dims = schema.dims.iter_mut().enumerate();
    dims.for_each(|(d, dim)| *dim = Dimension::new(format!("d{d}"), shape[d]));
    schema.fields = chosen.iter().map(|(field, _)| field.clone()).collect();
    ArraySpec { schema, codecs: chosen.into_iter().map(|(_, codecs)| codecs).collect(), text: None }
}

fn passes(specs: Vec<ArraySpec>, seed: u64) {
    let mut case = WriteCase::new(specs, seed);
    // Names are random, and objects that no commit names are not read.
    (case.canonical, case.traceless) = (false, false);
    case.effort.damages = 4;
    write_suite(&TileDbFormat, &case).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn dense_arrays_of_every_kind_of_field_pass() {
    for (seed, field) in (1..).zip(0..fields().len()) {
        passes(vec![spec("a", &[5, 7], &[2, 3], Order::RowMajor, &[field])], seed);
    }
}

#[test]
fn fields_share_the_fragment_in_either_order() {
    passes(vec![spec("a", &[6, 4], &[3, 4], Order::ColMajor, &[0, 2, 4, 6])], 21);
    passes(vec![spec("a", &[9], &[4], Order::RowMajor, &[1, 3, 5, 7])], 22);
}

/// Cells at different positions of a plane: integers along one dimension, text along the other.
fn rows(count: i32) -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..count {
        let x = (i * 37) % 50 - 20;
        let word = format!("{}{i}", ["", "b", "ab"][i as usize % 3]);
        rows.push((x, word.into_bytes(), i));
    }
    rows.sort();
    let row = |(x, word, i): (i32, Vec<u8>, i32)| Row {
        coords: vec![x.to_ne_bytes().to_vec(), word],
        fields: vec![Some(i.to_ne_bytes().to_vec()), (i % 4 != 0).then(|| vec![b'z'; i as usize % 5])],
    };
    rows.into_iter().map(row).collect()
}

#[test]
fn sparse_arrays_in_every_order_pass() {
    for (seed, order) in (41..).zip([Order::RowMajor, Order::ColMajor, Order::Hilbert]) {
        for duplicates in [false, true] {
            let mut x = Dimension::new("x", 50);
            x.dtype = DType::Int32;
            x.domain = Some((Scalar::from_element(-20_i32), Scalar::from_element(29_i32)));
            x.tile = Some(Scalar::from_element(7_i32));
            let mut word = Dimension::new("word", 0);
            (word.dtype, word.extent) = (DType::Ascii, None);
            let mut schema = ArraySchema::dense("a", DType::Int32, &[], &[]);
            (schema.dims, schema.cell_order) = (vec![x, word], order);
            (schema.sparse, schema.allows_duplicates, schema.chunk_shape) = (true, duplicates, None);
            let (mut v, mut text) = (Field::new("v", DType::Int32), Field::new("text", DType::Ascii));
            (v.nullable, text.cell, text.nullable) = (false, CellLen::Var, true);
            schema.fields = vec![v, text];
            let codecs = vec![vec![CodecSpec::new("zstd")], Vec::new()];
            let format = FormatOptions::new(TileDbCreateOptions { capacity: 8, ..Default::default() });
            let options = CreateOptions { format, ..CreateOptions::default() };
            let effort = Effort { damages: 2, ..Effort::default() };
            let case = SparseCase {
                spec: ArraySpec { schema, codecs, text: None },
                rows: rows(30),
                options,
                seed,
                effort,
            };
            sparse_write_suite(&TileDbFormat, &case).unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

#[test]
fn several_arrays_are_a_group() {
    let a = spec("sea ice/thickness", &[5, 7], &[2, 3], Order::RowMajor, &[0]);
    let mut b = spec("b", &[4], &[4], Order::RowMajor, &[2]);
    b.schema.dims[0].dtype = DType::Int16;
    b.schema.dims[0].domain = Some((Scalar::from_element(-2_i16), Scalar::from_element(1_i16)));
    passes(vec![a, b], 31);
}
