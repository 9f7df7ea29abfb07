//! `tet append`: cells from files to an array that exists, messages to a file of messages.

mod columns;
mod csv;
mod npy;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tesseral::{Append, ArrayId, ArraySchema, Arrival, ColumnData, Error, Region, Session};

use self::columns::Columns;
use crate::context::{Context, local};
use crate::failure::{Outcome, exit};
use crate::messages::append as messages;
use crate::output;
use crate::progress::Meter;
use crate::subject::coordinate;
use crate::text::{self, escape};

/// Arguments of `tet append`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The array: a folder of a format that keeps versions; or a file of messages, which is made if there is none
    array: PathBuf,
    /// A .npy file (dense, one field), or a .csv file whose first line names columns; or files of messages
    input: PathBuf,
    /// Where in a dense array the cells go, one selection per dimension: `time=0:10`, `lat=10..20`; all of it unless given
    #[arg(value_name = "SELECTION")]
    selection: Vec<String>,
    /// When the cells count as written, milliseconds since 1970 [default: now]
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
    /// Keeps the last of several cells at one position of a sparse array instead of refusing them
    #[arg(long)]
    dedup: bool,
    /// The rows are sorted as the array stores them: they are read piece by piece
    #[arg(long)]
    sorted: bool,
}

/// Rows of a sorted file that are read at once.
const ROWS: usize = 1 << 16;

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    if messages::is_meant(context, &arguments.array, &arguments.input) {
        let more = arguments.selection.iter().map(PathBuf::from);
        let sources: Vec<PathBuf> = std::iter::once(arguments.input.clone()).chain(more).collect();
        return messages::run(context, &arguments.array, &sources);
    }
    let meter = Meter::new(false);
    let container = context.open(&arguments.array, &meter)?;
    let array = container.array_at(0)?;
    let schema = array.schema().clone();
    let mut append = Append::new().open(context.opener(&meter)?.format_options().clone());
    append = append.execution(context.options(&meter));
    if let Some(timestamp) = arguments.timestamp {
        append = append.timestamp(timestamp);
    }
    if arguments.dedup {
        append = append.dedup();
    }
    let path = local(&arguments.array)?;
    let cells = if schema.sparse {
        if !arguments.selection.is_empty() {
            return Err(Error::invalid("cells of a sparse array say themselves where they go").into());
        }
        let session = append.begin(path)?;
        let cells = sparse(&session, &schema, arguments)?;
        session.commit()?;
        cells
    } else {
        let selection = array.select(arguments.selection.iter().map(String::as_str))?;
        if !selection.is_box() {
            return Err(Error::invalid("cells are written side by side, without steps").into());
        }
        let region = selection.bounds();
        let session = append.region(region.clone()).begin(path)?;
        dense(context, &session, &schema, &region, &arguments.input)?;
        session.commit()?;
        region.cells().unwrap_or(0)
    };
    let shown = arguments.array.to_string_lossy();
    if context.json() {
        output::print_json(&json!({"schema": "tesseral.append/1", "array": shown, "cells": cells}))?;
    } else {
        output::print(&format!("{} added to {}\n", text::count(cells, "cell"), escape(&shown)))?;
    }
    Ok(exit::OK)
}

fn is_npy(input: &Path) -> bool {
    input.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}

/// The name of a dimension's column, as `cat` heads it.
fn dim_name(schema: &ArraySchema, d: usize) -> String {
    let name = &schema.dims[d].name;
    if name.is_empty() { format!("dim_{d}") } else { name.clone() }
}

/// The columns that an array has.
fn names(schema: &ArraySchema) -> Vec<String> {
    let dims = (0..schema.dims.len()).map(|d| match schema.sparse {
        true => schema.dims[d].name.clone(),
        false => dim_name(schema, d),
    });
    dims.chain(schema.fields.iter().map(|f| f.name.clone())).collect()
}

/// Cells of a dense array are written in row-major order: coordinates that a row tells must be those of its turn.
fn in_turn(
    schema: &ArraySchema,
    region: &Region,
    placed: &[(usize, usize)],
    number: u64,
    row: &csv::Row,
) -> Result<(), Error> {
    for &(d, place) in placed {
        let cells: u64 = (d + 1..region.rank()).map(|d| region.extent(d)).product();
        let position = region.start(d) + number / cells.max(1) % region.extent(d).max(1);
        let (dim, told) = (&schema.dims[d], row[place].0.as_str());
        let wanted = coordinate(dim, position);
        let meant = dim.coordinate(position).is_some_and(|c| columns::written(c.dtype(), told) == Some(c));
        if told != wanted && !meant {
            let name = dim_name(schema, d);
            let detail = format!("{name}={told} where {name}={wanted} is due: cells come in row-major order");
            return Err(Error::invalid(detail));
        }
    }
    Ok(())
}

fn dense(
    context: &Context,
    session: &Session,
    schema: &ArraySchema,
    region: &Region,
    input: &Path,
) -> Outcome<()> {
    let columns = if is_npy(input) {
        npy::read(context, input, schema, region)?
    } else {
        let mut reader = csv::Reader::open(input)?;
        reader.only(&names(schema))?;
        let place = |d: usize| {
            let name = dim_name(schema, d);
            reader.header().iter().position(|column| *column == name).map(|place| (d, place))
        };
        let placed: Vec<(usize, usize)> = (0..schema.dims.len()).filter_map(place).collect();
        let mut columns = Columns::fields(schema);
        columns.fill(&mut reader, usize::MAX, |number, row| in_turn(schema, region, &placed, number, row))?;
        columns
    };
    session.write_columns(ArrayId(0), region, &columns.data())?;
    Ok(())
}

fn sparse(session: &Session, schema: &ArraySchema, arguments: &Arguments) -> Outcome<u64> {
    if is_npy(&arguments.input) {
        return Err(Error::unsupported("cells of a sparse array from .npy").hint("give a .csv file").into());
    }
    let mut reader = csv::Reader::open(&arguments.input)?;
    reader.only(&names(schema))?;
    let (order, rows) = if arguments.sorted { (Arrival::Stored, ROWS) } else { (Arrival::Any, usize::MAX) };
    let mut total = 0;
    loop {
        let mut columns = Columns::cells(schema);
        let read = columns.fill(&mut reader, rows, |_, _| Ok(()))?;
        if read == 0 {
            return Ok(total);
        }
        let data: Vec<ColumnData<'_>> = columns.data();
        session.write_cells(ArrayId(0), &data, order)?;
        total += read as u64;
    }
}
