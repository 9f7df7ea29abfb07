//! `tet create`: an array without a cell, for appends to fill.

mod words;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::{Create, Error, Value};

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output;
use crate::text::escape;

pub(crate) use words::{field_of as field, range};

/// Arguments of `tet create`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder of the new array
    array: PathBuf,
    /// A JSON file that says what it is, instead of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dim", "field"])]
    schema: Option<PathBuf>,
    /// A dimension: NAME=LOW..HIGH[/TILE][:DTYPE], or NAME:string; may be given several times
    #[arg(long, value_name = "DIM")]
    dim: Vec<String>,
    /// The part of a dimension that is in use at first: DIM=LOW..HIGH; `tet evolve --expand` widens it
    #[arg(long, value_name = "DIM=RANGE", conflicts_with = "schema")]
    current: Vec<String>,
    /// A field: NAME:DTYPE[?][:CODEC+CODEC…], with `?` when cells can be null; may be given several times
    #[arg(long, value_name = "FIELD")]
    field: Vec<String>,
    /// Cells are listed one by one
    #[arg(long)]
    sparse: bool,
    /// A position may hold several cells
    #[arg(long, requires = "sparse")]
    duplicates: bool,
    /// Cells of a tile of a sparse array
    #[arg(long, value_name = "N")]
    capacity: Option<u64>,
    /// Order of cells: row-major, col-major or hilbert
    #[arg(long, value_name = "ORDER", default_value = "row-major")]
    order: String,
    /// When it counts as made, milliseconds since 1970
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
    /// Replaces what is there
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let document = match &arguments.schema {
        Some(path) => {
            let shown = path.display().to_string();
            let bytes = std::fs::read(path).map_err(|e| Error::io("read", &shown, e))?;
            serde_json::from_slice(&bytes).map_err(|e| Error::invalid(format!("{shown}: {e}")))?
        }
        None => words::document(arguments)?,
    };
    let mut create = Create::new();
    if let Some(timestamp) = arguments.timestamp {
        create = create.option("timestamp", Value::UInt(timestamp));
    }
    if let Some(key) = context.key()? {
        create = create.option("key", Value::Bytes(key));
    }
    if arguments.force {
        create = create.overwrite();
    }
    create.declare(&arguments.array, "tiledb", &document)?.commit()?;
    let shown = arguments.array.to_string_lossy();
    if context.json() {
        output::print_json(&json!({"schema": "tesseral.create/1", "array": shown, "format": "tiledb"}))?;
    } else {
        output::print(&format!("{} made\n", escape(&shown)))?;
    }
    Ok(exit::OK)
}
