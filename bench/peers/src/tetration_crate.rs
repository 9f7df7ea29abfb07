//! The reference crate of `.tet`, on the very files that Tesseral wrote.

use serde_json::{Value, json};
use tetration::catalog::{
    CHUNK_PAYLOAD_CODEC_V1, DATASET_DTYPE_TAG_V1, RawArrayWrite, TetFile, write_multi_raw_array_file,
};
use tetration::prelude::*;
use tetration::query::{DenseBuffer, QueryDocument, materialize_query_selection};

use crate::common::{Args, Outcome, Result, digest, region_shape, sample, synchronize, time, windows};

pub fn run(args: &Args) -> Result<Outcome> {
    match args.case.as_str() {
        "write" => write(args),
        "read" => read(args),
        "window" | "series" => boxes(args),
        "mean" | "min" | "max" | "std" | "sum" => fold(args),
        "mean_axis0" => mean_axis0(args),
        "open" => open(args),
        case => Err(format!("the crate has no case {case}").into()),
    }
}

/// A whole dataset, or a box of it, as a query. The budget of the crate would refuse large results.
fn selection(window: &[(u64, u64)]) -> Result<QueryDocument> {
    let mut query = json!({"dataset": "cube", "execution": {"memory_budget_bytes": 4_000_000_000_u64}});
    if !window.is_empty() {
        query["selection"] =
            window.iter().map(|(start, stop)| json!({"start": start, "stop": stop, "step": 1})).collect();
    }
    Ok(parse_query_json(&query.to_string())?)
}

fn cells(file: &TetFile, document: &QueryDocument) -> Result<Vec<f32>> {
    match materialize_query_selection(document, file.mmap())?.buffer {
        DenseBuffer::F32(cells) => Ok(cells),
        _ => Err("not f32".into()),
    }
}

fn read(args: &Args) -> Result<Outcome> {
    let file = TetFile::open(&args.file)?;
    let all = selection(&[])?;
    let timed = time(args, || cells(&file, &all))?;
    Ok(Outcome::new(&timed, timed.result.len() as u64 * 4, digest([&timed.result[..]])))
}

fn boxes(args: &Args) -> Result<Outcome> {
    let file = TetFile::open(&args.file)?;
    let shape = file.summary()?.datasets[0].shape.clone();
    let boxes = windows(&shape, &region_shape(&args.case, &shape));
    let boxes: Vec<_> = boxes.iter().map(|window| selection(window)).collect::<Result<_>>()?;
    let timed = time(args, || boxes.iter().map(|window| cells(&file, window)).collect::<Result<Vec<_>>>())?;
    let answer = digest(timed.result.iter().map(Vec::as_slice));
    Ok(Outcome::new(&timed, timed.result[0].len() as u64 * 4, answer).per(boxes.len()))
}

/// What a query answers, as the JSON that the crate makes of it.
fn query(file: &TetFile, operation: &str, axes: &Value) -> Result<QueryResponse> {
    let document = parse_query_json(&json!({"dataset": "cube", operation: axes}).to_string())?;
    validate_query(&document)?;
    let options = ExecuteQueryOptions::execute_no_preview();
    Ok(execute_query_document(&document, file.path(), file.mmap(), options, None)?)
}

fn fold(args: &Args) -> Result<Outcome> {
    let file = TetFile::open(&args.file)?;
    let bytes = std::fs::metadata(&args.file)?.len();
    let timed = time(args, || query(&file, &args.case, &json!([])))?;
    let answer = serde_json::to_value(timed.result.execution.as_ref().ok_or("no answer")?)?;
    let answer = answer[format!("operation_{}", args.case)].as_f64().ok_or("no number")?;
    Ok(Outcome::new(&timed, bytes, json!([answer])))
}

fn mean_axis0(args: &Args) -> Result<Outcome> {
    let file = TetFile::open(&args.file)?;
    let bytes = std::fs::metadata(&args.file)?.len();
    let timed = time(args, || query(&file, "mean", &json!(["0"])))?;
    let means =
        timed.result.execution.as_ref().and_then(|e| e.operation_reduced_mean.as_ref()).ok_or("no answer")?;
    Ok(Outcome::new(&timed, bytes, sample(means.iter().copied())))
}

fn open(args: &Args) -> Result<Outcome> {
    let timed = time(args, || {
        let summary = TetFile::open(&args.file)?.summary()?;
        let bytes: u64 = summary.chunks.iter().map(|c| c.stored_byte_len).sum();
        Ok(json!([summary.datasets[0].shape, summary.chunks.len(), bytes]).to_string())
    })?;
    Ok(Outcome::new(&timed, std::fs::metadata(&args.file)?.len(), json!(timed.result)))
}

/// Through the writer that borrows its cells: the one that takes least memory.
fn write(args: &Args) -> Result<Outcome> {
    let source = mmap_file_read(&args.file)?;
    let answer = digest([bytemuck::cast_slice(&source)]);
    let codec = if args.zstd { CHUNK_PAYLOAD_CODEC_V1.zstd } else { CHUNK_PAYLOAD_CODEC_V1.raw };
    let array = RawArrayWrite::from_tensor(
        "cube",
        DATASET_DTYPE_TAG_V1.f32,
        &args.shape,
        &args.chunk,
        codec,
        &source,
        None,
    );
    let timed = time(args, || {
        write_multi_raw_array_file(&args.out, std::slice::from_ref(&array))?;
        if args.durable { synchronize(&args.out) } else { Ok(()) }
    })?;
    let back = cells(&TetFile::open(&args.out)?, &selection(&[])?)?;
    if digest([&back[..]]) != answer {
        return Err("other cells came back".into());
    }
    Ok(Outcome::new(&timed, source.len() as u64, answer))
}
