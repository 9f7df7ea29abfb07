//! The two test formats pass the conformance suite, and formats with a deliberate flaw do not.
#![allow(clippy::unwrap_used, clippy::panic)]

mod broken;

use std::sync::Arc;

use broken::{Broken, Flaw};
use tesseral_conformance::oracle::{self, Cells, Row, Summary};
use tesseral_conformance::testing::{cells, cells::CellsFormat, layered, layered::LayeredFormat};
use tesseral_conformance::{
    Effort, Executor, Expected, Fixture, Violation, WriteCase, executor_suite, read_suite, write_suite,
};
use tesseral_format::core::{
    ArraySchema, CellLen, Coords, DType, Field, Order, Result, Scalar, Selection, Value,
};
use tesseral_format::{ArraySpec, CodecSpec, ContainerSource, CoordinateRanges, Format, OpenOptions, Target};

const LIGHT: Effort = Effort { selections: 8, chunks: 8, damages: 12 };

fn layered_fixture(seed: u64) -> Fixture {
    let sample = layered::sample(seed).unwrap();
    let mut fixture = Fixture::new(sample.store(), seed);
    fixture.effort = LIGHT;
    for (array, (_, fields)) in sample.truth.iter().enumerate() {
        for (field, cells) in fields.iter().enumerate() {
            fixture.expected.push(Expected::Dense { array, field: field as u16, cells: cells.clone() });
        }
    }
    fixture
}

fn cells_fixture(seed: u64) -> Fixture {
    let sample = cells::sample(seed).unwrap();
    let mut fixture = Fixture::new(sample.store(), seed);
    fixture.effort = LIGHT;
    for (array, (_, rows)) in sample.truth.iter().enumerate() {
        fixture.expected.push(Expected::Sparse { array, rows: rows.clone() });
    }
    fixture
}

fn pass(outcome: Result<(), Violation>) {
    if let Err(violation) = outcome {
        panic!("{violation}");
    }
}

#[test]
fn samples_keep_their_schema() {
    for seed in 0..100 {
        let sample = layered::sample(seed).unwrap();
        let container = LayeredFormat.open(sample.store(), &OpenOptions::default()).unwrap();
        for (number, (schema, _)) in sample.truth.iter().enumerate() {
            assert_eq!(container.array(number).unwrap().schema(), schema, "seed {seed}");
        }
        let sample = cells::sample(seed).unwrap();
        let container = CellsFormat.open(sample.store(), &OpenOptions::default()).unwrap();
        for (number, (schema, _)) in sample.truth.iter().enumerate() {
            assert_eq!(container.array(number).unwrap().schema(), schema, "seed {seed}");
        }
    }
}

#[test]
fn layered_reads() {
    for seed in 0..400 {
        pass(read_suite(&LayeredFormat, &layered_fixture(seed)));
    }
}

#[test]
fn cells_read() {
    for seed in 0..400 {
        pass(read_suite(&CellsFormat, &cells_fixture(seed)));
    }
}

/// Arrays for the writer: ragged edges, both orders, nulls, text, several fields, a scalar, an empty array.
fn write_case(seed: u64) -> WriteCase {
    let mut plain = ArraySchema::dense("plain", DType::Float32, &[5, 7], &[2, 3]);
    plain.fields[0].fill = Some(Scalar::from_element(-9999_f32));
    let mut rich = ArraySchema::dense("rich", DType::Int64, &[4, 3, 2], &[3, 2, 2]);
    rich.cell_order = Order::ColMajor;
    rich.fields[0].nullable = true;
    let mut text = Field::new("text", DType::Utf8);
    text.cell = CellLen::Var;
    text.nullable = seed % 2 == 1;
    rich.fields.push(text);
    rich.attributes.insert("units".to_owned(), Value::from("K"));
    let scalar = ArraySchema::dense("scalar", DType::UInt8, &[], &[]);
    let empty = ArraySchema::dense("empty", DType::Float64, &[0, 3], &[2, 2]);
    let mut specs: Vec<ArraySpec> = [plain, rich, scalar, empty].map(ArraySpec::raw).into();
    let mut xor = CodecSpec::new("xor");
    if seed % 3 == 1 {
        xor.options.insert("granule".to_owned(), Value::Int(2));
    }
    specs[1].codecs[0] = vec![xor];
    let mut case = WriteCase::new(specs, seed);
    case.options.statistics = seed.is_multiple_of(2);
    case.options.digests = seed % 4 != 3;
    case.effort = Effort { selections: 3, chunks: 4, damages: 3 };
    case
}

#[test]
fn layered_writes() {
    for seed in 0..12 {
        pass(write_suite(&LayeredFormat, &write_case(seed)));
    }
}

