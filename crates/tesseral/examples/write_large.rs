//! Writes an array far larger than memory: every chunk is generated on request, stored, and dropped.
//!
//! `write_large OUT [MIB] [SEED]`: writes MIB (256) MiB of float32, replacing OUT when the new file is complete.

use std::io::Write;

use tesseral::{ArraySchema, ArraySpec, Create, DType, HistoryRow, Options};

/// A chunk is 64 x 4096 float32: one MiB.
const ROWS: u64 = 64;
const COLUMNS: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().ok_or("usage: write_large OUT [MIB] [SEED]")?;
    let mib: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let seed: u32 = arguments.next().map_or(Ok(0), |text| text.parse())?;

    let progress = |progress: tesseral::Progress| {
        if progress.done.is_multiple_of(64) || progress.done == progress.total {
            report(&format!("{} of {} chunks", progress.done, progress.total));
        }
    };
    let options = Options::default().with_progress(progress);
    let mut session = Create::new().overwrite().execution(options).begin(&out, "")?;
    let schema = ArraySchema::dense("noise", DType::Float32, &[mib * ROWS, COLUMNS], &[ROWS, COLUMNS]);
    let noise = session.add(&ArraySpec::raw(schema))?;
    session.fill(noise, |region, cells| {
        // Cells depend only on their position, so any thread can generate any chunk.
        let first = region.start(0) * COLUMNS;
        for (i, cell) in cells.chunks_exact_mut(4).enumerate() {
            cell.copy_from_slice(&value(seed, first + i as u64).to_ne_bytes());
        }
        Ok(())
    })?;
    let source = format!("seed {seed}");
    session.add_history(HistoryRow {
        op: "write".into(),
        source,
        at: "0".into(),
        ..HistoryRow::default()
    })?;
    session.commit()?;
    if let Some(peak) = peak_memory() {
        report(&format!("wrote {mib} MiB with at most {peak} of memory"));
    }
    Ok(())
}

/// Prints a line to standard error, and ignores a closed stream.
fn report(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A number in 0..1 for each cell of each seed.
fn value(seed: u32, cell: u64) -> f32 {
    let mixed = (cell ^ (u64::from(seed) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as f32 / (1 << 24) as f32
}

/// The peak resident memory of this process, from Linux.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")).map(|value| value.trim().to_owned())
}
