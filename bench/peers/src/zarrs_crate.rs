//! Zarr version 3 through `zarrs`, which reads and writes on all cores but folds nothing: folds are written here, chunk by
//! chunk on all cores, as a user of the crate would.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::json;
use zarrs::array::codec::ZstdCodec;
use zarrs::array::{Array, ArrayBuilder, ArraySubset, data_type};
use zarrs::filesystem::FilesystemStore;

use crate::common::{Args, Outcome, Result, digest, region_shape, sample, synchronize, time, windows};

type Zarr = Array<FilesystemStore>;

pub fn run(args: &Args) -> Result<Outcome> {
    match args.case.as_str() {
        "write" => write(args),
        "read" => read(args),
        "window" | "series" => boxes(args),
        "mean" => fold(args, |all, lane| all + lane, sum, |sum, n| sum / n),
        "min" => fold(args, f64::min, least, |min, _| min),
        "max" => fold(args, f64::max, greatest, |max, _| max),
        "std" => {
            let pick = |(sum, squares): (f64, f64), n: f64| (squares / n - (sum / n).powi(2)).sqrt();
            fold(args, |a, b| (a.0 + b.0, a.1 + b.1), squares, pick)
        }
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

/// Eight independent lanes of one statistic, which the compiler vectorizes.
fn lanes<T: Copy>(cells: &[f32], start: T, step: impl Fn(T, f64) -> T, join: impl Fn(T, T) -> T) -> T {
    let mut lanes = [start; 8];
    let (blocks, rest) = cells.as_chunks::<8>();
    for block in blocks {
        for (lane, cell) in lanes.iter_mut().zip(block) {
            *lane = step(*lane, f64::from(*cell));
        }
    }
    for (lane, cell) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, f64::from(*cell));
    }
    lanes.into_iter().reduce(join).unwrap_or(start)
}

fn sum(cells: &[f32]) -> f64 {
    lanes(cells, 0.0, |sum, cell| sum + cell, |a, b| a + b)
}

fn squares(cells: &[f32]) -> (f64, f64) {
    lanes(cells, (0.0, 0.0), |(s, q), cell| (s + cell, q + cell * cell), |a, b| (a.0 + b.0, a.1 + b.1))
}

fn least(cells: &[f32]) -> f64 {
    lanes(cells, f64::INFINITY, |min, cell| if cell < min { cell } else { min }, f64::min)
}

fn greatest(cells: &[f32]) -> f64 {
    lanes(cells, f64::NEG_INFINITY, |max, cell| if cell > max { cell } else { max }, f64::max)
}

/// One statistic, chunk by chunk on all cores.
fn fold<T: Copy + Send + Sync>(
    args: &Args,
    join: impl Fn(T, T) -> T + Sync + Send,
    of: impl Fn(&[f32]) -> T + Sync + Send,
    pick: impl Fn(T, f64) -> f64,
) -> Result<Outcome> {
    let array = open(&args.file)?;
    let chunks = chunks(array.chunk_grid_shape());
    let count = array.shape().iter().product::<u64>() as f64;
    let timed = time(args, || {
        let parts = chunks.par_iter().map(|chunk| cells(&array, chunk).map(|c| of(&c)).map_err(|e| e.to_string()));
        let parts = parts.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(pick(parts.into_iter().reduce(&join).ok_or("no chunks")?, count))
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
        array.store_array_subset(&array.subset_all(), cells)?;
        if args.durable { synchronize(&args.out) } else { Ok(()) }
    })?;
    let array = open(&args.out)?;
    if digest([&array.retrieve_array_subset::<Vec<f32>>(&array.subset_all())?[..]]) != answer {
        return Err("other cells came back".into());
    }
    Ok(Outcome::new(&timed, source.len() as u64, answer))
}
