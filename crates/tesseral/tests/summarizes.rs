//! Summaries agree with the naive loop for any chunks, store and number of threads.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Case, array, behind, memory, options, threads};
use proptest::prelude::*;
use tesseral::{CreateOptions, DType, Element, Options, Scalar, Selection, Slice, StatSet, Summary};
use tesseral_core::{Sum, dispatch_element};
use tesseral_engine::axis::AxisFold;
use tesseral_store::test_wrappers::Counting;

/// Result of a loop over the cells.
#[derive(Debug, Default)]
struct Naive {
    count: u64,
    nulls: u64,
    nans: u64,
    infinities: u64,
    values: Vec<f64>,
    integers: Vec<i128>,
    min: Option<Scalar>,
    max: Option<Scalar>,
}

fn naive<T: Element>(cells: &[u8], fill: Option<T>) -> Naive {
    let mut out = Naive::default();
    let (mut min, mut max): (Option<T>, Option<T>) = (None, None);
    // −0.0 is less than 0.0; everything else compares numerically.
    let below =
        |a: T, b: T| a < b || (a == b && a.to_f64().is_sign_negative() && b.to_f64().is_sign_positive());
    for bytes in cells.chunks_exact(size_of::<T>()) {
        let value: T = bytemuck::pod_read_unaligned(bytes);
        out.count += 1;
        if fill.is_some_and(|fill| bytemuck::bytes_of(&fill) == bytes) {
            out.nulls += 1;
        } else if value.is_nan() {
            out.nans += 1;
        } else {
            out.infinities += u64::from(value.is_infinite());
            out.values.push(value.to_f64());
            out.integers.push(value.to_i128());
            min = Some(min.map_or(value, |m| if below(value, m) { value } else { m }));
            max = Some(max.map_or(value, |m| if below(m, value) { value } else { m }));
        }
    }
    (out.min, out.max) = (min.map(Scalar::from_element), max.map(Scalar::from_element));
    out
}

/// Sums with non-finite numbers equal sequential addition.
fn close(got: f64, want: f64, scale: f64) -> bool {
    if want.is_finite() {
        (got - want).abs() <= 1e-12 * scale.max(f64::MIN_POSITIVE)
    } else {
        got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan()
    }
}

/// Result of a summary, or of one position of a reduction.
#[derive(Clone, Debug, Default)]
struct Found {
    counts: (u64, u64, u64),
    range: (Option<Scalar>, Option<Scalar>),
    sum: Option<Sum>,
    mean: Option<f64>,
    std: Option<f64>,
}

impl From<&Summary> for Found {
    fn from(s: &Summary) -> Self {
        let counts = (s.count(), s.nulls(), s.nans());
        Self { counts, range: (s.min(), s.max()), sum: s.sum(), mean: s.mean(), std: s.std() }
    }
}

fn found(fold: &AxisFold, i: usize) -> Found {
    let counts = (fold.count(i), fold.nulls(i), fold.nans(i));
    let range = (fold.min(i), fold.max(i));
    Found { counts, range, sum: fold.sum(i), mean: fold.mean(i), std: fold.std(i) }
}

fn look(dtype: DType, cells: &[u8], fill: Option<&Scalar>) -> Naive {
    dispatch_element!(dtype, T => naive::<T>(cells, fill.map(|f| f.get::<T>().unwrap())), else => panic!("{dtype}"))
}

fn agree(got: &Found, want: &Naive) {
    assert_eq!(got.counts, (want.count, want.nulls, want.nans));
    assert_eq!(got.range, (want.min.clone(), want.max.clone()));
    let sum: f64 = want.values.iter().sum();
    let scale = want.values.iter().map(|v| v.abs()).sum::<f64>();
    match got.sum.unwrap() {
        Sum::Int(sum) => assert_eq!(sum, want.integers.iter().sum::<i128>()),
        Sum::Float(got) => assert!(close(got, sum, scale), "sum {got} {sum}"),
    }
    if want.values.is_empty() {
        assert_eq!((got.mean, got.std), (None, None));
        return;
    }
    let n = want.values.len() as f64;
    let mean = sum / n;
    assert!(close(got.mean.unwrap(), mean, scale / n), "mean {:?} {mean}", got.mean);
    if want.infinities == 0 {
        let variance = want.values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let largest = want.values.iter().map(|v| v.abs()).fold(0.0, f64::max);
        let tolerance = 1e-9 * variance + 1e-15 * largest * largest;
        assert!(
            (got.std.unwrap().powi(2) - variance).abs() <= tolerance,
            "variance {:?} {variance}",
            got.std
        );
    }
}

