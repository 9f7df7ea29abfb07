//! zfp for arrays of doubles: blocks of four values, each a common exponent and the coefficients of a transform, coded bit
//! plane by bit plane until the budget of bits, planes or error is used up.
//!
//! The stream has no header: mode and number of cells are stored elsewhere. It consists of little-endian 64-bit words. With a
//! fixed rate every block has the same number of bits, so a range of cells decodes without the preceding ones.
//!
//! ```
//! use tesseral_codec::zfp::{self, Mode};
//!
//! let cells: Vec<u8> = (0..100).flat_map(|i| f64::from(i).sqrt().to_ne_bytes()).collect();
//! let mut packed = Vec::new();
//! zfp::encode(&cells, Mode::Accuracy(1e-3), &mut packed)?;
//! let mut back = vec![0; 800];
//! zfp::decode_into(&packed, Mode::Accuracy(1e-3), &mut back)?;
//! let last = f64::from_ne_bytes(*back.last_chunk().unwrap());
//! assert!((last - 99_f64.sqrt()).abs() <= 1e-3);
//! # Ok::<(), tesseral_core::Error>(())
//! ```

use tesseral_core::{Error, Result, alloc};
use zfp_rs::{
    ZfpBitStream, ZfpBitStreamRef, ZfpConfig, ZfpDimensionality, ZfpField, ZfpFieldMut, ZfpScalarType,
    ZfpStreamAlignment,
};

/// Cells per block.
const BLOCK: u64 = 4;

/// The limit that ends a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Bits per cell.
    Rate(f64),
    /// Bit planes; 0 means all.
    Precision(u32),
    /// The largest absolute error of a cell; 0 means as small as the precision allows.
    Accuracy(f64),
}

fn fault(detail: impl Into<String>) -> Error {
    Error::codec("zfp", detail.into())
}

impl Mode {
    fn config(self) -> Result<ZfpConfig> {
        match self {
            Self::Rate(rate) => {
                let (kind, dims) = (ZfpScalarType::F64, ZfpDimensionality::D1);
                ZfpConfig::fixed_rate(rate, kind, dims, ZfpStreamAlignment::Unaligned)
                    .map_err(|_| fault(format!("rate of {rate} bits per cell out of range")))
            }
            Self::Precision(planes) => Ok(ZfpConfig::fixed_precision(planes)),
            Self::Accuracy(error) if error >= 0.0 => Ok(ZfpConfig::fixed_accuracy(error)),
            Self::Accuracy(error) => Err(fault(format!("invalid error bound {error}"))),
        }
    }

    /// Checked parameters.
    ///
    /// # Errors
    /// `Codec` for a rate or error bound that is negative, NaN or out of range.
    pub fn check(self) -> Result<Self> {
        self.config().map(|_| self)
    }

    /// Whether a range of cells decodes without the preceding ones.
    pub fn seeks(self) -> bool {
        matches!(self, Self::Rate(_))
    }
}

/// Appends the stream of native-endian doubles to `out`.
///
/// # Errors
/// `Codec` for parameters out of range or bytes that are not whole doubles.
pub fn encode(cells: &[u8], mode: Mode, out: &mut Vec<u8>) -> Result<()> {
    let config = mode.config()?;
    let (cells, rest) = cells.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(fault("length of the cells is not a multiple of 8"));
    }
    if cells.is_empty() {
        return Ok(());
    }
    let cells: Vec<f64> = cells.iter().map(|cell| f64::from_ne_bytes(*cell)).collect();
    let field = ZfpField::new(&cells, cells.len()).map_err(|e| Error::codec("zfp", e))?;
    let most = config.maximum_size(ZfpScalarType::F64, field.dims());
    let most = most.ok_or_else(|| fault("too many cells"))?;
    let mut stream = ZfpBitStream::new(most).map_err(|e| Error::codec("zfp", e))?;
    stream.compress(&config, &field).map_err(|e| Error::codec("zfp", e))?;
    let words = stream.as_bytes().as_chunks::<8>().0;
    out.extend(words.iter().flat_map(|word| u64::from_ne_bytes(*word).to_le_bytes()));
    Ok(())
}

/// Decodes a whole stream into native-endian doubles.
///
/// # Errors
/// `Codec` when the stream is truncated or has trailing bytes.
pub fn decode_into(src: &[u8], mode: Mode, dst: &mut [u8]) -> Result<()> {
    let used = decode(src, mode, dst)?;
    if used != src.len() {
        return Err(fault(format!("trailing bytes: the cells end at byte {used} of {}", src.len())));
    }
    Ok(())
}

/// Decodes the cells from `first` on of `total`; in a mode that [seeks](Mode::seeks), only a few preceding blocks are decoded
/// as well.
///
/// # Errors
/// As [`decode_into`]; `InvalidRequest` for cells beyond `total`.
pub fn decode_range(src: &[u8], mode: Mode, total: u64, first: u64, dst: &mut [u8]) -> Result<()> {
    let count = (dst.len() / 8) as u64;
    let out_of_range = || Error::invalid(format!("cells {first}..+{count} out of range for {total} cells"));
    first.checked_add(count).filter(|end| *end <= total).ok_or_else(out_of_range)?;
    if count == 0 {
        return Ok(());
    }
    let (mut skip, mut src) = (0, src);
    if mode.seeks() {
        // Blocks begin at a word boundary at regular intervals; from there the remainder is a separate stream.
        let bits = u64::from(mode.config()?.max_bits());
        let step = 64 >> bits.trailing_zeros().min(6);
        let blocks = first / BLOCK / step * step;
        let start = blocks.checked_mul(bits).and_then(|bits| usize::try_from(bits / 8).ok());
        src = start.and_then(|start| src.get(start..)).ok_or_else(|| fault("truncated stream"))?;
        skip = blocks * BLOCK;
    }
    let lead = usize::try_from(first - skip).ok().and_then(|n| n.checked_mul(8));
    let len = lead.and_then(|lead| lead.checked_add(dst.len())).ok_or_else(out_of_range)?;
    let mut cells: Vec<u8> = alloc::zeroed("zfp cells", len)?;
    decode(src, mode, &mut cells)?;
    dst.copy_from_slice(&cells[len - dst.len()..]);
    Ok(())
}

