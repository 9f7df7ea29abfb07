//! `tet convert` and `tet rechunk`: rewrite a dataset in another format, chunking or data type.

mod foreign;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value as Json, json};
use tesseral::{
    Cast, ChunkShape, CodecSpec, Container, ConvertOptions, Converted, ConvertedArray, Durability, Fill,
    Resume, SparseAs, Value,
};
use tesseral_engine::{RechunkPlan, TransferMethod};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::{self, escape};
use tesseral_display::json;

/// Arguments of `tet convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// Path or URL of a file or folder of any supported format
    input: PathBuf,
    /// Output path or URL; the file extension selects the format (`tet doctor` lists them), a name without one is a TileDB folder
    output: PathBuf,
    /// Format of the output, by its name or one of its file extensions [default: by the file extension of the output]
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// Chunk shape of the output: 4,5 or time=4,lat=5 [default: that of the input]
    #[arg(long = "chunks", value_name = "EXTENTS", alias = "chunk")]
    chunk: Option<ChunkShape>,
    #[command(flatten)]
    shared: WriteArguments,
    /// Convert only this array or field. Repeatable
    #[arg(long, value_name = "NAME")]
    array: Vec<String>,
    /// Convert only this region: time=0:10, lat=10..20. Repeatable
    #[arg(long, value_name = "SELECTION")]
    select: Vec<String>,
    /// Write sparse arrays as `dense` arrays (with the fill value at empty positions) or as `rows` (a one-dimensional array per
    /// dimension and field) [default: sparse]
    #[arg(long, value_name = "FORM")]
    sparse_as: Option<SparseAs>,
    /// Cast cells to another data type, for one array (sst=float32) or for all; values out of range are an error
    #[arg(long, value_name = "DTYPE")]
    cast: Vec<Cast>,
    /// Value of unwritten cells, and of nulls if the output does not support them, for one array (sst=-999) or for all. It is
    /// declared as missing; another cell with this value is an error [default: null, otherwise the fill value of the input]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    fill: Vec<Fill>,
    /// Pack float64 cells into as few bits as keep the absolute error below this
    #[arg(long, value_name = "ERROR")]
    max_abs_error: Option<f64>,
    /// Pack float64 cells into as few bits as keep the relative error below this
    #[arg(long, value_name = "ERROR")]
    max_rel_error: Option<f64>,
}

/// Arguments of `tet rechunk`.
#[derive(Debug, Args)]
pub(crate) struct RechunkArguments {
    /// Path or URL of a file or folder of any supported format
    input: PathBuf,
    /// Output path or URL, in the same format unless its file extension names another
    output: PathBuf,
    /// New chunk shape: time=3650,lat=8,lon=8 or 3650,8,8; other dimensions are unchanged
    #[arg(long, value_name = "EXTENTS", alias = "chunk")]
    chunks: ChunkShape,
    #[command(flatten)]
    shared: WriteArguments,
    /// Rechunk only this array or field. Repeatable
    #[arg(long, value_name = "NAME")]
    array: Vec<String>,
}

/// Options of both commands.
#[derive(Debug, Args)]
struct WriteArguments {
    /// Codecs of the output: raw, zstd, zstd:9, shuffle+zstd, … [default: those of the input, as far as supported]
    #[arg(long, value_name = "CODEC", value_parser = tesseral::parse_codecs)]
    codec: Option<Codecs>,
    /// Option of the output's format, such as zarr_format=2 or shards=time=100; `tet doctor` lists them. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_option)]
    option: Vec<(String, Value)>,
    /// Also store minimum and maximum of every chunk for other readers (.tet: zone maps)
    #[arg(long)]
    zone_maps: bool,
    /// Do not store statistics of chunks (stored by default in .tet, where other readers ignore them)
    #[arg(long)]
    no_statistics: bool,
    /// Read the output back and compare every cell before publishing it
    #[arg(long)]
    check: bool,
    /// Durability of the published output: `none` for scratch data that may be lost when power fails
    #[arg(long, value_name = "full|none", default_value = "full", hide_default_value = true, value_parser = str::parse::<Durability>)]
    durability: Durability,
    /// Print the plan without writing
    #[arg(long)]
    dry_run: bool,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
    /// Keep completed work for a later attempt if interrupted, also for small outputs [default: from 64 MiB]
    #[arg(long, conflicts_with = "no_resume")]
    resume: bool,
    /// Start over, and do not keep work for a later attempt
    #[arg(long)]
    no_resume: bool,
}

type Codecs = Vec<CodecSpec>;

/// Parses `NAME=VALUE`; numbers are integers.
fn parse_option(text: &str) -> tesseral::Result<(String, Value)> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| tesseral::Error::invalid(format!("invalid option {text:?}")).hint("NAME=VALUE"))?;
    let value = value.parse().map_or_else(|_| Value::from(value), Value::Int);
    Ok((name.to_owned(), value))
}