/// Cells of moderate numbers, with some NaN, infinities, zeros of both signs and missing values among the floats.
fn tame(case: &mut Case) {
    let size = case.size();
    let dtype = case.dtype;
    for cell in case.cells.chunks_exact_mut(size) {
        let draw = u64::from(cell[0]);
        let special = match draw {
            0..=5 => Some("NaN"),
            6 => Some("inf"),
            7 => Some("-inf"),
            8..=20 => Some("-0.0"),
            21..=30 => Some("0.0"),
            31..=40 => Some("7.5"),
            _ => None,
        };
        if dtype.class() == tesseral_core::dtype::Class::Float {
            let text = special.map_or_else(|| format!("{}", (draw as f64 - 128.0) * 0.37), str::to_owned);
            cell.copy_from_slice(Scalar::parse(dtype, &text).unwrap().bytes());
        } else if draw < 64 {
            cell.copy_from_slice(Scalar::parse(dtype, "7").unwrap().bytes());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn of_any_selection((mut case, selections) in common::any_case_and_selections(), zones in any::<bool>(), filled in any::<bool>()) {
        tame(&mut case);
        let fill_text = if case.dtype.class() == tesseral_core::dtype::Class::Float { "7.5" } else { "7" };
        let fill = filled.then(|| Scalar::parse(case.dtype, fill_text).unwrap());
        let bytes = write(&case, fill.clone(), &options(true, zones, None));
        for store in [memory(&bytes), behind(&bytes, &Arc::new(Counting::default()))] {
            let array = array(store);
            prop_assert_eq!(array.schema().fields[0].missing.first().cloned(), fill.clone());
            for selection in selections.iter().chain([&array.all().unwrap()]) {
                let got = array.summary(selection, StatSet::ALL).unwrap();
                let want = look(case.dtype, &case.slice(selection), fill.as_ref());
                agree(&Found::from(&got), &want);
                prop_assert_eq!(got.infinities(), Some(want.infinities));
                // A single statistic equals that of a full summary, also from stored statistics.
                let range = array.summary(selection, StatSet::RANGE).unwrap();
                prop_assert_eq!((range.min(), range.max(), range.nulls(), range.nans()), (got.min(), got.max(), got.nulls(), got.nans()));
            }
        }
    }

    #[test]
    fn along_any_axes((mut case, selections) in common::any_case_and_selections(), axes in any::<u8>(), filled in any::<bool>()) {
        tame(&mut case);
        let float = case.dtype.class() == tesseral_core::dtype::Class::Float;
        let fill = filled.then(|| Scalar::parse(case.dtype, if float { "7.5" } else { "7" }).unwrap());
        let bytes = write(&case, fill.clone(), &options(true, false, None));
        let rank = case.shape.len();
        let axes: Vec<usize> = (0..rank).filter(|d| axes >> d & 1 == 1).collect();
        for store in [memory(&bytes), behind(&bytes, &Arc::new(Counting::default()))] {
            let array = array(store);
            for selection in selections.iter().chain([&array.all().unwrap()]) {
                let reduced = array.reduce(selection, &axes, StatSet::ALL).unwrap();
                let kept = selection.shape().iter().enumerate().filter(|(d, _)| !axes.contains(d)).map(|(_, n)| *n).collect::<Vec<_>>();
                prop_assert_eq!(&reduced.shape, &kept);
                let positions = positions(selection, &axes);
                let got = reduced.collect(found);
                prop_assert_eq!(got.len(), positions.len());
                if selection.cells() == Some(0) {
                    continue;
                }
                for (got, position) in got.iter().zip(&positions) {
                    agree(got, &look(case.dtype, &case.slice(position), fill.as_ref()));
                }
            }
        }
    }
}

/// The selection divided into single positions of all other axes, row-major.
fn positions(selection: &Selection, axes: &[usize]) -> Vec<Selection> {
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    let mut parts = vec![Vec::new()];
    for (d, slice) in selection.slices().iter().enumerate() {
        let choices: Vec<Slice> = if axes.contains(&d) {
            vec![*slice]
        } else {
            (slice.start..slice.end).step_by(slice.step as usize).map(|i| Slice::new(i, i + 1)).collect()
        };
        parts = parts
            .iter()
            .flat_map(|part| choices.iter().map(move |c| [part.as_slice(), &[*c]].concat()))
            .collect();
    }
    parts.into_iter().map(|slices| Selection::new(slices, &bounds).unwrap()).collect()
}

fn write(case: &Case, fill: Option<Scalar>, options: &CreateOptions) -> tesseral_store::Bytes {
    use tesseral_store::StoreExt;
    let store = Arc::new(tesseral_store::MemoryStore::new("case.tet"));
    let writer = tesseral::format("tet").unwrap().create(store.clone(), options).unwrap();
    let mut session = tesseral_engine::WriteSession::new(writer, Options::default());
    let mut spec = case.spec("a");
    spec.schema.fields[0].missing.extend(fill);
    let array = session.add(&spec).unwrap();
    session.write(array, &case.cells).unwrap();
    session.commit().unwrap();
    store.read_all("", u64::MAX).unwrap()
}

/// Numbers whose sum depends on the order of additions, in more chunks than there are threads.
fn touchy(codec: &'static str, chunk: &[u64]) -> Case {
    let shape = [400, 37, 20];
    let count = shape.iter().product::<u64>();
    let cells = (0..count)
        .flat_map(|i| {
            let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let value = (mixed as f32 - 2e9) * [1e-9, 1.0, 1e12][(mixed % 3) as usize];
            value.to_ne_bytes()
        })
        .collect();
    Case { dtype: DType::Float32, shape: shape.to_vec(), chunk: chunk.to_vec(), codec, cells }
}

/// Bits, because equal floats can differ in them.
fn bits(summary: &Summary) -> (Option<u64>, Option<u64>, Option<Scalar>, u64) {
    let float = |sum| if let Sum::Float(sum) = sum { f64::to_bits(sum) } else { panic!("an integer") };
    (summary.sum().map(float), summary.variance().map(f64::to_bits), summary.max(), summary.count())
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for (codec, chunk) in [("raw", [16, 37, 20]), ("raw", [7, 9, 11]), ("zstd", [16, 20, 20])] {
        let case = touchy(codec, &chunk);
        let bytes = case.write();
        for reach in [true, false] {
            let store =
                || if reach { memory(&bytes) } else { behind(&bytes, &Arc::new(Counting::default())) };
            let array = array(store());
            let all = array.all().unwrap();
            let some = common::select(&case.shape, &[(3, 390, 2), (0, 37, 1), (1, 20, 1)]);
            for selection in [&all, &some] {
                let one = array.clone().with_options(threads(1)).summary(selection, StatSet::ALL).unwrap();
                agree(&Found::from(&one), &look(case.dtype, &case.slice(selection), None));
                for n in [2, 3, 8] {
                    let many =
                        array.clone().with_options(threads(n)).summary(selection, StatSet::ALL).unwrap();
                    assert_eq!(bits(&one), bits(&many), "{n} threads, {codec} {chunk:?}");
                }
            }
        }
    }
}

/// Bits of means and deviations.
fn means(array: &tesseral::Array, selection: &Selection, axes: &[usize]) -> Vec<(u64, u64)> {
    let bits = |v: Option<f64>| v.map_or(u64::MAX, f64::to_bits);
    let reduced = array.reduce(selection, axes, StatSet::ALL).unwrap();
    reduced.collect(|fold, i| (bits(fold.mean(i)), bits(fold.std(i))))
}

#[test]
fn reductions_do_not_depend_on_the_number_of_threads() {
    for (codec, chunk) in [("raw", [16, 37, 20]), ("zstd", [37, 9, 11])] {
        let case = touchy(codec, &chunk);
        let bytes = case.write();
        for store in [memory(&bytes), behind(&bytes, &Arc::new(Counting::default()))] {
            let array = array(store);
            let some = common::select(&case.shape, &[(3, 390, 2), (0, 37, 1), (1, 20, 1)]);
            for (selection, axes) in
                [(array.all().unwrap(), vec![0]), (array.all().unwrap(), vec![1, 2]), (some, vec![0, 2])]
            {
                let one = means(&array.clone().with_options(threads(1)), &selection, &axes);
                for n in [2, 3, 8] {
                    let many = means(&array.clone().with_options(threads(n)), &selection, &axes);
                    assert!(one == many, "{n} threads, axes {axes:?}, {codec} {chunk:?}");
                }
            }
        }
    }
}

#[test]
fn unknown_axes_are_rejected() {
    let case = Case::counting(DType::Float64, &[4, 4], &[2, 2], "raw");
    let array = array(memory(&case.write()));
    for wrong in [vec![2], vec![0, 0]] {
        let error = array.reduce(&array.all().unwrap(), &wrong, StatSet::SUM).unwrap_err();
        assert!(matches!(error.kind(), tesseral::ErrorKind::InvalidRequest { .. }), "{wrong:?}: {error:?}");
    }
}

/// Chunks with exact statistics are not read.
#[test]
fn statistics_answer_without_reading() {
    let case = Case::counting(DType::Int32, &[40, 50], &[16, 16], "zstd");
    let bytes = case.write_with(&options(true, true, None), Options::default());
    let counting = Arc::new(Counting::default());
    let array = array(behind(&bytes, &counting));
    let all = array.all().unwrap();
    counting.reset();
    let range = array.summary(&all, StatSet::RANGE).unwrap();
    assert_eq!(
        (range.min(), range.max()),
        (Some(Scalar::from_element(0_i32)), Some(Scalar::from_element(1999_i32)))
    );
    let stats_only = counting.bytes();
    let sum = array.summary(&all, StatSet::SUM).unwrap();
    assert_eq!(sum.sum(), Some(Sum::Int(1999 * 2000 / 2)));
    let stored: u64 = array.chunks(&all).unwrap().iter().map(|chunk| chunk.stored_len).sum();
    assert!(counting.bytes() - stats_only >= stored, "a sum requires the cells");
    let payload = array.chunks(&all).unwrap()[0].offset;
    let payload = payload..payload + stored;
    counting.reset();
    array.summary(&all, StatSet::RANGE).unwrap();
    assert!(
        counting.spans().iter().all(|r| r.end <= payload.start || r.start >= payload.end),
        "{:?}",
        counting.spans()
    );
}

#[test]
fn empty_selections_have_no_extremes() {
    let case = Case::counting(DType::Float64, &[4, 4], &[2, 2], "raw");
    let array = array(memory(&case.write()));
    let none = Selection::new([Slice::new(2, 2), Slice::new(0, 4)], &[4, 4]).unwrap();
    let got = array.summary(&none, StatSet::ALL).unwrap();
    assert_eq!((got.count(), got.min(), got.max(), got.mean(), got.std()), (0, None, None, None, None));
}

#[test]
fn many_chunks_are_planned_in_parts() {
    let case = Case::counting(DType::Int32, &[301, 203], &[3, 2], "raw");
    let store = memory(&case.write());
    let selections = [
        Selection::all(&case.shape),
        common::select(&case.shape, &[(1, 300, 1), (5, 200, 1)]),
        common::select(&case.shape, &[(2, 299, 2), (0, 203, 3)]),
    ];
    for selection in selections {
        let cells = case.slice(&selection);
        let numbers: Vec<i128> =
            cells.chunks_exact(4).map(|c| i128::from(i32::from_ne_bytes(c.try_into().unwrap()))).collect();
        for n in [1, 3] {
            let array = array(store.clone()).with_options(threads(n));
            let summary = array.summary(&selection, StatSet::ALL).unwrap();
            assert_eq!(summary.count(), numbers.len() as u64);
            assert_eq!(summary.sum(), Some(Sum::Int(numbers.iter().sum())));
            assert_eq!(summary.min().unwrap().as_f64().unwrap() as i128, *numbers.iter().min().unwrap());
            assert_eq!(summary.max().unwrap().as_f64().unwrap() as i128, *numbers.iter().max().unwrap());
        }
    }
}

#[test]
fn jobs_of_other_selections_are_rejected() {
    use tesseral::fold::{Job, Statistic};
    let case = Case::counting(DType::Float64, &[40, 50], &[10, 50], "raw");
    let array = array(memory(&case.write()));
    let statistics = vec![Statistic::Mean, Statistic::Quantile(0.5), Statistic::ArgMax];
    let asked = array.reduction(statistics).unwrap().over_axes(vec![0]).unwrap().resolve().unwrap();
    let jobs = asked.split(8000).unwrap();
    assert!(jobs.len() > 1 && asked.run(&jobs[1]).is_ok());
    let changes: [fn(&mut Job); 9] = [
        |job| job.fold.roles.clear(),
        |job| job.fold.masks.clear(),
        |job| job.fold.masks[0] = Some(vec![true; 3]),
        |job| job.units[0].place[0].0 += 1,
        |job| job.units[0].place[1] = (0, 1 << 40),
        |job| job.units[0].place.clear(),
        |job| job.units[0].slices[0] = (0, 40, 1),
        |job| job.units[0].slices[0].2 = 2,
        |job| job.units[0].slices.clear(),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut job = jobs[1].clone();
        change(&mut job);
        assert!(asked.run(&job).is_err(), "change {number}");
    }
    // Any bytes: an error or an answer, no panic.
    let bytes = jobs[1].to_bytes().unwrap();
    for at in 8..bytes.len() {
        for value in [0, 1, 2, 9, 127, 128, 255] {
            let mut changed = bytes.clone();
            changed[at] = value;
            if let Ok(job) = Job::from_bytes(&changed) {
                let _ = asked.run(&job);
            }
        }
    }
}
