//! Files written by hand, byte by byte.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use tesseral_core::{ArraySchema, DType, Scalar, Stat};
use tesseral_format::{Column, Request};
use tesseral_tet::{TetSummary, read_tet_summary_v1};

/// Parses hex digits; `#` starts a comment.
fn hex(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap());
    let digits: String = lines.collect::<String>().split_whitespace().collect();
    let pair = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

const EMPTY: &str = "
    54455452 01000000 00000000 00000000 # TETR, layout 1, no dataset, no flag
    20000000 00000000 00000000 00000000 # index at 32, empty
";

const ONE: &str = "
    54455452 01000000 01000000 01000000 # TETR, layout 1, one dataset, a footer
    50000000 00000000 f0000000 00000000 # index at 80, 240 bytes
    28000000 00000000                   # 40 bytes of records
    02000000 07000000 01000000 00000000 # name of 2 bytes, int16, 1 dimension
    6162 000000000000                   # ab
    03000000 00000000 02000000 00000000 # shape 3, chunks of 2
    54494458 01000000 02000000 00000000 # TIDX, version 1, 2 rows
    00000000 00000000 00000000 00000000
    00000000 00000000                   # dataset 0, chunk 0
    00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
    00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
    40010000 00000000 04000000 00000000 04000000 00000000 00000000 00000000
    00000000 00000000                   # dataset 0, chunk 1
    01000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
    00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
    44010000 00000000 02000000 00000000 02000000 00000000 00000000 00000000
    0100 feff 2c01                      # 1, -2 | 300
";

fn one() -> Vec<u8> {
    let mut file = hex(ONE);
    let json = br#"{"history":[],"metadata":{"datasets":{"ab":{"dim_names":["x"]}}}}"#;
    file.extend(json);
    file.extend(hex("41000000 00000000 01000000 54485354"));
    file
}

#[test]
fn an_empty_file() {
    let summary = TetSummary::parse(&hex(EMPTY)).unwrap();
    assert_eq!((summary.datasets.len(), summary.chunks.len(), summary.file_len), (0, 0, 32));
    assert_eq!(common::open(hex(EMPTY)).unwrap().len(), 0);
    assert_eq!(common::write(&[], &common::plain()).unwrap(), hex(EMPTY));
}

fn one_input() -> common::Input {
    let mut schema = ArraySchema::dense("ab", DType::Int16, &[3], &[2]);
    schema.dims[0].name = "x".into();
    common::Input::new(schema, "raw", [1_i16, -2, 300].iter().flat_map(|v| v.to_ne_bytes()).collect())
}

#[test]
fn one_array_with_a_footer() {
    let file = one();
    assert_eq!(file.len(), 407);
    let summary = read_tet_summary_v1(&file).unwrap();
    assert_eq!(summary.payload_len, 0x146);
    assert_eq!(summary.chunks[1].raw_byte_len, 2);
    let container = common::open(file.clone()).unwrap();
    assert_eq!(container.array(0).unwrap().schema().dims[0].name, "x");
    assert_eq!(common::read_flat(&*container, 0).unwrap(), one_input().flat);
    assert_eq!(common::write(&[one_input()], &common::plain()).unwrap(), file);
}

/// Two chunks of float32 with zone maps and a secondary index.
#[test]
fn a_footer_of_version_2() {
    let schema = ArraySchema::dense("a", DType::Float32, &[4], &[2]);
    let values = [1.0_f32, 2.0, 10.0, 11.0];
    let input = common::Input::new(schema, "raw", values.iter().flat_map(|v| v.to_ne_bytes()).collect());
    let mut file = common::write(&[input], &common::plain()).unwrap();
    assert_eq!(file.len(), 336);
    file[12] = 1;
    let sha = "7".repeat(64);
    let entry = |i: u32, low: &str, high: &str| {
        format!(
            "    {{\n      \"dataset_id\": 0,\n      \"chunk_index\": [\n        {i}\n      ],\n      \"element_count\": 2,\n      \
             \"null_count\": 0,\n      \"min_le\": \"{low}\",\n      \"max_le\": \"{high}\"\n    }}"
        )
    };
    let zone = format!(
        "{{\n  \"version\": 1,\n  \"generation\": 0,\n  \"packed_sha256\": \"{sha}\",\n  \"chunks\": [\n{},\n{}\n  ]\n}}\n",
        entry(0, "0000803f", "00000040"),
        entry(1, "00002041", "00003041")
    );
    assert_eq!(zone.len(), 507);
    let index = format!("{{\"version\":1,\"indexes\":[]}}{}\n", " ".repeat(762));
    assert_eq!(index.len(), 789);
    let json = r#"{"history":[],"zone_maps_ref":{"offset":336,"len":507},"secondary_index_ref":{"offset":843,"len":789}}"#;
    file.extend(zone.as_bytes());
    file.extend(index.as_bytes());
    file.extend(json.as_bytes());
    file.extend(hex("66000000 00000000 02000000 54485354"));
    assert_eq!(file.len(), 1750);

    assert_eq!(TetSummary::parse(&file).unwrap().payload_len, 336);
    let container = common::open(file.clone()).unwrap();
    let array = container.array(0).unwrap();
    let plan = tesseral_format::plan(
        &*array,
        container.store(),
        &Request::cells(tesseral_core::Selection::all(&[4]), 0),
    )
    .unwrap();
    let stats = array.stats(&plan.chunks[0], Column::Field(0));
    assert_eq!(stats.min, Stat::Exact(Scalar::from_element(1.0_f32)));
    assert_eq!(stats.max, Stat::Exact(Scalar::from_element(2.0_f32)));
    assert_eq!((stats.nulls, stats.nans), (Stat::Exact(0), Stat::Exact(0)));

    // With footer version 1 the same keys are ignored, and the texts are bytes in the payload area.
    let version = file.len() - 8;
    file[version] = 1;
    assert_eq!(TetSummary::parse(&file).unwrap().payload_len, 1750 - 16 - 102);
    let container = common::open(file).unwrap();
    let array = container.array(0).unwrap();
    assert_eq!(array.stats(&plan.chunks[0], Column::Field(0)).min, Stat::Absent);
}
