//! Zarr version 3 through `zarrs`, which reads and writes on all cores but folds nothing: folds are written here, chunk by
//! chunk on all cores, as a user of the crate would.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::json;
use zarrs::array::codec::ZstdCodec;
use zarrs::array::{Array, ArrayBuilder, ArraySubset, data_type};
use zarrs::filesystem::FilesystemStore;

use crate::common::{Args, Outcome, Result, digest, region_shape, sample, time, windows};

type Zarr = Array<FilesystemStore>;

pub fn run(args: &Args) -> Result<Outcome> {
    match args.case.as_str() {
        "write" => write(args),
        "read" => read(args),
        "window" | "series" => boxes(args),
        "mean" => fold(args, |f| f.sum / f.count),
        "min" => fold(args, |f| f.min),
        "max" => fold(args, |f| f.max),
        "std" => fold(args, |f| (f.squares / f.count - (f.sum / f.count).powi(2)).sqrt()),
        "mean_axis0" => mean_axis0(args),
        case => Err(format!("the crate has no case {case}").into()),
    }
}

fn open(path: &Path) -> Result<Zarr> {
    Ok(Array::open(Arc::new(FilesystemStore::new(path)?), "/")?)
}

fn bytes(array: &Zarr) -> u64 {
    array.shape().iter().product::<u64>() * 4
}

fn read(args: &Args) -> Result<Outcome> {
    let array = open(&args.file)?;
    let all = array.subset_all();
    let timed = time(args, || Ok(array.retrieve_array_subset::<Vec<f32>>(&all)?))?;
    Ok(Outcome::new(&timed, bytes(&array), digest([&timed.result[..]])))
}

fn boxes(args: &Args) -> Result<Outcome> {
    let array = open(&args.file)?;
    let subset = |window: Vec<(u64, u64)>| {
        let ranges: Vec<_> = window.into_iter().map(|(start, end)| start..end).collect();
        ArraySubset::new_with_ranges(&ranges)
    };
    let boxes = windows(array.shape(), &region_shape(&args.case, array.shape()));
    let boxes: Vec<_> = boxes.into_iter().map(subset).collect();
    let timed = time(args, || {
        let read = boxes.iter().map(|window| array.retrieve_array_subset::<Vec<f32>>(window));
        Ok(read.collect::<std::result::Result<Vec<_>, _>>()?)
    })?;
    let answer = digest(timed.result.iter().map(Vec::as_slice));
    Ok(Outcome::new(&timed, timed.result[0].len() as u64 * 4, answer).per(boxes.len()))
}

/// Coordinates of every chunk.
fn chunks(grid: &[u64]) -> Vec<Vec<u64>> {
    grid.iter().fold(vec![Vec::new()], |all, &n| {
        all.iter().flat_map(|first| (0..n).map(|i| [&first[..], &[i]].concat())).collect()
    })
}

fn cells(array: &Zarr, chunk: &[u64]) -> Result<Vec<f32>> {
    Ok(array.retrieve_array_subset(&array.chunk_subset_bounded(chunk)?)?)
}

/// All four statistics at once: the loop is bound by memory, not by arithmetic.
#[derive(Clone, Copy)]
struct Fold {
    count: f64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Fold {
    const EMPTY: Self =
        Self { count: 0.0, sum: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    fn of(cells: &[f32]) -> Self {
        let mut lanes = [Self::EMPTY; 8];
        for block in cells.chunks(8) {
            for (lane, &cell) in lanes.iter_mut().zip(block) {
                let cell = f64::from(cell);
                lane.sum += cell;
                lane.squares += cell * cell;
                lane.min = if cell < lane.min { cell } else { lane.min };
                lane.max = if cell > lane.max { cell } else { lane.max };
            }
        }
        let all = lanes.into_iter().fold(Self::EMPTY, Self::join);
        Self { count: cells.len() as f64, ..all }
    }

    fn join(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

fn fold(args: &Args, pick: impl Fn(Fold) -> f64) -> Result<Outcome> {
    let array = open(&args.file)?;
    let chunks = chunks(array.chunk_grid_shape());
    let timed = time(args, || {
        let parts = chunks
            .par_iter()
            .map(|chunk| cells(&array, chunk).map(|c| Fold::of(&c)).map_err(|e| e.to_string()));
        Ok(pick(parts.try_reduce(|| Fold::EMPTY, |a, b| Ok(a.join(b)))?))
    })?;
    Ok(Outcome::new(&timed, bytes(&array), json!([timed.result])))
}

/// Each column of chunks is summed into a tile, on all cores; the tiles are then put together.
fn mean_axis0(args: &Args) -> Result<Outcome> {
    let array = open(&args.file)?;
    let grid = array.chunk_grid_shape().to_vec();
    let (depth, width) = (array.shape()[0], array.shape()[2] as usize);
    let columns = chunks(&grid[1..]);
    let tile = |column: &Vec<u64>| -> Result<(ArraySubset, Vec<f64>)> {
        let mut sums = Vec::new();
        for layer in 0..grid[0] {
            let cells = cells(&array, &[&[layer], &column[..]].concat())?;
            let place = array.chunk_subset_bounded(&[0, column[0], column[1]])?;
            sums.resize((place.shape()[1] * place.shape()[2]) as usize, 0.0);
            for plane in cells.chunks(sums.len()) {
                sums.iter_mut().zip(plane).for_each(|(sum, &cell)| *sum += f64::from(cell));
            }
        }
        Ok((array.chunk_subset_bounded(&[0, column[0], column[1]])?, sums))
    };
    let timed = time(args, || {
        let tiles = columns.par_iter().map(|column| tile(column).map_err(|e| e.to_string()));
        let tiles = tiles.collect::<std::result::Result<Vec<_>, _>>()?;
        let mut means = vec![0.0; array.shape()[1] as usize * width];
        for (place, sums) in tiles {
            let (start, shape) = (place.start(), place.shape());
            for (y, row) in sums.chunks(shape[2] as usize).enumerate() {
                let at = (start[1] as usize + y) * width + start[2] as usize;
                means[at..at + row.len()]
                    .iter_mut()
                    .zip(row)
                    .for_each(|(mean, sum)| *mean = sum / depth as f64);
            }
        }
        Ok(means)
    })?;
    Ok(Outcome::new(&timed, bytes(&array), sample(timed.result.iter().copied())))
}

fn write(args: &Args) -> Result<Outcome> {
    let source = tetration::layout::mmap_file_read(&args.file)?;
    let cells: &[f32] = bytemuck::cast_slice(&source);
    let answer = digest([cells]);
    let timed = time(args, || {
        let mut builder =
            ArrayBuilder::new(args.shape.clone(), args.chunk.clone(), data_type::float32(), 0.0_f32);
        if args.zstd {
            builder.bytes_to_bytes_codecs(vec![Arc::new(ZstdCodec::new(3, false))]);
        }
        let array = builder.build(Arc::new(FilesystemStore::new(&args.out)?), "/")?;
        array.store_metadata()?;
        Ok(array.store_array_subset(&array.subset_all(), cells)?)
    })?;
    let array = open(&args.out)?;
    if digest([&array.retrieve_array_subset::<Vec<f32>>(&array.subset_all())?[..]]) != answer {
        return Err("other cells came back".into());
    }
    Ok(Outcome::new(&timed, source.len() as u64, answer))
}
