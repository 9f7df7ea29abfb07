//! `tet plot`: a picture of one or two dimensions, in the terminal or as PNG.

mod chart;
mod color_map;
mod field;
mod image;

use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use tesseral::{Column, Error, Overview, Point, Selection, Slice, Value};

use crate::cells_argument::{CellsArgument, Target, coordinate, report_packing};
use crate::context::Context;
use crate::error::{CliResult, exit, report};
use crate::output::{Output, OutputArguments};
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::escape;
use crate::{json, output};

/// Arguments of `tet plot`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    subject: CellsArgument,
    /// Width in columns [default: that of the terminal, or 80]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(16..=1000))]
    width: Option<u16>,
    /// Height in lines [default: by the shape]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=500))]
    height: Option<u16>,
    /// Range of values of the colors or the height
    #[arg(long, value_name = "RANGE", default_value = "full")]
    range: ValueRange,
    /// Color map of a field
    #[arg(long, value_name = "MAP", default_value = "viridis")]
    colors: ColorMap,
    #[command(flatten)]
    output: OutputArguments,
}

/// Range of values of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ValueRange {
    /// From minimum to maximum
    Full,
    /// Without the outer two percent at either end
    Robust,
}

/// Color maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorMap {
    /// Dark blue to yellow
    Viridis,
    /// Black to light yellow
    Magma,
    /// Black to yellow, warmer
    Inferno,
    /// Dark blue to light gray-yellow
    Cividis,
    /// Red over white to blue, for values around a center
    Rdbu,
    /// Black to white
    Greys,
}

/// Content of a picture.
pub(crate) struct Picture {
    pub(crate) overview: Overview,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) title: String,
    pub(crate) units: String,
    /// Name, first and last coordinate of each drawn dimension.
    pub(crate) axes: Vec<(String, String, String)>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> CliResult {
    let ending = arguments.output.output.as_ref().and_then(|path| path.extension());
    if let Some(ending) = ending.filter(|ending| !ending.eq_ignore_ascii_case("png")) {
        let error = Error::unsupported(format!("image format .{}", ending.to_string_lossy()));
        return Err(error.hint("use the file extension .png").into());
    }
    let container = context.open(&arguments.subject.source, &Meter::new(false))?;
    let container = arguments.subject.values.of(container);
    let target = arguments.subject.resolve(&container)?;
    report_packing(&target.array);
    if let Column::Dim(_) = target.column() {
        let error = Error::unsupported("a plot of coordinates").in_array(target.array.name());
        return Err(error.hint("select a field").into());
    }
    let selection = if target.array.schema().sparse { target.positions()? } else { fix_leading(&target)? };
    let paint = TerminalStyle::stdout();
    let to_file = arguments.output.output.as_ref().is_some_and(|path| path.as_os_str() != "-");
    let columns = usize::from(arguments.width.or(paint.width()).unwrap_or(80));
    let lines = arguments.height.map(usize::from);
    let most = if to_file { image::MOST } else { [2 * lines.unwrap_or(field::LINES), 2 * columns] };
    let overview = tesseral::overview(&target.array, &selection, most)?;
    let trim = if arguments.range == ValueRange::Robust { 0.02 } else { 0.0 };
    let Some((low, high)) = overview.range(trim) else {
        return Err(Error::invalid("nothing to draw: every cell is null, NaN or infinite")
            .in_array(target.array.name())
            .into());
    };
    let picture = picture(&target, overview, low, high);
    if to_file {
        let mut out = Output::open(&arguments.output, &arguments.subject.source, context.cancel())?;
        out.put(&image::png(&picture, arguments.colors)?)?;
        out.finish()?;
    }
    if context.json() {
        output::print_json(&document(
            &target,
            &picture,
            arguments.output.output.as_ref().filter(|_| to_file),
        ))?;
    } else if !to_file {
        let drawn = match picture.overview.shape.len() {
            2 => field::draw(&picture, arguments.colors, paint, columns, lines),
            _ => chart::draw(&picture, paint, columns, lines),
        };
        output::print(&drawn)?;
    }
    Ok(exit::OK)
}

