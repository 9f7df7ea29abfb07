//! The Tensogram message cases, for any library that implements them. Included by path like `common.rs`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Args, Outcome, Result, synchronize, time};

/// The operations of a Tensogram library.
pub trait Messages {
    /// Encodes a message with one object of `f64` cells.
    fn encode(&self, pipeline: &Pipeline, shape: &[u64], cells: &[u8]) -> Result<Vec<u8>>;
    /// Calls `see` with the cells of the only object of a message.
    fn decode(&self, message: &[u8], how: Decoding, see: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// Decodes cells `first..first + count` of the only object of a message.
    fn range(&self, message: &[u8], first: u64, count: u64) -> Result<Vec<u8>>;
    /// Opens a file and reads the metadata of its first message; returns the number of objects.
    fn read_metadata(&self, path: &Path) -> Result<usize>;
    /// Opens a file and reads cells of its first object.
    fn read_range(&self, path: &Path, first: u64, count: u64) -> Result<Vec<u8>>;
    /// Opens a file and counts its messages.
    fn count(&self, path: &Path) -> Result<usize>;
    /// Appends `times` messages of these cells to a new file, each durably where requested.
    fn append(&self, path: &Path, cells: &[u8], times: usize, durable: bool) -> Result<()>;
    /// Opens a file and decodes the messages with these indices; returns the bytes of their cells.
    fn decode_messages(&self, path: &Path, numbers: &[usize]) -> Result<u64>;
    /// Verifies the hash of every frame of a message.
    fn verify(&self, message: &[u8]) -> Result<()>;
    /// Verifies a file as the library does by default.
    fn verify_file(&self, path: &Path) -> Result<()>;
}

/// Decoding options.
#[derive(Clone, Copy, Debug)]
pub struct Decoding {
    /// Whether to verify hashes.
    pub checked: bool,
    /// Threads; the library's default when `None`.
    pub threads: Option<usize>,
}

/// The encoding of cells: `none`, `sp16`, `sp16+szip`, `shuffle`, `zstd`, `lz4`.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// Bits of simple packing.
    pub bits: Option<u64>,
    /// Whether bytes are shuffled.
    pub shuffle: bool,
    /// `none` or a codec.
    pub compression: String,
}

impl Pipeline {
    fn parse(text: &str) -> Result<Self> {
        let mut pipeline = Self { compression: "none".to_owned(), ..Self::default() };
        for word in text.split('+') {
            match word.strip_prefix("sp") {
                Some(bits) => pipeline.bits = Some(bits.parse()?),
                None if word == "shuffle" => pipeline.shuffle = true,
                None => word.clone_into(&mut pipeline.compression),
            }
        }
        Ok(pipeline)
    }

    /// The descriptor parameters.
    pub fn params(&self) -> Vec<(&'static str, u64)> {
        let mut params = Vec::new();
        if let Some(bits) = self.bits {
            params.extend([("sp_bits_per_value", bits), ("sp_decimal_scale_factor", 0)]);
        }
        if self.shuffle {
            params.push(("shuffle_element_size", 8));
        }
        match self.compression.as_str() {
            "szip" => params.extend([("szip_rsi", 128), ("szip_block_size", 16), ("szip_flags", 8)]),
            "zstd" => params.push(("zstd_level", 3)),
            _ => {}
        }
        params
    }
}

/// A sample of cells and their mean, to verify a result. Lossy encodings agree within the tolerance of the report.
fn sample_cells(cells: &[u8]) -> Value {
    let at = |i: usize| f64::from_le_bytes(std::array::from_fn(|k| cells[i * 8 + k]));
    let n = cells.len() / 8;
    json!([at(0), at(n / 3), at(n - 1), (0..n).map(at).sum::<f64>() / n as f64])
}

/// Message indices spread over a file.
fn spread(count: usize) -> Vec<usize> {
    (0..WANTED).map(|i| (i * 7919 + 13) % count.max(1)).collect()
}

/// Messages decoded per run of the case `some`.
const WANTED: usize = 50;
/// Messages written by the case `ten`.
const TEN: u64 = 10;
/// Messages appended per run of the case `append`.
const APPENDED: usize = 1000;

