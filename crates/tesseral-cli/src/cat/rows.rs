//! Cells as rows of coordinates and fields: sparse arrays, cells that match a condition, and Arrow output.

mod arrow;
mod csv;
mod json;
mod npy;
mod raw;
mod text;

use std::ops::Range;

use tesseral::{CellBatch, CellLen, CellQuery, Cells, Column, Error, Field};

use tesseral_display::field_of;

use super::limit::{LimitedRows, RowLimit};
use super::{CatArguments, OutputFormat};
use crate::cells_argument::{CellsArgument, ResolvedCells};
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::OutputStream;

/// The rows to print.
pub(super) struct PrintedRows<'a> {
    pub target: &'a ResolvedCells,
    pub query: CellQuery<'a>,
    /// The columns, with dimensions as fields.
    pub fields: Vec<Field>,
}

/// Encodes batches of rows.
pub(super) trait RenderRows {
    fn begin(&mut self, table: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()>;
    /// Writes some rows of a batch; binary formats, which are not limited, always all of them.
    fn batch(
        &mut self,
        table: &PrintedRows<'_>,
        batch: &CellBatch,
        rows: Range<usize>,
        out: &mut OutputStream,
    ) -> CliResult<()>;
    fn end(&mut self, table: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()>;
}

/// Returns the only column, for formats without rows.
fn single(batch: &CellBatch) -> CliResult<&Cells> {
    match batch.columns.as_slice() {
        [(_, cells)] => Ok(cells),
        _ => Err(Error::internal("this output format supports one column only").into()),
    }
}

pub(super) fn run(
    context: &Context,
    arguments: &CatArguments,
    format: OutputFormat,
    target: &ResolvedCells,
) -> CliResult {
    let array = &target.array;
    let schema = array.schema();
    let plain = matches!(format, OutputFormat::Raw | OutputFormat::Npy);
    // Dimensions first, then the named columns, or all.
    let columns: Vec<Column> = match (target.named, plain) {
        (Some(column), true) => vec![column],
        (Some(column @ Column::Dim(_)), false) => vec![column],
        (Some(column), false) => (0..).take(schema.dims.len()).map(Column::Dim).chain([column]).collect(),
        (None, false) => {
            let dims = (0..).take(schema.dims.len()).map(Column::Dim);
            dims.chain((0..).take(schema.fields.len()).map(Column::Field)).collect()
        }
        (None, true) => return Err(CellsArgument::name_one(array).into()),
    };
    let mut fields: Vec<Field> = columns.iter().map(|&column| field_of(array.schema(), column)).collect();
    let stored = arguments.subject.values.stored;
    let values = columns.iter().zip(&mut fields).filter(|(column, _)| matches!(column, Column::Field(_)));
    values.filter(|_| stored).for_each(|(_, field)| field.time = None);
    if format == OutputFormat::Arrow {
        let gaps = match target.cells.clone() {
            tesseral::Target::Cells(part) if !schema.sparse => {
                tesseral_engine::has_gaps(array.handle(), &array.request(&part))?
            }
            _ => false,
        };
        let values = columns.iter().zip(&mut fields).filter(|(column, _)| matches!(column, Column::Field(_)));
        values.for_each(|(_, field)| field.nullable |= gaps || !field.missing_values().is_empty());
    }
    let mut query = array.cells()?.target(target.cells.clone()).only(&columns);
    if let Some(text) = &arguments.condition {
        query = query.filter(text)?;
    }
    if plain && !arguments.validity {
        query = query.stored();
    }
    let table = PrintedRows { target, query, fields };
    let mut renderer: Box<dyn RenderRows> = match format {
        OutputFormat::Text => Box::new(text::TextRowRenderer::default()),
        OutputFormat::Csv => Box::new(csv::CsvRows),
        OutputFormat::Json => Box::new(json::JsonRowRenderer::default()),
        OutputFormat::Raw => Box::new(raw::RawRowRenderer { validity: arguments.validity }),
        OutputFormat::Npy => Box::new(npy::NpyRows::new(&table, arguments.validity)?),
        OutputFormat::Arrow => Box::new(arrow::Arrow::new(&table, arguments.output.output.as_deref())?),
    };
    let mut output = OutputStream::open(&arguments.output, &arguments.subject.source, context.cancel())?;
    super::refuse_terminal(&output, format)?;
    let limit = RowLimit::from_arguments(arguments, format, output.is_terminal());
    if limit.is_some() && matches!(format, OutputFormat::Raw | OutputFormat::Npy | OutputFormat::Arrow) {
        return Err(Error::invalid("--rows limits rows of text, CSV and JSON").into());
    }
    let mut limited = LimitedRows::new(limit);
    renderer.begin(&table, &mut output)?;
    for batch in table.query.batches()? {
        context.check()?;
        if let Some((batch, rows)) = limited.push(batch?) {
            renderer.batch(&table, &batch, rows, &mut output)?;
        }
        if limited.is_complete() {
            break;
        }
    }
    let last = limited.finish();
    limited.note_before();
    for (batch, rows) in last {
        renderer.batch(&table, &batch, rows, &mut output)?;
    }
    context.check()?;
    renderer.end(&table, &mut output)?;
    output.finish()?;
    limited.note_after();
    Ok(exit::OK)
}

/// Returns whether cells are variable-length.
fn is_var(field: &Field) -> bool {
    field.cell == CellLen::Var
}