/// All dimensions but the last two are drawn at their first position, with a note.
fn fix_leading(target: &Target) -> CliResult<Selection> {
    let mut slices: Vec<Slice> = target.selection()?.slices().to_vec();
    let long: Vec<usize> = (0..slices.len()).filter(|d| slices[*d].count() > 1).collect();
    let bounds: Vec<u64> = slices.iter().map(|s| s.end).collect();
    let mut fixed = Vec::new();
    for d in &long[..long.len().saturating_sub(2)] {
        slices[*d] = Slice::new(slices[*d].start, slices[*d].start + 1);
        let dim = &target.array.schema().dims[*d];
        let name = if dim.name.is_empty() { d.to_string() } else { dim.name.clone() };
        fixed.push(format!("{name}={}", slices[*d].start));
    }
    if !fixed.is_empty() {
        report(&format!("drawing {}\n", escape(&fixed.join(" "))));
    }
    Ok(Selection::new(slices, &bounds)?)
}

fn picture(target: &Target, overview: Overview, low: f64, high: f64) -> Picture {
    let schema = target.array.schema();
    let axes = overview.dims.iter().map(|d| {
        let (dim, slice) = (&schema.dims[*d], overview.selection.slices()[*d]);
        let name = if dim.name.is_empty() { d.to_string() } else { dim.name.clone() };
        let last = slice.start + (slice.count() - 1) * slice.step;
        (name, coordinate(dim, slice.start), coordinate(dim, last))
    });
    let axes = axes.collect();
    let fixed =
        (0..schema.dims.len()).filter(|d| !overview.dims.contains(d) && schema.dims[*d].extent != Some(1));
    let fixed: Vec<String> = fixed
        .map(|d| {
            let (dim, slice) = (&schema.dims[d], overview.selection.slices()[d]);
            let name = if dim.name.is_empty() { d.to_string() } else { dim.name.clone() };
            match slice.count() {
                0 | 1 => format!("{name}={}", coordinate(dim, slice.start)),
                _ => format!("over {name}"),
            }
        })
        .collect();
    let units = match schema.attributes.get("units") {
        Some(Value::Text(units)) => units.clone(),
        _ => String::new(),
    };
    let name = if schema.fields.len() > 1 { &target.field.name } else { target.array.name() };
    let title = std::iter::once(name.to_owned()).chain(fixed).collect::<Vec<_>>().join(" ");
    Picture { overview, low, high, title, units, axes }
}

fn document(target: &Target, picture: &Picture, file: Option<&std::path::PathBuf>) -> Json {
    let Picture { overview, .. } = picture;
    let point = |point: &Point| match point {
        Point::Value(v) => json::float(*v),
        Point::NotFinite => json!("NaN"),
        Point::Null => Json::Null,
    };
    let points: Vec<Json> = overview.points.iter().map(point).collect();
    let values = match overview.shape.as_slice() {
        [_, columns] => Json::Array(points.chunks(*columns).map(|row| Json::Array(row.to_vec())).collect()),
        _ => Json::Array(points),
    };
    let axes =
        picture.axes.iter().map(|(name, first, last)| json!({"name": name, "first": first, "last": last}));
    json!({
        "schema": "tesseral.plot/1",
        "array": target.array.name(),
        "field": target.field.name,
        "kind": if overview.shape.len() == 2 { "field" } else { "line" },
        "shape": overview.shape,
        "axes": axes.collect::<Vec<_>>(),
        "units": picture.units,
        "low": json::float(picture.low),
        "high": json::float(picture.high),
        "cells": overview.cells,
        "not_finite": overview.not_finite,
        "nulls": overview.nulls,
        "output": file.map(|path| path.to_string_lossy()),
        "values": values,
    })
}

/// Legend of cells that are not on the scale.
pub(crate) fn odd_cells(overview: &Overview) -> String {
    let counts = [(overview.not_finite, "NaN or infinite"), (overview.nulls, "null")];
    let parts: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { String::new() } else { format!("  ({})", parts.join(", ")) }
}

/// A number in a legend.
pub(crate) fn number(value: f64) -> String {
    if value != 0.0 && (value.abs() >= 1e6 || value.abs() < 1e-3) {
        format!("{value:.3e}")
    } else {
        format!("{:.4}", value).trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

impl Picture {
    /// Position of a value on the scale, from 0 to 1.
    pub(crate) fn normalize(&self, value: f64) -> f64 {
        if self.high > self.low { ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0) } else { 0.5 }
    }

    /// The title line.
    pub(crate) fn heading(&self) -> String {
        let units = if self.units.is_empty() { String::new() } else { format!(" [{}]", self.units) };
        escape(&format!("{}{units}", self.title)).into_owned()
    }
}
