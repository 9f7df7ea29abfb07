//! Layout of a picture with title, axes, color bar and legend.

use tesseral::Point;

use super::axis::{Tick, number_label, round_numbers};
use super::canvas::{Anchor, Canvas, CanvasLabel, Rgb};
use super::color_map::NOT_FINITE;
use super::font::{self, Place};
use super::{ColorMap, Picture, PictureKind};

const INK: Rgb = [38, 38, 38];
const FAINT: Rgb = [110, 110, 110];
const GRID: Rgb = [228, 228, 228];
const LINE: Rgb = [31, 98, 168];
const BAND: Rgb = [176, 203, 232];
/// Background and hatching of missing cells.
const MISSING: (Rgb, Rgb) = ([246, 246, 246], [206, 206, 206]);

/// Heights of capitals: title, axis titles, tick labels.
const TITLE: f64 = 13.0;
const TEXT: f64 = 9.5;
const SMALL: f64 = 8.5;

/// Most pixels of a field along either side, and the sizes of a chart and a profile.
const FIELD: (f64, f64) = (760.0, 560.0);
const CHART: (f64, f64) = (800.0, 340.0);
const PROFILE: (f64, f64) = (420.0, 480.0);

/// Positions of the parts of a figure.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Top left corner of the axes.
    at: Place,
    /// Size of the axes.
    area: Place,
    size: Place,
    horizontal: Vec<Tick>,
    vertical: Vec<Tick>,
    /// Ticks of the color bar.
    scale: Vec<Tick>,
}

impl Figure {
    pub(super) fn new(picture: &Picture) -> Self {
        let field = picture.kind == PictureKind::Field;
        let profile = picture.kind == PictureKind::Profile;
        let area = match picture.kind {
            PictureKind::Field => field_area(picture),
            PictureKind::Profile => PROFILE,
            PictureKind::Line | PictureKind::Bars => CHART,
        };
        let (values, scale_width) = match picture.kind {
            PictureKind::Field => scale_ticks(picture, count(area.1, 48.0)),
            PictureKind::Profile => scale_ticks(picture, count(area.0, 70.0)),
            PictureKind::Line | PictureKind::Bars => scale_ticks(picture, count(area.1, 42.0)),
        };
        let vertical = match picture.axes.first().filter(|_| field || profile) {
            Some(axis) => axis.ticks(count(area.1, 36.0)),
            None => values.clone(),
        };
        let horizontal = match picture.axes.last() {
            // Values grow to the right.
            Some(_) if profile => {
                values.iter().map(|tick| Tick { place: 1.0 - tick.place, ..tick.clone() }).collect()
            }
            Some(axis) => fitting(axis, area.0),
            None => Vec::new(),
        };
        let widest = vertical.iter().map(|tick| font::text_width(&tick.label, SMALL)).fold(0.0, f64::max);
        let left = 16.0 + TEXT + 12.0 + widest + 10.0;
        let right = if field { 18.0 + 18.0 + 10.0 + scale_width + 16.0 + TEXT + 8.0 } else { 28.0 };
        let top = if picture.subtitle.is_empty() { 52.0 } else { 72.0 };
        let legend = if legend_entries(picture).is_empty() { 0.0 } else { 22.0 };
        let size = (left + area.0 + right, top + area.1 + 58.0 + legend);
        let scale = if field { values } else { Vec::new() };
        Self { at: (left.round(), top), area, size, horizontal, vertical, scale }
    }

    /// Width and height in pixels.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.size.0.ceil() as usize, self.size.1.ceil() as usize)
    }
}

/// Number of labels that fit at a given distance in pixels.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn count(length: f64, apart: f64) -> usize {
    ((length / apart) as usize).clamp(2, 12)
}

/// Ticks of a horizontal axis, limited by the room for their labels.
fn fitting(axis: &super::PictureAxis, width: f64) -> Vec<Tick> {
    for most in (2..=12).rev() {
        let ticks = axis.ticks(most);
        let needed: f64 = ticks.iter().map(|tick| font::text_width(&tick.label, SMALL) + 18.0).sum();
        if needed <= width {
            return ticks;
        }
    }
    axis.ticks(1)
}

