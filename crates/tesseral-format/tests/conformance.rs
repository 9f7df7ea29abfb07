//! The two test formats hold what they were made of, and pass what every format must pass.
#![allow(clippy::unwrap_used)]

use tesseral_format::core::Selection;
use tesseral_format::testing::{cells, layered};
use tesseral_format::{Format, OpenOptions, oracle};

#[test]
fn the_oracle_reads_what_layered_samples_were_made_of() {
    for seed in 0..400 {
        let sample = layered::sample(seed).unwrap();
        let container = layered::LayeredFormat.open(sample.store(), &OpenOptions::default()).unwrap();
        for (number, (schema, fields)) in sample.truth.iter().enumerate() {
            let source = container.array(number).unwrap();
            assert_eq!(source.schema(), schema, "seed {seed}");
            for (i, want) in fields.iter().enumerate() {
                let all = Selection::all(&schema.shape().unwrap());
                let got = oracle::read_dense(container.as_ref(), number, i as u16, &all).unwrap();
                assert_eq!(&got, want, "seed {seed}, array {number}, field {i}");
            }
        }
    }
}

#[test]
fn the_oracle_reads_what_cell_samples_were_made_of() {
    for seed in 0..400 {
        let sample = cells::sample(seed).unwrap();
        let container = cells::CellsFormat.open(sample.store(), &OpenOptions::default()).unwrap();
        for (number, (schema, want)) in sample.truth.iter().enumerate() {
            let sparse = oracle::Sparse::load(container.as_ref(), number).unwrap();
            assert_eq!(sparse.schema(), schema, "seed {seed}");
            assert_eq!(sparse.rows(), want, "seed {seed}, array {number}");
        }
    }
}