/// Runs a case whose name begins with `tgm_`.
pub fn run(library: &impl Messages, args: &Args) -> Result<Outcome> {
    let pipeline = Pipeline::parse(&args.pipeline)?;
    let file = || -> Result<Vec<u8>> { Ok(std::fs::read(&args.file)?) };
    let how = Decoding { checked: args.case != "tgm_view", threads: args.threads };
    // A plain file of `f64` cells, as a message.
    let message = || library.encode(&pipeline, &args.shape, &std::fs::read(&args.file)?);
    match args.case.as_str() {
        "tgm_write" => {
            // Many messages of the same cells, where requested.
            let message = message()?;
            std::fs::write(&args.out, message.repeat(args.count))?;
            let timed = time(args, || Ok(()))?;
            Ok(Outcome::new(&timed, message.len() as u64, json!(null)))
        }
        "tgm_encode" => {
            let cells = file()?;
            let timed = time(args, || library.encode(&pipeline, &args.shape, &cells))?;
            let mut answer = json!(null);
            library.decode(&timed.result, how, &mut |cells| answer = sample_cells(cells))?;
            Ok(Outcome::new(&timed, cells.len() as u64, answer))
        }
        "tgm_decode" | "tgm_view" => {
            let message = message()?;
            let mut bytes = 0;
            let timed = time(args, || library.decode(&message, how, &mut |cells| bytes = cells.len()))?;
            let mut answer = json!(null);
            library.decode(&message, how, &mut |cells| answer = sample_cells(cells))?;
            Ok(Outcome::new(&timed, bytes as u64, answer))
        }
        "tgm_verify" => {
            let message = message()?;
            let timed = time(args, || library.verify(&message))?;
            Ok(Outcome::new(&timed, message.len() as u64, json!(null)))
        }
        "tgm_range" => {
            let message = message()?;
            let timed = time(args, || library.range(&message, 400_001, 1000))?;
            Ok(Outcome::new(&timed, 8000, sample_cells(&timed.result)))
        }
        "tgm_range_of" => {
            let timed = time(args, || library.read_range(&args.file, 4_000_001, 10))?;
            Ok(Outcome::new(&timed, 80, sample_cells(&timed.result)))
        }
        "tgm_metadata_of" => {
            let timed = time(args, || library.read_metadata(&args.file))?;
            Ok(Outcome::new(&timed, 0, json!([timed.result])))
        }
        "tgm_count" => {
            let timed = time(args, || library.count(&args.file))?;
            Ok(Outcome::new(&timed, 0, json!([timed.result])))
        }
        "tgm_append" => {
            let cells = file()?;
            let timed = time(args, || {
                let _ = std::fs::remove_file(&args.out);
                library.append(&args.out, &cells[..4096], APPENDED, args.durable)
            })?;
            Ok(Outcome::new(&timed, 4096, json!([library.count(&args.out)?])).per(APPENDED))
        }
        "tgm_ten" => {
            // Ten messages of the same cells, encoded one by one and written to one file.
            let cells = file()?;
            let timed = time(args, || {
                let mut out = File::create(&args.out)?;
                for _ in 0..TEN {
                    out.write_all(&library.encode(&pipeline, &args.shape, &cells)?)?;
                }
                if args.durable { synchronize(&args.out) } else { Ok(()) }
            })?;
            Ok(Outcome::new(&timed, TEN * cells.len() as u64, json!([library.count(&args.out)?])))
        }
        "tgm_verify_file" => {
            let timed = time(args, || library.verify_file(&args.file))?;
            Ok(Outcome::new(&timed, std::fs::metadata(&args.file)?.len(), json!(null)))
        }
        "tgm_all" => {
            let all: Vec<usize> = (0..library.count(&args.file)?).collect();
            let timed = time(args, || library.decode_messages(&args.file, &all))?;
            Ok(Outcome::new(&timed, timed.result, json!([timed.result])))
        }
        "tgm_some" => {
            let indices = spread(library.count(&args.file)?);
            let timed = time(args, || library.decode_messages(&args.file, &indices))?;
            Ok(Outcome::new(&timed, 0, json!([timed.result])))
        }
        case => Err(format!("unknown case {case}").into()),
    }
}
