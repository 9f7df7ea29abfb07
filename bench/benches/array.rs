//! Open, plan, full read, window read and aggregate, each at two sizes: ten times the chunks must not cost much more than
//! ten times the time, and what does not depend on them must not change. Every bench checks its answer.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::OnceLock;

use divan::{Bencher, black_box, counter::BytesCount};
use tesseral::{Array, ArraySchema, ArraySpec, Create, DType, Selection, Slice, StatSet};

fn main() {
    divan::main();
}

/// Chunks of 8×8 cells in a square grid of this side: 10,000 and 256,036 of them.
const SIDES: [u64; 2] = [100, 506];
/// Planes of a cube in chunks of 16×64×64: 8 MiB and 64 MiB.
const PLANES: [u64; 2] = [32, 256];

/// Files made once, in a folder that the system clears.
fn file(name: String, shape: &[u64], chunk: &[u64]) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let path = FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path().join(name);
    if !path.exists() {
        let mut session = Create::new().begin(&path, "tet").unwrap();
        let array =
            session.add(&ArraySpec::raw(ArraySchema::dense("a", DType::Float32, shape, chunk))).unwrap();
        session
            .fill(array, |region, cells| {
                let first = (region.start(0) % 251) as f32;
                bytemuck::cast_slice_mut(cells).fill(first);
                Ok(())
            })
            .unwrap();
        session.commit().unwrap();
    }
    path
}

fn grid(side: u64) -> PathBuf {
    file(format!("grid-{side}.tet"), &[side * 8, side * 8], &[8, 8])
}

fn cube(planes: u64) -> Array {
    let path = file(format!("cube-{planes}.tet"), &[planes, 256, 256], &[16, 64, 64]);
    tesseral::open(path).unwrap().array_at(0).unwrap()
}

/// The sum of a file's cells: each chunk holds the position of its first row, modulo 251.
fn expected_sum(rows: u64, step: u64, row_cells: u64) -> f64 {
    (0..rows).map(|row| ((row / step * step % 251) * row_cells) as f64).sum()
}

#[divan::bench(args = SIDES)]
fn open(bencher: Bencher<'_, '_>, side: u64) {
    let path = grid(side);
    bencher.bench(|| {
        let array = tesseral::open(&path).unwrap().array("a").unwrap();
        assert_eq!(array.schema().shape().unwrap()[..], [side * 8, side * 8]);
    });
}

#[divan::bench(args = SIDES)]
fn plan(bencher: Bencher<'_, '_>, side: u64) {
    let array = tesseral::open(grid(side)).unwrap().array("a").unwrap();
    let all = array.all().unwrap();
    bencher.bench(|| assert_eq!(array.explain(black_box(&all)).unwrap().chunks, side * side));
}

/// A plan costs by the chunks it touches, not by those there are: both sizes should take the same time.
#[divan::bench(args = SIDES)]
fn plan_window(bencher: Bencher<'_, '_>, side: u64) {
    let array = tesseral::open(grid(side)).unwrap().array("a").unwrap();
    let window = Selection::new([Slice::new(400, 432), Slice::new(400, 432)], &[side * 8, side * 8]).unwrap();
    bencher.bench(|| assert_eq!(array.explain(black_box(&window)).unwrap().chunks, 16));
}

#[divan::bench(args = PLANES)]
fn read_full(bencher: Bencher<'_, '_>, planes: u64) {
    let array = cube(planes);
    let all = array.all().unwrap();
    bencher.counter(BytesCount::new(planes * 256 * 256 * 4)).bench(|| {
        let cells = array.read(black_box(&all)).unwrap();
        let last = cells.as_slice::<f32>().unwrap()[(planes * 256 * 256 - 1) as usize];
        assert_eq!(last, ((planes - 16) % 251) as f32);
        cells
    });
}

#[divan::bench(args = PLANES)]
fn read_window(bencher: Bencher<'_, '_>, planes: u64) {
    let array = cube(planes);
    let window = [Slice::new(12, 20), Slice::new(50, 82), Slice::new(100, 132)];
    let window = Selection::new(window, &[planes, 256, 256]).unwrap();
    bencher.bench(|| {
        let cells = array.read(black_box(&window)).unwrap();
        let cells = cells.as_slice::<f32>().unwrap();
        assert_eq!((cells[0], cells[8 * 32 * 32 - 1]), (0.0, 16.0));
    });
}

#[divan::bench(args = PLANES)]
fn sum_cube(bencher: Bencher<'_, '_>, planes: u64) {
    let array = cube(planes);
    let all = array.all().unwrap();
    let expected = expected_sum(planes, 16, 256 * 256);
    bencher.counter(BytesCount::new(planes * 256 * 256 * 4)).bench(|| {
        assert_eq!(array.summary(black_box(&all), StatSet::SUM).unwrap().sum().unwrap().to_f64(), expected);
    });
}

#[divan::bench(args = SIDES)]
fn sum_chunks(bencher: Bencher<'_, '_>, side: u64) {
    let array = tesseral::open(grid(side)).unwrap().array("a").unwrap();
    let all = array.all().unwrap();
    let expected = expected_sum(side * 8, 8, side * 8);
    bencher.bench(|| {
        assert_eq!(array.summary(black_box(&all), StatSet::SUM).unwrap().sum().unwrap().to_f64(), expected);
    });
}
