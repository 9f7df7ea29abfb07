//! Pictures as SVG.

use std::fmt::Write;

use super::canvas::{Anchor, Canvas, CanvasLabel, Rgb};
use super::font::Place;
use super::image;

/// Elements of a picture.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    width: usize,
    height: usize,
}

impl Svg {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { body: String::new(), width, height }
    }

    /// The whole document.
    pub(super) fn document(&self) -> String {
        let Self { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }
}

fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Canvas for Svg {
    fn fill(&mut self, at: Place, size: Place, color: Rgb) {
        // Writing to a `String` is infallible.
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"/>",
            at.0,
            at.1,
            size.0,
            size.1,
            hex(color)
        );
    }

    fn line(&mut self, points: &[Place], width: f64, color: Rgb) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>",
            points.join(" "),
            hex(color)
        );
    }

    fn text(&mut self, label: CanvasLabel<'_>) {
        let anchor = match label.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = label.at;
        let turn =
            if label.upward { format!(" transform=\"rotate(-90 {x:.2} {y:.2})\"") } else { String::new() };
        // Capitals are about 0.72 of the size of a font.
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{}\"{turn}>{}</text>",
            label.size / 0.72,
            hex(label.color),
            escaped(label.text)
        );
    }

    fn image(&mut self, at: Place, size: Place, pixels: &[Rgb], columns: usize) {
        let rows = pixels.len() / columns.max(1);
        let Ok(png) = image::encode(columns, rows, &pixels.concat()) else { return };
        let _ = writeln!(
            self.body,
            "<image x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" preserveAspectRatio=\"none\" \
             image-rendering=\"pixelated\" href=\"data:image/png;base64,{}\"/>",
            at.0,
            at.1,
            size.0,
            size.1,
            base64(&png)
        );
    }
}

/// Bytes in base 64, as data URLs have them.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_the_last_group() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(base64(b"ab"), "YWI=");
        assert_eq!(base64(b"abc"), "YWJj");
    }
}
