//! WebP images: a chunk of `u8` cells is the rows of an image, with three or four channels per pixel.
//!
//! Header `u32 parts`, then one `u32` per part: the size of its WebP file in bytes. Lossy files decode to the same cells as with
//! libwebp.

use std::io::Cursor as Bytes;

use image_webp::WebPDecoder;
use tesseral_core::{Cursor, Error, Result, alloc};

use super::{ElementKind, FilterBuffers, FilterElement, grow};

/// Order of the channels of a pixel, as numbered in stored options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebPChannels {
    /// Red, green, blue.
    Rgb = 1,
    /// Blue, green, red.
    Bgr = 2,
    /// Red, green, blue, alpha.
    Rgba = 3,
    /// Blue, green, red, alpha.
    Bgra = 4,
}

impl WebPChannels {
    /// Channels by their stored number; `None` for others.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Rgb, Self::Bgr, Self::Rgba, Self::Bgra].into_iter().find(|c| *c as u8 == number)
    }

    /// Bytes of a pixel.
    fn depth(self) -> usize {
        if matches!(self, Self::Rgb | Self::Bgr) { 3 } else { 4 }
    }

    /// Copies a pixel of red, green, blue and perhaps alpha. A pixel without alpha is opaque.
    fn put(self, from: &[u8], to: &mut [u8]) {
        let channel = |n: usize| from.get(n).copied().unwrap_or(0xFF);
        for (n, byte) in to.iter_mut().enumerate() {
            let swapped = matches!(self, Self::Bgr | Self::Bgra) && n < 3;
            *byte = channel(if swapped { 2 - n } else { n });
        }
    }
}

pub(crate) fn reverse(
    word: FilterElement,
    channels: WebPChannels,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    if word != FilterElement::new(1, ElementKind::Unsigned) {
        return Err(Error::codec("webp", "cells are not of type uint8"));
    }
    let mut header = Cursor::codec("webp", meta);
    let mut data = Cursor::codec("webp", data);
    let parts = header.count32(4, "parts")?;
    for _ in 0..parts {
        let file = data.take(header.len32("part length")?, "part")?;
        decode(file, channels, &mut out.data, cap)?;
    }
    out.meta.extend_from_slice(header.rest());
    Ok(())
}

/// Appends the pixels of one file.
fn decode(file: &[u8], channels: WebPChannels, out: &mut Vec<u8>, cap: usize) -> Result<()> {
    let pixels = pixels(file)?;
    // The largest image of the format has 2^28 pixels.
    let target = grow(out, pixels.saturating_mul(channels.depth()), cap, "webp")?;
    let failed = |error: image_webp::DecodingError| Error::codec("webp", error.to_string());
    let mut image = WebPDecoder::new(Bytes::new(file)).map_err(failed)?;
    let depth = if image.has_alpha() { 4 } else { 3 };
    if image.is_animated() || image.output_buffer_size() != Some(pixels * depth) {
        return Err(Error::codec("webp", "the sizes of the image differ"));
    }
    if matches!((channels, depth), (WebPChannels::Rgb, 3) | (WebPChannels::Rgba, 4)) {
        return image.read_image(target).map_err(failed);
    }
    let mut decoded = alloc::zeroed("a webp image", pixels * depth)?;
    image.read_image(&mut decoded).map_err(failed)?;
    for (from, to) in decoded.chunks_exact(depth).zip(target.chunks_exact_mut(channels.depth())) {
        channels.put(from, to);
    }
    Ok(())
}

/// Returns the number of pixels of a file. All sizes in it must be equal: the decoder allocates by each of them.
fn pixels(file: &[u8]) -> Result<usize> {
    let bad = |detail: &str| Error::codec("webp", detail);
    let mut cursor = Cursor::codec("webp", file);
    if cursor.take(4, "a webp file")? != b"RIFF" {
        return Err(bad("not a webp file"));
    }
    cursor.take(4, "a webp file")?;
    if cursor.take(4, "a webp file")? != b"WEBP" {
        return Err(bad("not a webp file"));
    }
    let mut found: Option<(usize, usize)> = None;
    while !cursor.rest().is_empty() {
        let kind = cursor.take(4, "a webp chunk")?;
        let len = cursor.len32("a webp chunk")?;
        let content = cursor.take(len, "a webp chunk")?;
        if len % 2 == 1 && !cursor.rest().is_empty() {
            cursor.take(1, "padding")?;
        }
        let size = match kind {
            b"VP8 " => lossy(content),
            b"VP8L" => lossless(content),
            b"VP8X" => canvas(content),
            b"ANIM" | b"ANMF" => return Err(bad("the image is animated")),
            _ => continue,
        };
        let size = size.ok_or_else(|| bad("truncated image"))?;
        if found.is_some_and(|found| found != size) {
            return Err(bad("the sizes of the image differ"));
        }
        found = Some(size);
    }
    let (width, height) = found.ok_or_else(|| bad("the file has no image"))?;
    Ok(width.saturating_mul(height))
}

fn little(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Width and height of a lossy image: 14 bits each after a tag of 3 bytes and a start code of 3 bytes.
fn lossy(content: &[u8]) -> Option<(usize, usize)> {
    Some((little(content.get(6..8)?) & 0x3FFF, little(content.get(8..10)?) & 0x3FFF))
}

/// Width and height of a lossless image: 14 bits each after a signature byte, less one.
fn lossless(content: &[u8]) -> Option<(usize, usize)> {
    let bits = little(content.get(1..5)?);
    Some(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
}

/// Width and height of the canvas of an extended file: 24 bits each after the flags, less one.
fn canvas(content: &[u8]) -> Option<(usize, usize)> {
    Some((little(content.get(4..7)?) + 1, little(content.get(7..10)?) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lossless file of 2 × 1 pixels with alpha, made by our dependency.
    fn file() -> Vec<u8> {
        let mut file = Vec::new();
        let pixels = [1, 2, 3, 4, 50, 60, 70, 80];
        image_webp::WebPEncoder::new(&mut file).encode(&pixels, 2, 1, image_webp::ColorType::Rgba8).unwrap();
        file
    }

    #[test]
    fn channels_are_in_their_order() {
        for (channels, expected) in [
            (WebPChannels::Rgba, vec![1, 2, 3, 4, 50, 60, 70, 80]),
            (WebPChannels::Bgra, vec![3, 2, 1, 4, 70, 60, 50, 80]),
            (WebPChannels::Rgb, vec![1, 2, 3, 50, 60, 70]),
            (WebPChannels::Bgr, vec![3, 2, 1, 70, 60, 50]),
        ] {
            let mut out = Vec::new();
            decode(&file(), channels, &mut out, 100).unwrap();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn truncated_and_changed_files_do_not_panic() {
        let whole = file();
        for len in 0..whole.len() {
            let _ = decode(&whole[..len], WebPChannels::Rgba, &mut Vec::new(), 100);
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = decode(&changed, WebPChannels::Rgb, &mut Vec::new(), 1 << 20);
            }
        }
    }

    #[test]
    fn images_beyond_the_chunk_are_rejected_before_they_are_decoded() {
        let mut large = file();
        let at = large.windows(4).position(|w| w == b"VP8L").unwrap() + 9;
        large[at..at + 3].copy_from_slice(&[0xFF; 3]);
        assert!(decode(&large, WebPChannels::Rgba, &mut Vec::new(), 100).is_err());
    }
}