impl WriteArguments {
    fn options(&self, context: &Context, meter: &Meter) -> ConvertOptions {
        let mut options = ConvertOptions::new().execution(context.options(meter));
        options.codecs.clone_from(&self.codec);
        options.create = self.option.iter().cloned().collect();
        options.statistics = self.zone_maps;
        options.chunk_statistics = self.no_statistics.then_some(false);
        options.check = self.check;
        options.dry_run = self.dry_run;
        options.overwrite = self.force;
        options.durability = self.durability;
        options.resume = match (self.resume, self.no_resume) {
            (true, _) => Resume::Always,
            (_, true) => Resume::Never,
            _ => Resume::Large,
        };
        options
    }
}

pub(crate) fn run(context: &Context, arguments: &ConvertArguments) -> CliResult {
    if let Some((format, kind)) = foreign::kind_of(arguments) {
        return foreign::export(context, arguments, format, kind);
    }
    let meter = Meter::new(true);
    let source = context.open(&arguments.input, &meter)?;
    let mut options = arguments.shared.options(context, &meter);
    options.format.clone_from(&arguments.to);
    options.arrays.clone_from(&arguments.array);
    options.select.clone_from(&arguments.select);
    options.chunk.clone_from(&arguments.chunk);
    options.casts.clone_from(&arguments.cast);
    options.fills.clone_from(&arguments.fill);
    options.sparse = arguments.sparse_as;
    options.max_abs_error = arguments.max_abs_error;
    options.max_rel_error = arguments.max_rel_error;
    if arguments.array.is_empty() {
        for line in source.inner().unread() {
            eprintln!("not converted: {}", crate::text::escape(&line));
        }
    }
    let done = tesseral::convert(&source, &arguments.output, &options)?;
    meter.finish();
    report(context, "convert", &arguments.input, &arguments.output, &source, &done)
}

pub(crate) fn run_rechunk(context: &Context, arguments: &RechunkArguments) -> CliResult {
    let meter = Meter::new(true);
    let source = context.open(&arguments.input, &meter)?;
    let target = &arguments.output;
    let mut options = arguments.shared.options(context, &meter);
    options.arrays.clone_from(&arguments.array);
    if !options.dry_run {
        let planned =
            tesseral::rechunk(&source, target, arguments.chunks.clone(), &options.clone().dry_run())?;
        // The plan is printed before the work.
        let shown: String =
            planned.arrays.iter().map(|array| plan_line(array, TerminalStyle::stderr())).collect();
        crate::error::report(&shown);
    }
    let done = tesseral::rechunk(&source, target, arguments.chunks.clone(), &options)?;
    meter.finish();
    report(context, "rechunk", &arguments.input, &arguments.output, &source, &done)
}

fn report(
    context: &Context,
    command: &str,
    input: &Path,
    target: &Path,
    source: &Container,
    done: &Converted,
) -> CliResult {
    let (input, target) = (input.to_string_lossy(), target.to_string_lossy());
    if context.json() {
        output::print_json(&json!({
            "schema": format!("tesseral.{command}/1"),
            "source": input,
            "output": target,
            "from": source.format().id(),
            "format": done.format.id(),
            "dry_run": done.dry_run,
            "checked": done.checked,
            "resumed_chunks": done.resumed,
            "source_digest": if done.dry_run { Json::Null } else { json!(done.digest) },
            "stored_bytes": if done.dry_run { Json::Null } else { json!(done.stored_bytes) },
            // Every format that datasets are converted to stores digests.
            "digests_lost": false,
            "array_count": done.array_count,
            "arrays": done.arrays.iter().map(array_json).collect::<Vec<_>>(),
        }))?;
        return Ok(exit::OK);
    }
    let paint = TerminalStyle::stdout();
    let mut out = String::new();
    for array in &done.arrays {
        out.push_str(&array_line(array, paint));
        if done.dry_run {
            out.push_str(&plan_line(array, paint));
        }
    }
    let unlisted = done.array_count.saturating_sub(done.arrays.len());
    if unlisted > 0 {
        out.push_str(&format!("and {} more\n", text::count(unlisted as u64, "array")));
    }
    let size = amount(done);
    let title = done.format.title();
    let (input, target) = (escape(&input), escape(&target));
    out.push_str(&if done.dry_run {
        format!("{input} -> {target}: {size} as {title}, not written\n")
    } else {
        let checked = if done.checked { ", every cell verified" } else { "" };
        let resumed = match done.resumed {
            0 => String::new(),
            chunks => format!(", {} from an earlier attempt", text::count(chunks, "chunk")),
        };
        let stored = text::size(done.stored_bytes);
        format!("{input} -> {target}: {size} as {title} in {stored}{resumed}{checked}\n")
    });
    output::print(&out)?;
    Ok(exit::OK)
}

