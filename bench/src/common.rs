//! Shared by every runner of `bench/compare`: arguments, timing, results, memory, and the printed line.
//!
//! The programs of other crates include this file by its path, so it does not depend on Tesseral.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Errors of a runner are printed in its line.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// `CASE FILE [--runs N] [--seconds S] [--label L] [--shape A,B,C] [--chunk A,B,C] [--codec raw|zstd] [--out PATH]
/// [--statistics yes] [--durable yes] [--dtype f32|f64|i32] [--pipeline P] [--threads N] [--count N] [--query Q] [--where C]`.
#[derive(Debug)]
pub struct Args {
    /// The case to run.
    pub case: String,
    /// The input file.
    pub file: PathBuf,
    /// Maximum number of runs.
    pub runs: usize,
    /// No further run begins after this time.
    pub limit: Duration,
    /// The name in the result line; defaults to the case.
    pub label: String,
    /// Of raw files, which do not store it.
    pub shape: Vec<u64>,
    /// Chunk shape of files to write.
    pub chunk: Vec<u64>,
    /// Whether files to write are compressed with Zstandard.
    pub zstd: bool,
    /// Whether to write chunk statistics, where the format makes them optional.
    pub statistics: bool,
    /// Whether what is written must survive a loss of power.
    pub durable: bool,
    /// Dtype of files to write: `f32`, `f64` or `i32`.
    pub dtype: String,
    /// The file to write.
    pub out: PathBuf,
    /// Encoding, filter and compression of messages.
    pub pipeline: String,
    /// Threads that decode a message; the library's default if not given.
    pub threads: Option<usize>,
    /// Number of messages to write.
    pub count: usize,
    /// A selection, arguments separated by spaces.
    pub query: String,
    /// The condition on rows.
    pub condition: String,
}

