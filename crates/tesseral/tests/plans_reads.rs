//! I/O of a selection: the planned requests, and no other bytes.
//!
//! Lines are snapshots. A changed line means that users fetch more or less than before.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Case, array, behind, options, select, threads};
use tesseral::{CreateOptions, DType, Options, Selection, StatSet};
use tesseral_store::test_wrappers::Counting;

/// Explains a selection, and checks that the executor does exactly that.
fn explained(case: &Case, digests: bool, selections: &[Selection]) -> Vec<String> {
    // Statistics would answer sums without the bytes of chunks.
    let create = CreateOptions { chunk_statistics: Some(false), ..options(digests, false, None) };
    let bytes = case.write_with(&create, Options::default());
    let mut lines = Vec::new();
    for selection in selections {
        for n in [1, 4] {
            let counting = Arc::new(Counting::default());
            let array = array(behind(&bytes, &counting)).with_options(threads(n));
            let plan = array.explain(selection).unwrap();
            counting.reset();
            assert_eq!(array.read(selection).unwrap().bytes(), case.slice(selection));
            let spans = counting.spans();
            assert_eq!(
                (spans.len() as u64, counting.bytes()),
                (plan.requests, plan.bytes),
                "read of {selection:?}: {spans:?}"
            );
            counting.reset();
            array.summary(selection, StatSet::SUM).unwrap();
            assert_eq!(counting.bytes(), plan.bytes, "sum of {selection:?}");
            if n == 1 {
                lines.push(format!("{} chunks: {plan}", plan.chunks));
            }
        }
    }
    lines
}

#[test]
fn plans_of_raw_tiles() {
    // 2 x 3 chunks of 64 x 100 float32: 25 600 bytes each, and an edge of 36.
    let shape = [128, 236];
    let case = Case::counting(DType::Float32, &shape, &[64, 100], "raw");
    let lines = explained(
        &case,
        true,
        &[
            Selection::all(&shape),
            select(&shape, &[(0, 1, 1), (0, 1, 1)]),
            select(&shape, &[(0, 64, 1), (0, 236, 1)]),
            select(&shape, &[(0, 128, 64), (0, 236, 235)]),
            select(&shape, &[(64, 128, 1), (200, 236, 1)]),
            select(&shape, &[(5, 5, 1), (0, 236, 1)]),
        ],
    );
    assert_eq!(
        lines,
        [
            "6 chunks: 6 spans, 1 request, 118 KiB",
            "1 chunks: 1 span, 1 request, 25 KiB",
            "3 chunks: 3 spans, 1 request, 59 KiB",
            "4 chunks: 4 spans, 1 request, 118 KiB",
            "1 chunks: 1 span, 1 request, 9216 B",
            "0 chunks: 0 spans, 0 requests, 0 B",
        ]
    );
    assert_eq!(explained(&case, false, &[Selection::all(&shape)]), ["6 chunks: 6 spans, 1 request, 118 KiB"]);
}

#[test]
fn plans_of_distant_chunks() {
    // 40 chunks of 200 KiB: bytes between selected chunks are not read, and requests are limited to a few MiB.
    let shape = [40, 25_600];
    let case = Case::counting(DType::Float64, &shape, &[1, 25_600], "raw");
    let lines = explained(
        &case,
        true,
        &[
            Selection::all(&shape),
            select(&shape, &[(0, 40, 13), (0, 10, 1)]),
            select(&shape, &[(3, 5, 1), (0, 25_600, 1)]),
        ],
    );
    assert_eq!(
        lines,
        [
            "40 chunks: 40 spans, 2 requests, 8000 KiB",
            "4 chunks: 4 spans, 4 requests, 800 KiB",
            "2 chunks: 2 spans, 1 request, 400 KiB",
        ]
    );
}

#[test]
fn sums_of_files_with_statistics_read_no_chunks() {
    let shape = [40, 25_600];
    let case = Case::counting(DType::Float64, &shape, &[1, 25_600], "raw");
    let counting = Arc::new(Counting::default());
    let array = array(behind(&case.write(), &counting));
    counting.reset();
    array.summary(&Selection::all(&shape), StatSet::SUM).unwrap();
    assert!(counting.bytes() <= 128 << 10, "{:?}", counting.spans());
}

#[test]
fn plans_of_compressed_chunks() {
    let case =
        Case { cells: vec![7; 64 * 64 * 2], ..Case::counting(DType::Int16, &[64, 64], &[16, 16], "zstd") };
    let stored: u64 = {
        let array = array(common::memory(&case.write()));
        array.chunks(&array.all().unwrap()).unwrap().iter().map(|c| c.stored_len).sum()
    };
    assert_eq!(
        explained(&case, true, &[Selection::all(&[64, 64])]),
        [format!("16 chunks: 16 spans, 1 request, {stored} B")]
    );
}

/// Opening reads the ends of the file only.
#[test]
fn opening_reads_no_payload() {
    let case = Case::counting(DType::Float32, &[512, 512], &[64, 64], "raw");
    let bytes = case.write();
    let counting = Arc::new(Counting::default());
    let array = array(behind(&bytes, &counting));
    let chunks = array.chunks(&array.all().unwrap()).unwrap();
    let payload = chunks[0].offset..chunks[0].offset + 512 * 512 * 4;
    let overlap =
        |r: &std::ops::Range<u64>| r.end.min(payload.end).saturating_sub(r.start.max(payload.start));
    let read: u64 = counting.spans().iter().map(overlap).sum();
    assert!(
        read <= 128 << 10,
        "{read} of {} payload bytes read to open: {:?}",
        payload.end - payload.start,
        counting.spans()
    );
}

/// A chunk that is read twice is hashed once; the same bytes are fetched.
#[test]
fn a_second_read_fetches_the_same_bytes() {
    let case = Case::counting(DType::Float32, &[128, 236], &[64, 100], "zstd");
    let counting = Arc::new(Counting::default());
    let array = array(behind(&case.write(), &counting));
    let window = select(&case.shape, &[(10, 20, 1), (90, 110, 1)]);
    let costs: Vec<u64> = (0..3)
        .map(|_| {
            counting.reset();
            array.read(&window).unwrap();
            counting.bytes()
        })
        .collect();
    assert_eq!(costs, [costs[0]; 3]);
}
