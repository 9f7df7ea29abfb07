//! Cases that move arrays: between formats, to other chunk shapes, and sums of the cells that meet a condition.

use serde_json::json;
use tesseral::{ConvertOptions, Options, StatSet};

use crate::common::{Args, Outcome, Result, digest, time};

/// Memory limit of a rechunk.
const MEMORY: u64 = 64 << 20;

pub fn run(args: &Args) -> Result<Outcome> {
    match args.case.as_str() {
        "convert" => convert(args),
        "rechunk" => rechunk(args),
        _ => sum_where(args),
    }
}

/// The digest of all written cells.
fn written(args: &Args) -> Result<(u64, serde_json::Value)> {
    let array = tesseral::open(&args.out)?.array_at(0)?;
    let cells = array.read(&array.all()?)?;
    let answer = digest([cells.as_slice().ok_or("not f32")?]);
    Ok((cells.bytes().len() as u64, answer))
}

/// Conversion to the format of the output's extension, with the chunks and codecs of the source.
fn convert(args: &Args) -> Result<Outcome> {
    let source = tesseral::open(&args.file)?;
    let options = ConvertOptions::new().overwrite();
    let timed = time(args, || Ok(tesseral::convert(&source, &args.out, &options)?))?;
    let (bytes, answer) = written(args)?;
    Ok(Outcome::new(&timed, bytes, answer))
}

/// Rechunking within the memory limit.
fn rechunk(args: &Args) -> Result<Outcome> {
    let source = tesseral::open(&args.file)?;
    let execution = Options::default().with_memory(MEMORY);
    let options = ConvertOptions::new().overwrite().execution(execution);
    let extents: Vec<String> = args.chunk.iter().map(u64::to_string).collect();
    let timed = time(args, || {
        let chunk = extents.join(",").parse()?;
        Ok(tesseral::rechunk(&source, &args.out, chunk, &options)?)
    })?;
    let (bytes, answer) = written(args)?;
    Ok(Outcome::new(&timed, bytes, answer))
}

/// The sum of the cells that meet the condition.
fn sum_where(args: &Args) -> Result<Outcome> {
    let array = tesseral::open(&args.file)?.array_at(0)?;
    let name = array.selected_field().name.clone();
    let query = array.cells()?.filter(&args.condition)?;
    let timed = time(args, || {
        let summary = query.summary(&name, StatSet::SUM)?;
        Ok((summary.count(), summary.sum().map_or(0.0, |s| s.to_f64())))
    })?;
    Ok(Outcome::new(&timed, 0, json!([timed.result.0 as f64, timed.result.1])))
}
