//! A line, bars or a profile over one dimension, in dots of two by four per character.

use std::fmt::Write;

use tesseral::Point;
use tesseral_display::picture::{Picture, PictureKind};

use super::{number, odd_cells, tick_line};
use crate::terminal_style::TerminalStyle;
use crate::text::escape;

const LINES: usize = 12;

/// The dot of a character at a column of two and a row of four.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// Dots of a picture.
pub(crate) struct DotCanvas {
    width: usize,
    height: usize,
    cells: Vec<u8>,
}

impl DotCanvas {
    fn new(columns: usize, lines: usize) -> Self {
        Self { width: columns, height: lines, cells: vec![0; columns * lines] }
    }

    fn dot(&mut self, x: usize, y: usize) {
        let (column, line) = (x / 2, y / 4);
        if column < self.width && line < self.height {
            self.cells[line * self.width + column] |= DOTS[x % 2][y % 4];
        }
    }

    fn line(&self, number: usize) -> String {
        let cells = &self.cells[number * self.width..(number + 1) * self.width];
        cells.iter().map(|bits| char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' ')).collect()
    }
}

/// For each of `length` dots along the dimension, the lowest and highest dot of the line across it, as `across` places values;
/// `None` if there is no value. A point of several cells takes all dots from its lowest to its highest one.
fn strokes(
    points: &[Point],
    ends: impl Fn(usize) -> Option<(f64, f64)>,
    length: usize,
    across: impl Fn(f64) -> usize,
) -> Vec<Option<(usize, usize)>> {
    let mut out = vec![None::<(usize, usize)>; length];
    let mut mark = |x: usize, from: usize, to: usize| {
        let (low, high) = (from.min(to), from.max(to));
        let slot = &mut out[x.min(length - 1)];
        *slot = Some(slot.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
    };
    // In the middle of the part of a point, as ticks are.
    let x = |i: usize| (2 * i + 1) * length / (2 * points.len().max(1));
    let mut last: Option<(usize, usize)> = None;
    for (i, point) in points.iter().enumerate() {
        let Point::Value(value) = point else {
            last = None;
            continue;
        };
        let (to, y) = (x(i), across(*value));
        match last {
            None => mark(to, y, y),
            Some((from, before)) => {
                let steps = (to - from).max(1);
                let between = |k: usize| {
                    (before as f64 + (y as f64 - before as f64) * k as f64 / steps as f64).round() as usize
                };
                for k in 0..steps {
                    mark(from + k, between(k), between(k + 1));
                }
                mark(to, y, y);
            }
        }
        if let Some((low, high)) = ends(i) {
            mark(to, across(low), across(high));
        }
        last = Some((to, y));
    }
    out
}

/// Dots of bars: of each column of dots, from the top of its bar to the bottom.
fn bars(picture: &Picture, width: usize, height: usize) -> Vec<Option<(usize, usize)>> {
    let points = &picture.overview.points;
    let top = |x: usize| match points.get(x * points.len() / width.max(1)) {
        Some(Point::Value(v)) if *v > 0.0 => Some(row(picture, height)(*v)),
        _ => None,
    };
    (0..width).map(|x| top(x).map(|top| (top, height - 1))).collect()
}

/// The row of dots of a value, from the top.
fn row(picture: &Picture, height: usize) -> impl Fn(f64) -> usize {
    move |v| ((1.0 - picture.normalize(v)) * (height - 1) as f64).round() as usize
}

/// Draws a profile: the dimension from top to bottom, values to the right.
pub(crate) fn draw_profile(
    picture: &Picture,
    paint: TerminalStyle,
    columns: usize,
    lines: Option<usize>,
) -> String {
    let lines = lines.unwrap_or(2 * LINES);
    let axis = picture.axes.first();
    let ticks = axis.map(|axis| axis.ticks((lines / 3).clamp(2, 12))).unwrap_or_default();
    let margin = ticks.iter().map(|tick| escape(&tick.label).chars().count()).max().unwrap_or(0).min(16) + 1;
    let width = columns.saturating_sub(margin + 1).clamp(8, 60);
    let points: Vec<Point> = (0..picture.overview.points.len()).map(|row| picture.along(row)).collect();
    let mut canvas = DotCanvas::new(width, lines);
    let across = |v: f64| (picture.normalize(v) * (2 * width - 1) as f64).round() as usize;
    for (y, stroke) in
        strokes(&points, |row| picture.ends_along(row), lines * 4, across).into_iter().enumerate()
    {
        let Some((from, to)) = stroke else { continue };
        (from..=to).for_each(|x| canvas.dot(x, y));
    }
    let mut out = format!("{}\n", paint.strong(&picture.heading()));
    if let Some(axis) = axis {
        let _ = writeln!(out, "{}", paint.faint(&escape(&axis.title())));
    }
    let on_line = |place: f64| ((place * lines as f64) as usize).min(lines - 1);
    for number in 0..lines {
        let label = ticks.iter().find(|tick| on_line(tick.place) == number);
        let label = label.map(|tick| escape(&tick.label)).unwrap_or_default();
        let dots = canvas.line(number);
        let dots = dots.trim_end_matches('\u{2800}');
        let _ = writeln!(out, "{label:>margin$.margin$} {dots}", margin = margin - 1);
    }
    let (low, high) = (number(picture.low), number(picture.high));
    let between = width.saturating_sub(low.len() + high.len());
    let _ = writeln!(out, "{:margin$}{low}{:between$}{high}", "", "");
    let title = paint.faint(format!("{:^width$}", escape(&picture.value_title())).trim_end());
    let _ = writeln!(out, "{:margin$}{title}", "");
    let odd = odd_cells(&picture.overview);
    if !odd.is_empty() {
        let _ = writeln!(out, "{:margin$}gaps{odd}", "");
    }
    out
}

/// Draws a line or bars with their axes.
pub(crate) fn draw(picture: &Picture, paint: TerminalStyle, columns: usize, lines: Option<usize>) -> String {
    let (high, low) = (number(picture.high), number(picture.low));
    let margin = high.len().max(low.len()) + 1;
    let width = columns.saturating_sub(margin + 1).max(8);
    let lines = lines.unwrap_or(LINES);
    let mut canvas = DotCanvas::new(width, lines);
    let found = match picture.kind {
        PictureKind::Bars => bars(picture, width * 2, lines * 4),
        _ => {
            let ends = |i: usize| picture.overview.ends.get(i).copied().flatten();
            strokes(&picture.overview.points, ends, width * 2, row(picture, lines * 4))
        }
    };
    for (x, stroke) in found.into_iter().enumerate() {
        let Some((from, to)) = stroke else { continue };
        (from..=to).for_each(|y| canvas.dot(x, y));
    }
    let mut out = format!("{}\n", paint.strong(&picture.heading()));
    for number in 0..lines {
        let label = match number {
            0 => high.as_str(),
            n if n + 1 == lines => low.as_str(),
            _ => "",
        };
        let _ = writeln!(
            out,
            "{label:>margin$} {}",
            canvas.line(number).trim_end_matches('\u{2800}'),
            margin = margin - 1
        );
    }
    let gaps = gaps(picture, width);
    if !gaps.trim().is_empty() {
        let _ = writeln!(out, "{:margin$}{}", "", gaps.trim_end());
    }
    if let Some(axis) = picture.axes.first() {
        let _ = writeln!(out, "{:margin$}{}", "", tick_line(axis, width));
        let title = paint.faint(format!("{:^width$}", escape(&axis.title())).trim_end());
        let _ = writeln!(out, "{:margin$}{title}", "");
    }
    let odd = odd_cells(&picture.overview);
    if !odd.is_empty() {
        let _ = writeln!(out, "{:margin$}gaps marked: NaN as ?, missing as o{odd}", "");
    }
    out
}

/// Marks below columns with values that cannot be drawn.
fn gaps(picture: &Picture, width: usize) -> String {
    let points = &picture.overview.points;
    let mut marks = vec![' '; width];
    for (i, point) in points.iter().enumerate() {
        let slot = &mut marks[(i * width / points.len().max(1)).min(width - 1)];
        match point {
            Point::NotFinite => *slot = '?',
            Point::Null if *slot == ' ' => *slot = 'o',
            _ => {}
        }
    }
    marks.into_iter().collect()
}
