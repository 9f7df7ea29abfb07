//! `tet cat`: prints values block by block within the memory limit.

mod block;
mod csv;
mod json;
mod limit;
mod npy;
mod raw;
mod rows;
mod text;

use std::ops::Range;

use clap::{Args, ValueEnum};
use tesseral::{Array, CellLen, DType, Error, Field, Progress, Selection};

use self::block::Block;
use self::limit::RowLimit;
use crate::cells_argument::{CellsArgument, ValuesArgument, report_packing};
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{OutputArguments, OutputStream};
use crate::progress::Meter;

/// Arguments of `tet cat`.
#[derive(Debug, Args)]
pub(crate) struct CatArguments {
    #[command(flatten)]
    subject: CellsArgument,
    /// Output format of the values [default: text; json with --json; raw with --validity]
    #[arg(long, value_name = "FORMAT")]
    format: Option<OutputFormat>,
    /// Same as --format raw
    #[arg(long, conflicts_with = "format")]
    raw: bool,
    /// Write one byte per cell instead of its value: 1 valid, 0 missing
    #[arg(long)]
    validity: bool,
    /// Print only cells that match a condition, as rows: `a > 5 and name in ("x", "y")`, `not`, `or`, `is null`
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Print only the first N rows and the number of omitted rows; 0 for all [default: 1000 for text on a terminal, otherwise all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<u64>,
    /// Print the last rows instead of the first
    #[arg(skip)]
    last: bool,
    #[command(flatten)]
    output: OutputArguments,
}

/// Arguments of `tet head` and `tet tail`.
#[derive(Debug, Args)]
pub(crate) struct EndArguments {
    #[command(flatten)]
    subject: CellsArgument,
    /// Number of rows: lines of text, or cells; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    rows: u64,
    /// Output format of the values [default: text; json with --json]
    #[arg(long, value_name = "FORMAT")]
    format: Option<OutputFormat>,
    /// Print only cells that match a condition, as rows: `a > 5 and name in ("x", "y")`, `not`, `or`, `is null`
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Runs `tet head`, or `tet tail` for the last rows.
pub(crate) fn run_end(context: &Context, arguments: &EndArguments, last: bool) -> CliResult {
    let EndArguments { subject, rows, format, condition, output } = arguments;
    let arguments = CatArguments {
        subject: subject.clone(),
        format: *format,
        raw: false,
        validity: false,
        condition: condition.clone(),
        rows: Some(*rows),
        last,
        output: output.clone(),
    };
    run(context, &arguments)
}

/// Output formats of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
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

impl OutputFormat {
    /// Returns whether each cell is written as text.
    fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Csv | Self::Json)
    }
}

/// The cells to print, for all output formats.
struct Task<'a> {
    array: &'a Array,
    /// The field, or a byte field with the validity of its cells.
    field: Field,
    selection: &'a Selection,
    /// Numbers of the cells of the selection that are written.
    shown: Range<u64>,
}

