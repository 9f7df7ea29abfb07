//! Runs one case on one file and prints a JSON line: `tesseral-bench CASE FILE [options]`.
//!
//! `bench/compare` runs it and the runners of other libraries with the same arguments, and compares the lines.

mod common;
mod make;
mod messages;
mod plain;
mod small;
mod tensogram;
mod tiledb_write;
mod transfers;
mod versions;

use std::process::{Command, ExitCode};

use serde_json::{Value, json};
use tesseral::{
    Array, ArraySchema, ArraySpec, CodecSpec, Create, DType, Dense, Durability, Selection, Slice, StatSet,
    Summary,
};

use common::{Args, Outcome, Result, digest, region_shape, report, sample, time, windows};

fn main() -> ExitCode {
    let args = match Args::parse(1) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("tesseral-bench CASE FILE [options]: {error}");
            return ExitCode::from(2);
        }
    };
    let done = report("tesseral", &args.label, run(&args));
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(args: &Args) -> Result<Outcome> {
    match args.case.as_str() {
        "make" => make::plain(args),
        "widen" => make::widen(args),
        "classes" => make::classes(args),
        "xxh3" => plain::hash(args),
        "copy" => plain::copy(args),
        "command" => command(args),
        "sum2" => plain::mean(args),
        "zstd_lib" => plain::decompress(args),
        "zstd_lib_write" => plain::compress(args),
        "zstd_lib_pieces" => plain::compress_pieces(args),
        "zstd_lib_read_pieces" => plain::decompress_pieces(args),
        "write" => write(args),
        "read" => read(args),
        "read_view" => read_view(args),
        "window" | "series" => boxes(args),
        "mean" => fold(args, StatSet::SUM, Summary::mean),
        "std" => fold(args, StatSet::SPREAD, Summary::std),
        "min" => fold(args, StatSet::RANGE, |s| s.min()?.as_f64()),
        "max" => fold(args, StatSet::RANGE, |s| s.max()?.as_f64()),
        "sum" => fold(args, StatSet::SUM, |s| Some(s.sum()?.to_f64())),
        "mean_axis0" => mean_axis0(args),
        "open_sum" => open_sum(args),
        "open" => open(args),
        "make_small" => small::make(args),
        "small" => small::read(args),
        "convert" | "rechunk" | "sum_where" => transfers::run(args),
        "open_array" | "cell" | "rows" | "total" => versions::run(args),
        case if case.starts_with("tdb_") => tiledb_write::run(args),
        case if case.starts_with("tgm_") => messages::run(&tensogram::TesseralMessages, args),
        case => Err(format!("unknown case {case}").into()),
    }
}

fn array(args: &Args) -> Result<Array> {
    Ok(tesseral::open(&args.file)?.array_at(0)?)
}

/// Bytes of all cells.
fn bytes(array: &Array) -> Result<u64> {
    Ok(array.all()?.cells().ok_or("too many cells")? * 4)
}

/// The digest of cells of any dtype, as words of four bytes.
fn words(cells: &Dense) -> Result<Value> {
    Ok(digest([plain::cells(cells.bytes())?]))
}

/// Reads every cell into new memory; the first run verifies checksums.
fn read(args: &Args) -> Result<Outcome> {
    let array = array(args)?;
    let all = array.all()?;
    let timed = time(args, || Ok(array.read(&all)?))?;
    Ok(Outcome::new(&timed, timed.result.bytes().len() as u64, words(&timed.result)?))
}

/// Runs the program and arguments of `--query`.
fn command(args: &Args) -> Result<Outcome> {
    let words: Vec<&str> = args.query.split_whitespace().collect();
    let (program, arguments) = words.split_first().ok_or("missing --query")?;
    let timed = time(args, || {
        let output = Command::new(program).args(arguments).output()?;
        if output.status.success() { Ok(output.stdout.len()) } else { Err("the command failed".into()) }
    })?;
    Ok(Outcome::new(&timed, timed.result as u64, json!(null)))
}

/// Reads every cell of a file whose layout allows a zero-copy view.
fn read_view(args: &Args) -> Result<Outcome> {
    let array = array(args)?;
    let all = array.all()?;
    let timed = time(args, || Ok(array.read(&all)?))?;
    if !timed.result.is_borrowed() {
        return Err("the cells were copied".into());
    }
    let answer = digest([timed.result.as_slice().ok_or("not f32")?]);
    Ok(Outcome::new(&timed, bytes(&array)?, answer))
}

