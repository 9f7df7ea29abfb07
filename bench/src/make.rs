//! The raw files that every runner starts from.

use std::fs::File;
use std::io::{BufWriter, Write};

use serde_json::json;

use crate::common::{Args, Outcome, Result, time};

/// Writes `f32` cells that look like a weather field: smooth in every dimension, with noise of six bits on top, so that
/// they compress like real data. No two neighbors are equal and no cell is NaN.
pub fn plain(args: &Args) -> Result<Outcome> {
    let waves: Vec<Vec<i32>> =
        args.shape.iter().zip([37.0, 211.0, 307.0]).map(|(&n, period)| wave(n, period)).collect();
    let (last, outer) = waves.split_last().ok_or("missing --shape")?;
    let timed = time(args, || {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&args.file)?);
        let mut state = 42_u64;
        let mut row = Vec::with_capacity(last.len());
        for at in 0..outer.iter().map(Vec::len).product() {
            let mut rest = at;
            let mut base = 18_000;
            for wave in outer.iter().rev() {
                base += wave[rest % wave.len()];
                rest /= wave.len();
            }
            row.clear();
            row.extend(last.iter().map(|value| {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let noise = (state & 63) as i32;
                // Below 2²⁴, so exact.
                (base + value + noise) as f32 / 64.0
            }));
            out.write_all(bytemuck::cast_slice(&row))?;
        }
        out.flush()?;
        Ok(())
    })?;
    Ok(Outcome::new(&timed, args.shape.iter().product::<u64>() * 4, json!(null)))
}

/// Writes the cells of a plain file as `f64`.
pub fn widen(args: &Args) -> Result<Outcome> {
    let cells: Vec<u8> = std::fs::read(&args.file)?
        .as_chunks::<4>()
        .0
        .iter()
        .flat_map(|cell| f64::from(f32::from_le_bytes(*cell)).to_le_bytes())
        .collect();
    let timed = time(args, || Ok(std::fs::write(&args.out, &cells)?))?;
    Ok(Outcome::new(&timed, cells.len() as u64, json!(null)))
}

/// Writes the cells of a plain file as `i32` classes: patches of a few values, similar to land cover.
pub fn classes(args: &Args) -> Result<Outcome> {
    let cells: Vec<u8> = std::fs::read(&args.file)?
        .as_chunks::<4>()
        .0
        .iter()
        .flat_map(|cell| {
            let class = f32::from_le_bytes(*cell) as i32 / 8;
            class.to_le_bytes()
        })
        .collect();
    let timed = time(args, || Ok(std::fs::write(&args.out, &cells)?))?;
    Ok(Outcome::new(&timed, cells.len() as u64, json!(null)))
}

fn wave(n: u64, period: f64) -> Vec<i32> {
    (0..n).map(|i| (900.0 * (i as f64 / period * std::f64::consts::TAU).sin()) as i32).collect()
}
