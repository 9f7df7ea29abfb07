//! SZ3 for arrays of doubles in one dimension, as version 3.3 writes it.
//!
//! Each cell is predicted from already decoded cells; the difference is quantized in steps of twice the allowed error. The
//! steps are Huffman-coded, unpredictable cells are stored verbatim, and Zstandard comes last. Two predictors exist:
//! interpolation on ever finer grids (`interp`) and extrapolation from the one or two preceding cells (`lorenzo`). When
//! neither saves bytes, Zstandard alone is used.
//!
//! ```text
//! stream:  magic u32 │ version u32 │ u64 length │ payload │ settings        all little-endian
//! payload: u64 length │ one zstd frame, of
//!          predictor │ quantizer │ Huffman tree │ u64 steps │ u64 bytes │ bits
//! ```
//!
//! All arithmetic follows the order of operations of the reference, so that both decoders agree to the last bit.
//!
//! ```
//! use tesseral_codec::Contexts;
//! use tesseral_codec::sz3::{self, Bound};
//!
//! let mut contexts = Contexts::default();
//! let cells: Vec<u8> = (0..1000).flat_map(|i| (f64::from(i) / 50.0).sin().to_ne_bytes()).collect();
//! let mut packed = Vec::new();
//! sz3::encode(&cells, Bound::Absolute(1e-4), &mut packed, &mut contexts)?;
//! assert!(packed.len() < cells.len() / 10);
//! let mut back = vec![0; cells.len()];
//! sz3::decode_into(&packed, &mut back, &mut contexts)?;
//! # Ok::<(), tesseral_core::Error>(())
//! ```

mod huffman;
mod interp;
mod lorenzo;
mod quantizer;
mod settings;

use tesseral_core::{Cursor, Error, Result, alloc};

use crate::{Contexts, zstd};
use quantizer::{CellDecoder, CellEncoder};
use settings::{Algorithm, Settings};

const MAGIC: u32 = 0xf342_f310;
/// Version 3.3.2, the only supported version.
const VERSION: u32 = 0x0303_0200;
/// The maximum size of trees and settings in an uncompressed payload, in addition to the cells.
const OVERHEAD: u64 = 4 << 20;
/// Half the number of quantization steps.
const RADIUS: i32 = 32768;

/// The error bound of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Absolute error.
    Absolute(f64),
    /// Error relative to the value range.
    Relative(f64),
    /// Peak signal-to-noise ratio in decibels, approximately.
    Psnr(f64),
}

impl Bound {
    /// The absolute error bound for these cells.
    fn absolute(self, cells: &[f64]) -> f64 {
        let range = || {
            let first = cells.first().copied().unwrap_or(0.0);
            let pair = cells.iter().fold((first, first), |(least, most), cell| {
                (if *cell < least { *cell } else { least }, if *cell > most { *cell } else { most })
            });
            pair.1 - pair.0
        };
        match self {
            Self::Absolute(bound) => bound,
            Self::Relative(fraction) => fraction * range(),
            Self::Psnr(decibels) => {
                let level = decibels + 10.0 * (1.0 - 2.0 / 3.0 * 0.99_f64).log10();
                range() * 10_f64.powf(level / -20.0)
            }
        }
    }
}

fn fault(detail: impl Into<String>) -> Error {
    Error::codec("sz3", detail.into())
}

/// Reads the bytes of a stream.
fn cursor(bytes: &[u8]) -> Cursor<'_> {
    Cursor::codec("sz3", bytes)
}

/// Splits a stream into payload and settings.
fn split_stream(src: &[u8]) -> Result<(&[u8], Settings)> {
    let mut reader = cursor(src);
    let (magic, version) = (reader.u32("magic")?, reader.u32("version")?);
    if magic != MAGIC {
        return Err(fault("not an SZ3 stream: bad magic"));
    }
    if version != VERSION {
        return Err(Error::unsupported(format!("SZ3 streams of version {version:#x}")));
    }
    let len = reader.count64(1, "payload length")?;
    let payload = reader.take(len, "payload")?;
    let settings = Settings::parse(&mut reader)?;
    if !reader.rest().is_empty() {
        return Err(fault("trailing bytes after the settings"));
    }
    Ok((payload, settings))
}

/// Whether a stream is lossless: the bound is 0, or lossy coding would not save bytes.
///
/// # Errors
/// As [`decode_into`].
pub fn is_lossless(src: &[u8]) -> Result<bool> {
    split_stream(src).map(|(_, settings)| settings.algorithm == Algorithm::Lossless)
}

