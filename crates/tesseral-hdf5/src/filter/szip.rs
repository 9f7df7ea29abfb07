//! The szip filter: a little-endian length before a stream of the adaptive entropy coder.
//!
//! Elements of 32 and 64 bits are coded as bytes, all first bytes first. Lines of pixels are padded to whole blocks.

use tesseral_codec::aec::{self, MSB, NOT_ENFORCE, PREPROCESS, Params};
use tesseral_codec::shuffle;
use tesseral_core::{Error, Result, alloc};

/// Options of the filter.
const BIG_ENDIAN: u32 = 16;
const NEAREST_NEIGHBOR: u32 = 32;
/// Maximum pixels of a block and of a line in the reference.
const BLOCK: u32 = 32;
const LINE: u32 = 4096;

/// Parameters of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Szip {
    params: Params,
    /// Bytes of a coded pixel.
    pixel: usize,
    /// Bytes of an element whose bytes were separated; 1 for others.
    separated: usize,
    /// Bytes of a line without and with padding.
    line: usize,
    padded: usize,
}

impl Szip {
    /// Parameters: options, pixels per block, bits per pixel, pixels per line.
    pub(super) fn new(parameters: &[u32]) -> Result<Self> {
        let &[options, block, bits, line, ..] = parameters else {
            return Err(Error::codec("szip", "missing parameters"));
        };
        let sizes = block > 0 && block <= BLOCK && block % 2 == 0 && line > 0 && line <= LINE;
        let separated = if bits == 32 || bits == 64 { bits as usize / 8 } else { 1 };
        let bits = if separated > 1 { 8 } else { bits };
        if !sizes || !(1..=24).contains(&bits) {
            return Err(Error::codec("szip", format!("invalid parameters {parameters:?}")));
        }
        let mut flags = NOT_ENFORCE;
        if options & BIG_ENDIAN != 0 {
            flags |= MSB;
        }
        if options & NEAREST_NEIGHBOR != 0 {
            flags |= PREPROCESS;
        }
        let blocks = line.div_ceil(block);
        let params = Params::new(bits, block, blocks, flags)?;
        let pixel = params.sample_size();
        let (line, padded) = (line as usize * pixel, (blocks * block) as usize * pixel);
        Ok(Self { params, pixel, separated, line, padded })
    }

    /// Decodes a chunk and returns the number of bytes written.
    pub(super) fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize> {
        let (total, stream) =
            src.split_first_chunk::<4>().ok_or_else(|| Error::codec("szip", "truncated chunk"))?;
        let total = u32::from_le_bytes(*total) as usize;
        let Some(dst) = dst.get_mut(..total).filter(|_| total.is_multiple_of(self.pixel)) else {
            return Err(Error::codec("szip", format!("the chunk declares {total} bytes")));
        };
        if self.line == self.padded && self.separated == 1 {
            aec::decode_into(stream, &self.params, dst)?;
            return Ok(total);
        }
        let lines = total.div_ceil(self.line);
        let coded = if self.line == self.padded { total } else { lines * self.padded };
        let mut samples = alloc::zeroed::<u8>("szip samples", coded)?;
        aec::decode_into(stream, &self.params, &mut samples)?;
        if self.line != self.padded {
            for line in 0..lines {
                let (from, to) = (line * self.padded, line * self.line);
                samples.copy_within(from..from + self.line.min(total - to), to);
            }
        }
        if self.separated > 1 {
            shuffle::decode_into(&samples[..total], self.separated, dst)?;
        } else {
            dst.copy_from_slice(&samples[..total]);
        }
        Ok(total)
    }
}