/// Amount of data: bytes of dense cells, and number of sparse cells.
fn amount(done: &Converted) -> String {
    let (arrays, bytes) = (&done.arrays, done.raw_bytes);
    let cells = arrays.iter().filter(|a| a.sparse).map(|a| a.cells).collect::<Option<Vec<u64>>>();
    let listed = cells.map(|cells| text::count(cells.iter().sum(), "cell"));
    match (arrays.iter().any(|a| a.rechunk.is_some()), arrays.iter().any(|a| a.sparse)) {
        (true, false) => text::size(bytes),
        (true, true) => format!("{} and {}", text::size(bytes), listed.unwrap_or_else(|| "cells".to_owned())),
        (false, true) => listed.unwrap_or_else(|| "cells".to_owned()),
        _ if arrays.is_empty() => "attributes".to_owned(),
        (false, false) => {
            let rows = arrays.first().and_then(|a| a.shape.first().copied().flatten());
            text::count(rows.unwrap_or(0), "row")
        }
    }
}

fn array_json(array: &ConvertedArray) -> Json {
    let plan = array.rechunk.as_ref();
    let fields = array
        .fields
        .iter()
        .map(|f| json!({"name": f.name, "dtype": f.dtype, "codecs": f.codecs, "absent": f.absent}));
    let packed = array.packed.map(|packed| {
        let error = |v: Option<f64>| v.map_or(Json::Null, json::float);
        json!({
            "bits": packed.bits,
            "max_abs_error": error(packed.max_abs_error),
            "max_rel_error": error(packed.max_rel_error),
        })
    });
    json!({
        "name": array.name,
        "shape": array.shape,
        "dims": array.dims,
        "chunk_shape": array.chunk_shape,
        "sparse": array.sparse,
        "cells": array.cells,
        "fields": fields.collect::<Vec<_>>(),
        "raw_bytes": plan.map(|plan| plan.bytes),
        "pass_through": array.pass_through,
        "passes": plan.map(RechunkPlan::passes),
        "bytes_read": plan.map(|plan| plan.bytes_read),
        "bytes_written": plan.map(|plan| plan.bytes_written),
        "read_amplification": plan.map(|plan| plan.amplification),
        "work_bytes": plan.map(|plan| plan.memory),
        "threads": plan.map(|plan| plan.threads),
        "packed": packed,
    })
}

fn array_line(array: &ConvertedArray, paint: TerminalStyle) -> String {
    let shape = |extents: &[u64]| text::shape(extents.iter().map(|n| Some(*n)), paint.times());
    let whole = text::shape(array.shape.iter().copied(), paint.times());
    let fields: Vec<String> = array
        .fields
        .iter()
        .map(|f| {
            let codec = if f.codecs.is_empty() { "raw".to_owned() } else { f.codecs.join("+") };
            let named = if array.fields.len() > 1 { format!("{} ", escape(&f.name)) } else { String::new() };
            let absent = f.absent.as_ref().map(|value| format!(", missing as {}", escape(value)));
            format!("{named}{} {codec}{}", f.dtype, absent.unwrap_or_default())
        })
        .collect();
    let laid = match (array.sparse, array.cells) {
        (true, Some(cells)) => text::count(cells, "cell"),
        (true, None) => "sparse".to_owned(),
        (false, _) => format!("chunks {}", shape(&array.chunk_shape)),
    };
    let mut line = format!(
        "{}{dot}{whole}{dot}{}{dot}{laid}",
        paint.strong(&escape(&array.name)),
        fields.join(", "),
        dot = paint.dot(),
    );
    if array.pass_through {
        line.push_str(&format!("{}chunks copied as stored", paint.dot()));
    }
    if let Some(packed) = array.packed {
        line.push_str(&format!("{}{} bits", paint.dot(), packed.bits));
        if let Some(error) = packed.max_abs_error {
            line.push_str(&format!(", maximum error {error:?}"));
        }
    }
    line.push('\n');
    line
}

/// Describes how an array's cells are transferred.
fn plan_line(array: &ConvertedArray, paint: TerminalStyle) -> String {
    let Some(plan) = &array.rechunk else { return String::new() };
    let shape = |extents: &[u64]| text::shape(extents.iter().map(|n| Some(*n)), paint.times());
    let way = match &plan.way {
        TransferMethod::PerChunk => "chunk by chunk".to_owned(),
        TransferMethod::PerBlock { block } => format!("in blocks of {}", shape(block)),
        TransferMethod::ScratchFile { read, write } => {
            format!("in blocks of {} into a scratch file, then of {}", shape(read), shape(write))
        }
    };
    format!(
        "  {}: {}, {way}; reads {} ({:.2} times each byte), writes {}, uses {} of memory on {}\n",
        escape(&array.name),
        text::passes(plan.passes()),
        text::size(plan.bytes_read),
        plan.amplification,
        text::size(plan.bytes_written),
        text::size(plan.memory),
        text::count(plan.threads as u64, "thread"),
    )
}