/// Decodes a stream into native-endian doubles, which it must fill exactly.
///
/// # Errors
/// `Codec` when the stream is damaged or holds a different number of cells; `Unsupported` for other versions, several
/// dimensions and predictors that the reference does not use for doubles.
pub fn decode_into(src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
    let count = dst.len() / 8;
    let (payload, settings) = split_stream(src)?;
    if settings.count != count as u64 || !dst.len().is_multiple_of(8) {
        return Err(fault(format!(
            "expected {} bytes, the stream declares {} doubles",
            dst.len(),
            settings.count
        )));
    }
    let mut payload = cursor(payload);
    let inner_len = payload.u64("length of the decompressed payload")?;
    if settings.algorithm == Algorithm::Lossless {
        if inner_len != dst.len() as u64 {
            return Err(fault(format!("expected {} bytes, the payload declares {inner_len}", dst.len())));
        }
        zstd::decode_into(payload.rest(), dst, contexts)?;
        native(dst);
        return Ok(());
    }
    let most = 12 * count as u64 + OVERHEAD;
    let Some(inner_len) = usize::try_from(inner_len).ok().filter(|len| *len as u64 <= most) else {
        return Err(fault(format!("payload of {inner_len} bytes is too large for {count} cells")));
    };
    let mut inner: Vec<u8> = alloc::zeroed("an sz3 stream", inner_len)?;
    zstd::decode_into(payload.rest(), &mut inner, contexts)?;
    let mut inner = cursor(&inner);
    let predictor = match settings.algorithm {
        Algorithm::Interpolation => Predictor::Interpolation(interp::Interpolation::parse(&mut inner)?),
        _ => Predictor::Lorenzo(lorenzo::Lorenzo::parse(&mut inner, &settings)?),
    };
    let quantizer = quantizer::Quantizer::parse(&mut inner)?;
    let tree = huffman::Tree::parse(&mut inner)?;
    let steps = inner.u64("number of quantization steps")?;
    if steps != count as u64 {
        return Err(fault(format!("{steps} quantization steps, expected {count}")));
    }
    let bits = inner.count64(1, "length of the symbols")?;
    let mut symbols = tree.decode(inner.take(bits, "symbols")?);
    let mut restore = CellDecoder::new(&quantizer, &mut symbols);
    let mut cells: Vec<f64> = alloc::zeroed("sz3 cells", count)?;
    match predictor {
        Predictor::Interpolation(interpolation) => interpolation.run(&mut cells, &mut restore)?,
        Predictor::Lorenzo(lorenzo) => lorenzo.restore(&mut cells, &mut restore)?,
    }
    dst.as_chunks_mut().0.iter_mut().zip(cells).for_each(|(out, cell)| *out = cell.to_ne_bytes());
    Ok(())
}

enum Predictor {
    Interpolation(interp::Interpolation),
    Lorenzo(lorenzo::Lorenzo),
}

/// Converts little-endian doubles to native byte order.
fn native(cells: &mut [u8]) {
    if cfg!(target_endian = "big") {
        cells.as_chunks_mut::<8>().0.iter_mut().for_each(|cell| cell.reverse());
    }
}

/// Appends the stream of native-endian doubles to `out`.
///
/// # Errors
/// `InvalidRequest` for an empty array or an error bound that is negative or NaN.
pub fn encode(cells: &[u8], bound: Bound, out: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
    let (values, rest) = cells.as_chunks::<8>();
    if values.is_empty() || !rest.is_empty() {
        return Err(Error::invalid("SZ3 requires at least one double"));
    }
    let mut values: Vec<f64> = values.iter().map(|cell| f64::from_ne_bytes(*cell)).collect();
    let count = values.len() as u64;
    let error = bound.absolute(&values);
    if error.is_nan() || error < 0.0 {
        return Err(Error::invalid(format!("invalid SZ3 error bound {error}")));
    }
    let mut payload = Vec::new();
    let mut algorithm = Algorithm::Lossless;
    if error > 0.0 && error.is_finite() {
        payload = lossy(&mut values, error, contexts)?;
        algorithm = Algorithm::Interpolation;
    }
    // Barely compressible data may be smaller with lossless coding.
    if payload.is_empty() || payload.len() * 3 > cells.len() {
        let mut plain = cells.to_vec();
        native(&mut plain);
        let mut other = plain_payload(&plain, contexts)?;
        if payload.is_empty() || other.len() < payload.len() {
            std::mem::swap(&mut payload, &mut other);
            algorithm = Algorithm::Lossless;
        }
    }
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.append(&mut payload);
    Settings::write(count, algorithm, error, out);
    Ok(())
}

fn plain_payload(bytes: &[u8], contexts: &mut Contexts) -> Result<Vec<u8>> {
    let mut out = (bytes.len() as u64).to_le_bytes().to_vec();
    zstd::encode(bytes, zstd::DEFAULT_LEVEL, &mut out, contexts)?;
    Ok(out)
}

/// Predicts by interpolation. The cells are replaced by their decoded values.
fn lossy(cells: &mut [f64], error: f64, contexts: &mut Contexts) -> Result<Vec<u8>> {
    let interpolation = interp::Interpolation::default_for(cells.len());
    let mut steps = CellEncoder::new(error, RADIUS);
    interpolation.run(cells, &mut steps)?;
    let mut inner = Vec::new();
    interpolation.write(&mut inner);
    steps.write(error, &mut inner);
    huffman::encode(&steps.symbols, &mut inner);
    plain_payload(&inner, contexts)
}

#[cfg(test)]
mod tests;
