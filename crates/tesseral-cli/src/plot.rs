//! `tet plot`: a picture of one or two dimensions, in the terminal, as PNG or as SVG.

mod chart;
mod field;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use tesseral::fold::{Answer, Histogram, Statistic};
use tesseral::{Column, Container, Error, Overview, Point, Selection, Slice};
use tesseral_display::picture::{self, ColorMap, ImageFormat, Picture, PictureAxis, PictureKind, Tick};

use crate::cells_argument::{CellsArgument, ResolvedCells, report_packing};
use crate::context::Context;
use crate::error::{CliResult, exit, report};
use crate::output;
use crate::output::{OutputArguments, OutputStream};
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::escape;
use tesseral_display::json;

/// Arguments of `tet plot`.
#[derive(Debug, Args)]
pub(crate) struct PlotArguments {
    #[command(flatten)]
    subject: CellsArgument,
    /// Width in columns [default: that of the terminal, or 80]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(16..=1000))]
    width: Option<u16>,
    /// Height in lines [default: by the shape]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=500))]
    height: Option<u16>,
    /// Value range of the colors or of the vertical axis
    #[arg(long, value_name = "RANGE", default_value = "full")]
    range: ValueRange,
    /// Color map [default: viridis; rdbu with --against]
    #[arg(long, value_name = "MAP")]
    colors: Option<ColorMap>,
    /// Kind of plot [default: a map over two dimensions, a profile along a vertical dimension, otherwise a line]
    #[arg(long, value_name = "KIND")]
    kind: Option<PlotKind>,
    /// Number of bins of a histogram
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    bins: u32,
    /// Draw the difference from the same variable and selection of another source
    #[arg(long, value_name = "SOURCE", conflicts_with = "kind")]
    against: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Kinds of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlotKind {
    /// A line over one dimension
    Line,
    /// Colors over two dimensions, such as a map, or times and longitudes
    Field,
    /// Values along one dimension drawn from top to bottom
    Profile,
    /// Counts of the values of all selected cells
    Histogram,
}

/// Range of values of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ValueRange {
    /// From minimum to maximum
    Full,
    /// Without the outer two percent at either end
    Robust,
}

pub(crate) fn run(context: &Context, arguments: &PlotArguments) -> CliResult {
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
    let paint = TerminalStyle::stdout();
    let columns = usize::from(arguments.width.or(paint.width()).unwrap_or(80));
    let lines = arguments.height.map(usize::from);
    let most =
        if format.is_some() { picture::MOST } else { [2 * lines.unwrap_or(field::LINES), 2 * columns] };
    let picture = match arguments.kind {
        Some(PlotKind::Histogram) => histogram(&container, &target, arguments.bins)?,
        _ => overview(context, arguments, &container, &target, most)?,
    };
    let colors = match arguments.colors {
        Some(colors) => colors,
        None if arguments.against.is_some() => ColorMap::Rdbu,
        None => ColorMap::Viridis,
    };
    if let Some(format) = format {
        let mut out = OutputStream::open(&arguments.output, &arguments.subject.source, context.cancel())?;
        out.put(&picture::encoded(&picture, colors, format)?)?;
        out.finish()?;
    }
    if context.json() {
        output::print_json(&document(&target, &picture, file))?;
    } else if format.is_none() {
        let drawn = match picture.kind {
            PictureKind::Field => field::draw(&picture, colors, paint, columns, lines),
            PictureKind::Profile => chart::draw_profile(&picture, paint, columns, lines),
            PictureKind::Line | PictureKind::Bars => chart::draw(&picture, paint, columns, lines),
        };
        output::print(&drawn)?;
    }
    Ok(exit::OK)
}

