//! The settings at the end of a stream.
//!
//! `u8` length · `u8` dimensions · `u8` bits per extent · extents, packed · `u64` cells · `u8` algorithm · `u8` kind of error
//! bound · its one or two doubles · `u8` predictors · `u8` dtype · `i32` steps · `i32` cells per block · `u8`

use tesseral_core::{Cursor, Error, Result};

use super::{RADIUS, cursor, fault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Lorenzo,
    Interpolation,
    Lossless,
}

/// The settings needed for decoding.
#[derive(Debug)]
pub(super) struct Settings {
    pub count: u64,
    pub algorithm: Algorithm,
    /// Lorenzo prediction of order 1 and order 2.
    pub lorenzo: (bool, bool),
    /// Cells per block of the Lorenzo predictor.
    pub block: usize,
}

impl Settings {
    pub(super) fn parse(reader: &mut Cursor<'_>) -> Result<Self> {
        let len = usize::from(reader.u8("settings length")?);
        // The length includes itself.
        let mut fields = cursor(
            reader.take(len.checked_sub(1).ok_or_else(|| fault("settings length is 0"))?, "settings")?,
        );
        let (dims, bits) = (fields.u8("dimension count")?, usize::from(fields.u8("width of the extent")?));
        if dims != 1 {
            return Err(Error::unsupported(format!("SZ3 in {dims} dimensions")));
        }
        let packed = fields.take(bits.div_ceil(8), "extent")?;
        let extent = packed.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let count = fields.u64("cell count")?;
        if bits > 64 || extent != count {
            return Err(fault(format!("extent {extent} does not match {count} cells")));
        }
        let algorithm = match fields.u8("algorithm")? {
            0 => Algorithm::Lorenzo,
            2 => Algorithm::Interpolation,
            4 => Algorithm::Lossless,
            other => return Err(Error::unsupported(format!("SZ3 algorithm {other}"))),
        };
        let bounds = match fields.u8("error bound kind")? {
            0..=3 => 1,
            4 | 5 => 2,
            other => return Err(fault(format!("unknown error bound kind {other}"))),
        };
        fields.take(8 * bounds, "error bounds")?;
        let predictors = fields.u8("predictors")?;
        // dtype and number of steps: not all writers set the former, the latter is redundant.
        fields.take(5, "dtype and number of steps")?;
        let block = fields.i32("block size")?;
        if algorithm == Algorithm::Lorenzo && predictors & 0x30 != 0 {
            return Err(Error::unsupported("SZ3 with regression"));
        }
        let block = usize::try_from(block).ok().filter(|block| *block > 0);
        let block = block.ok_or_else(|| fault("invalid block size"))?;
        Ok(Self { count, algorithm, lorenzo: (predictors & 0x80 != 0, predictors & 0x40 != 0), block })
    }

    /// Appends the settings of `count` doubles.
    pub(super) fn write(count: u64, algorithm: Algorithm, error: f64, out: &mut Vec<u8>) {
        let start = out.len();
        let bits = u64::BITS - count.leading_zeros();
        out.extend_from_slice(&[0, 1, bits as u8]);
        out.extend_from_slice(&count.to_le_bytes()[..bits.div_ceil(8) as usize]);
        out.extend_from_slice(&count.to_le_bytes());
        let number = match algorithm {
            Algorithm::Lorenzo => 0,
            Algorithm::Interpolation => 2,
            Algorithm::Lossless => 4,
        };
        // Absolute error bound.
        out.extend_from_slice(&[number, 0]);
        out.extend_from_slice(&error.to_le_bytes());
        // The reference's default predictors, doubles.
        out.extend_from_slice(&[0xe0, 1]);
        out.extend_from_slice(&(2 * RADIUS).to_le_bytes());
        out.extend_from_slice(&128_i32.to_le_bytes());
        out.push(1);
        let len = (out.len() - start) as u8;
        out[start] = len;
    }
}
