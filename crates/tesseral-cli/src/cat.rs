//! `tet cat`: values, block by block within the memory limit, whatever the size of the array.

mod block;
mod csv;
mod json;
mod npy;
mod raw;
mod rows;
mod text;

use clap::{Args, ValueEnum};
use tesseral::engine;
use tesseral::{Array, CellLen, DType, Error, Field, Progress, Selection};

use self::block::Block;
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output::{Output, OutputArguments};
use crate::progress::Meter;
use crate::subject::Subject;

/// Arguments of `tet cat`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// How to write the values [default: text; json with --json; raw with --validity]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Same as --format raw
    #[arg(long, conflicts_with = "format")]
    raw: bool,
    /// Writes one byte per cell instead of its value: 1 valid, 0 null
    #[arg(long)]
    validity: bool,
    /// Only cells that meet a condition, as rows: `a > 5 and name in ("x", "y")`, `not`, `or`, `is null`
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Ways to write values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Rows for people, with coordinates where there are any
    Text,
    /// One row per cell: coordinates, then the value
    Csv,
    /// One document with nested lists
    Json,
    /// Little-endian bytes back to back
    Raw,
    /// A NumPy file
    Npy,
    /// Arrow record batches of coordinates and values: a stream, or the file format for -o F.arrow
    Arrow,
}

impl Format {
    /// Whether each cell is written as text.
    fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Csv | Self::Json)
    }
}

/// What is written, whatever the way.
struct Task<'a> {
    array: &'a Array,
    /// The field, or a field of bytes that tell whether its cells are valid.
    field: Field,
    selection: &'a Selection,
}

/// Turns blocks of cells into bytes. Blocks come in row-major order over the selection.
trait Render {
    fn begin(&mut self, task: &Task<'_>, out: &mut Output) -> Outcome<()>;
    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut Output) -> Outcome<()>;
    fn end(&mut self, task: &Task<'_>, out: &mut Output) -> Outcome<()>;
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let format = match arguments.format {
        Some(format) => format,
        None if context.json() => Format::Json,
        None if arguments.raw || arguments.validity => Format::Raw,
        None => Format::Text,
    };
    if context.json() && format != Format::Json {
        return Err(Error::invalid("--json and another --format exclude each other").into());
    }
    let container = context.open(&arguments.subject.source, &Meter::new(false))?;
    let as_rows = arguments.condition.is_some() || format == Format::Arrow;
    let target = arguments.subject.resolve_rows(&container, as_rows)?;
    if target.array.schema().sparse || as_rows {
        return rows::run(context, arguments, format, &target);
    }
    let selection = target.selection()?;
    let field = match target.field.dtype {
        _ if arguments.validity => Field::new("validity", DType::UInt8),
        // Elsewhere than in raw bytes, where they are packed, bits are shown one by one.
        DType::Bitmask if format != Format::Raw => Field::new(target.field.name.clone(), DType::Bool),
        _ => target.field.clone(),
    };
    let task = Task { array: &target.array, field, selection };
    if format.is_text() {
        engine::check_text(target.array.handle(), &target.array.request(selection))?;
    }
    let mut renderer = renderer(format, &task)?;
    let mut output = Output::open(&arguments.output, &arguments.subject.source, context.cancel())?;
    refuse_terminal(&output, format)?;
    let meter = Meter::new(!output.is_terminal());
    renderer.begin(&task, &mut output)?;
    let total = selection.cells().unwrap_or(u64::MAX);
    let mut done = 0;
    for block in block::blocks(&task, &target.field, arguments.validity)? {
        context.check()?;
        let block = block?;
        renderer.block(&task, &block, &mut output)?;
        done += block.len() as u64;
        meter.set(Progress { done, total });
    }
    context.check()?;
    renderer.end(&task, &mut output)?;
    meter.finish();
    output.finish()?;
    Ok(exit::OK)
}

/// Writes an array, or a part of it, to a file of another kind.
pub(crate) fn export(
    context: &Context,
    subject: Subject,
    format: Format,
    output: OutputArguments,
) -> Outcome {
    let plain =
        Arguments { subject, format: Some(format), raw: false, validity: false, condition: None, output };
    run(&context.without_json(), &plain)
}

/// Bytes on a terminal help nobody.
fn refuse_terminal(output: &Output, format: Format) -> Outcome<()> {
    if output.is_terminal() && matches!(format, Format::Raw | Format::Npy | Format::Arrow) {
        let error = Error::invalid("bytes would be written to the terminal");
        return Err(error.hint("redirect them, or write a file with `-o F`").into());
    }
    Ok(())
}

fn renderer(format: Format, task: &Task<'_>) -> Outcome<Box<dyn Render>> {
    Ok(match format {
        Format::Text => Box::new(text::Text::new(task)),
        Format::Csv => Box::new(csv::Csv::new(task)),
        Format::Json => Box::new(json::Document::new(task)),
        Format::Raw => Box::new(raw::Raw::default()),
        Format::Npy => Box::new(npy::Npy::new(task)?),
        Format::Arrow => return Err(Error::invalid("Arrow takes rows").into()),
    })
}

impl Task<'_> {
    /// Whether cells have any length.
    fn is_var(&self) -> bool {
        self.field.cell == CellLen::Var
    }
}