/// Size of a field: square cells, or the proportions of its coordinates if both axes have the same units of angle.
#[allow(clippy::cast_precision_loss)]
fn field_area(picture: &Picture) -> Place {
    let [vertical, horizontal] = picture.axes.as_slice() else { return FIELD };
    let shape = &picture.cells;
    let mut ratio = shape[1] as f64 / shape[0].max(1) as f64;
    let angle = |axis: &super::PictureAxis| axis.units.starts_with("degree");
    if let (Some(height), Some(width), true) =
        (vertical.span(), horizontal.span(), angle(vertical) && angle(horizontal))
    {
        let cell = |span: f64, n: u64| span * n as f64 / (n.max(2) - 1) as f64;
        ratio = cell(width, shape[1]) / cell(height, shape[0]).max(1e-12);
    }
    let ratio = ratio.clamp(0.5, 3.0);
    let width = FIELD.0.min(FIELD.1 * ratio).round();
    (width, (width / ratio).round())
}

/// Ticks of the scale of values, from bottom to top, and the width of their labels.
fn scale_ticks(picture: &Picture, most: usize) -> (Vec<Tick>, f64) {
    let (low, high) = (picture.low, picture.high);
    let (values, decimals) = round_numbers(low, high, false, most);
    let ticks: Vec<Tick> = values
        .into_iter()
        .map(|value| Tick { place: 1.0 - picture.normalize(value), label: number_label(value, decimals) })
        .collect();
    let width = ticks.iter().map(|tick| font::text_width(&tick.label, SMALL)).fold(0.0, f64::max);
    (ticks, width)
}

/// Draws a picture.
pub(super) fn draw(figure: &Figure, picture: &Picture, color_map: ColorMap, canvas: &mut dyn Canvas) {
    let Figure { at, area, .. } = figure;
    let center = at.0 + area.0 / 2.0;
    let subtitled = !picture.subtitle.is_empty();
    canvas.text(label(&picture.title, (center, 34.0), Anchor::Middle, TITLE));
    if subtitled {
        let text =
            CanvasLabel { color: FAINT, ..label(&picture.subtitle, (center, 56.0), Anchor::Middle, TEXT) };
        canvas.text(text);
    }
    match (picture.kind, picture.overview.shape.as_slice()) {
        (PictureKind::Field, [_, columns]) => {
            field(figure, picture, color_map, *columns, canvas);
            color_bar(figure, picture, color_map, canvas);
        }
        (PictureKind::Profile, _) => profile(figure, picture, canvas),
        (PictureKind::Bars, _) => bars(figure, picture, canvas),
        _ => chart(figure, picture, canvas),
    }
    frame(figure, canvas);
    ticks(figure, canvas);
    let dimension = |axis: Option<&super::PictureAxis>| axis.map(super::PictureAxis::title);
    let (left, below) = match picture.kind {
        PictureKind::Profile => {
            (dimension(picture.axes.first()).unwrap_or_default(), Some(picture.value_title()))
        }
        PictureKind::Field => {
            (dimension(picture.axes.first()).unwrap_or_default(), dimension(picture.axes.last()))
        }
        PictureKind::Line | PictureKind::Bars => (picture.value_title(), dimension(picture.axes.last())),
    };
    if let Some(below) = below {
        canvas.text(label(&below, (center, at.1 + area.1 + 44.0), Anchor::Middle, TEXT));
    }
    let middle = (16.0 + TEXT, at.1 + area.1 / 2.0);
    canvas.text(CanvasLabel { upward: true, ..label(&left, middle, Anchor::Middle, TEXT) });
    legend(figure, picture, canvas);
}

fn label(text: &str, at: Place, anchor: Anchor, size: f64) -> CanvasLabel<'_> {
    CanvasLabel { text, at, anchor, size, upward: false, color: INK }
}

fn frame(figure: &Figure, canvas: &mut dyn Canvas) {
    let ((x, y), (w, h)) = (figure.at, figure.area);
    canvas.line(&[(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)], 1.0, INK);
}

fn ticks(figure: &Figure, canvas: &mut dyn Canvas) {
    let ((x, y), (w, h)) = (figure.at, figure.area);
    for tick in &figure.horizontal {
        let at = x + tick.place * w;
        canvas.line(&[(at, y + h), (at, y + h + 5.0)], 1.0, INK);
        let text = &tick.label;
        let label = CanvasLabel {
            text,
            at: (at, y + h + 19.0),
            anchor: Anchor::Middle,
            size: SMALL,
            upward: false,
            color: INK,
        };
        canvas.text(label);
    }
    for tick in &figure.vertical {
        let at = y + tick.place * h;
        canvas.line(&[(x - 5.0, at), (x, at)], 1.0, INK);
        let (text, at) = (&tick.label, (x - 9.0, at + SMALL / 2.0));
        canvas.text(CanvasLabel { text, at, anchor: Anchor::End, size: SMALL, upward: false, color: INK });
    }
}

