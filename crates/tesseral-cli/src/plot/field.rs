//! A field of two dimensions: two points per character, one above the other.

use std::fmt::Write;

use tesseral::Point;
use tesseral_display::picture::{ColorMap, NOT_FINITE, Picture};

use super::{number, odd_cells, tick_line};
use crate::terminal_style::TerminalStyle;
use crate::text::escape;

/// Default maximum number of lines.
pub(crate) const LINES: usize = 48;
/// Characters from low to high, without colors.
const RAMP: [char; 10] = ['.', ',', ':', ';', '+', '*', 'o', '%', '#', '@'];

/// Draws a field with its axes and a legend.
pub(crate) fn draw(
    picture: &Picture,
    color_map: ColorMap,
    paint: TerminalStyle,
    columns: usize,
    lines: Option<usize>,
) -> String {
    let per_line = if paint.color() { 2 } else { 1 };
    let most = per_line * lines.unwrap_or(LINES);
    // The number of lines depends on the width that the labels leave, and hardly changes with it.
    let about = fit(picture, columns.saturating_sub(8), most, per_line).0.div_ceil(per_line);
    let ticks = picture.axes[0].ticks((about / 3).clamp(2, 12));
    let longest = ticks.iter().map(|tick| escape(&tick.label).chars().count()).max().unwrap_or(0);
    let margin = longest.min(16) + 1;
    let width = columns.saturating_sub(margin + 1).max(8);
    let (rows, cols) = fit(picture, width, most, per_line);
    let mut out = format!("{}\n", paint.strong(&picture.heading()));
    let _ = writeln!(out, "{}", paint.faint(&escape(&picture.axes[0].title())));
    let at = |row: usize, col: usize| point(picture, row, col, rows, cols);
    let count = rows.div_ceil(per_line);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let on_line = |place: f64| ((place * count as f64) as usize).min(count - 1);
    for line in 0..count {
        let label = ticks.iter().find(|tick| on_line(tick.place) == line);
        let label = label.map(|tick| escape(&tick.label)).unwrap_or_default();
        let _ = write!(out, "{label:>margin$.margin$} ", margin = margin - 1);
        for col in 0..cols {
            let upper = at(line * per_line, col);
            if paint.color() {
                let lower = (line * 2 + 1 < rows).then(|| at(line * 2 + 1, col));
                half_block(&mut out, picture, color_map, upper, lower);
            } else {
                out.push(plain(picture, upper));
            }
        }
        out.push_str(if paint.color() { "\x1b[0m\n" } else { "\n" });
    }
    let _ = writeln!(out, "{:margin$}{}", "", tick_line(&picture.axes[1], cols));
    let title = paint.faint(format!("{:^cols$}", escape(&picture.axes[1].title())).trim_end());
    let _ = writeln!(out, "{:margin$}{title}", "");
    out.push_str(&legend(picture, color_map, paint, margin));
    out
}

/// Rows that a map without colors has at least, if its array has as many.
const ROWS: usize = 12;

/// Number of points to draw: up to the number of columns and `most` rows, with the aspect ratio of the array. A character is about
/// twice as high as it is wide.
fn fit(picture: &Picture, width: usize, most: usize, per_line: usize) -> (usize, usize) {
    let (height, wide) = (picture.overview.shape[0].max(1), picture.overview.shape[1].max(1));
    let cols = wide.min(width);
    let cells = |axis: usize| u128::from(picture.cells.get(axis).copied().unwrap_or(1).max(1));
    let rows = (cells(0) * (cols * per_line) as u128).div_ceil(2 * cells(1));
    let rows = usize::try_from(rows).unwrap_or(height).clamp(height.min(ROWS), height);
    (rows.min(most).max(1), cols)
}

/// The mean of the cells of a drawn point.
fn point(picture: &Picture, row: usize, col: usize, rows: usize, cols: usize) -> Point {
    let shape = &picture.overview.shape;
    let span = |i: usize, n: usize, of: usize| (i * of / n, ((i + 1) * of / n).max(i * of / n + 1).min(of));
    let ((r0, r1), (c0, c1)) = (span(row, rows, shape[0]), span(col, cols, shape[1]));
    let (mut sum, mut count, mut odd) = (0.0, 0_u32, false);
    for r in r0..r1 {
        for c in c0..c1 {
            match picture.at(r, c) {
                Point::Value(v) => (sum, count) = (sum + v, count + 1),
                Point::NotFinite => odd = true,
                Point::Null => {}
            }
        }
    }
    match (count, odd) {
        (0, true) => Point::NotFinite,
        (0, false) => Point::Null,
        _ => Point::Value(sum / f64::from(count)),
    }
}

fn color(picture: &Picture, color_map: ColorMap, point: Point) -> Option<[u8; 3]> {
    match point {
        Point::Value(v) => Some(color_map.at(picture.normalize(v))),
        Point::NotFinite => Some(NOT_FINITE),
        Point::Null => None,
    }
}

fn half_block(out: &mut String, picture: &Picture, color_map: ColorMap, upper: Point, lower: Option<Point>) {
    let upper = color(picture, color_map, upper);
    let lower = lower.and_then(|point| color(picture, color_map, point));
    let _ = match (upper, lower) {
        (Some([r, g, b]), Some([x, y, z])) => write!(out, "\x1b[38;2;{r};{g};{b};48;2;{x};{y};{z}m▀"),
        (Some([r, g, b]), None) => write!(out, "\x1b[0;38;2;{r};{g};{b}m▀"),
        (None, Some([r, g, b])) => write!(out, "\x1b[0;38;2;{r};{g};{b}m▄"),
        (None, None) => write!(out, "\x1b[0m "),
    };
}

fn plain(picture: &Picture, point: Point) -> char {
    match point {
        Point::Value(v) => {
            let i = (picture.normalize(v) * (RAMP.len() - 1) as f64).round() as usize;
            RAMP[i.min(RAMP.len() - 1)]
        }
        Point::NotFinite => '?',
        Point::Null => ' ',
    }
}

fn legend(picture: &Picture, color_map: ColorMap, paint: TerminalStyle, margin: usize) -> String {
    const WIDTH: usize = 24;
    let mut scale = String::new();
    for i in 0..WIDTH {
        let place = i as f64 / (WIDTH - 1) as f64;
        if paint.color() {
            let [r, g, b] = color_map.at(place);
            let _ = write!(scale, "\x1b[48;2;{r};{g};{b}m ");
        } else {
            scale.push(RAMP[(place * (RAMP.len() - 1) as f64).round() as usize]);
        }
    }
    if paint.color() {
        scale.push_str("\x1b[0m");
    }
    let units = if picture.units.is_empty() { String::new() } else { format!(" {}", escape(&picture.units)) };
    let (low, high) = (number(picture.low), number(picture.high));
    let mut out = format!("{:margin$}{low} {scale} {high}{units}\n", "");
    let odd = odd_cells(&picture.overview);
    if !odd.is_empty() {
        let marks = if paint.color() { "NaN gray, missing blank" } else { "NaN as ?, missing blank" };
        let _ = writeln!(out, "{:margin$}{marks}{odd}", "");
    }
    out
}
