//! `tet append`: appends cells from files to an existing array, or messages to a file of messages.

mod columns;
mod csv;
mod npy;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tesseral::{Append, ArrayId, ArraySchema, ColumnData, Error, InputOrder, Region, Session};

use self::columns::CsvColumns;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::messages::append as messages;
use crate::output;
use crate::progress::Meter;
use crate::text::{self, escape};
use tesseral_display::coordinate;

/// Arguments of `tet append`.
#[derive(Debug, Args)]
pub(crate) struct AppendArguments {
    /// Existing array of a format with versions, or a file of messages, which is created if missing
    array: PathBuf,
    /// A .npy file (dense, one field), a .csv file with a header line, or files of messages
    input: PathBuf,
    /// Region of a dense array to write, one selection per dimension: `time=0:10`, `lat=10..20` [default: the whole array]
    #[arg(value_name = "SELECTION")]
    selection: Vec<String>,
    /// Array to append to, in a source of several: a member of a group, or a label of a dimension
    #[arg(long = "array", value_name = "NAME")]
    member: Option<String>,
    /// Timestamp of the write in milliseconds since 1970 [default: now]
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
    /// If several cells of a sparse array have the same position, keep the last instead of returning an error
    #[arg(long)]
    dedup: bool,
    /// The rows are already in the storage order of the array; read them in batches
    #[arg(long)]
    sorted: bool,
}

/// Number of rows read at once from a sorted file.
const ROWS: usize = 1 << 16;

pub(crate) fn run(context: &Context, arguments: &AppendArguments) -> CliResult {
    if messages::are_messages(context, &arguments.array, &arguments.input) {
        let more = arguments.selection.iter().map(PathBuf::from);
        let sources: Vec<PathBuf> = std::iter::once(arguments.input.clone()).chain(more).collect();
        return messages::run(context, &arguments.array, &sources);
    }
    let meter = Meter::new(false);
    let container = context.open(&arguments.array, &meter)?;
    let array = match &arguments.member {
        Some(name) => container.array(name)?,
        None => container.array_at(0)?,
    };
    let schema = array.schema().clone();
    let mut append = Append::new().open(context.opener(&meter)?.format_options().clone());
    append = append.execution(context.options(&meter));
    if let Some(timestamp) = arguments.timestamp {
        append = append.timestamp(timestamp);
    }
    if let Some(name) = &arguments.member {
        append = append.array(name);
    }
    if arguments.dedup {
        append = append.dedup();
    }
    let path = &arguments.array;
    let cells = if schema.sparse {
        if !arguments.selection.is_empty() {
            return Err(Error::invalid(
                "sparse arrays do not support a selection here: the input has coordinates",
            )
            .into());
        }
        let session = append.begin(path)?;
        let cells = sparse(&session, &schema, arguments)?;
        session.commit()?;
        cells
    } else {
        let selection = array.select(arguments.selection.iter().map(String::as_str))?;
        if !selection.is_box() {
            return Err(Error::invalid("the region of a write cannot have steps").into());
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
        output::print(&format!("appended {} to {}\n", text::count(cells, "cell"), escape(&shown)))?;
    }
    Ok(exit::OK)
}

fn is_npy(input: &Path) -> bool {
    input.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}

/// Column name of a dimension, as in the header of `cat`.
fn dim_name(schema: &ArraySchema, d: usize) -> String {
    let name = &schema.dims[d].name;
    if name.is_empty() { format!("dim_{d}") } else { name.clone() }
}

/// Column names of an array.
fn names(schema: &ArraySchema) -> Vec<String> {
    let dims = (0..schema.dims.len()).map(|d| match schema.sparse {
        true => schema.dims[d].name.clone(),
        false => dim_name(schema, d),
    });
    dims.chain(schema.fields.iter().map(|f| f.name.clone())).collect()
}

/// Cells of a dense array are written in row-major order: coordinate columns must match that order.
fn in_turn(
    schema: &ArraySchema,
    region: &Region,
    placed: &[(usize, usize)],
    number: u64,
    row: &csv::CsvRow,
) -> Result<(), Error> {
    for &(d, place) in placed {
        let cells: u64 = (d + 1..region.rank()).map(|d| region.extent(d)).product();
        let position = region.start(d) + number / cells.max(1) % region.extent(d).max(1);
        let (dim, found) = (&schema.dims[d], row[place].0.as_str());
        let expected = coordinate(dim, position);
        let equal = dim.coordinate(position).is_some_and(|c| columns::written(c.dtype(), found) == Some(c));
        if found != expected && !equal {
            let name = dim_name(schema, d);
            let detail =
                format!("expected {name}={expected}, found {name}={found}: cells must be in row-major order");
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
) -> CliResult<()> {
    if is_npy(input) {
        return npy::write(context, session, input, schema, region);
    }
    let mut reader = csv::CsvFile::open(input)?;
    reader.only(&names(schema))?;
    let place = |d: usize| {
        let name = dim_name(schema, d);
        reader.header().iter().position(|column| *column == name).map(|place| (d, place))
    };
    let placed: Vec<(usize, usize)> = (0..schema.dims.len()).filter_map(place).collect();
    let mut columns = CsvColumns::fields(schema);
    columns.fill(&mut reader, usize::MAX, |number, row| in_turn(schema, region, &placed, number, row))?;
    session.write_columns(ArrayId(0), region, &columns.data())?;
    Ok(())
}

fn sparse(session: &Session, schema: &ArraySchema, arguments: &AppendArguments) -> CliResult<u64> {
    if is_npy(&arguments.input) {
        return Err(Error::unsupported("cells of a sparse array from .npy").hint("use a .csv file").into());
    }
    let mut reader = csv::CsvFile::open(&arguments.input)?;
    reader.only(&names(schema))?;
    let (order, rows) =
        if arguments.sorted { (InputOrder::Stored, ROWS) } else { (InputOrder::Unordered, usize::MAX) };
    let mut total = 0;
    loop {
        let mut columns = CsvColumns::cells(schema);
        let read = columns.fill(&mut reader, rows, |_, _| Ok(()))?;
        if read == 0 {
            return Ok(total);
        }
        let data: Vec<ColumnData<'_>> = columns.data();
        session.write_cells(ArrayId(0), &data, order)?;
        total += read as u64;
    }
}
