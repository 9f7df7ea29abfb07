//! The filters that blocks pass through before compression.

use tesseral_core::Result;

use super::fault;
use crate::{bitshuffle, shuffle};

pub(super) const BYTE_SHUFFLE: u8 = 1;
pub(super) const BIT_SHUFFLE: u8 = 2;
pub(super) const DELTA: u8 = 3;
/// Truncated precision: low bits were dropped, nothing to undo. Higher IDs are user-defined.
pub(super) const LAST: u8 = 4;

/// Whether undoing a filter changes the bytes.
pub(super) fn changes_bytes(id: u8) -> bool {
    (BYTE_SHUFFLE..=DELTA).contains(&id)
}

/// A filter to undo on a block.
pub(super) struct FilterUndo<'a> {
    pub id: u8,
    /// Bytes per element.
    pub size: usize,
    /// The chunk's version.
    pub version: u8,
    /// The decoded first block of the chunk; empty while decoding that block.
    pub reference: &'a [u8],
}

impl FilterUndo<'_> {
    /// Both slices are as long as the block.
    pub(super) fn run(&self, src: &[u8], dst: &mut [u8]) -> Result<()> {
        match self.id {
            BYTE_SHUFFLE => shuffle_tail(src, self.size, dst, shuffle::decode_into),
            // Before version 3 only full groups of 8 elements were shuffled, or nothing.
            BIT_SHUFFLE if self.version < 3 && !(src.len() / self.size).is_multiple_of(8) => {
                dst.copy_from_slice(src);
                Ok(())
            }
            BIT_SHUFFLE => {
                bitshuffle::decode_into(src, self.size, dst);
                Ok(())
            }
            _ => self.delta(src, dst),
        }
    }

    /// Elements are XORed with those of the first block; in the first block, with the preceding element. Bytes after the last
    /// complete element are unchanged.
    fn delta(&self, src: &[u8], dst: &mut [u8]) -> Result<()> {
        let size = match self.size {
            size @ (1 | 2 | 4 | 8) => size,
            size if size % 8 == 0 => 8,
            _ => 1,
        };
        let whole = src.len() / size * size;
        dst.copy_from_slice(src);
        if self.reference.is_empty() {
            for i in size..whole {
                dst[i] ^= dst[i - size];
            }
            return Ok(());
        }
        let reference =
            self.reference.get(..whole).ok_or_else(|| fault("block longer than the first block"))?;
        dst.iter_mut().zip(reference).for_each(|(byte, other)| *byte ^= other);
        Ok(())
    }
}

/// Shuffles complete elements and copies trailing bytes.
pub(super) fn shuffle_tail(
    src: &[u8],
    size: usize,
    dst: &mut [u8],
    run: impl Fn(&[u8], usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let whole = src.len() / size * size;
    let ((src, tail), (dst, rest)) = (src.split_at(whole), dst.split_at_mut(whole));
    rest.copy_from_slice(tail);
    run(src, size, dst)
}