#[test]
fn a_wrapper_without_a_flaw_passes() {
    for seed in 0..10 {
        pass(read_suite(&Broken(LayeredFormat, Flaw::None), &layered_fixture(seed)));
        pass(read_suite(&Broken(CellsFormat, Flaw::None), &cells_fixture(seed)));
    }
    pass(write_suite(&Broken(LayeredFormat, Flaw::None), &write_case(0)));
}

/// Some seed must reveal the flaw, by the check that covers it.
fn caught<F: Format>(format: F, flaw: Flaw, check: &str, fixture: impl Fn(u64) -> Fixture) {
    let broken = Broken(format, flaw);
    let found = (0..60).find_map(|seed| read_suite(&broken, &fixture(seed)).err());
    let found = found.unwrap_or_else(|| panic!("{flaw:?} was not detected"));
    assert_eq!(found.check, check, "{flaw:?} was found as {found}");
}

#[test]
fn flaws_of_dense_readers_are_caught() {
    for (flaw, check) in [
        (Flaw::DropsChunk, "plans_agree"),
        (Flaw::ReversesLayers, "expectations_hold"),
        (Flaw::IgnoresLayers, "plans_agree"),
        (Flaw::LeavesByte, "expectations_hold"),
        (Flaw::LeavesValidity, "expectations_hold"),
        (Flaw::ClaimsCover, "plans_agree"),
        (Flaw::ClaimsWhole, "whole_chunks_are_whole"),
        (Flaw::WrongMinimum, "statistics_hold"),
        (Flaw::WrongSum, "statistics_hold"),
        (Flaw::LowBound, "statistics_hold"),
        (Flaw::WrongDigest, "digests_match"),
        (Flaw::WrongDescription, "descriptions_agree"),
        (Flaw::LongPart, "expectations_hold"),
        (Flaw::PlansEverything, "plans_agree"),
        (Flaw::IgnoresRun, "decoders_keep_their_contract"),
        (Flaw::PanicsOnDamage, "damaged_parts_never_panic"),
        (Flaw::PanicsOnOpen, "damage_never_panics"),
        (Flaw::SniffsNames, "sniffing"),
        (Flaw::Wavers, "open_is_deterministic"),
        (Flaw::CriesWolf, "audit_of_a_sound_source"),
        (Flaw::SeesNothing, "damage_never_panics"),
    ] {
        caught(LayeredFormat, flaw, check, layered_fixture);
    }
}

#[test]
fn flaws_are_caught_without_expected_cells() {
    let without_expected = |seed| Fixture { expected: Vec::new(), ..layered_fixture(seed) };
    for (flaw, check) in [
        (Flaw::LongPart, "parts_lie_in_objects"),
        (Flaw::LeavesByte, "decoders_keep_their_contract"),
        (Flaw::LeavesValidity, "plans_agree"),
        (Flaw::IgnoresLayers, "plans_agree"),
    ] {
        caught(LayeredFormat, flaw, check, without_expected);
    }
}

#[test]
fn flaws_of_sparse_readers_are_caught() {
    for (flaw, check) in [
        (Flaw::DropsChunk, "plans_agree"),
        (Flaw::ReversesLayers, "expectations_hold"),
        (Flaw::LeavesByte, "expectations_hold"),
        (Flaw::ClaimsWhole, "whole_chunks_are_whole"),
        (Flaw::PlansEverything, "plans_agree"),
        (Flaw::WrongMinimum, "statistics_hold"),
        (Flaw::WrongDigest, "digests_match"),
    ] {
        caught(CellsFormat, flaw, check, cells_fixture);
    }
}

#[test]
fn flaws_of_writers_are_caught() {
    for (flaw, location) in [
        (Flaw::CommitsEarly, "commit without chunk"),
        (Flaw::TakesTwice, "duplicate chunk"),
        (Flaw::LeavesTrace, "writer dropped with every chunk"),
    ] {
        let violation = write_suite(&Broken(LayeredFormat, flaw), &write_case(0)).unwrap_err();
        assert!(violation.location.starts_with(location), "{flaw:?} was found as {violation}");
    }
}

/// Faults of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutorFault {
    None,
    Transposes,
    ForgetsValidity,
    KeepsDuplicates,
    CountsNullsAsValues,
    TakesBoundsForExact,
}

/// The oracle as an executor, with a fault.
struct Naive(ExecutorFault);

impl Executor for Naive {
    fn read_dense(
        &self,
        container: &Arc<dyn ContainerSource>,
        array: usize,
        field: u16,
        selection: &Selection,
    ) -> Result<Cells> {
        let cells = oracle::read_dense(container.as_ref(), array, field, selection)?;
        Ok(match cells {
            Cells::Fixed { mut values, validity } if self.0 == ExecutorFault::Transposes => {
                values.reverse();
                Cells::Fixed { values, validity }
            }
            Cells::Fixed { values, validity: Some(validity) } if self.0 == ExecutorFault::ForgetsValidity => {
                Cells::Fixed { values, validity: Some(vec![1; validity.len()]) }
            }
            cells => cells,
        })
    }

