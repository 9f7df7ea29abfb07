//! Cells as rows of coordinates and fields: sparse arrays, whatever meets a condition, and all that goes to Arrow.

mod arrow;
mod csv;
mod json;
mod npy;
mod raw;
mod text;

use tesseral::{CellBatch, CellLen, CellQuery, Cells, Column, DType, Error, Field};

use super::{Arguments, Format};
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output::Output;
use crate::subject::{Subject, Target};

/// What is written.
pub(super) struct Table<'a> {
    pub target: &'a Target,
    pub query: CellQuery<'a>,
    /// The columns, dimensions seen as fields.
    pub fields: Vec<Field>,
}

/// Turns batches of rows into bytes.
pub(super) trait Render {
    fn begin(&mut self, table: &Table<'_>, out: &mut Output) -> Outcome<()>;
    fn batch(&mut self, table: &Table<'_>, batch: &CellBatch, out: &mut Output) -> Outcome<()>;
    fn end(&mut self, table: &Table<'_>, out: &mut Output) -> Outcome<()>;
}

/// The one column that formats without rows write.
fn single(batch: &CellBatch) -> Outcome<&Cells> {
    match batch.columns.as_slice() {
        [(_, cells)] => Ok(cells),
        _ => Err(Error::invalid("one column is written at a time").into()),
    }
}

pub(super) fn run(context: &Context, arguments: &Arguments, format: Format, target: &Target) -> Outcome {
    let array = &target.array;
    let schema = array.schema();
    let plain = matches!(format, Format::Raw | Format::Npy);
    // Dimensions come first, then what was named, or everything.
    let columns: Vec<Column> = match (target.named, plain) {
        (Some(column), true) => vec![column],
        (Some(column @ Column::Dim(_)), false) => vec![column],
        (Some(column), false) => (0..).take(schema.dims.len()).map(Column::Dim).chain([column]).collect(),
        (None, false) => {
            let dims = (0..).take(schema.dims.len()).map(Column::Dim);
            dims.chain((0..).take(schema.fields.len()).map(Column::Field)).collect()
        }
        (None, true) => return Err(Subject::name_one(array).into()),
    };
    let fields: Vec<Field> = columns.iter().map(|&column| field_of(array.schema(), column)).collect();
    let mut query = array.cells()?.target(target.cells.clone()).only(&columns);
    if let Some(text) = &arguments.condition {
        query = query.filter(text)?;
    }
    let table = Table { target, query, fields };
    let mut renderer: Box<dyn Render> = match format {
        Format::Text => Box::new(text::Text::default()),
        Format::Csv => Box::new(csv::Csv),
        Format::Json => Box::new(json::Document::default()),
        Format::Raw => Box::new(raw::Raw { validity: arguments.validity }),
        Format::Npy => Box::new(npy::Npy::new(&table, arguments.validity)?),
        Format::Arrow => Box::new(arrow::Arrow::new(&table, arguments.output.output.as_deref())?),
    };
    let mut output = Output::open(&arguments.output, &arguments.subject.source, context.cancel())?;
    super::refuse_terminal(&output, format)?;
    renderer.begin(&table, &mut output)?;
    for batch in table.query.batches()? {
        context.check()?;
        renderer.batch(&table, &batch?, &mut output)?;
    }
    context.check()?;
    renderer.end(&table, &mut output)?;
    output.finish()?;
    Ok(exit::OK)
}

/// A column as a field; a dimension without a name goes by its number.
pub(super) fn field_of(schema: &tesseral::ArraySchema, column: Column) -> Field {
    match column {
        Column::Field(f) => schema.fields[usize::from(f)].clone(),
        Column::Dim(d) => crate::subject::dim_field(schema, usize::from(d)),
        Column::Timestamp | Column::DeletedBy => Field::new("timestamp", DType::UInt64),
    }
}

/// Whether cells have any length.
fn is_var(field: &Field) -> bool {
    field.cell == CellLen::Var
}
