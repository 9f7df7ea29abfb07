//! Files with exact statistics of chunks: they answer as the cells do, and damage of them is found or harmless.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Case, array, memory, threads};
use tesseral::{Array, CreateOptions, DType, Options, Scalar, Selection, StatSet, Summary};
use tesseral_core::Field;
use tesseral_engine::{WriteSession, fold};
use tesseral_store::{Bytes, MemoryStore, StoreExt};

const WANTED: StatSet = StatSet::SUM;

fn on() -> CreateOptions {
    CreateOptions::default()
}

/// Cells of many magnitudes; with floats also NaN, both zeros and infinities.
fn case(dtype: DType, codec: &'static str, special: bool) -> Case {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let shape = [40, 30, 50];
    let float = |bits: u64| -> f64 {
        match bits % 50 {
            0 if special => f64::NAN,
            1 if special => f64::INFINITY,
            2 => -0.0,
            3 => -9.0,
            _ => (bits % 100_000) as f64 * 1e-3 * 10_f64.powi((bits >> 40) as i32 % 9 - 4),
        }
    };
    let cell = |bits: u64| match dtype {
        DType::Float32 => (float(bits) as f32).to_ne_bytes().to_vec(),
        DType::Float64 => float(bits).to_ne_bytes().to_vec(),
        _ if bits.is_multiple_of(9) => common::number(dtype, -9),
        _ => common::number(dtype, bits as i64),
    };
    let cells = (0..shape.iter().product()).flat_map(|_: u64| cell(next())).collect();
    Case { dtype, shape: shape.to_vec(), chunk: vec![16, 30, 25], codec, cells }
}

fn write(case: &Case, missing: &[Scalar], options: &CreateOptions, execution: Options) -> Bytes {
    let store = std::sync::Arc::new(MemoryStore::new("case.tet"));
    let writer = tesseral::format("tet").unwrap().create(store.clone(), options).unwrap();
    let mut session = WriteSession::new(writer, execution);
    let mut spec = case.spec("a");
    let field: &mut Field = &mut spec.schema.fields[0];
    field.missing = missing.to_vec();
    let array = session.add(&spec).unwrap();
    session.write(array, &case.cells).unwrap();
    session.commit().unwrap();
    store.read_all("", u64::MAX).unwrap()
}

fn summary(array: &Array, selection: &Selection, wanted: StatSet) -> (Summary, bool) {
    let request = array.request(selection);
    let found = fold::summary(array.handle(), &request, wanted, &Options::default()).unwrap();
    (found.summary, found.from_statistics)
}

#[test]
fn statistics_answer_as_the_cells_do() {
    let off = CreateOptions { chunk_statistics: Some(false), ..CreateOptions::default() };
    let minus_nine = |dtype: DType| Scalar::from_le_bytes(dtype, &common::number(dtype, -9)).unwrap();
    for dtype in [DType::Float32, DType::Float64, DType::Int16, DType::UInt64, DType::Int64] {
        for (codec, special) in [("raw", true), ("zstd", false)] {
            let case = case(dtype, codec, special);
            for missing in [Vec::new(), vec![minus_nine(dtype)]] {
                let known = write(&case, &missing, &on(), threads(2));
                assert!(known == write(&case, &missing, &on(), threads(1)));
                let plain = write(&case, &missing, &off, threads(2));
                assert!(plain.len() < known.len());
                let (known, plain) = (array(memory(&known)), array(memory(&plain)));
                let all = Selection::all(&case.shape);
                for wanted in [WANTED, StatSet::RANGE, StatSet::RANGE | StatSet::SUM | StatSet::INFINITIES] {
                    let (found, from_statistics) = summary(&known, &all, wanted);
                    let (expected, computed) = summary(&plain, &all, wanted);
                    assert!(from_statistics && !computed, "{dtype} {codec}");
                    assert_eq!(found.to_bytes(), expected.to_bytes(), "{dtype} {codec} {missing:?}");
                    // Chunks that are selected in part are read.
                    let part = common::select(&case.shape, &[(3, 40, 1), (0, 30, 1), (0, 50, 1)]);
                    let (found, expected) = (summary(&known, &part, wanted), summary(&plain, &part, wanted));
                    assert_eq!(found.0.to_bytes(), expected.0.to_bytes());
                }
            }
        }
    }
}

/// Spread needs squares, which are not stored.
#[test]
fn what_is_not_stored_is_computed() {
    let case = case(DType::Float32, "raw", false);
    let all = Selection::all(&case.shape);
    let found = summary(&array(memory(&case.write_with(&on(), threads(2)))), &all, StatSet::SPREAD);
    assert!(!found.1 && found.0.std().is_some());
}

#[test]
fn small_chunks_have_no_statistics() {
    let case = Case::counting(DType::Float32, &[1000], &[1000], "raw");
    let bytes = case.write_with(&on(), threads(2));
    assert!(!bytes.windows(4).any(|word| word == b"TSTA"));
}

/// Damaged statistics are not used, and every flip is reported.
#[test]
fn every_flip_of_statistics_is_harmless_and_found() {
    let case = Case::counting(DType::Int32, &[64, 64], &[32, 64], "raw");
    let file = case.write_with(&on(), threads(2)).to_vec();
    let start = file.windows(4).position(|word| word == b"TSTA").unwrap();
    let end = file.windows(11).position(|word| word == b"{\"history\":").unwrap();
    let all = Selection::all(&case.shape);
    let wanted = StatSet::RANGE | StatSet::SUM;
    let expected = summary(&array(memory(&file.clone().into())), &all, wanted);
    assert!(expected.1);
    for at in start..end {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        let found = summary(&array(memory(&damaged.clone().into())), &all, wanted);
        assert!(!found.1, "byte {at}");
        assert_eq!(found.0.to_bytes(), expected.0.to_bytes(), "byte {at}");
        let format = tesseral::format("tet").unwrap();
        let mut reported = false;
        format
            .audit(memory(&damaged.into()), &tesseral_format::AuditOptions::default(), &mut |finding| {
                // Another version is not damage.
                reported |= !finding.ok || finding.detail.contains("ignored");
            })
            .unwrap();
        assert!(reported, "byte {at}");
    }
}
