//! AEC, the adaptive entropy coder of CCSDS 121.0 that szip, GRIB and Tensogram use. The stream has no header: width,
//! block size and interval come from elsewhere.
//!
//! Samples go in *blocks* of J; r blocks are a *reference sample interval* (RSI). With preprocessing each sample is
//! predicted by the one before it, starting anew at every RSI, so an RSI decodes without those before it: that is what
//! range reads rest on. Each block takes the cheapest of four shapes: zero (runs of them share one code), second
//! extension (pairs in unary), split (k low bits plain, the rest in unary) and plain.
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

pub use decode::{Reader, decode_into, decode_range};
pub use encode::encode;
pub use index::Index;

/// Samples are signed.
pub const SIGNED: u32 = 1;
/// Samples of 17 to 24 bits lie in 3 bytes instead of 4.
pub const THREE_BYTE: u32 = 2;
/// Samples are big-endian.
pub const MSB: u32 = 4;
/// Samples are predicted before they are coded.
pub const PREPROCESS: u32 = 8;
/// Shorter block codes for samples of up to 4 bits.
pub const RESTRICTED: u32 = 16;
/// Each RSI begins at a byte.
pub const PAD_RSI: u32 = 32;
/// Block sizes other than 8, 16, 32 and 64.
pub const NOT_ENFORCE: u32 = 64;

/// Blocks after which a run of zero blocks is always written out.
const SEGMENT: u32 = 64;

/// What must be known to code a stream.
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
    /// `Codec` for values outside the coder's range, `Unsupported` for the restricted code set and padded intervals.
    pub fn new(bits: u32, block: u32, rsi: u32, flags: u32) -> Result<Self> {
        let fault = |detail: String| Err(Error::codec("szip", detail));
        if !(1..=32).contains(&bits) {
            return fault(format!("{bits} bits per sample are not 1 to 32"));
        }
        let enforced = flags & NOT_ENFORCE == 0;
        if enforced && ![8, 16, 32, 64].contains(&block) || block == 0 || block % 2 == 1 || block > 1 << 16 {
            return fault(format!("a block of {block} samples"));
        }
        if !(1..=4096).contains(&rsi) {
            return fault(format!("an interval of {rsi} blocks is not 1 to 4096"));
        }
        if flags & RESTRICTED != 0 {
            return Err(Error::unsupported("szip with the restricted code set"));
        }
        if flags & PAD_RSI != 0 {
            // The reference's encoder ignores the flag and its decoder does not: nobody can tell what the bytes mean.
            return Err(Error::unsupported("szip with padded intervals"));
        }
        Ok(Self { bits, block, rsi, flags })
    }

    /// Bytes of one sample.
    pub fn sample_size(&self) -> usize {
        match self.bits {
            0..=8 => 1,
            9..=16 => 2,
            17..=24 if self.has(THREE_BYTE) => 3,
            _ => 4,
        }
    }

    /// Samples of one RSI.
    pub fn interval(&self) -> usize {
        self.rsi as usize * self.block as usize
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Bits of a block's code number.
    fn id_len(&self) -> u32 {
        match self.bits {
            0..=8 => 3,
            9..=16 => 4,
            _ => 5,
        }
    }

    /// All bits of a sample.
    fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// What turns samples into numbers from 0 on and back: signed ones are shifted by half the range.
    fn bias(&self) -> u32 {
        if self.has(SIGNED) { 1 << (self.bits - 1) } else { 0 }
    }
}

#[cfg(test)]
mod tests;
