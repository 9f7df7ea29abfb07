//! `tet diff`: compares two sources; exit code 1 if they differ.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value as Json, json};
use tesseral::{Container, DiffOptions, Difference, Error, MetadataDifference, Side, ValueDifference};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::{self, escape};
use tesseral_display::json;

/// Arguments of `tet diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// Path or URL of a file or folder of any supported format; `PATH@T` is its state at a time, for formats with versions
    left: PathBuf,
    /// The other source
    right: PathBuf,
    /// Absolute tolerance for numbers
    #[arg(long, value_name = "ERROR")]
    max_abs_error: Option<f64>,
    /// Tolerance relative to the left value
    #[arg(long, value_name = "ERROR")]
    max_rel_error: Option<f64>,
    /// Compare only this array or field. Repeatable
    #[arg(long, value_name = "NAME")]
    array: Vec<String>,
    /// Compare structure and metadata only
    #[arg(long)]
    metadata_only: bool,
    /// Compare the stored values of missing cells, so that nulls, unwritten cells and declared missing values differ [default: all
    /// missing cells are equal]
    #[arg(long)]
    stored: bool,
    /// Print nothing; use the exit code
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(context: &Context, arguments: &DiffArguments) -> CliResult {
    let bounds = [arguments.max_abs_error, arguments.max_rel_error];
    if let Some(bound) = bounds.into_iter().flatten().find(|bound| bound.is_nan() || *bound < 0.0) {
        return Err(Error::invalid(format!("invalid tolerance {bound}: expected a number ≥ 0")).into());
    }
    let meter = Meter::new(true);
    let left = open(context, &arguments.left, &meter)?;
    let right = open(context, &arguments.right, &meter)?;
    let mut options = DiffOptions::new().execution(context.options(&meter));
    options.arrays.clone_from(&arguments.array);
    options.max_abs_error = arguments.max_abs_error;
    options.max_rel_error = arguments.max_rel_error;
    options.metadata_only = arguments.metadata_only;
    options.stored = arguments.stored;
    let found = tesseral::diff(&left, &right, &options)?;
    meter.finish();
    if context.json() {
        output::print_json(&document(arguments, &left, &right, &found))?;
    } else if !arguments.quiet {
        output::print(&report_text(&found))?;
    }
    Ok(if found.is_same() { exit::OK } else { exit::NO })
}

/// A source, or its state at the time after the last `@`, unless the whole path exists.
fn open(context: &Context, source: &Path, meter: &Meter) -> CliResult<Container> {
    match context.open(source, meter) {
        Err(failure) if failure.is_not_found() => {
            let Some((path, moment)) = source.to_str().and_then(|text| text.rsplit_once('@')) else {
                return Err(failure);
            };
            // If neither path exists, report the complete argument.
            if context.open(Path::new(path), meter).is_err_and(|other| other.is_not_found()) {
                return Err(failure);
            }
            context.at(moment).open(Path::new(path), meter)
        }
        other => other,
    }
}

fn report_text(found: &Difference) -> String {
    let paint = TerminalStyle::stdout();
    let mut out = String::new();
    for MetadataDifference { array, what, left, right, .. } in &found.notes {
        let side = |text: &Option<String>| text.as_ref().map_or("-".to_owned(), |t| escape(t).into_owned());
        let of = array.as_ref().map_or(String::new(), |name| format!("{}: ", escape(name)));
        out.push_str(&format!("{of}{}\n", paint.strong(&escape(what))));
        out.push_str(&format!("  {} {}\n", paint.failure("<"), side(left)));
        out.push_str(&format!("  {} {}\n", paint.success(">"), side(right)));
    }
    for values in &found.values {
        out.push_str(&values_text(values, paint));
    }
    if found.is_same() {
        out.push_str("equal\n");
    }
    out
}

fn values_text(values: &ValueDifference, paint: TerminalStyle) -> String {
    let name = escape(&values.name);
    let largest = |what: &str| {
        let shown = values.max_abs.map(|v| format!("{what} by at most {v:?}"));
        shown.unwrap_or_default()
    };
    let Some(first) = &values.first else {
        return match values.max_abs {
            Some(v) if v > 0.0 => format!("{name}: {}, within the tolerance\n", largest("cells differ")),
            _ => String::new(),
        };
    };
    let side = |text: &Option<String>, which: Side| match text {
        Some(text) => escape(text).into_owned(),
        None if first.only.is_some_and(|only| only != which) => "no cell".to_owned(),
        None => "missing".to_owned(),
    };
    let (only_left, only_right) = (values.only_left, values.only_right);
    let alone = match only_left + only_right {
        0 => String::new(),
        _ => format!(" ({only_left} only on the left, {only_right} only on the right)"),
    };
    let at = match first.coordinates.as_slice() {
        [] => format!("{:?}", first.position),
        coordinates => format!("[{}]", coordinates.iter().map(|c| escape(c)).collect::<Vec<_>>().join(", ")),
    };
    let size = if values.max_abs.is_some() { format!(", {}", largest("numbers")) } else { String::new() };
    format!(
        "{name}: {} of {} differ{alone}{size}\n  first at {at}\n  {} {}\n  {} {}\n",
        values.differing,
        text::count(values.cells, "cell"),
        paint.failure("<"),
        side(&first.left, Side::Left),
        paint.success(">"),
        side(&first.right, Side::Right),
    )
}

fn document(arguments: &DiffArguments, left: &Container, right: &Container, found: &Difference) -> Json {
    let note = |note: &MetadataDifference| json!({"array": note.array, "what": note.what, "left": note.left, "right": note.right});
    let values = |v: &ValueDifference| {
        let first = v.first.as_ref().map(|f| {
            let only = f.only.map(|side| if side == Side::Left { "left" } else { "right" });
            let position = f.coordinates.is_empty().then_some(&f.position);
            let coordinates = (!f.coordinates.is_empty()).then_some(&f.coordinates);
            json!({
                "position": position,
                "coordinates": coordinates,
                "left": f.left,
                "right": f.right,
                "only": only,
            })
        });
        let error = |v: Option<f64>| v.map_or(Json::Null, json::float);
        json!({
            "array": v.name,
            "cells": v.cells,
            "differing": v.differing,
            "only_left": v.only_left,
            "only_right": v.only_right,
            "first": first,
            "max_abs_error": error(v.max_abs),
            "max_rel_error": error(v.max_rel),
        })
    };
    json!({
        "schema": "tesseral.diff/1",
        "left": arguments.left.to_string_lossy(),
        "right": arguments.right.to_string_lossy(),
        "left_format": left.format().id(),
        "right_format": right.format().id(),
        "same": found.is_same(),
        "metadata": found.notes.iter().map(note).collect::<Vec<_>>(),
        "values": found.values.iter().map(values).collect::<Vec<_>>(),
    })
}
