//! Folds of dense cells that match a condition: equal with and without pruning by statistics.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use tesseral::{Array, ArraySchema, ArraySpec, Create, DType, Options, StatSet};

type Meets = fn(f64) -> bool;

const SHAPE: [u64; 2] = [200, 150];

/// Ascends along the first axis, so that chunks differ in their ranges; every 97th cell is NaN.
fn cells() -> Vec<f64> {
    let row = SHAPE[1] as usize;
    let cell = |i: usize| if i % 97 == 5 { f64::NAN } else { (i / row) as f64 * 10.0 + (i % 13) as f64 };
    (0..row * SHAPE[0] as usize).map(cell).collect()
}

fn written(path: &Path, format: &str, chunk: &[u64], statistics: bool) -> Array {
    let create = Create::new().overwrite();
    let create = if statistics { create.statistics() } else { create };
    let mut session = create.begin(path, format).unwrap();
    let spec = ArraySpec::raw(ArraySchema::dense("a", DType::Float64, &SHAPE, chunk));
    let id = session.add(&spec).unwrap();
    let bytes: Vec<u8> = cells().into_iter().flat_map(f64::to_ne_bytes).collect();
    session.write(id, &bytes).unwrap();
    session.commit().unwrap();
    tesseral::open(path).unwrap().array_at(0).unwrap()
}

#[test]
fn pruning_does_not_change_results() {
    let folder = tempfile::tempdir().unwrap();
    let meets: [(&str, Meets); 5] = [
        ("a > 1900", |v| v > 1900.0),
        ("a < 15 or a == 1990", |v| v < 15.0 || v == 1990.0),
        ("a == 1003", |v| v == 1003.0),
        ("a != 5", |v| v != 5.0),
        // No comparison with NaN is true, so every negated one is.
        ("not a <= 1999", |v| v.is_nan() || v > 1999.0),
    ];
    let files = [("s.tet", "tet", true), ("p.tet", "tet", false), ("t", "tiledb", false)];
    for (name, format, statistics) in files {
        // Chunks that are read one by one, and in batches.
        for chunk in [[50, 150], [7, 11]] {
            let array = written(&folder.path().join(name), format, &chunk, statistics);
            for (condition, meets) in meets {
                let (mut count, mut sum) = (0, 0.0);
                for value in cells().into_iter().filter(|v| meets(*v)) {
                    count += 1;
                    sum += if value.is_nan() { 0.0 } else { value };
                }
                for options in [
                    Options::default().with_threads(1).unwrap(),
                    Options::default().with_threads(4).unwrap(),
                    Options::default().with_memory(64 << 10),
                ] {
                    let query = array.cells().unwrap().filter(condition).unwrap().options(options);
                    let found = query.summary("a", StatSet::ALL).unwrap();
                    let context = format!("{name} {chunk:?} {condition}");
                    assert_eq!(found.count(), count, "{context}");
                    assert_eq!(found.sum().map_or(0.0, |s| s.to_f64()), sum, "{context}");
                }
            }
        }
    }
}
