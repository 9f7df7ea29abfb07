//! `tet cat`: prints values block by block within the memory limit.

mod block;
mod csv;
mod json;
mod npy;
mod raw;
mod rows;
mod text;

use clap::{Args, ValueEnum};
use tesseral::{Array, CellLen, DType, Error, Field, Progress, Selection};

use self::block::Block;
use crate::cells_argument::{CellsArgument, ValuesArgument, report_packing};
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{OutputArguments, OutputStream};
use crate::progress::Meter;

/// Arguments of `tet cat`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    subject: CellsArgument,
    /// Output format of the values [default: text; json with --json; raw with --validity]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Same as --format raw
    #[arg(long, conflicts_with = "format")]
    raw: bool,
    /// Write one byte per cell instead of its value: 1 valid, 0 missing
    #[arg(long)]
    validity: bool,
    /// Print only cells that match a condition, as rows: `a > 5 and name in ("x", "y")`, `not`, `or`, `is null`
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Output formats of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned text, with coordinates if there are any
    Text,
    /// One row per cell: coordinates, then the value
    Csv,
    /// One document with nested lists
    Json,
    /// Contiguous little-endian bytes
    Raw,
    /// A NumPy file
    Npy,
    /// Arrow record batches of coordinates and values: the stream format, or the file format for -o F.arrow
    Arrow,
}

impl Format {
    /// Returns whether each cell is written as text.
    fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Csv | Self::Json)
    }
}

/// What is written in all formats.
struct Task<'a> {
    array: &'a Array,
    /// The field, or a byte field with the validity of its cells.
    field: Field,
    selection: &'a Selection,
}

/// Encodes blocks of cells. Blocks arrive in row-major order over the selection.
trait Render {
    fn begin(&mut self, task: &Task<'_>, out: &mut OutputStream) -> CliResult<()>;
    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()>;
    fn end(&mut self, task: &Task<'_>, out: &mut OutputStream) -> CliResult<()>;
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> CliResult {
    let format = match arguments.format {
        Some(format) => format,
        None if context.json() => Format::Json,
        None if arguments.raw || arguments.validity => Format::Raw,
        None => Format::Text,
    };
    if context.json() && format != Format::Json {
        return Err(Error::invalid("--json conflicts with the value of --format").into());
    }
    let container = context.open(&arguments.subject.source, &Meter::new(false))?;
    // Bytes are those that are stored.
    let stored = arguments.subject.values.stored || format == Format::Raw;
    let container = ValuesArgument { stored }.apply_to(container);
    let as_rows = arguments.condition.is_some() || format == Format::Arrow;
    let table = !arguments.validity && matches!(format, Format::Text | Format::Csv | Format::Json);
    let target = arguments.subject.resolve_rows(&container, as_rows || table)?;
    report_packing(&target.array);
    // Several fields are the columns of a table.
    if target.array.schema().sparse || as_rows || target.named.is_none() {
        return rows::run(context, arguments, format, &target);
    }
    let selection = target.selection()?;
    let field = match target.field.dtype {
        _ if arguments.validity => Field::new("validity", DType::UInt8),
        // Bitmasks are packed only in raw output.
        DType::Bitmask if format != Format::Raw => Field::new(target.field.name.clone(), DType::Bool),
        _ => target.field.clone(),
    };
    let field = if stored { Field { time: None, ..field } } else { field };
    let task = Task { array: &target.array, field, selection };
    if format.is_text() {
        tesseral_engine::check_text(target.array.handle(), &target.array.request(selection))?;
    }
    // Bytes come as stored; people and tables see missing cells as missing.
    let stored = arguments.subject.values.stored || matches!(format, Format::Raw | Format::Npy);
    let kind = if arguments.subject.values.stored { block::Validity::Stored } else { block::Validity::Model };
    let validity = arguments.validity.then_some(kind);
    let mut renderer = renderer(format, &task)?;
    let mut output = OutputStream::open(&arguments.output, &arguments.subject.source, context.cancel())?;
    refuse_terminal(&output, format)?;
    let meter = Meter::new(!output.is_terminal());
    renderer.begin(&task, &mut output)?;
    let total = selection.cells().unwrap_or(u64::MAX);
    let mut done = 0;
    for block in block::blocks(&task, &target.field, validity, stored)? {
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

/// Visits all cells of an array as stored, in row-major order; `None` for a null.
pub(crate) fn each_stored_cell(
    context: &Context,
    array: &Array,
    mut visit: impl FnMut(Option<&[u8]>) -> CliResult<()>,
) -> CliResult<()> {
    let (selection, field) = (array.all()?, array.selected_field().clone());
    let task = Task { array, field: field.clone(), selection: &selection };
    for block in block::blocks(&task, &field, None, true)? {
        context.check()?;
        let block = block?;
        for i in 0..block.len() {
            visit(block.cell(i))?;
        }
    }
    context.check()
}

/// Writes an array, or a part of it, to a file of another kind.
pub(crate) fn export(
    context: &Context,
    subject: CellsArgument,
    format: Format,
    output: OutputArguments,
) -> CliResult {
    let plain =
        Arguments { subject, format: Some(format), raw: false, validity: false, condition: None, output };
    run(&context.without_json(), &plain)
}

/// Rejects binary output to a terminal.
fn refuse_terminal(output: &OutputStream, format: Format) -> CliResult<()> {
    if output.is_terminal() && matches!(format, Format::Raw | Format::Npy | Format::Arrow) {
        let error = Error::invalid("refusing to write binary data to the terminal");
        return Err(error.hint("redirect them, or write a file with `-o F`").into());
    }
    Ok(())
}

fn renderer(format: Format, task: &Task<'_>) -> CliResult<Box<dyn Render>> {
    Ok(match format {
        Format::Text => Box::new(text::TextRenderer::new(task)),
        Format::Csv => Box::new(csv::Csv::new(task)),
        Format::Json => Box::new(json::JsonRenderer::new(task)),
        Format::Raw => Box::new(raw::RawRenderer::default()),
        Format::Npy => Box::new(npy::Npy::new(task)?),
        Format::Arrow => return Err(Error::internal("Arrow output requires rows").into()),
    })
}

impl Task<'_> {
    /// Returns whether cells are variable-length.
    fn is_var(&self) -> bool {
        self.field.cell == CellLen::Var
    }
}
