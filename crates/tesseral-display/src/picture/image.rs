//! Pictures in files: PNG and SVG.

use tesseral::{Error, Result};

use super::canvas::Raster;
use super::figure::{self, Figure};
use super::svg::Svg;
use super::{ColorMap, Picture};

/// Maximum number of points along either side.
pub const MOST: [usize; 2] = [720, 960];

/// File formats of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// Pixels.
    Png,
    /// Lines and text, with the field as pixels.
    Svg,
}

impl ImageFormat {
    /// By the file extension.
    pub fn from_path(path: &std::path::Path) -> Result<Self> {
        match path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).as_deref() {
            None | Some("png") => Ok(Self::Png),
            Some("svg") => Ok(Self::Svg),
            Some(other) => {
                let error = Error::unsupported(format!("image format .{other}"));
                Err(error.hint("use the file extension .png or .svg"))
            }
        }
    }
}

/// Encodes a picture with its axes.
pub fn encoded(picture: &Picture, color_map: ColorMap, format: ImageFormat) -> Result<Vec<u8>> {
    let figure = Figure::new(picture);
    let (width, height) = figure.size();
    match format {
        ImageFormat::Png => {
            let mut canvas = Raster::new(width, height);
            figure::draw(&figure, picture, color_map, &mut canvas);
            encode(width, height, &canvas.bytes())
        }
        ImageFormat::Svg => {
            let mut canvas = Svg::new(width, height);
            figure::draw(&figure, picture, color_map, &mut canvas);
            Ok(canvas.document().into_bytes())
        }
    }
}

/// Encodes pixels of three bytes as PNG.
pub(super) fn encode(width: usize, height: usize, pixels: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let failed = |e: png::EncodingError| Error::codec("png", e);
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut encoder = png::Encoder::new(&mut out, size(width), size(height));
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(out)
}