fn field(figure: &Figure, picture: &Picture, color_map: ColorMap, columns: usize, canvas: &mut dyn Canvas) {
    let rows = picture.overview.shape[0];
    let mut pixels = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for column in 0..columns {
            pixels.push(match picture.at(row, column) {
                Point::Value(v) => color_map.at(picture.normalize(v)),
                Point::NotFinite => NOT_FINITE,
                Point::Null => MISSING.0,
            });
        }
    }
    canvas.image(figure.at, figure.area, &pixels, columns);
    hatch(figure, picture, rows, columns, canvas);
}

/// Diagonal lines over missing cells.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn hatch(figure: &Figure, picture: &Picture, rows: usize, columns: usize, canvas: &mut dyn Canvas) {
    if picture.overview.nulls == 0 {
        return;
    }
    let ((x, y), (w, h)) = (figure.at, figure.area);
    let missing = |px: f64, py: f64| {
        let cell = |at: f64, length: f64, n: usize| ((at / length * n as f64).max(0.0) as usize).min(n - 1);
        matches!(picture.at(cell(py, h, rows), cell(px, w, columns)), Point::Null)
    };
    let mut diagonal = -h;
    while diagonal < w {
        let mut run: Option<(f64, f64)> = None;
        let steps = h as usize;
        for step in 0..=steps {
            let (px, py) = (diagonal + step as f64, h - step as f64);
            let inside = (0.0..w).contains(&px) && missing(px, py.clamp(0.0, h - 0.5));
            run = match (run, inside) {
                (None, true) => Some((px, px)),
                (Some((from, _)), true) => Some((from, px)),
                (Some((from, to)), false) => {
                    stroke((x + from, y + h - (from - diagonal)), (x + to, y + h - (to - diagonal)), canvas);
                    None
                }
                (None, false) => None,
            };
        }
        if let Some((from, to)) = run {
            stroke((x + from, y + h - (from - diagonal)), (x + to, y + h - (to - diagonal)), canvas);
        }
        diagonal += 8.0;
    }
}

fn stroke(from: Place, to: Place, canvas: &mut dyn Canvas) {
    canvas.line(&[from, to], 1.0, MISSING.1);
}

#[allow(clippy::cast_precision_loss)]
fn color_bar(figure: &Figure, picture: &Picture, color_map: ColorMap, canvas: &mut dyn Canvas) {
    const STEPS: usize = 256;
    let ((x, y), (w, h)) = (figure.at, figure.area);
    let (left, width) = (x + w + 18.0, 18.0);
    let colors: Vec<Rgb> = (0..STEPS).map(|i| color_map.at(1.0 - i as f64 / (STEPS - 1) as f64)).collect();
    canvas.image((left, y), (width, h), &colors, 1);
    let right = left + width;
    canvas.line(&[(left, y), (right, y), (right, y + h), (left, y + h), (left, y)], 1.0, INK);
    let mut widest = 0.0_f64;
    for tick in &figure.scale {
        let at = y + tick.place * h;
        canvas.line(&[(right, at), (right + 4.0, at)], 1.0, INK);
        let (text, place) = (&tick.label, (right + 8.0, at + SMALL / 2.0));
        canvas.text(CanvasLabel {
            text,
            at: place,
            anchor: Anchor::Start,
            size: SMALL,
            upward: false,
            color: INK,
        });
        widest = widest.max(font::text_width(&tick.label, SMALL));
    }
    let title = picture.value_title();
    let at = (right + 8.0 + widest + 14.0 + TEXT, y + h / 2.0);
    canvas.text(CanvasLabel {
        text: &title,
        at,
        anchor: Anchor::Middle,
        size: TEXT,
        upward: true,
        color: INK,
    });
}

/// Lines across the axes at their ticks.
fn grid(figure: &Figure, canvas: &mut dyn Canvas) {
    let ((x, y), (w, h)) = (figure.at, figure.area);
    for tick in &figure.vertical {
        canvas.line(&[(x, y + tick.place * h), (x + w, y + tick.place * h)], 1.0, GRID);
    }
    for tick in &figure.horizontal {
        canvas.line(&[(x + tick.place * w, y), (x + tick.place * w, y + h)], 1.0, GRID);
    }
}

#[allow(clippy::cast_precision_loss)]
fn bars(figure: &Figure, picture: &Picture, canvas: &mut dyn Canvas) {
    let ((x, y), (w, h)) = (figure.at, figure.area);
    grid(figure, canvas);
    let points = &picture.overview.points;
    let width = w / points.len().max(1) as f64;
    let gap = if width > 4.0 { 1.0 } else { 0.0 };
    for (i, point) in points.iter().enumerate() {
        if let Point::Value(v) = point {
            let height = picture.normalize(*v) * h;
            canvas.fill((x + i as f64 * width, y + h - height), (width - gap, height), LINE);
        }
    }
}

