//! Canvases for figures: pixels or SVG elements.

use super::font::{self, Place};

/// A color.
pub(super) type Rgb = [u8; 3];

/// Alignment of a text relative to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A text to draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct CanvasLabel<'a> {
    pub(super) text: &'a str,
    /// End or middle of its baseline.
    pub(super) at: Place,
    pub(super) anchor: Anchor,
    /// Height of capitals.
    pub(super) size: f64,
    /// Whether it runs from bottom to top.
    pub(super) upward: bool,
    pub(super) color: Rgb,
}

/// A surface with the origin at the top left.
pub(super) trait Canvas {
    /// Fills a box.
    fn fill(&mut self, at: Place, size: Place, color: Rgb);
    /// Draws a chain of lines.
    fn line(&mut self, points: &[Place], width: f64, color: Rgb);
    /// Draws a text.
    fn text(&mut self, label: CanvasLabel<'_>);
    /// Draws pixels, row by row, stretched over a box.
    fn image(&mut self, at: Place, size: Place, pixels: &[Rgb], columns: usize);
}

/// Pixels in memory.
#[derive(Debug)]
pub(super) struct Raster {
    width: usize,
    height: usize,
    pixels: Vec<Rgb>,
}

impl Raster {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![[255; 3]; width * height] }
    }

    /// Bytes of the pixels, three each.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.pixels.concat()
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn blend(&mut self, x: usize, y: usize, color: Rgb, cover: f64) {
        if let Some(pixel) = self.pixels.get_mut(y * self.width + x).filter(|_| x < self.width) {
            for (old, new) in pixel.iter_mut().zip(color) {
                *old = (f64::from(*old) + (f64::from(new) - f64::from(*old)) * cover).round() as u8;
            }
        }
    }

    /// Pixels that a range of coordinates touches.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn touched(low: f64, high: f64, most: usize) -> std::ops::Range<usize> {
        (low.floor().max(0.0) as usize).min(most)..(high.ceil().max(0.0) as usize).min(most)
    }
}

/// Distance of a point from a line between two others.
fn distance(point: Place, a: Place, b: Place) -> f64 {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx * dx + dy * dy;
    let along = if length > 0.0 { ((point.0 - a.0) * dx + (point.1 - a.1) * dy) / length } else { 0.0 };
    let along = along.clamp(0.0, 1.0);
    (point.0 - a.0 - along * dx).hypot(point.1 - a.1 - along * dy)
}

impl Canvas for Raster {
    #[allow(clippy::cast_precision_loss)]
    fn fill(&mut self, at: Place, size: Place, color: Rgb) {
        for y in Self::touched(at.1, at.1 + size.1, self.height) {
            for x in Self::touched(at.0, at.0 + size.0, self.width) {
                let side = |i: usize, low: f64, high: f64| {
                    (high.min(i as f64 + 1.0) - low.max(i as f64)).clamp(0.0, 1.0)
                };
                let cover = side(x, at.0, at.0 + size.0) * side(y, at.1, at.1 + size.1);
                self.blend(x, y, color, cover);
            }
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn line(&mut self, points: &[Place], width: f64, color: Rgb) {
        // One pass over the pixels of each segment; a pixel between two segments gets the larger cover of both.
        let half = width / 2.0;
        let mut covers: std::collections::HashMap<(usize, usize), f64> = std::collections::HashMap::new();
        let pairs = points.windows(2).map(|pair| (pair[0], pair[1]));
        let single = points.first().filter(|_| points.len() == 1).map(|point| (*point, *point));
        for (a, b) in pairs.chain(single) {
            let reach = half + 1.0;
            for y in Self::touched(a.1.min(b.1) - reach, a.1.max(b.1) + reach, self.height) {
                for x in Self::touched(a.0.min(b.0) - reach, a.0.max(b.0) + reach, self.width) {
                    let cover = half + 0.5 - distance((x as f64 + 0.5, y as f64 + 0.5), a, b);
                    if cover > 0.0 {
                        let known = covers.entry((x, y)).or_default();
                        *known = known.max(cover.min(1.0));
                    }
                }
            }
        }
        for ((x, y), cover) in covers {
            self.blend(x, y, color, cover);
        }
    }

    fn text(&mut self, label: CanvasLabel<'_>) {
        let CanvasLabel { text, at, anchor, size, upward, color } = label;
        let width = font::text_width(text, size);
        let start = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        };
        for stroke in font::text_strokes(text, size) {
            let place = |(x, y): &Place| match upward {
                false => (at.0 + start + x, at.1 + y),
                true => (at.0 + y, at.1 - start - x),
            };
            self.line(&stroke.iter().map(place).collect::<Vec<_>>(), size / 7.5, color);
        }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn image(&mut self, at: Place, size: Place, pixels: &[Rgb], columns: usize) {
        let rows = pixels.len() / columns.max(1);
        for y in Self::touched(at.1, at.1 + size.1, self.height) {
            for x in Self::touched(at.0, at.0 + size.0, self.width) {
                let cell = |i: usize, low: f64, length: f64, n: usize| {
                    ((((i as f64 + 0.5 - low) / length) * n as f64).max(0.0) as usize)
                        .min(n.saturating_sub(1))
                };
                let (row, column) = (cell(y, at.1, size.1, rows), cell(x, at.0, size.0, columns));
                if let Some(color) = pixels.get(row * columns + column) {
                    self.blend(x, y, *color, 1.0);
                }
            }
        }
    }
}