/// The picture of a field, a line or a profile.
fn overview(
    context: &Context,
    arguments: &PlotArguments,
    container: &Container,
    target: &ResolvedCells,
    most: [usize; 2],
) -> CliResult<Picture> {
    let dims = match arguments.kind {
        Some(PlotKind::Line | PlotKind::Profile) => 1,
        _ => 2,
    };
    let drawn = |target: &ResolvedCells, note: bool| -> CliResult<Overview> {
        let selection = match target.array.schema().sparse {
            true => target.positions()?,
            false => fix_leading(target, dims, note)?,
        };
        Ok(tesseral::overview(&target.array, &selection, most)?)
    };
    let mut overview = drawn(target, true)?;
    if let Some(source) = &arguments.against {
        let other = context.open(source, &Meter::new(false))?;
        let mut subject = arguments.subject.clone();
        subject.source.clone_from(source);
        let other = subject.resolve(&subject.values.apply_to(other))?;
        overview = overview.minus(&drawn(&other, false)?)?;
    }
    let trim = if arguments.range == ValueRange::Robust { 0.02 } else { 0.0 };
    let (mut low, mut high) = overview.range(trim).ok_or_else(|| nothing(target))?;
    if arguments.against.is_some() {
        // The middle color means equal values.
        high = high.abs().max(low.abs());
        low = 0.0 - high;
    }
    let kind = match (arguments.kind, overview.dims.as_slice()) {
        (Some(PlotKind::Field), [_]) => {
            return Err(Error::invalid("a field requires two dimensions, the selection has one").into());
        }
        (_, [_, _]) => PictureKind::Field,
        (Some(PlotKind::Profile), _) => PictureKind::Profile,
        (None, [dim]) if picture::is_vertical(container, &target.array, *dim) => PictureKind::Profile,
        _ => PictureKind::Line,
    };
    let mut picture = Picture::of_kind(kind, container, &target.array, &target.field, overview, (low, high));
    if let Some(source) = &arguments.against {
        let minus = format!("minus {}", escape(&source.to_string_lossy()));
        let parts = [picture.subtitle.as_str(), &minus];
        picture.subtitle = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    }
    Ok(picture)
}

/// The picture of the counts of values in equal bins.
#[allow(clippy::cast_precision_loss)]
fn histogram(container: &Container, target: &ResolvedCells, bins: u32) -> CliResult<Picture> {
    let selection = target.positions()?;
    let statistic = Statistic::Histogram(Histogram::new(bins, Vec::new(), false));
    let answers = target.array.reduction(vec![statistic])?.select(selection.clone()).resolve()?.ask()?;
    let (Some(Answer::Counts(counts)), Some(edges)) =
        (answers.columns.first().and_then(|column| column.first()), answers.edges.first())
    else {
        return Err(nothing(target).into());
    };
    if counts.iter().all(|count| *count == 0) {
        return Err(nothing(target).into());
    }
    let overview = Overview::of_values(counts.iter().map(|count| *count as f64), selection);
    Ok(Picture::of_counts(container, &target.array, &target.field, overview, edges))
}

fn nothing(target: &ResolvedCells) -> Error {
    Error::invalid("nothing to draw: every cell is null, NaN or infinite").in_array(target.array.name())
}

/// All dimensions but the last `drawn` are drawn at their first position, with a note.
fn fix_leading(target: &ResolvedCells, drawn: usize, note: bool) -> CliResult<Selection> {
    let mut slices: Vec<Slice> = target.selection()?.slices().to_vec();
    let long: Vec<usize> = (0..slices.len()).filter(|d| slices[*d].count() > 1).collect();
    let bounds: Vec<u64> = slices.iter().map(|s| s.end).collect();
    let mut fixed = Vec::new();
    for d in &long[..long.len().saturating_sub(drawn)] {
        slices[*d] = Slice::new(slices[*d].start, slices[*d].start + 1);
        let dim = &target.array.schema().dims[*d];
        let name = if dim.name.is_empty() { d.to_string() } else { dim.name.clone() };
        fixed.push(format!("{name}={}", slices[*d].start));
    }
    if note && !fixed.is_empty() {
        report(&format!("drawing {}\n", escape(&fixed.join(" "))));
    }
    Ok(Selection::new(slices, &bounds)?)
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
    let mut document = json!({
        "schema": "tesseral.plot/1",
        "array": target.array.name(),
        "field": target.field.name,
        "kind": picture.kind.name(),
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
    });
    if !overview.ends.is_empty() {
        let pair = |ends: &Option<(f64, f64)>| ends.map(|(low, high)| json!([low, high]));
        document["ends"] = overview.ends.iter().map(pair).collect();
    }
    document
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

/// Labels of ticks below a picture of so many columns; labels that would touch another are omitted.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn tick_line(axis: &PictureAxis, columns: usize) -> String {
    let mut line: Vec<char> = Vec::new();
    // Each label takes about eight columns, including space.
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
