//! `tet plot`: a picture of one or two dimensions, in the terminal, as PNG or as SVG.

mod axis;
mod canvas;
mod chart;
mod color_map;
mod field;
mod figure;
mod font;
mod image;
mod svg;

use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use tesseral::{Array, Column, Container, Error, Overview, Point, Selection, Slice};
use tesseral_core::description;
use tesseral_core::schema::VariableRole;

use self::axis::{Axis, Tick};
use self::image::ImageFormat;
use crate::cells_argument::{CellsArgument, ResolvedCells, coordinate, report_packing};
use crate::context::Context;
use crate::error::{CliResult, exit, report};
use crate::output::{OutputArguments, OutputStream};
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
    /// What is drawn, in words.
    pub(crate) title: String,
    /// The coordinates of the dimensions that are not drawn.
    pub(crate) subtitle: String,
    /// Name of the variable.
    pub(crate) name: String,
    pub(crate) units: String,
    /// Vertical and horizontal axis, or the latter alone.
    pub(crate) axes: Vec<Axis>,
    /// Number of selected positions along each axis.
    pub(crate) cells: Vec<u64>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> CliResult {
    let file = arguments.output.output.as_ref().filter(|path| path.as_os_str() != "-");
    let format = file.map(|path| ImageFormat::from_path(path)).transpose()?;
    let container = context.open(&arguments.subject.source, &Meter::new(false))?;
    let container = arguments.subject.values.apply_to(container);
    let target = arguments.subject.resolve(&container)?;
    report_packing(&target.array);
    if let Column::Dim(_) = target.column() {
        let error = Error::unsupported("a plot of coordinates").in_array(target.array.name());
        return Err(error.hint("select a field").into());
    }
    let selection = if target.array.schema().sparse { target.positions()? } else { fix_leading(&target)? };
    let paint = TerminalStyle::stdout();
    let columns = usize::from(arguments.width.or(paint.width()).unwrap_or(80));
    let lines = arguments.height.map(usize::from);
    let most = if format.is_some() { image::MOST } else { [2 * lines.unwrap_or(field::LINES), 2 * columns] };
    let overview = tesseral::overview(&target.array, &selection, most)?;
    let trim = if arguments.range == ValueRange::Robust { 0.02 } else { 0.0 };
    let Some((low, high)) = overview.range(trim) else {
        return Err(Error::invalid("nothing to draw: every cell is null, NaN or infinite")
            .in_array(target.array.name())
            .into());
    };
    let picture = Picture::new(&container, &target, overview, (low, high));
    if let Some(format) = format {
        let mut out = OutputStream::open(&arguments.output, &arguments.subject.source, context.cancel())?;
        out.put(&image::encoded(&picture, arguments.colors, format)?)?;
        out.finish()?;
    }
    if context.json() {
        output::print_json(&document(&target, &picture, file))?;
    } else if format.is_none() {
        let drawn = match picture.overview.shape.len() {
            2 => field::draw(&picture, arguments.colors, paint, columns, lines),
            _ => chart::draw(&picture, paint, columns, lines),
        };
        output::print(&drawn)?;
    }
    Ok(exit::OK)
}

