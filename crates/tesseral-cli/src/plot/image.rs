//! Pictures as PNG.

use tesseral::{Error, Point};

use super::chart::strokes;
use super::color_map::NOT_FINITE;
use super::{ColorMap, Picture};
use crate::error::CliResult;

/// Maximum number of points along either side.
pub(crate) const MOST: [usize; 2] = [960, 960];
/// Small fields are enlarged, each point a square.
const LEAST: usize = 512;
const CHART: (usize, usize) = (1024, 320);

/// Encodes a picture as PNG: nulls are transparent, NaN and infinite cells gray.
pub(crate) fn png(picture: &Picture, color_map: ColorMap) -> CliResult<Vec<u8>> {
    let (width, height, pixels) = match picture.overview.shape.as_slice() {
        [rows, columns] => field(picture, color_map, *rows, *columns),
        _ => chart(picture),
    };
    let mut out = Vec::new();
    let failed = |e: png::EncodingError| Error::codec("png", e);
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut encoder = png::Encoder::new(&mut out, size(width), size(height));
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(out)
}

fn field(picture: &Picture, color_map: ColorMap, rows: usize, columns: usize) -> (usize, usize, Vec<u8>) {
    let scale = (LEAST / rows.max(columns).max(1)).max(1);
    let (width, height) = (columns * scale, rows * scale);
    let mut pixels = Vec::with_capacity(width * height * 4);
    for y in 0..height {
        for x in 0..width {
            let [r, g, b, a] = match picture.overview.points[y / scale * columns + x / scale] {
                Point::Value(v) => {
                    let [r, g, b] = color_map.at(picture.normalize(v));
                    [r, g, b, 255]
                }
                Point::NotFinite => [NOT_FINITE[0], NOT_FINITE[1], NOT_FINITE[2], 255],
                Point::Null => [0; 4],
            };
            pixels.extend([r, g, b, a]);
        }
    }
    (width, height, pixels)
}

fn chart(picture: &Picture) -> (usize, usize, Vec<u8>) {
    let (width, height) = CHART;
    let mut pixels = vec![255; width * height * 4];
    for (x, stroke) in strokes(picture, width, height).into_iter().enumerate() {
        let Some((from, to)) = stroke else { continue };
        for y in from..=(to + 1).min(height - 1) {
            pixels[(y * width + x) * 4..][..3].copy_from_slice(&[31, 119, 180]);
        }
    }
    (width, height, pixels)
}
