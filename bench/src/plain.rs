//! The speed of the machine without a format: the baseline of the goals.

use std::num::NonZero;
use std::path::Path;
use std::thread;

use memmap2::{Advice, MmapMut};
use serde_json::json;
use tesseral::ChunkInfo;
use tesseral_store::{Bytes, LocalStore, ReadMode, Store};

use crate::common::{Args, Outcome, Result, digest, time};

/// The level used by the formats' writers.
const LEVEL: i32 = 3;
/// The chunk size of TileDB tiles.
const PIECE: usize = 1 << 16;

/// Maps a file as the engine does.
pub fn map(path: &Path) -> Result<Bytes> {
    Ok(LocalStore::new(path, ReadMode::Map).resident("")?.ok_or("the file cannot be mapped")?)
}

/// The cells of a mapping.
pub fn cells(bytes: &[u8]) -> Result<&[f32]> {
    bytemuck::try_cast_slice(bytes).map_err(|e| e.to_string().into())
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Copies a file into new memory of huge pages, a share per core.
pub fn copy(args: &Args) -> Result<Outcome> {
    const HUGE: usize = 2 << 20;
    let source = map(&args.file)?;
    let share = source.len().div_ceil(threads()).next_multiple_of(HUGE);
    let timed = time(args, || {
        let mut fresh = MmapMut::map_anon(source.len() + HUGE)?;
        fresh.advise(Advice::HugePage)?;
        let start = fresh.as_ptr().align_offset(HUGE);
        thread::scope(|scope| {
            let target = &mut fresh[start..start + source.len()];
            for (to, from) in target.chunks_mut(share).zip(source.chunks(share)) {
                scope.spawn(|| to.copy_from_slice(from));
            }
        });
        Ok((fresh, start))
    })?;
    let (fresh, start) = &timed.result;
    let answer = digest([cells(&fresh[*start..*start + source.len()])?]);
    Ok(Outcome::new(&timed, source.len() as u64, answer))
}

/// The mean of mapped `f32` cells, summed in `f64`, a share per core.
pub fn mean(args: &Args) -> Result<Outcome> {
    let source = map(&args.file)?;
    let all = cells(&source)?;
    let share = all.len().div_ceil(threads());
    let timed = time(args, || {
        thread::scope(|scope| {
            let parts: Vec<_> = all.chunks(share).map(|part| scope.spawn(|| sum(part))).collect();
            let sums: thread::Result<Vec<f64>> =
                parts.into_iter().map(thread::ScopedJoinHandle::join).collect();
            Ok(sums.map_err(|_| "a thread panicked")?.iter().sum::<f64>() / all.len() as f64)
        })
    })?;
    let answer = json!([timed.result]);
    Ok(Outcome::new(&timed, source.len() as u64, answer))
}

/// Sixteen independent sums, which the compiler vectorizes.
fn sum(cells: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 16];
    let (blocks, rest) = cells.as_chunks::<16>();
    for block in blocks {
        for (lane, cell) in lanes.iter_mut().zip(block) {
            *lane += f64::from(*cell);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|c| f64::from(*c)).sum::<f64>()
}

/// XXH3-64 of a file in memory, on one core.
pub fn hash(args: &Args) -> Result<Outcome> {
    let bytes = std::fs::read(&args.file)?;
    let timed = time(args, || Ok(xxhash_rust::xxh3::xxh3_64(&bytes)))?;
    Ok(Outcome::new(&timed, bytes.len() as u64, json!(null)))
}

/// libzstd alone: decompresses every frame of a `.tet` file on all cores, each core into its own warm buffer.
pub fn decompress(args: &Args) -> Result<Outcome> {
    let (file, chunks) = (map(&args.file)?, chunks(&args.file)?);
    let timed = time(args, || {
        share(&chunks, |chunks| {
            let mut context = zstd_safe::DCtx::create();
            let mut out = Vec::new();
            let mut total = 0;
            for chunk in chunks {
                out.resize(size(chunk.raw_len)?, 0);
                total += context
                    .decompress(&mut out[..], payload(&file, chunk)?)
                    .map_err(zstd_safe::get_error_name)?;
            }
            Ok(total as u64)
        })
    })?;
    let raw: u64 = chunks.iter().map(|c| c.raw_len).sum();
    if timed.result != raw {
        return Err(format!("decompressed {} bytes, expected {raw}", timed.result).into());
    }
    Ok(Outcome::new(&timed, raw, json!(null)))
}

/// libzstd alone: every raw chunk of a `.tet` file as frames of 64 KiB, as in TileDB tiles, decompressed on all cores.
pub fn decompress_pieces(args: &Args) -> Result<Outcome> {
    let (file, chunks) = (map(&args.file)?, chunks(&args.file)?);
    let mut context = zstd_safe::CCtx::create();
    // The byte range of each frame and its decompressed size.
    let (mut frames, mut packed) = (Vec::new(), Vec::new());
    for chunk in &chunks {
        for from in payload(&file, chunk)?.chunks(PIECE) {
            let start = packed.len();
            packed.resize(start + zstd_safe::compress_bound(from.len()), 0);
            let len =
                context.compress(&mut packed[start..], from, LEVEL).map_err(zstd_safe::get_error_name)?;
            packed.truncate(start + len);
            frames.push((start..start + len, from.len()));
        }
    }
    let part = frames.len().div_ceil(threads()).max(1);
    let timed = time(args, || {
        thread::scope(|scope| {
            let decompress = |frames: &[(std::ops::Range<usize>, usize)]| -> usize {
                let mut context = zstd_safe::DCtx::create();
                let mut out = vec![0; PIECE];
                let mut decompress_frame = |frame: &(std::ops::Range<usize>, usize)| {
                    context.decompress(&mut out[..frame.1], &packed[frame.0.clone()]).unwrap_or(0)
                };
                frames.iter().map(&mut decompress_frame).sum()
            };
            let parts: Vec<_> =
                frames.chunks(part).map(|part| scope.spawn(move || decompress(part))).collect();
            let done: thread::Result<Vec<usize>> =
                parts.into_iter().map(thread::ScopedJoinHandle::join).collect();
            Ok(done.map_err(|_| "a thread panicked")?.iter().sum::<usize>() as u64)
        })
    })?;
    let raw: u64 = chunks.iter().map(|c| c.raw_len).sum();
    if timed.result != raw {
        return Err(format!("decompressed {} bytes, expected {raw}", timed.result).into());
    }
    Ok(Outcome::new(&timed, raw, json!(null)))
}

/// libzstd alone: compresses every raw chunk of a `.tet` file on all cores at the level of the format; the output is dropped.
pub fn compress(args: &Args) -> Result<Outcome> {
    compress_cut(args, usize::MAX)
}

/// As [`compress`], every chunk in pieces of 64 KiB, as in TileDB tiles.
pub fn compress_pieces(args: &Args) -> Result<Outcome> {
    compress_cut(args, PIECE)
}

fn compress_cut(args: &Args, piece: usize) -> Result<Outcome> {
    let (file, chunks) = (map(&args.file)?, chunks(&args.file)?);
    let timed = time(args, || {
        share(&chunks, |chunks| {
            let mut context = zstd_safe::CCtx::create();
            let mut out = Vec::new();
            let mut total = 0;
            for chunk in chunks {
                for from in payload(&file, chunk)?.chunks(piece) {
                    out.resize(zstd_safe::compress_bound(from.len()), 0);
                    total +=
                        context.compress(&mut out[..], from, LEVEL).map_err(zstd_safe::get_error_name)?;
                }
            }
            Ok(total as u64)
        })
    })?;
    let raw: u64 = chunks.iter().map(|c| c.raw_len).sum();
    if timed.result == 0 || timed.result >= raw {
        return Err(format!("{} bytes compressed to {}", raw, timed.result).into());
    }
    Ok(Outcome::new(&timed, raw, json!(null)))
}

fn chunks(path: &Path) -> Result<Vec<ChunkInfo>> {
    let array = tesseral::open(path)?.array_at(0)?;
    Ok(array.chunks(&array.all()?)?)
}

fn size(len: u64) -> Result<usize> {
    Ok(usize::try_from(len)?)
}

fn payload<'a>(file: &'a [u8], chunk: &ChunkInfo) -> Result<&'a [u8]> {
    let start = size(chunk.offset)?;
    Ok(file.get(start..start + size(chunk.stored_len)?).ok_or("chunk outside its file")?)
}

/// Runs `work` on one share of the chunks per core and adds up the results.
fn share<F>(chunks: &[ChunkInfo], work: F) -> Result<u64>
where
    F: Fn(&[ChunkInfo]) -> Result<u64> + Sync,
{
    let part = chunks.len().div_ceil(threads()).max(1);
    // Errors cross threads as text.
    let run = |chunks: &[ChunkInfo]| work(chunks).map_err(|e| e.to_string());
    thread::scope(|scope| {
        let parts: Vec<_> = chunks.chunks(part).map(|part| scope.spawn(|| run(part))).collect();
        let mut total = 0;
        for part in parts {
            total += part.join().map_err(|_| "a thread panicked")??;
        }
        Ok(total)
    })
}