/// All dimensions but the last two are drawn at their first position, with a note.
fn fix_leading(target: &ResolvedCells) -> CliResult<Selection> {
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

/// The coordinate variable of a dimension.
fn coordinate_of(container: &Container, array: &Array, dim: &str) -> Option<Array> {
    let index = container.inner().find(array.name()).ok()?;
    let own = container.inner().sibling(index, dim)?;
    container.lazy_array(own).ok().filter(|found| found.schema().role == VariableRole::Index)
}

/// Whether a coordinate increases upward on a map: latitudes and the like.
fn points_north(name: &str, coordinate: Option<&Array>) -> bool {
    let attribute = |key: &str| {
        let array = coordinate?;
        description::text_attribute(array.schema(), array.selected_field(), key)
    };
    let standard = attribute("standard_name").unwrap_or_default();
    let northern = attribute("units").is_some_and(|units| {
        let units = units.to_lowercase();
        units.starts_with("degree") && (units.ends_with("north") || units.ends_with('n'))
    });
    let plain = name.to_lowercase();
    let named = matches!(plain.as_str(), "lat" | "latitude" | "nav_lat" | "y" | "northing");
    northern
        || standard.ends_with("latitude")
        || standard == "projection_y_coordinate"
        || attribute("axis") == Some("Y")
        || (standard.is_empty() && named)
}

fn axis(container: &Container, target: &ResolvedCells, overview: &Overview, number: usize) -> Axis {
    let d = overview.dims[number];
    let dim = &target.array.schema().dims[d];
    let coordinate = coordinate_of(container, &target.array, &dim.name);
    let units = coordinate.as_ref().and_then(|array| {
        description::text_attribute(array.schema(), array.selected_field(), "units").map(str::to_owned)
    });
    let (slice, points) = (overview.selection.slices()[d], overview.shape[number]);
    let mut axis = Axis::new(dim, d, slice, points, &units.unwrap_or_default());
    let vertical = overview.dims.len() == 2 && number == 0;
    // Positions without coordinates point nowhere.
    let placed = dim.labels.is_some() || dim.domain.is_some();
    axis.reversed = vertical && placed && axis.ascends() && points_north(&dim.name, coordinate.as_ref());
    axis
}

impl Picture {
    fn new(
        container: &Container,
        target: &ResolvedCells,
        overview: Overview,
        (low, high): (f64, f64),
    ) -> Self {
        let schema = target.array.schema();
        let axes = (0..overview.dims.len()).map(|i| axis(container, target, &overview, i)).collect();
        let cells = overview.dims.iter().map(|d| overview.selection.slices()[*d].count()).collect();
        let fixed = |d: usize| {
            let (dim, slice) = (&schema.dims[d], overview.selection.slices()[d]);
            let name = if dim.name.is_empty() { d.to_string() } else { dim.name.clone() };
            match slice.count() {
                0 | 1 => format!("{name} = {}", coordinate(dim, slice.start)),
                _ => format!("over {name}"),
            }
        };
        let others = (0..schema.dims.len())
            .filter(|d| !overview.dims.contains(d) && schema.dims[*d].extent != Some(1));
        let subtitle = others.map(fixed).collect::<Vec<_>>().join(", ");
        let name = if schema.fields.len() > 1 { &target.field.name } else { target.array.variable_name() };
        let title = description::long_name(schema, &target.field).unwrap_or(name);
        Self {
            title: escape(title).into_owned(),
            subtitle: escape(&subtitle).into_owned(),
            name: escape(name).into_owned(),
            units: description::text_attribute(schema, &target.field, "units").unwrap_or_default().to_owned(),
            overview,
            low,
            high,
            axes,
            cells,
        }
    }
}

fn document(target: &ResolvedCells, picture: &Picture, file: Option<&std::path::PathBuf>) -> Json {
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
    let axes = picture.axes.iter().map(
        |axis| json!({"name": axis.name, "units": axis.units, "first": axis.ends.0, "last": axis.ends.1}),
    );
    json!({
        "schema": "tesseral.plot/1",
        "array": target.array.name(),
        "field": target.field.name,
        "kind": if overview.shape.len() == 2 { "field" } else { "line" },
        "shape": overview.shape,
        "axes": axes.collect::<Vec<_>>(),
        "title": picture.title,
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
    let counts = [(overview.not_finite, "NaN or infinite"), (overview.nulls, "missing")];
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

    /// A point as it is drawn, from the top.
    pub(crate) fn at(&self, row: usize, column: usize) -> Point {
        let shape = &self.overview.shape;
        let row = if self.axes[0].reversed { shape[0] - 1 - row } else { row };
        self.overview.points[row * shape[1] + column]
    }

    /// The title line.
    pub(crate) fn heading(&self) -> String {
        let units = if self.units.is_empty() { String::new() } else { format!(" [{}]", escape(&self.units)) };
        let subtitle = if self.subtitle.is_empty() { String::new() } else { format!("  {}", self.subtitle) };
        format!("{}{units}{subtitle}", self.title)
    }

    /// Name and units of the values.
    pub(crate) fn value_title(&self) -> String {
        if self.units.is_empty() {
            self.name.clone()
        } else {
            format!("{} [{}]", self.name, escape(&self.units))
        }
    }
}

/// Labels of ticks below a picture of so many columns; labels that would touch another are left out.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn tick_line(axis: &Axis, columns: usize) -> String {
    let mut line: Vec<char> = Vec::new();
    // Each label takes about eight columns with the space beside it.
    for Tick { place, label } in axis.ticks((columns / 8).clamp(2, 12)) {
        let label: Vec<char> = escape(&label).chars().collect();
        let middle = (place * columns as f64) as usize;
        let start = middle.saturating_sub(label.len() / 2).min(columns.saturating_sub(label.len()));
        if !line.is_empty() && start < line.len() + 1 {
            continue;
        }
        line.resize(start, ' ');
        line.extend(label);
    }
    line.into_iter().collect()
}
