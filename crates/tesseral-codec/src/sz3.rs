//! SZ3 for arrays of doubles in one dimension, as version 3.3 writes it.
//!
//! Each cell is predicted from cells that are known already; the difference is told in steps of twice the allowed error. The
//! steps are Huffman-coded, cells that no step reaches are stored as they are, and Zstandard comes last. Two predictors:
//! interpolation between ever closer cells ([`interp`]) and extrapolation from the one or two before ([`lorenzo`]). When
//! neither pays, Zstandard alone is used.
//!
//! ```text
//! stream:  magic u32 │ version u32 │ u64 length │ payload │ settings        all little-endian
//! payload: u64 length │ one zstd frame, of
//!          predictor │ quantizer │ Huffman tree │ u64 steps │ u64 bytes │ bits
//! ```
//!
//! All arithmetic is in the order of the reference, so that its decoder and this one agree to the last bit.
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

use tesseral_core::{Error, Result};

use crate::{Contexts, zstd};
use quantizer::{Restore, Steps};
use settings::{Algorithm, Settings};

const MAGIC: u32 = 0xf342_f310;
/// 3.3.2, the only version whose bytes are known.
const VERSION: u32 = 0x0303_0200;
/// What trees and settings may take in an uncompressed payload, beside the cells.
const OVERHEAD: u64 = 4 << 20;
/// Half the number of steps.
const RADIUS: i32 = 32768;

/// How far a cell may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// By this much.
    Absolute(f64),
    /// By this part of the difference between the largest and the smallest cell.
    Relative(f64),
    /// So that the ratio of peak signal to noise is about this many decibels.
    Psnr(f64),
}

impl Bound {
    /// The bound as a difference, for these cells.
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
            Self::Relative(part) => part * range(),
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

/// Takes numbers off the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n).ok_or_else(|| fault("the stream is cut"))?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| fault("the stream is cut"))?;
        self.0 = rest;
        Ok(*front)
    }

    fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn f64(&mut self) -> Result<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// A number of things of `size` bytes that must still be there.
    fn count(&mut self, size: usize) -> Result<usize> {
        let n = self.u64()?;
        let most = (self.0.len() / size) as u64;
        let n = Some(n).filter(|n| *n <= most).and_then(|n| usize::try_from(n).ok());
        n.ok_or_else(|| fault("more is announced than comes"))
    }
}

/// A stream's payload and settings.
fn parts(src: &[u8]) -> Result<(&[u8], Settings)> {
    let mut reader = Reader(src);
    let (magic, version) = (reader.array().map(u32::from_le_bytes)?, reader.array().map(u32::from_le_bytes)?);
    if magic != MAGIC {
        return Err(fault("it is not an SZ3 stream"));
    }
    if version != VERSION {
        return Err(Error::unsupported(format!("SZ3 streams of version {version:#x}")));
    }
    let len = reader.count(1)?;
    let payload = reader.take(len)?;
    let settings = Settings::parse(&mut reader)?;
    if !reader.0.is_empty() {
        return Err(fault("bytes after the settings"));
    }
    Ok((payload, settings))
}

/// Whether a stream holds every bit of its cells, as one with a bound of 0 does and one that loss would not make shorter.
///
/// # Errors
/// As [`decode_into`].
pub fn is_lossless(src: &[u8]) -> Result<bool> {
    parts(src).map(|(_, settings)| settings.algorithm == Algorithm::Lossless)
}

/// Decodes a stream into native-endian doubles, which it must fill exactly.
///
/// # Errors
/// `Codec` when the stream is damaged or holds another number of cells; `Unsupported` for other versions, several dimensions
/// and predictors that the reference does not use for doubles.
pub fn decode_into(src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<()> {
    let count = dst.len() / 8;
    let (payload, settings) = parts(src)?;
    if settings.count != count as u64 || !dst.len().is_multiple_of(8) {
        return Err(fault(format!("expected {} bytes, it says {} doubles", dst.len(), settings.count)));
    }
    let mut payload = Reader(payload);
    let inner_len = payload.u64()?;
    if settings.algorithm == Algorithm::Lossless {
        if inner_len != dst.len() as u64 {
            return Err(fault(format!("expected {} bytes, it says {inner_len}", dst.len())));
        }
        zstd::decode_into(payload.0, dst, contexts)?;
        native(dst);
        return Ok(());
    }
    let most = 12 * count as u64 + OVERHEAD;
    let Some(inner_len) = usize::try_from(inner_len).ok().filter(|len| *len as u64 <= most) else {
        return Err(fault(format!("{inner_len} bytes are too many for {count} cells")));
    };
    let mut inner = vec![0; inner_len];
    zstd::decode_into(payload.0, &mut inner, contexts)?;
    let mut inner = Reader(&inner);
    let predictor = match settings.algorithm {
        Algorithm::Interpolation => Predictor::Interpolation(interp::Interpolation::parse(&mut inner)?),
        _ => Predictor::Lorenzo(lorenzo::Lorenzo::parse(&mut inner, &settings)?),
    };
    let quantizer = quantizer::Quantizer::parse(&mut inner)?;
    let tree = huffman::Tree::parse(&mut inner)?;
    let steps = inner.u64()?;
    if steps != count as u64 {
        return Err(fault(format!("{steps} steps for {count} cells")));
    }
    let bits = inner.count(1)?;
    let mut symbols = tree.decode(inner.take(bits)?);
    let mut restore = Restore::new(&quantizer, &mut symbols);
    let mut cells = vec![0.0; count];
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

/// Turns little-endian doubles into this machine's.
fn native(cells: &mut [u8]) {
    if cfg!(target_endian = "big") {
        cells.as_chunks_mut::<8>().0.iter_mut().for_each(|cell| cell.reverse());
    }
}

/// Appends the stream of native-endian doubles to `out`.
///
/// # Errors
/// `InvalidRequest` without cells or for a bound that is negative or not a number.
pub fn encode(cells: &[u8], bound: Bound, out: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
    let (values, rest) = cells.as_chunks::<8>();
    if values.is_empty() || !rest.is_empty() {
        return Err(Error::invalid("SZ3 takes doubles, at least one"));
    }
    let mut values: Vec<f64> = values.iter().map(|cell| f64::from_ne_bytes(*cell)).collect();
    let count = values.len() as u64;
    let error = bound.absolute(&values);
    if error.is_nan() || error < 0.0 {
        return Err(Error::invalid(format!("SZ3 with an error of {error}")));
    }
    let mut payload = Vec::new();
    let mut algorithm = Algorithm::Lossless;
    if error > 0.0 && error.is_finite() {
        payload = lossy(&mut values, error, contexts)?;
        algorithm = Algorithm::Interpolation;
    }
    // What hardly shrinks may do better without loss.
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

/// Predicts by interpolation. The cells become what a reader will see.
fn lossy(cells: &mut [f64], error: f64, contexts: &mut Contexts) -> Result<Vec<u8>> {
    let interpolation = interp::Interpolation::default_for(cells.len());
    let mut steps = Steps::new(error, RADIUS);
    interpolation.run(cells, &mut steps)?;
    let mut inner = Vec::new();
    interpolation.write(&mut inner);
    steps.write(error, &mut inner);
    huffman::encode(&steps.symbols, &mut inner);
    plain_payload(&inner, contexts)
}

#[cfg(test)]
mod tests;
