//! Exact reductions beside a plain vectorized sum of the same cells, timed alternately in one process, so that other load on the
//! machine affects both. Prints GB/s and the ratio of each to the plain sum; every answer is checked.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use multiversion::multiversion;
use tesseral_core::DType;
use tesseral_engine::axis::{AxisCells, AxisFold};
use tesseral_engine::{StatSet, Summary};

/// Cells in cache, and in memory.
const SIZES: [usize; 2] = [1 << 20, 128 << 20];
const TURNS: usize = 15;
/// Rows of a reduction along the first axis.
const ROWS: usize = 64;

fn main() {
    // `cargo test` runs this target, too: once and on little data.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let (sizes, turns) = if quick { ([1 << 14, 1 << 16], 1) } else { (SIZES, TURNS) };
    println!("{:>50} {:>10} {:>8} {:>8} {:>6}", "reduction", "bytes", "plain", "exact", "ratio");
    for bytes in sizes {
        for (name, value) in DATA {
            let wide: Vec<f64> = (0..bytes / 8).map(value).collect();
            let narrow: Vec<f32> = (0..bytes / 4).map(|i| value(i) as f32).collect();
            run::<f32>(&format!("float32 {name}"), &narrow, DType::Float32, turns);
            run::<f64>(&format!("float64 {name}"), &wide, DType::Float64, turns);
        }
    }
}

type Values = fn(usize) -> f64;

/// Temperatures in kelvin; rain, mostly 0, over many orders of magnitude.
const DATA: [(&str, Values); 2] = [
    ("temperature", |i| 280.0 + 20.0 * noise(i)),
    ("rain", |i| if noise(i) < 0.0 { 0.0 } else { (12.0 * noise(i + 1)).exp() * 1e-6 }),
];

/// A number between -1 and 1.
fn noise(i: usize) -> f64 {
    let mixed = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

trait Cell: bytemuck::Pod + Into<f64> {}
impl Cell for f32 {}
impl Cell for f64 {}

#[multiversion(targets("x86_64+avx2"))]
fn plain<T: Cell>(cells: &[T]) -> f64 {
    plain_lanes(cells)
}

#[inline(always)]
fn plain_lanes<T: Cell>(cells: &[T]) -> f64 {
    let mut lanes = [0.0_f64; 32];
    let (blocks, rest) = cells.as_chunks::<32>();
    for block in blocks {
        for i in 0..32 {
            lanes[i] += block[i].into();
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&cell| cell.into()).sum::<f64>()
}

fn run<T: Cell>(data: &str, cells: &[T], dtype: DType, turns: usize) {
    let bytes: &[u8] = bytemuck::cast_slice(cells);
    let summary = |wanted: StatSet| {
        let mut summary = Summary::new(dtype, wanted).unwrap();
        summary.fold(bytes, None, &[]).unwrap();
        summary
    };
    let sum = summary(StatSet::SUM).sum().unwrap().to_f64();
    assert!((plain(cells) - sum).abs() <= 1e-9 * sum.abs());
    let row = cells.len() / ROWS;
    let along = || {
        let mut fold = AxisFold::new(dtype, StatSet::SUM, &[row]).unwrap();
        let view = AxisCells { cells: bytes, validity: None, shape: &[ROWS, row], strides: &[row, 1] };
        fold.fold(&view, &[true, false], &[0], &[]).unwrap();
        (0..row).filter_map(|i| fold.mean(i)).sum::<f64>()
    };
    assert!((along() * ROWS as f64 - sum).abs() <= 1e-9 * sum.abs());
    let all = StatSet::ALL;
    compare(data, "sum", cells, turns, || summary(StatSet::SUM).sum().unwrap().to_f64());
    compare(data, "min, max", cells, turns, || summary(StatSet::RANGE).min().unwrap().as_f64().unwrap());
    compare(data, "count", cells, turns, || summary(StatSet::COUNTS).valid() as f64);
    compare(data, "std", cells, turns, || summary(StatSet::SPREAD).std().unwrap());
    compare(data, "all statistics", cells, turns, || summary(all).std().unwrap());
    compare(data, "mean over the first axis", cells, turns, along);
}

/// Prints the medians of both and of their ratios.
fn compare<T: Cell>(data: &str, name: &str, cells: &[T], turns: usize, exact: impl Fn() -> f64) {
    let bytes = size_of_val(cells);
    let repeats = ((32 << 20) / bytes.max(1)).clamp(1, 64);
    let time = |work: &dyn Fn() -> f64| {
        let start = Instant::now();
        for _ in 0..repeats {
            black_box(work());
        }
        start.elapsed()
    };
    let mut turns: Vec<(Duration, Duration)> =
        (0..turns).map(|_| (time(&|| plain(black_box(cells))), time(&exact))).collect();
    let speed = |time: Duration| (bytes * repeats) as f64 / time.as_secs_f64() / 1e9;
    let middle = turns.len() / 2;
    turns.sort_by_key(|turn| turn.0);
    let plain = speed(turns[middle].0);
    turns.sort_by_key(|turn| turn.1);
    let exact = speed(turns[middle].1);
    let mut ratios: Vec<f64> =
        turns.iter().map(|(plain, exact)| plain.as_secs_f64() / exact.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let label = format!("{data}, {name}");
    println!("{label:>50} {bytes:>10} {plain:>8.1} {exact:>8.1} {:>6.2}", ratios[middle]);
}
