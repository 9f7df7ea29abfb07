//! A line over one dimension, in dots of two by four per character.

use std::fmt::Write;

use tesseral::Point;
use tesseral_display::picture::Picture;

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

/// For each of `width` columns of dots, the lowest and highest row of the line; `None` if there is no value.
pub(crate) fn strokes(picture: &Picture, width: usize, height: usize) -> Vec<Option<(usize, usize)>> {
    let points = &picture.overview.points;
    let row = |v: f64| ((1.0 - picture.normalize(v)) * (height - 1) as f64).round() as usize;
    let mut out = vec![None::<(usize, usize)>; width];
    let mut mark = |x: usize, from: usize, to: usize| {
        let (low, high) = (from.min(to), from.max(to));
        let slot = &mut out[x.min(width - 1)];
        *slot = Some(slot.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
    };
    let x = |i: usize| if points.len() < 2 { 0 } else { i * (width - 1) / (points.len() - 1) };
    let mut last: Option<(usize, usize)> = None;
    for (i, point) in points.iter().enumerate() {
        let Point::Value(value) = point else {
            last = None;
            continue;
        };
        let (to, y) = (x(i), row(*value));
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
        last = Some((to, y));
    }
    out
}

/// Draws a line with its axes.
pub(crate) fn draw(picture: &Picture, paint: TerminalStyle, columns: usize, lines: Option<usize>) -> String {
    let (high, low) = (number(picture.high), number(picture.low));
    let margin = high.len().max(low.len()) + 1;
    let width = columns.saturating_sub(margin + 1).max(8);
    let lines = lines.unwrap_or(LINES);
    let mut canvas = DotCanvas::new(width, lines);
    for (x, stroke) in strokes(picture, width * 2, lines * 4).into_iter().enumerate() {
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
