//! `tet create`: creates an empty array.

mod schema_arguments;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::{Create, Error};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::text::escape;

pub(crate) use schema_arguments::{field_of as field, range};

/// Arguments of `tet create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Path of the new array; a name without an extension is a folder
    array: PathBuf,
    /// Format of the array [default: by file extension]
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// JSON file with the schema, instead of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dim", "field"])]
    schema: Option<PathBuf>,
    /// Dimension: NAME=LOW..HIGH[/TILE][:DTYPE], or NAME:string. Repeatable
    #[arg(long, value_name = "DIM")]
    dim: Vec<String>,
    /// Initial current domain of a dimension: DIM=LOW..HIGH; `tet evolve --expand` expands it
    #[arg(long, value_name = "DIM=RANGE", conflicts_with = "schema")]
    current: Vec<String>,
    /// Label of a dimension: DIM=NAME:DTYPE[:increasing|decreasing], filled by `tet append --array NAME`. Repeatable
    #[arg(long, value_name = "LABEL", conflicts_with = "schema")]
    label: Vec<String>,
    /// Field: NAME:DTYPE[?][:CODEC+CODEC…], with `?` if nullable. Repeatable
    #[arg(long, value_name = "FIELD")]
    field: Vec<String>,
    /// Create a sparse array
    #[arg(long)]
    sparse: bool,
    /// Allow several cells at one position
    #[arg(long, requires = "sparse")]
    duplicates: bool,
    /// Capacity of a tile of a sparse array in cells
    #[arg(long, value_name = "N")]
    capacity: Option<u64>,
    /// Cell order: row-major, col-major or hilbert
    #[arg(long, value_name = "ORDER", default_value = "row-major")]
    order: String,
    /// Timestamp of the array in milliseconds since 1970
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(context: &Context, arguments: &CreateArguments) -> CliResult {
    let document = match &arguments.schema {
        Some(path) => {
            let shown = path.display().to_string();
            let bytes = std::fs::read(path).map_err(|e| Error::io("read", &shown, e))?;
            serde_json::from_slice(&bytes).map_err(|e| Error::invalid(format!("{shown}: {e}")))?
        }
        None => schema_arguments::document(arguments)?,
    };
    let mut create = Create::new();
    if let Some(timestamp) = arguments.timestamp {
        create = create.timestamp(timestamp);
    }
    if let Some(key) = context.key()? {
        create = create.key(key);
    }
    if arguments.force {
        create = create.overwrite();
    }
    let format = match &arguments.to {
        Some(id) => tesseral::format(id)?,
        None => tesseral::of_output(&arguments.array)?,
    };
    create.declare(&arguments.array, format.id(), &document)?.commit()?;
    let shown = arguments.array.to_string_lossy();
    if context.json() {
        output::print_json(&json!({"schema": "tesseral.create/1", "array": shown, "format": format.id()}))?;
    } else {
        output::print(&format!("created {}\n", escape(&shown)))?;
    }
    Ok(exit::OK)
}
