//! The bitshuffle filter, alone or with a compressor.
//!
//! ```text
//! alone:      blocks of shuffled elements │ fewer than 8 elements, not shuffled
//! compressed: u64 original size │ u32 block size │ per block: u32 compressed size │ bytes │ fewer than 8 elements
//! ```
//!
//! Sizes are big-endian. The last block has as many elements as are left, rounded down to a multiple of 8.

use tesseral_codec::{Contexts, bitshuffle, zstd};
use tesseral_core::{Error, Result, alloc};

use super::lz4::{bytes, number};

const NAME: &str = "bitshuffle";
/// Size of a block in bytes where the filter does not set it, and the fewest elements of such a block.
const TARGET: usize = 8192;
const FEWEST: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockCompressor {
    None,
    Lz4,
    Zstd,
}

/// Parameters of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bitshuffle {
    /// Bytes of an element.
    size: usize,
    /// Elements of a block.
    block: usize,
    compressor: BlockCompressor,
}

impl Bitshuffle {
    /// Parameters: two numbers of a version, element size, block size, compressor.
    pub(super) fn new(parameters: &[u32], element: usize) -> Result<Self> {
        let get = |at: usize| parameters.get(at).and_then(|n| usize::try_from(*n).ok()).filter(|n| *n > 0);
        let size = get(2).unwrap_or(element).max(1);
        let usual = (TARGET / size / 8 * 8).max(FEWEST);
        let compressor = match get(4) {
            None => BlockCompressor::None,
            Some(2) => BlockCompressor::Lz4,
            Some(3) => BlockCompressor::Zstd,
            Some(other) => return Err(Error::unsupported(format!("bitshuffle with compressor {other}"))),
        };
        Ok(Self { size, block: get(3).unwrap_or(usual), compressor })
    }

    /// Decodes a chunk and returns the number of bytes written.
    pub(super) fn decode(&self, mut src: &[u8], dst: &mut [u8], contexts: &mut Contexts) -> Result<usize> {
        let (total, block) = match self.compressor {
            BlockCompressor::None => (src.len(), self.block),
            _ => {
                let total = number(&mut src, 8, NAME)?;
                let block = number(&mut src, 4, NAME)?;
                (total, if block == 0 { self.block } else { block / self.size })
            }
        };
        let Some(dst) = dst.get_mut(..total) else {
            return Err(Error::codec(NAME, format!("the chunk declares {total} bytes")));
        };
        if block == 0 || !block.is_multiple_of(8) {
            return Err(Error::codec(NAME, format!("blocks of {block} elements")));
        }
        let whole = total / self.size / 8 * 8 * self.size;
        let (shuffled, rest) = dst.split_at_mut(whole);
        let mut packed = Vec::new();
        for out in shuffled.chunks_mut(block.saturating_mul(self.size)) {
            if self.compressor == BlockCompressor::None {
                bitshuffle::decode_into(bytes(&mut src, out.len(), NAME)?, self.size, out);
                continue;
            }
            let len = number(&mut src, 4, NAME)?;
            let stored = bytes(&mut src, len, NAME)?;
            let unpacked = alloc::scratch("a block of bits", &mut packed, out.len())?;
            match self.compressor {
                BlockCompressor::Zstd => zstd::decode_into(stored, unpacked, contexts)?,
                _ => tesseral_codec::lz4::decode_block_into(stored, unpacked)?,
            }
            bitshuffle::decode_into(unpacked, self.size, out);
        }
        rest.copy_from_slice(bytes(&mut src, rest.len(), NAME)?);
        Ok(total)
    }
}