/// Encodes blocks of cells. Blocks arrive in row-major order over the selection.
trait Render {
    fn begin(&mut self, task: &Task<'_>, out: &mut OutputStream) -> CliResult<()>;
    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()>;
    fn end(&mut self, task: &Task<'_>, out: &mut OutputStream) -> CliResult<()>;
}

pub(crate) fn run(context: &Context, arguments: &CatArguments) -> CliResult {
    let format = match arguments.format {
        Some(format) => format,
        None if context.json() => OutputFormat::Json,
        None if arguments.raw || arguments.validity => OutputFormat::Raw,
        None => OutputFormat::Text,
    };
    if context.json() && format != OutputFormat::Json {
        return Err(Error::invalid("--json conflicts with the value of --format").into());
    }
    let container = context.open(&arguments.subject.source, &Meter::new(false))?;
    // Bytes are those that are stored.
    let stored = arguments.subject.values.stored || format == OutputFormat::Raw;
    let container = ValuesArgument { stored }.apply_to(container);
    // A number of rows of nested lists is no rectangle.
    let limited_json = arguments.rows.is_some_and(|rows| rows > 0) && format == OutputFormat::Json;
    let as_rows = arguments.condition.is_some() || format == OutputFormat::Arrow || limited_json;
    let table =
        !arguments.validity && matches!(format, OutputFormat::Text | OutputFormat::Csv | OutputFormat::Json);
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
        DType::Bitmask if format != OutputFormat::Raw => Field::new(target.field.name.clone(), DType::Bool),
        _ => target.field.clone(),
    };
    let field = if stored { Field { time: None, ..field } } else { field };
    let mut output = OutputStream::open(&arguments.output, &arguments.subject.source, context.cancel())?;
    refuse_terminal(&output, format)?;
    let limit = RowLimit::from_arguments(arguments, format, output.is_terminal());
    let limited = limit::cells(selection, format, limit)?;
    let selection = &limited.selection;
    let task = Task { array: &target.array, field, selection, shown: limited.shown.clone() };
    if format.is_text() {
        tesseral_engine::check_text(target.array.handle(), &target.array.request(selection))?;
    }
    // Raw bytes are printed as stored; text and tables show missing cells as missing.
    let stored = arguments.subject.values.stored || matches!(format, OutputFormat::Raw | OutputFormat::Npy);
    let kind = if arguments.subject.values.stored { block::Validity::Stored } else { block::Validity::Model };
    let validity = arguments.validity.then_some(kind);
    let mut renderer = renderer(format, &task)?;
    if let Some(limit @ RowLimit::Last(_)) = limit {
        limit.note(Some(limited.hidden));
    }
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
    if let Some(limit @ RowLimit::First(_)) = limit {
        limit.note(Some(limited.hidden));
    }
    Ok(exit::OK)
}

/// Visits all cells of an array as stored, in row-major order; `None` for a null.
pub(crate) fn each_stored_cell(
    context: &Context,
    array: &Array,
    mut visit: impl FnMut(Option<&[u8]>) -> CliResult<()>,
) -> CliResult<()> {
    let (selection, field) = (array.all()?, array.selected_field().clone());
    let shown = 0..selection.cells().unwrap_or(u64::MAX);
    let task = Task { array, field: field.clone(), selection: &selection, shown };
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
    format: OutputFormat,
    output: OutputArguments,
) -> CliResult {
    let plain = CatArguments {
        subject,
        format: Some(format),
        raw: false,
        validity: false,
        condition: None,
        rows: None,
        last: false,
        output,
    };
    run(&context.without_json(), &plain)
}

/// Rejects binary output to a terminal.
fn refuse_terminal(output: &OutputStream, format: OutputFormat) -> CliResult<()> {
    if output.is_terminal() && matches!(format, OutputFormat::Raw | OutputFormat::Npy | OutputFormat::Arrow) {
        let error = Error::invalid("refusing to write binary data to the terminal");
        return Err(error.hint("redirect them, or write a file with `-o F`").into());
    }
    Ok(())
}

fn renderer(format: OutputFormat, task: &Task<'_>) -> CliResult<Box<dyn Render>> {
    Ok(match format {
        OutputFormat::Text => Box::new(text::TextRenderer::new(task)),
        OutputFormat::Csv => Box::new(csv::Csv::new(task)),
        OutputFormat::Json => Box::new(json::JsonRenderer::new(task)),
        OutputFormat::Raw => Box::new(raw::RawRenderer::default()),
        OutputFormat::Npy => Box::new(npy::Npy::new(task)?),
        OutputFormat::Arrow => return Err(Error::internal("Arrow output requires rows").into()),
    })
}

impl Task<'_> {
    /// Returns whether cells are variable-length.
    fn is_var(&self) -> bool {
        self.field.cell == CellLen::Var
    }
}
