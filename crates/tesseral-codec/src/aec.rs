//! AEC, the adaptive entropy coder of CCSDS 121.0, as used by szip, GRIB and Tensogram. The stream has no header: sample width,
//! block size and interval are stored elsewhere.
//!
//! Samples are grouped in *blocks* of J; r blocks form a *reference sample interval* (RSI). With preprocessing each sample is
//! predicted by its predecessor, and prediction restarts at every RSI. An RSI therefore decodes independently, which range
//! reads rely on. Each block uses the shortest of four codes: zero block (runs share one code), second extension (pairs in
//! unary), split (k low bits verbatim, the remainder in unary) and uncompressed.
//!
//! ```
//! use tesseral_codec::aec::{self, Params, PREPROCESS};
//!
//! let params = Params::new(8, 16, 2, PREPROCESS)?;
//! let samples: Vec<u8> = (0..100).map(|i| i / 3).collect();
//! let mut packed = Vec::new();
//! let offsets = aec::encode(&samples, &params, &mut packed)?;
//! assert_eq!(offsets.len(), 4);
//! let mut back = [0; 100];
//! aec::decode_into(&packed, &params, &mut back)?;
//! assert_eq!(back, samples[..]);
//! # Ok::<(), tesseral_core::Error>(())
//! ```

mod bits;
mod decode;
mod encode;
mod index;

use tesseral_core::{Error, Result};

pub use decode::{Decoder, decode_into, decode_range};
pub use encode::encode;
pub use index::RsiIndex;

/// Samples are signed.
pub const SIGNED: u32 = 1;
/// Samples of 17 to 24 bits occupy 3 bytes instead of 4.
pub const THREE_BYTE: u32 = 2;
/// Samples are big-endian.
pub const MSB: u32 = 4;
/// Samples are predicted before they are coded.
pub const PREPROCESS: u32 = 8;
/// Shorter block codes (the restricted set) for samples of up to 4 bits.
pub const RESTRICTED: u32 = 16;
/// Each RSI begins at a byte boundary.
pub const PAD_RSI: u32 = 32;
/// Block sizes other than 8, 16, 32 and 64 are allowed.
pub const NOT_ENFORCE: u32 = 64;

/// Blocks per segment: a run of zero blocks does not extend beyond its segment.
const SEGMENT: u32 = 64;

/// The parameters of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Bits per sample, n.
    bits: u32,
    /// Samples per block, J.
    block: u32,
    /// Blocks per RSI, r.
    rsi: u32,
    flags: u32,
}

impl Params {
    /// Checked parameters.
    ///
    /// # Errors
    /// `Codec` for values out of range, `Unsupported` for the restricted code set and padded intervals.
    pub fn new(bits: u32, block: u32, rsi: u32, flags: u32) -> Result<Self> {
        let fault = |detail: String| Err(Error::codec("szip", detail));
        if !(1..=32).contains(&bits) {
            return fault(format!("{bits} bits per sample out of range 1..=32"));
        }
        let enforced = flags & NOT_ENFORCE == 0;
        if enforced && ![8, 16, 32, 64].contains(&block) || block == 0 || block % 2 == 1 || block > 1 << 16 {
            return fault(format!("invalid block size of {block} samples"));
        }
        if !(1..=4096).contains(&rsi) {
            return fault(format!("RSI of {rsi} blocks out of range 1..=4096"));
        }
        if flags & RESTRICTED != 0 {
            return Err(Error::unsupported("szip with the restricted code set"));
        }
        if flags & PAD_RSI != 0 {
            // The reference encoder ignores the flag and its decoder does not, so the meaning of the bytes is ambiguous.
            return Err(Error::unsupported("szip with padded intervals"));
        }
        Ok(Self { bits, block, rsi, flags })
    }

    /// Bytes per sample.
    pub fn sample_size(&self) -> usize {
        match self.bits {
            0..=8 => 1,
            9..=16 => 2,
            17..=24 if self.has(THREE_BYTE) => 3,
            _ => 4,
        }
    }

    /// Samples per RSI.
    pub fn interval(&self) -> usize {
        self.rsi as usize * self.block as usize
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Bits of a block's code ID.
    fn id_len(&self) -> u32 {
        match self.bits {
            0..=8 => 3,
            9..=16 => 4,
            _ => 5,
        }
    }

    /// The mask of all bits of a sample.
    fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// The offset between samples and unsigned numbers: half the range for signed samples.
    fn bias(&self) -> u32 {
        if self.has(SIGNED) { 1 << (self.bits - 1) } else { 0 }
    }
}

#[cfg(test)]
mod tests;
