//! `tet evolve`: changes the schema of an array. Stored cells are unchanged.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::{ArraySchema, Change, Error, Result, Scalar};
use tesseral_core::schema::Labels;

use crate::context::Context;
use crate::create;
use crate::error::{CliResult, exit};
use crate::maintain::edit;
use crate::output;
use crate::progress::Meter;
use crate::text::escape;

/// Arguments of `tet evolve`.
#[derive(Debug, Args)]
pub(crate) struct EvolveArguments {
    /// Path of the array
    array: PathBuf,
    /// Add a field: NAME:DTYPE[?][:CODEC+CODEC…], with `?` if nullable; existing cells get its fill value
    #[arg(long, value_name = "FIELD")]
    add: Vec<String>,
    /// Drop a field
    #[arg(long, value_name = "NAME")]
    drop: Vec<String>,
    /// Append labels to an enumeration: NAME=LABEL,LABEL…
    #[arg(long, value_name = "NAME=LABELS")]
    extend_enum: Vec<String>,
    /// Expand the current domain of a dimension: DIM=LOW..HIGH
    #[arg(long, value_name = "DIM=RANGE")]
    expand: Vec<String>,
    /// Timestamp of the change in milliseconds since 1970 [default: now]
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
}

pub(crate) fn run(context: &Context, arguments: &EvolveArguments) -> CliResult {
    let container = context.open(&arguments.array, &Meter::new(false))?;
    let array = container.array_at(0)?;
    let mut changes = Vec::new();
    for name in &arguments.drop {
        changes.push(Change::DropField { name: name.clone() });
    }
    for word in &arguments.add {
        let (field, codecs) = create::field(word)?;
        changes.push(Change::AddField { field, codecs });
    }
    for word in &arguments.extend_enum {
        changes.push(extend(array.schema(), word)?);
    }
    if !arguments.expand.is_empty() {
        changes.push(expand(array.schema(), &arguments.expand)?);
    }
    if changes.is_empty() {
        return Err(Error::invalid("nothing to change")
            .hint("use --add, --drop, --extend-enum or --expand")
            .into());
    }
    edit(context, &arguments.array)?.change(&changes, arguments.timestamp)?;
    let shown = arguments.array.to_string_lossy();
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.evolve/1", "array": shown, "added": arguments.add, "dropped": arguments.drop,
            "extended": arguments.extend_enum, "expanded": arguments.expand,
        }))?;
    } else {
        let count = changes.len();
        output::print(&format!(
            "{}: {count} {}\n",
            escape(&shown),
            if count == 1 { "change" } else { "changes" }
        ))?;
    }
    Ok(exit::OK)
}

/// Parses `NAME=LABEL,LABEL` and returns the existing labels followed by these.
fn extend(schema: &ArraySchema, word: &str) -> Result<Change> {
    let refuse =
        || Error::invalid(format!("invalid list of labels {word:?}")).hint("example: color=red,green");
    let (name, labels) = word.split_once('=').ok_or_else(refuse)?;
    let known = || schema.fields.iter().filter_map(|field| field.enumeration.as_ref());
    let found = known().find(|enumeration| enumeration.name == name);
    let names = || known().map(|enumeration| enumeration.name.clone()).collect();
    let mut wider = found.ok_or_else(|| Error::not_found("enumeration", name, names()))?.clone();
    for label in labels.split(',') {
        match &mut wider.labels {
            Labels::Text(all) => all.push(label.to_owned()),
            Labels::Numbers { dtype, bytes } => {
                bytes.extend_from_slice(Scalar::parse(*dtype, label)?.bytes())
            }
        }
    }
    Ok(Change::ExtendEnumeration(wider))
}

/// Converts `DIM=LOW..HIGH` words to one range per dimension; others are unchanged.
fn expand(schema: &ArraySchema, words: &[String]) -> Result<Change> {
    let empty = || (Scalar::from_text(""), Scalar::from_text(""));
    let mut ranges: Vec<(Scalar, Scalar)> =
        schema.dims.iter().map(|dim| dim.domain.clone().unwrap_or_else(empty)).collect();
    for word in words {
        let (name, low, high) = create::range(word)?;
        let dim = schema.dims.iter().position(|dim| dim.name == name);
        let names = || schema.dims.iter().map(|dim| dim.name.clone()).collect();
        let dim = dim.ok_or_else(|| Error::not_found("dimension", name, names()))?;
        let dtype = schema.dims[dim].dtype;
        ranges[dim] = (Scalar::parse(dtype, low)?, Scalar::parse(dtype, high)?);
    }
    Ok(Change::ExpandDomain(ranges))
}
