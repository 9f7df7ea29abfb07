//! The conformance suite on files of the reference and on files written by this crate.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use tesseral_conformance::{Fixture, WriteCase, read_suite, write_suite};
use tesseral_core::{ArraySchema, DType, Scalar};
use tesseral_format::CreateOptions;
use tesseral_tet::TetFormat;

#[test]
fn reference_files_pass_the_read_suite() {
    for entry in std::fs::read_dir(common::fixtures()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "tet") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut fixture = Fixture::new(common::memory(bytes.clone()), 11);
        if bytes.len() > 20_000 {
            fixture.effort.damages = 8;
        }
        read_suite(&TetFormat, &fixture).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}

fn specs(codec: &str) -> Vec<tesseral_format::ArraySpec> {
    let shapes: [(&[u64], &[u64]); 3] = [(&[5, 3], &[2, 2]), (&[7], &[3]), (&[2, 1, 3, 2], &[1, 1, 2, 2])];
    let dtypes = [DType::Float32, DType::UInt8, DType::Int64];
    let specs = shapes.iter().zip(dtypes).enumerate().map(|(i, ((shape, chunk), dtype))| {
        let mut schema = ArraySchema::dense(format!("a{i}"), dtype, shape, chunk);
        if i == 2 {
            schema.fields[0].missing = vec![Scalar::from_element(0_i64)];
        }
        common::Input::new(schema, codec, Vec::new()).spec
    });
    specs.collect()
}

#[test]
fn our_files_pass_the_write_suite() {
    for (seed, codec) in [(1, "raw"), (2, "zstd"), (3, "raw"), (4, "zstd:9")] {
        for (digests, statistics) in [(true, false), (true, true), (false, false)] {
            let mut case = WriteCase::new(specs(codec), seed);
            case.options = CreateOptions { digests, statistics, ..CreateOptions::default() };
            case.effort.damages = 16;
            write_suite(&TetFormat, &case)
                .unwrap_or_else(|violation| panic!("{codec}, {digests}, {statistics}: {violation}"));
        }
    }
}