/// Many small boxes, each a separate request.
fn boxes(args: &Args) -> Result<Outcome> {
    let array = array(args)?;
    let shape = array.schema().shape().ok_or("no shape")?;
    let size = region_shape(&args.case, &shape);
    let boxes: Vec<Selection> = windows(&shape, &size)
        .iter()
        .map(|window| Selection::new(window.iter().map(|&(start, end)| Slice::new(start, end)), &shape))
        .collect::<tesseral::Result<_>>()?;
    let timed =
        time(args, || Ok(boxes.iter().map(|b| array.read(b)).collect::<tesseral::Result<Vec<_>>>()?))?;
    let cells = timed.result.iter().map(|b| b.as_slice().ok_or("not f32"));
    let answer = digest(cells.collect::<std::result::Result<Vec<_>, _>>()?);
    Ok(Outcome::new(&timed, timed.result[0].bytes().len() as u64, answer).per(boxes.len()))
}

fn fold(args: &Args, wanted: StatSet, pick: impl Fn(&Summary) -> Option<f64>) -> Result<Outcome> {
    let array = array(args)?;
    let all = array.all()?;
    let timed = time(args, || Ok(pick(&array.summary(&all, wanted)?).ok_or("no answer")?))?;
    Ok(Outcome::new(&timed, bytes(&array)?, json!([timed.result])))
}

fn mean_axis0(args: &Args) -> Result<Outcome> {
    let array = array(args)?;
    let request = array.request(&array.all()?);
    let timed = time(args, || {
        Ok(tesseral_engine::reduce(array.handle(), &request, &[0], StatSet::SUM, array.options())?.mean())
    })?;
    let means = timed.result.iter().map(|mean| mean.unwrap_or(f64::NAN));
    Ok(Outcome::new(&timed, bytes(&array)?, sample(means)))
}

/// Opening and summing, which includes everything that could grow faster than the chunks.
fn open_sum(args: &Args) -> Result<Outcome> {
    let timed = time(args, || {
        let array = array(args)?;
        Ok(array.summary(&array.all()?, StatSet::SUM)?.sum().ok_or("no sum")?.to_f64())
    })?;
    Ok(Outcome::new(&timed, bytes(&array(args)?)?, json!([timed.result])))
}

/// Opens the file and returns shape, number of chunks and stored bytes of every array.
fn open(args: &Args) -> Result<Outcome> {
    let timed = time(args, || {
        let container = tesseral::open(&args.file)?;
        let mut all: Vec<Value> = Vec::new();
        for index in 0..container.len() {
            let array = container.array_at(index)?;
            let plan = array.handle().plan(&array.request(&array.all()?))?;
            let shape = array.schema().shape().ok_or("no shape")?;
            all.push(json!([shape.as_slice(), plan.chunks.len(), plan.stored_bytes()]));
        }
        Ok(all)
    })?;
    let answer = json!(timed.result.iter().map(Value::to_string).collect::<String>());
    Ok(Outcome::new(&timed, std::fs::metadata(&args.file)?.len(), answer))
}

/// Writes a plain file, held in memory, as an array: gather, encode, checksum, commit.
fn write(args: &Args) -> Result<Outcome> {
    let dtype = match args.dtype.as_str() {
        "f64" => DType::Float64,
        "i32" => DType::Int32,
        _ => DType::Float32,
    };
    let mut spec = ArraySpec::raw(ArraySchema::dense("cube", dtype, &args.shape, &args.chunk));
    if args.zstd {
        spec.codecs = vec![vec![CodecSpec::new("zstd")]];
    }
    let durability = if args.durable { Durability::Full } else { Durability::None };
    let create = Create::new().overwrite().durability(durability);
    let create = if args.statistics { create.statistics() } else { create };
    // Peers' files have other extensions.
    let by_extension = args.out.extension().is_some_and(|ending| ending == "tgm" || ending == "tdb");
    write_as(args, &create, if by_extension { "" } else { "tet" }, &spec)
}

/// Times the write of a raw file as that array, and checks its cells.
fn write_as(args: &Args, create: &Create, format: &str, spec: &ArraySpec) -> Result<Outcome> {
    let source = plain::map(&args.file)?;
    // Touch every page of the source before measuring memory.
    let expected = digest([plain::cells(&source)?]);
    let timed = time(args, || {
        let mut session = create.begin(&args.out, format)?;
        let cube = session.add(spec)?;
        session.write(cube, &source)?;
        Ok(session.commit()?)
    })?;
    let array = tesseral::open(&args.out)?.array_at(0)?;
    let answer = words(&array.read(&array.all()?)?)?;
    if answer != expected {
        return Err("written cells differ".into());
    }
    Ok(Outcome::new(&timed, source.len() as u64, answer))
}
