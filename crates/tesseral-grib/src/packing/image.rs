//! Values as images (templates 5.40 and 5.41). The decoders are those of crates; sizes are compared with the number of values before
//! they allocate anything.

use std::io::Cursor;

use hayro_jpeg2000::{DecodeSettings, DecoderContext, Image};
use png::{ColorType, Decoder, Limits, Transformations};
use tesseral_codec::packing::unpack_with;
use tesseral_core::{Error, Result};

use super::{PackingScale, fault};

const JPEG: &str = "grid_jpeg";
const PNG: &str = "grid_png";

/// The decoder computes in single precision. Integers of more bits, with the wavelet's sums of a few of them, would be rounded.
const EXACT_BITS: u32 = 20;
/// Least number of pixels of a tile or precinct, on average: each requires separate memory.
const LEAST: u64 = 256;

/// Decodes a JPEG 2000 codestream of one component.
pub(super) fn jpeg2000(data: &[u8], scale: &PackingScale, bits: u32, out: &mut [[u8; 8]]) -> Result<()> {
    if bits > EXACT_BITS {
        return Err(Error::unsupported(format!("JPEG 2000 images of {bits} bits, more than {EXACT_BITS}")));
    }
    check_codestream(data, out.len() as u64)?;
    let settings = DecodeSettings { resolve_palette_indices: false, strict: true, target_resolution: None };
    let image = Image::new(data, &settings).map_err(|e| fault(JPEG, e.to_string()))?;
    let pixels = u64::from(image.width()) * u64::from(image.height());
    if pixels != out.len() as u64 || u32::from(image.original_bit_depth()) > EXACT_BITS {
        return Err(fault(JPEG, format!("an image of {pixels} pixels for {} values", out.len())));
    }
    let mut context = DecoderContext::default();
    let decoded = image.decode(&mut context).map_err(|e| fault(JPEG, e.to_string()))?;
    let samples = match decoded.components() {
        [component] if component.samples().len() == out.len() => component.samples(),
        _ => return Err(fault(JPEG, "the image has several samples per pixel")),
    };
    for (out, sample) in out.iter_mut().zip(samples) {
        *out = scale.value(f64::from(sample.round_ties_even()));
    }
    Ok(())
}

/// Compares the sizes of a codestream with the number of values: image, tiles, components and precincts.
fn check_codestream(data: &[u8], values: u64) -> Result<()> {
    let word =
        |at: usize| data.get(at..at + 4)?.first_chunk().map(|bytes| u64::from(u32::from_be_bytes(*bytes)));
    let half = |at: usize| data.get(at..at + 2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let size = || {
        let (width, height) = (word(8)?.checked_sub(word(16)?)?, word(12)?.checked_sub(word(20)?)?);
        let (tile_width, tile_height) = (word(24)?, word(28)?);
        (tile_width > 0 && tile_height > 0).then_some(())?;
        let tiles = (width.div_ceil(tile_width) + 1).checked_mul(height.div_ceil(tile_height) + 1)?;
        Some((width.checked_mul(height)?, tiles, half(40)?))
    };
    if half(0) != Some(0xff4f) || half(2) != Some(0xff51) {
        return Err(fault(JPEG, "not a codestream"));
    }
    match size() {
        Some((pixels, tiles, 1)) if pixels == values && tiles <= values / LEAST + 16 => {}
        found => return Err(fault(JPEG, format!("sizes {found:?} do not fit {values} values"))),
    }
    // The coding style is in one of the marker segments before the first tile.
    let mut at = 4 + usize::from(half(4).unwrap_or(0));
    while let (Some(marker), Some(len)) = (half(at), half(at + 2)) {
        match marker {
            0xff52 => {
                let precincts = data.get(at + 14..at + 2 + usize::from(len)).unwrap_or_default();
                let small = |exponents: &u8| exponents & 15 < 4 || exponents >> 4 < 4;
                if data.get(at + 4).is_some_and(|style| style & 1 == 1) && precincts.iter().any(small) {
                    return Err(Error::unsupported("JPEG 2000 images with precincts below 16 pixels"));
                }
            }
            0xff53 => return Err(Error::unsupported("JPEG 2000 images with coding styles of components")),
            0xff90 => return Ok(()),
            _ if len < 2 => break,
            _ => {}
        }
        at += 2 + usize::from(len);
    }
    Err(fault(JPEG, "the codestream has no tiles"))
}

/// Decodes a PNG image. A pixel is one integer, of all bits of its channels.
pub(super) fn png(data: &[u8], scale: &PackingScale, out: &mut [[u8; 8]]) -> Result<()> {
    let damaged = |e: png::DecodingError| fault(PNG, e.to_string());
    let limit = out.len().saturating_mul(16).saturating_add(1 << 20);
    let mut decoder = Decoder::new_with_limits(Cursor::new(data), Limits { bytes: limit });
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    let info = decoder.read_header_info().map_err(damaged)?;
    let (width, height) = (info.width as usize, info.height as usize);
    let depth = info.color_type.samples() as u32 * info.bit_depth as u32;
    if width.checked_mul(height) != Some(out.len()) || width == 0 {
        return Err(fault(PNG, format!("an image of {width} × {height} pixels for {} values", out.len())));
    }
    if info.interlaced || info.color_type == ColorType::Indexed {
        return Err(Error::unsupported("PNG images with interlacing or a palette"));
    }
    let mut reader = decoder.read_info().map_err(damaged)?;
    for run in out.chunks_mut(width) {
        let row = reader.next_row().map_err(damaged)?;
        let row = row.ok_or_else(|| fault(PNG, "the image ends early"))?;
        unpack_with(row.data(), 0, depth, run, |n| scale.value(n as f64))?;
    }
    Ok(())
}
