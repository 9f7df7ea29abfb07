//! The cases on versioned arrays, dense and sparse: opening, single cells, rows, conditions, statistics.

use serde_json::json;
use tesseral::{Array, Selection, Slice, StatSet};

use crate::common::{Args, Outcome, Result, digest, time, windows};

/// Runs a case.
pub fn run(args: &Args) -> Result<Outcome> {
    match args.case.as_str() {
        "open_array" => open(args),
        "cell" => cell(args),
        "rows" => rows(args),
        "total" => total(args),
        case => Err(format!("unknown case {case}").into()),
    }
}

fn array(args: &Args) -> Result<Array> {
    Ok(tesseral::open(&args.file)?.array_at(0)?)
}

/// Opening, including the schema and the non-empty domain.
fn open(args: &Args) -> Result<Outcome> {
    let timed = time(args, || {
        let container = tesseral::open(&args.file)?;
        let array = container.array_at(0)?;
        Ok(array.schema().dims.len())
    })?;
    Ok(Outcome::new(&timed, 0, json!([timed.result])))
}

/// Single cells of an open array.
fn cell(args: &Args) -> Result<Outcome> {
    let array = array(args)?;
    let shape = array.schema().shape().ok_or("no shape")?;
    let select =
        |bounds: &Vec<(u64, u64)>| Selection::new(bounds.iter().map(|&(a, b)| Slice::new(a, b)), &shape);
    let cells = windows(&shape, &[1, 1, 1]).iter().map(select).collect::<tesseral::Result<Vec<_>>>()?;
    let timed =
        time(args, || Ok(cells.iter().map(|c| array.read(c)).collect::<tesseral::Result<Vec<_>>>()?))?;
    let read = timed.result.iter().map(|c| c.as_slice().ok_or("not f32"));
    let answer = digest(read.collect::<std::result::Result<Vec<_>, _>>()?);
    Ok(Outcome::new(&timed, 4, answer).per(cells.len()))
}

/// Rows of a sparse array: those in the ranges of `--query`, those that satisfy `--where`.
fn rows(args: &Args) -> Result<Outcome> {
    let array = array(args)?;
    let timed = time(args, || {
        let mut query = array.cells()?.columns(["x", "y", "a"])?.unordered();
        if !args.query.is_empty() {
            query = query.select(args.query.split_whitespace())?;
        }
        if !args.condition.is_empty() {
            query = query.filter(&args.condition)?;
        }
        Ok(query.read()?)
    })?;
    let (_, cells) = timed.result.columns.last().ok_or("no columns")?;
    let sum: f64 =
        (0..timed.result.rows).map(|i| f64::from_le_bytes(std::array::from_fn(|k| cells.get(i)[k]))).sum();
    Ok(Outcome::new(&timed, timed.result.allocated_bytes(), json!([timed.result.rows, sum])))
}

/// The sum over a region.
fn total(args: &Args) -> Result<Outcome> {
    let array = array(args)?;
    let selection = array.select(args.query.split_whitespace())?;
    let timed = time(args, || Ok(array.summary(&selection, StatSet::SUM)?.sum().ok_or("no sum")?.to_f64()))?;
    Ok(Outcome::new(&timed, 0, json!([timed.result])))
}
