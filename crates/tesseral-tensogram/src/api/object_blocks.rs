//! Verification of the blocks of an object that ranges of cells touch.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use tesseral_core::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::error::{Result, TensogramError};
use crate::source::Input;
use crate::wire::block_hashes::BlockHashes;
use crate::wire::frame::Frame;

/// The blocks of an object, and which of them were verified.
#[derive(Debug)]
pub(crate) struct ObjectBlocks {
    /// Index of the object in its message.
    index: usize,
    /// Byte range of the frame's body in the input.
    body: Range<u64>,
    hashes: BlockHashes,
    /// One bit per block.
    verified: Vec<AtomicU64>,
}

impl ObjectBlocks {
    pub(crate) fn new(index: usize, frame: &Frame, hashes: BlockHashes) -> Self {
        let verified = hashes.hashes.chunks(64).map(|_| AtomicU64::new(0)).collect();
        Self { index, body: frame.body(), hashes, verified }
    }

    fn word(&self, number: usize) -> Option<(&AtomicU64, u64)> {
        Some((self.verified.get(number / 64)?, 1 << (number % 64)))
    }

    fn is_verified(&self, number: usize) -> bool {
        self.word(number).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Returns whether all blocks of the body are right. They are hashed by several threads.
    pub(crate) fn verify_all(&self, body: &[u8], threads: usize) -> bool {
        let block = usize::try_from(self.hashes.block).unwrap_or(usize::MAX);
        let hashes = &self.hashes.hashes;
        let each = hashes.len().div_ceil(threads.max(1)).max(1);
        let right = |(hashes, bytes): (&[u64], &[u8])| {
            hashes.iter().zip(bytes.chunks(block)).all(|(expected, bytes)| xxh3_64(bytes) == *expected)
        };
        let parts = hashes.chunks(each).zip(body.chunks(each.saturating_mul(block)));
        std::thread::scope(|scope| {
            let mut parts = parts;
            let first = parts.next();
            let others: Vec<_> = parts.map(|part| scope.spawn(move || right(part))).collect();
            // The calling thread verifies the first part.
            let mut verified = first.is_none_or(right);
            for other in others {
                verified &= other.join().unwrap_or(false);
            }
            verified
        })
    }

    /// Returns a byte range of the body after verifying the blocks that it touches.
    pub(crate) fn get<I: Input>(&self, input: &I, range: &Range<u64>) -> Result<I::ByteSlice> {
        let Range { start, end } = self.body;
        let block = self.hashes.block;
        if range.start < start || range.end > end || range.start > range.end {
            return Err(
                Error::internal(format!("bytes {range:?} are outside the object at {start}..{end}")).into()
            );
        }
        let (first, last) = ((range.start - start) / block, (range.end - start).div_ceil(block));
        let numbers =
            || usize::try_from(first).unwrap_or(usize::MAX)..usize::try_from(last).unwrap_or(usize::MAX);
        if range.is_empty() || numbers().all(|number| self.is_verified(number)) {
            return Ok(input.get(range.clone(), "object")?);
        }
        let from = start + first * block;
        let bytes = input.get(from..start.saturating_add(last.saturating_mul(block)).min(end), "object")?;
        let blocks = bytes.chunks(usize::try_from(block).unwrap_or(usize::MAX));
        for (number, bytes) in numbers().zip(blocks) {
            if self.is_verified(number) {
                continue;
            }
            let expected = self.hashes.hashes.get(number).copied();
            let actual = xxh3_64(bytes);
            match expected {
                Some(expected) if expected == actual => {}
                _ => {
                    let (object_index, expected) = (Some(self.index), expected.unwrap_or_default());
                    return Err(TensogramError::HashMismatch { object_index, expected, actual });
                }
            }
            if let Some((word, bit)) = self.word(number) {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        // Inside the bytes, which are in memory.
        Ok(I::slice(&bytes, (range.start - from) as usize..(range.end - from) as usize))
    }
}