    fn read_sparse(
        &self,
        container: &Arc<dyn ContainerSource>,
        array: usize,
        fields: &[u16],
        ranges: &[CoordinateRanges],
    ) -> Result<Vec<Row>> {
        let mut rows = oracle::read_sparse(container.as_ref(), array, fields, ranges)?;
        if let (ExecutorFault::KeepsDuplicates, Some(row)) = (self.0, rows.first().cloned()) {
            rows.insert(0, row);
        }
        Ok(rows)
    }

    fn summary(
        &self,
        container: &Arc<dyn ContainerSource>,
        array: usize,
        field: u16,
        target: &Target,
    ) -> Result<Summary> {
        let source = container.array(array)?;
        let mut summary = match target {
            Target::Cells(selection) => oracle::summary(container.as_ref(), array, field, selection)?,
            Target::Coordinates(ranges) => {
                let rows = oracle::read_sparse(container.as_ref(), array, &[field], ranges)?;
                Summary::from_rows(&source.schema().fields[usize::from(field)], &rows, 0)
            }
        };
        if self.0 == ExecutorFault::CountsNullsAsValues {
            summary.count += summary.nulls;
            summary.nulls = 0;
        }
        if self.0 == ExecutorFault::TakesBoundsForExact {
            let dtype = source.schema().fields[usize::from(field)].dtype;
            summary.min = summary
                .min
                .map(|min| if dtype == DType::Int32 { Scalar::from_element(i32::MIN) } else { min });
        }
        Ok(summary)
    }
}

#[test]
fn the_oracle_passes_as_an_executor() {
    for seed in 0..60 {
        pass(executor_suite(&LayeredFormat, &layered_fixture(seed), &Naive(ExecutorFault::None)));
        pass(executor_suite(&CellsFormat, &cells_fixture(seed), &Naive(ExecutorFault::None)));
    }
}

#[test]
fn faults_of_executors_are_caught() {
    for slip in [
        ExecutorFault::Transposes,
        ExecutorFault::ForgetsValidity,
        ExecutorFault::CountsNullsAsValues,
        ExecutorFault::TakesBoundsForExact,
    ] {
        let found = (0..60)
            .find_map(|seed| executor_suite(&LayeredFormat, &layered_fixture(seed), &Naive(slip)).err());
        assert_eq!(found.map(|v| v.check), Some("executor_suite"), "{slip:?}");
    }
    let slip = Naive(ExecutorFault::KeepsDuplicates);
    let found = (0..60).find_map(|seed| executor_suite(&CellsFormat, &cells_fixture(seed), &slip).err());
    assert_eq!(found.map(|v| v.check), Some("executor_suite"));
}

#[test]
fn samples_exercise_all_features_of_the_traits() {
    use tesseral_format::{Access, Request, Uncovered, plan};
    let mut features = std::collections::BTreeSet::new();
    for seed in 0..250 {
        let sample = layered::sample(seed).unwrap();
        let container = LayeredFormat.open(sample.store(), &OpenOptions::default()).unwrap();
        for number in 0..container.len() {
            let source = container.array(number).unwrap();
            let shape = source.schema().shape().unwrap_or_else(Coords::new);
            features.insert(format!("rank {}", shape.len()));
            for field in 0..source.schema().fields.len() as u16 {
                let plan = plan(&*source, container.store(), &Request::cells(Selection::all(&shape), field))
                    .unwrap();
                features.insert(format!("{:?}", plan.uncovered));
                assert!(matches!(plan.uncovered, Uncovered::Fill | Uncovered::Impossible));
                for chunk in &plan.chunks {
                    features.insert(match chunk.access {
                        Access::Direct { swapped } => format!("direct, swapped {swapped}"),
                        Access::Coded { granule } => format!("coded, granule {}", granule.is_some()),
                    });
                    features.insert(format!("whole {}, clipped {}", chunk.whole, chunk.tile.is_some()));
                    let past =
                        chunk.tile.as_ref().is_some_and(|t| (0..t.rank()).any(|d| t.end(d) > shape[d]));
                    features.insert(format!("past the edge {past}"));
                }
            }
        }
    }
    for expected in [
        "rank 0",
        "rank 3",
        "Fill",
        "Impossible",
        "direct, swapped false",
        "direct, swapped true",
        "coded, granule false",
        "coded, granule true",
        "whole true, clipped false",
        "whole false, clipped false",
        "whole false, clipped true",
        "past the edge true",
    ] {
        assert!(features.contains(expected), "{expected} did not occur: {features:?}");
    }
}