/// Decodes cells from the start of a stream; returns the number of bytes used.
fn decode(src: &[u8], mode: Mode, dst: &mut [u8]) -> Result<usize> {
    let config = mode.config()?;
    let (words, rest) = src.as_chunks::<8>();
    if !rest.is_empty() || !dst.len().is_multiple_of(8) {
        return Err(fault(format!(
            "{} source and {} destination bytes are not whole words",
            src.len(),
            dst.len()
        )));
    }
    let count = dst.len() / 8;
    if count == 0 {
        return Ok(0);
    }
    // A block has at least one bit.
    if count.div_ceil(4) > src.len().saturating_mul(8) {
        return Err(fault(format!("truncated stream: {} bytes cannot hold {count} cells", src.len())));
    }
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut stream = ZfpBitStreamRef::from_words(&words);
    let mut run = |cells: &mut [f64]| -> Result<usize> {
        let mut field = ZfpFieldMut::new(cells, count).map_err(|e| Error::codec("zfp", e))?;
        let used = stream.decompress(&config, &mut field).map_err(|e| Error::codec("zfp", e))?;
        // The library does not notice missing padding.
        if used > src.len() { Err(fault("truncated stream")) } else { Ok(used) }
    };
    if let Ok(cells) = bytemuck::try_cast_slice_mut(dst) {
        return run(cells);
    }
    let mut cells: Vec<f64> = alloc::zeroed("zfp cells", count)?;
    let used = run(&mut cells)?;
    dst.as_chunks_mut().0.iter_mut().zip(cells).for_each(|(out, cell)| *out = cell.to_ne_bytes());
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 7] = [
        Mode::Rate(8.0),
        Mode::Rate(3.3),
        Mode::Rate(64.0),
        Mode::Precision(20),
        Mode::Precision(0),
        Mode::Accuracy(1e-3),
        Mode::Accuracy(0.0),
    ];

    fn cells(n: usize) -> Vec<u8> {
        (0..n).flat_map(|i| ((i as f64 / 9.0).sin() * 50.0 + i as f64).to_ne_bytes()).collect()
    }

    fn packed(cells: &[u8], mode: Mode) -> Vec<u8> {
        let mut out = Vec::new();
        encode(cells, mode, &mut out).unwrap();
        out
    }

    #[test]
    fn ranges_equal_slices_of_the_full_decode() {
        for mode in MODES {
            for n in [0, 1, 3, 4, 5, 257, 1000] {
                let stream = packed(&cells(n), mode);
                let mut whole = vec![0; n * 8];
                decode_into(&stream, mode, &mut whole).unwrap();
                for first in (0..n).step_by(n / 9 + 1) {
                    let end = (first + n / 5 + 1).min(n);
                    // Not aligned for doubles.
                    let mut part = vec![0; (end - first) * 8 + 1];
                    decode_range(&stream, mode, n as u64, first as u64, &mut part[1..]).unwrap();
                    assert_eq!(part[1..], whole[first * 8..end * 8], "{mode:?} {n} {first}");
                }
                assert!(decode_range(&stream, mode, n as u64, n as u64, &mut [0; 8]).is_err());
            }
        }
    }

    #[test]
    fn errors_stay_within_the_bound() {
        let src = cells(5000);
        let mut back = vec![0; src.len()];
        decode_into(&packed(&src, Mode::Accuracy(0.01)), Mode::Accuracy(0.01), &mut back).unwrap();
        for (a, b) in src.as_chunks().0.iter().zip(back.as_chunks().0) {
            assert!((f64::from_ne_bytes(*a) - f64::from_ne_bytes(*b)).abs() <= 0.01);
        }
    }

    #[test]
    fn truncation_and_wrong_lengths_are_rejected() {
        for mode in MODES {
            let stream = packed(&cells(300), mode);
            let mut back = vec![0; 2400];
            for len in 0..stream.len() {
                assert!(decode_into(&stream[..len], mode, &mut back).is_err(), "{mode:?} {len}");
            }
            // A block of zeros takes one bit, so only more blocks than the last word has bits are certain to be missing.
            assert!(decode_into(&stream, mode, &mut vec![0; 2400 + 8 * 256]).is_err(), "{mode:?}");
            assert!(decode_into(&stream, mode, &mut vec![0; 1200]).is_err(), "{mode:?}");
            assert!(decode_into(&stream, mode, &mut [0; 12]).is_err());
        }
        for mode in [Mode::Rate(-1.0), Mode::Rate(f64::NAN), Mode::Accuracy(-1.0), Mode::Accuracy(f64::NAN)] {
            assert!(mode.check().is_err(), "{mode:?}");
        }
    }
}