/// A line from top to bottom.
#[allow(clippy::cast_precision_loss)]
fn profile(figure: &Figure, picture: &Picture, canvas: &mut dyn Canvas) {
    let ((x, y), (w, h)) = (figure.at, figure.area);
    grid(figure, canvas);
    let rows = picture.overview.points.len();
    let thick = h / rows as f64;
    for (row, (low, high)) in (0..rows).filter_map(|row| Some((row, picture.ends_along(row)?))) {
        let (left, right) = (picture.normalize(low) * w, picture.normalize(high) * w);
        canvas.fill((x + left, y + row as f64 * thick), (right - left, thick), BAND);
    }
    let mut run: Vec<Place> = Vec::new();
    for row in 0..rows {
        let at = y + (row as f64 + 0.5) / rows as f64 * h;
        match picture.along(row) {
            Point::Value(v) => run.push((x + picture.normalize(v) * w, at)),
            other => {
                canvas.line(&run, 1.6, LINE);
                run.clear();
                let color = if other == Point::Null { MISSING.1 } else { NOT_FINITE };
                let height = (h / rows as f64).max(1.0);
                canvas.fill((x, at - height / 2.0), (5.0, height), color);
            }
        }
    }
    canvas.line(&run, 1.6, LINE);
}

#[allow(clippy::cast_precision_loss)]
fn chart(figure: &Figure, picture: &Picture, canvas: &mut dyn Canvas) {
    let ((x, y), (w, h)) = (figure.at, figure.area);
    grid(figure, canvas);
    let points = &picture.overview.points;
    let n = points.len().max(1) as f64;
    for (i, (low, high)) in
        picture.overview.ends.iter().enumerate().filter_map(|(i, ends)| Some((i, (*ends)?)))
    {
        let (bottom, top) = (picture.normalize(low) * h, picture.normalize(high) * h);
        canvas.fill((x + i as f64 / n * w, y + h - top), (w / n, top - bottom), BAND);
    }
    let mut run: Vec<Place> = Vec::new();
    for (i, point) in points.iter().enumerate() {
        let at = x + (i as f64 + 0.5) / n * w;
        match point {
            Point::Value(v) => run.push((at, y + (1.0 - picture.normalize(*v)) * h)),
            other => {
                canvas.line(&run, 1.6, LINE);
                run.clear();
                let color = if *other == Point::Null { MISSING.1 } else { NOT_FINITE };
                canvas.fill((at - w / n / 2.0, y + h - 5.0), ((w / n).max(1.0), 5.0), color);
            }
        }
    }
    canvas.line(&run, 1.6, LINE);
}

/// Colors and texts of the legend: the parts of a line whose points have several cells, and cells without a place on the scale.
fn legend_entries(picture: &Picture) -> Vec<(Rgb, String)> {
    let overview = &picture.overview;
    let number = |name: &str, n: u64| format!("{name}: {n} of {} cells", overview.cells);
    let mut entries = Vec::new();
    if !overview.ends.is_empty() {
        entries.push((LINE, "means of adjacent cells".to_owned()));
        entries.push((BAND, "their lowest to their highest".to_owned()));
    }
    if overview.nulls > 0 {
        entries.push((MISSING.0, number("missing", overview.nulls)));
    }
    if overview.not_finite > 0 {
        entries.push((NOT_FINITE, number("NaN or infinite", overview.not_finite)));
    }
    entries
}

/// Draws the legend.
fn legend(figure: &Figure, picture: &Picture, canvas: &mut dyn Canvas) {
    let (mut x, y) = (figure.at.0, figure.at.1 + figure.area.1 + 62.0);
    for (color, text) in legend_entries(picture) {
        canvas.fill((x, y - 10.0), (14.0, 10.0), color);
        if color == MISSING.0 {
            canvas.line(&[(x + 2.0, y), (x + 12.0, y - 10.0)], 1.0, MISSING.1);
        }
        canvas.line(&[(x, y - 10.0), (x + 14.0, y - 10.0), (x + 14.0, y), (x, y), (x, y - 10.0)], 1.0, FAINT);
        let at = (x + 20.0, y - 1.0);
        canvas.text(CanvasLabel {
            text: &text,
            at,
            anchor: Anchor::Start,
            size: SMALL,
            upward: false,
            color: FAINT,
        });
        x += 20.0 + font::text_width(&text, SMALL) + 28.0;
    }
}