impl Args {
    /// Parses the arguments of the process, after the first `skip`.
    pub fn parse(skip: usize) -> Result<Self> {
        let mut words = std::env::args().skip(skip);
        let mut next = |what: &str| words.next().ok_or_else(|| format!("missing {what}"));
        let (case, file) = (next("CASE")?, next("FILE")?);
        let mut args = Self {
            label: case.clone(),
            case,
            file: file.into(),
            runs: 7,
            limit: Duration::from_secs(10),
            shape: Vec::new(),
            chunk: Vec::new(),
            zstd: false,
            statistics: false,
            durable: true,
            dtype: "f32".to_owned(),
            out: PathBuf::new(),
            pipeline: "none".to_owned(),
            threads: None,
            count: 1,
            query: String::new(),
            condition: String::new(),
        };
        while let Ok(option) = next("an option") {
            let value = next(&option)?;
            match option.as_str() {
                "--runs" => args.runs = value.parse()?,
                "--seconds" => args.limit = Duration::from_secs_f64(value.parse()?),
                "--label" => args.label = value,
                "--shape" => args.shape = extents(&value)?,
                "--chunk" => args.chunk = extents(&value)?,
                "--codec" => args.zstd = value == "zstd",
                "--statistics" => args.statistics = value == "yes",
                "--durable" => args.durable = value == "yes",
                "--dtype" => args.dtype = value,
                "--out" => args.out = value.into(),
                "--pipeline" => args.pipeline = value,
                "--threads" => args.threads = Some(value.parse()?),
                "--count" => args.count = value.parse()?,
                "--query" => args.query = value,
                "--where" => args.condition = value,
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        Ok(args)
    }
}

fn extents(text: &str) -> Result<Vec<u64>> {
    text.split(',').map(|n| n.parse().map_err(Into::into)).collect()
}

/// Seconds of each run, sorted, and the result of the first run.
#[derive(Debug)]
pub struct Timed<T> {
    /// Seconds of the first run: nothing has been checked, and all memory is new.
    pub first: f64,
    /// Of the runs after it, sorted.
    pub seconds: Vec<f64>,
    /// Peak memory of the first run, relative to the start.
    pub extra: u64,
    /// Result of the first run.
    pub result: T,
}

/// Short cases continue beyond the requested runs until this share of the time is used, at most
/// [`MOST`] runs: the median of a few short runs is noise.
const ENOUGH: f64 = 0.06;
const MOST: usize = 301;

/// Times `work`: the first run, which is what a new process pays, and repetitions. Results are dropped outside the
/// measurement.
pub fn time<T>(args: &Args, work: impl FnMut() -> Result<T>) -> Result<Timed<T>> {
    time_after(args, || Ok(()), work)
}

/// Times `work` as [`time`] does, each run after an untimed `setup`.
pub fn time_after<T>(
    args: &Args,
    mut setup: impl FnMut() -> Result<()>,
    mut work: impl FnMut() -> Result<T>,
) -> Result<Timed<T>> {
    setup()?;
    let before = memory_now()?;
    let begin = Instant::now();
    let result = work()?;
    let first = begin.elapsed();
    let extra = memory_peak()?.saturating_sub(before);
    let mut seconds = Vec::with_capacity(args.runs);
    let needs_run = |seconds: &[f64]| {
        let enough = ENOUGH * args.limit.as_secs_f64();
        let short = args.runs > 0 && seconds.len() < MOST && seconds.iter().sum::<f64>() < enough;
        seconds.len() < args.runs || short
    };
    while needs_run(&seconds) && (begin.elapsed() < args.limit / 2 || !seconds.is_empty()) {
        if begin.elapsed() > args.limit {
            break;
        }
        setup()?;
        let start = Instant::now();
        let again = work()?;
        seconds.push(start.elapsed().as_secs_f64());
        drop(again);
    }
    if seconds.is_empty() {
        seconds.push(first.as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Timed { first: first.as_secs_f64(), seconds, extra, result })
}

/// The result of a case.
#[derive(Debug)]
pub struct Outcome {
    /// Seconds of the first run.
    pub first: f64,
    /// Of the runs after it, sorted.
    pub seconds: Vec<f64>,
    /// Operations per run; the printed seconds are per operation.
    pub per: usize,
    /// Bytes of cells that one operation returns or reads.
    pub bytes: u64,
    /// The result: text must be equal between runners, numbers within a tolerance.
    pub answer: Value,
    /// Peak memory of one run, relative to the start.
    pub extra_bytes: u64,
    /// Bytes on disk of the written output, where sizes are compared.
    pub stored_bytes: Option<u64>,
}

impl Outcome {
    /// The result of timed runs.
    pub fn new<T>(timed: &Timed<T>, bytes: u64, answer: Value) -> Self {
        let seconds = timed.seconds.clone();
        Self {
            first: timed.first,
            seconds,
            per: 1,
            bytes,
            answer,
            extra_bytes: timed.extra,
            stored_bytes: None,
        }
    }

    /// Sets the number of operations per run.
    #[must_use]
    pub fn per(mut self, operations: usize) -> Self {
        self.per = operations;
        self
    }

    /// Sets the bytes on disk.
    #[must_use]
    pub fn stored(mut self, bytes: u64) -> Self {
        self.stored_bytes = Some(bytes);
        self
    }
}

/// Prints the line of a case and returns whether it succeeded.
pub fn report(who: &str, label: &str, outcome: Result<Outcome>) -> bool {
    let (line, done) = match outcome {
        Ok(outcome) => {
            let per_operation = |seconds: f64| seconds / outcome.per as f64;
            let line = json!({
                "who": who,
                "case": label,
                "seconds_first": per_operation(outcome.first),
                "seconds_median": per_operation(outcome.seconds[outcome.seconds.len() / 2]),
                "runs": outcome.seconds.len(),
                "bytes": outcome.bytes,
                "answer": outcome.answer,
                "extra_bytes": outcome.extra_bytes,
                "stored_bytes": outcome.stored_bytes,
            });
            (line, true)
        }
        Err(error) => (json!({"who": who, "case": label, "failed": error.to_string()}), false),
    };
    println!("{line}");
    done
}

/// A digest that depends on value and position: Σ bits(i) · (2i + 1) over the cells pushed so far, modulo 2⁶⁴.
#[derive(Debug, Default)]
pub struct Digest {
    sum: u64,
    next: u64,
}

impl Digest {
    /// Adds cells.
    #[must_use]
    pub fn push(mut self, cells: &[f32]) -> Self {
        for cell in cells {
            let weight = self.next.wrapping_mul(2).wrapping_add(1);
            self.sum = self.sum.wrapping_add(u64::from(cell.to_bits()).wrapping_mul(weight));
            self.next += 1;
        }
        self
    }

    /// The digest as an answer.
    pub fn answer(&self) -> Value {
        format!("{:016x}", self.sum).into()
    }
}

/// The digest of several pieces in order.
pub fn digest<'a>(pieces: impl IntoIterator<Item = &'a [f32]>) -> Value {
    pieces.into_iter().fold(Digest::default(), Digest::push).answer()
}

/// Three cells and the mean of a result, to compare results whose last bits may differ.
pub fn sample(cells: impl ExactSizeIterator<Item = f64> + Clone) -> Value {
    let n = cells.len();
    let at = |i: usize| cells.clone().nth(i).unwrap_or(f64::NAN);
    json!([at(0), at(n / 3), at(n - 1), cells.clone().sum::<f64>() / n as f64])
}

/// Regions as a map viewer would request them, as (start, end) of each dimension: the same for every runner.
pub fn windows(shape: &[u64], size: &[u64]) -> Vec<Vec<(u64, u64)>> {
    let mut state = 1_u64;
    let mut random_below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut random_window = || {
        let ends = shape.iter().zip(size).map(|(&extent, &size)| {
            let size = size.min(extent);
            let start = random_below(extent - size + 1);
            (start, start + size)
        });
        ends.collect()
    };
    (0..WINDOWS).map(|_| random_window()).collect()
}

/// Number of regions per run.
pub const WINDOWS: usize = 50;

/// The region shape: a window of 8×32×32 cells, or a complete time series.
pub fn region_shape(case: &str, shape: &[u64]) -> [u64; 3] {
    if case == "series" { [shape[0], 1, 1] } else { [8, 32, 32] }
}

/// Makes a file, or all files and folders below a folder, durable, for libraries that do not.
pub fn synchronize(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            synchronize(&entry?.path())?;
        }
    }
    Ok(File::open(path)?.sync_all()?)
}

/// Resets the peak and returns the current memory use of this process.
fn memory_now() -> Result<u64> {
    std::fs::write("/proc/self/clear_refs", "5")?;
    status("VmRSS:")
}

/// The peak since [`memory_now`].
fn memory_peak() -> Result<u64> {
    status("VmHWM:")
}

fn status(field: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).ok_or("missing field")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}
