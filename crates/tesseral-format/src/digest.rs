//! Digests of stored bytes: one per chunk, one per block, or a tree of both.

use std::ops::Range;

use smallvec::SmallVec;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// A stored digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Digest<'a> {
    /// XXH3-64 with seed 0 over all bytes of a span.
    Xxh3(u64),
    /// XXH3-64 with seed 0 of each block of `block` bytes; the last block can be shorter.
    Xxh3Blocks {
        /// Block size in bytes.
        block: u64,
        /// One digest per block.
        digests: &'a [u64],
    },
    /// XXH3-64 with seed 0 of the digests of all blocks, 8 little-endian bytes each.
    Xxh3Tree {
        /// Block size in bytes.
        block: u64,
        /// Digest of the digests of all blocks.
        root: u64,
        /// Number under which the root is remembered as verified.
        number: u64,
        /// The digests of the blocks, if they are in memory. Without them, only the whole span can be verified.
        digests: Option<&'a [[u8; 8]]>,
    },
}

/// Stored bytes and their expected digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestSpan<'a> {
    /// Index of the object, for [`ArraySource::object`](crate::ArraySource::object).
    pub object: u32,
    /// The covered byte range.
    pub range: Range<u64>,
    /// Number of the first block. Block numbers are unique within an object, so that they identify verified blocks.
    pub number: u64,
    /// The expected digest.
    pub digest: Digest<'a>,
}

/// Spans with digests, usually one per part.
pub type DigestSpans<'a> = SmallVec<[DigestSpan<'a>; 1]>;

/// Bytes that are verified together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestBlock {
    /// Number of the block in its object.
    pub number: u64,
    /// Byte range of the block.
    pub range: Range<u64>,
    /// The expected digest.
    pub expected: u64,
    /// Block size of the tree whose root is expected; `None` for a digest of the bytes.
    tree: Option<u64>,
}

impl DigestBlock {
    /// Digest of the block's bytes.
    pub fn compute(&self, bytes: &[u8]) -> u64 {
        match self.tree {
            None => xxh3_64(bytes),
            Some(_) => {
                let mut hasher = self.hasher();
                hasher.update(bytes);
                hasher.finish()
            }
        }
    }

    /// Computes the digest of bytes that arrive in pieces.
    pub fn hasher(&self) -> BlockHasher {
        BlockHasher {
            tree: self.tree.map(|block| (block.max(1), 0, Xxh3Default::new())),
            hash: Xxh3Default::new(),
        }
    }
}

/// Digest of bytes that arrive in pieces.
pub struct BlockHasher {
    /// Block size, number of bytes in the current block, and its hash, for a tree.
    tree: Option<(u64, u64, Xxh3Default)>,
    /// Hash of the bytes, or of the digests of blocks.
    hash: Xxh3Default,
}

impl BlockHasher {
    /// Adds bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let Some((block, held, inner)) = &mut self.tree else {
            return self.hash.update(bytes);
        };
        while !bytes.is_empty() {
            let free = usize::try_from(*block - *held).unwrap_or(usize::MAX).min(bytes.len());
            let (now, rest) = bytes.split_at(free);
            inner.update(now);
            *held += now.len() as u64;
            if held == block {
                self.hash.update(&inner.digest().to_le_bytes());
                inner.reset();
                *held = 0;
            }
            bytes = rest;
        }
    }

    /// Returns the digest.
    pub fn finish(mut self) -> u64 {
        if let Some((_, 1.., inner)) = &self.tree {
            self.hash.update(&inner.digest().to_le_bytes());
        }
        self.hash.digest()
    }
}

impl<'a> DigestSpan<'a> {
    /// Creates a span with a single digest.
    pub fn single(object: u32, range: Range<u64>, number: u64, xxh3: u64) -> Self {
        Self { object, range, number, digest: Digest::Xxh3(xxh3) }
    }

    /// Blocks of the span that intersect `within`. An empty span is one block.
    pub fn blocks(&self, within: &Range<u64>) -> impl Iterator<Item = DigestBlock> + use<'a> {
        let (single, block, digests) = match self.digest {
            Digest::Xxh3(digest) => (Some((digest, None)), u64::MAX, BlockDigests::default()),
            Digest::Xxh3Blocks { block, digests } => (None, block.max(1), BlockDigests::Numbers(digests)),
            Digest::Xxh3Tree { block, digests: Some(digests), .. } => {
                (None, block.max(1), BlockDigests::Bytes(digests))
            }
            Digest::Xxh3Tree { block, root, .. } => {
                (Some((root, Some(block))), u64::MAX, BlockDigests::default())
            }
        };
        let number = match self.digest {
            Digest::Xxh3Tree { digests: None, number, .. } => number,
            _ => self.number,
        };
        let range = self.range.clone();
        let index = |at: u64| usize::try_from(at.saturating_sub(range.start) / block).unwrap_or(usize::MAX);
        let first = index(within.start).min(digests.len());
        let end = index(within.end.saturating_sub(1)).saturating_add(1).clamp(first, digests.len());
        let touched = range.is_empty() || (within.start < range.end && range.start < within.end);
        let each = (first..end).filter_map(move |i| Some((digests.get(i)?, None)));
        let each = single.into_iter().chain(each).filter(move |_| touched);
        (first as u64..).zip(each).map(move |(i, (expected, tree))| {
            let start = range.start.saturating_add(i.saturating_mul(block)).min(range.end);
            let range = start..start.saturating_add(block).min(range.end);
            DigestBlock { number: number.saturating_add(i), range, expected, tree }
        })
    }

    /// The digest of the digests of blocks, to verify before the first of them is used: its number, the expected digest, and
    /// the bytes that it covers.
    pub fn root(&self) -> Option<(u64, u64, &'a [u8])> {
        match self.digest {
            Digest::Xxh3Tree { root, number, digests: Some(digests), .. } => {
                Some((number, root, digests.as_flattened()))
            }
            _ => None,
        }
    }

    /// Returns whether all bytes are verified together.
    pub fn is_single(&self) -> bool {
        matches!(self.digest, Digest::Xxh3(_) | Digest::Xxh3Tree { digests: None, .. })
    }

    /// Returns whether the span contains a range of an object.
    pub fn covers(&self, object: u32, range: &Range<u64>) -> bool {
        let (block, count) = match self.digest {
            Digest::Xxh3(_) | Digest::Xxh3Tree { digests: None, .. } => (u64::MAX, 1),
            Digest::Xxh3Blocks { block, digests } => (block, digests.len()),
            Digest::Xxh3Tree { block, digests: Some(digests), .. } => (block, digests.len()),
        };
        let held = (count as u64).saturating_mul(block) >= self.range.end.saturating_sub(self.range.start);
        held && self.object == object && self.range.start <= range.start && range.end <= self.range.end
    }
}

/// Digests of blocks in memory.
#[derive(Clone, Copy)]
enum BlockDigests<'a> {
    Numbers(&'a [u64]),
    Bytes(&'a [[u8; 8]]),
}

impl Default for BlockDigests<'_> {
    fn default() -> Self {
        Self::Numbers(&[])
    }
}

impl BlockDigests<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Numbers(digests) => digests.len(),
            Self::Bytes(digests) => digests.len(),
        }
    }

    fn get(&self, index: usize) -> Option<u64> {
        match self {
            Self::Numbers(digests) => digests.get(index).copied(),
            Self::Bytes(digests) => digests.get(index).map(|digest| u64::from_le_bytes(*digest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_one_root_with_and_without_the_digests_of_its_blocks() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for block in [1, 7, 64, 999, 1000, 4096] {
            let digests: Vec<[u8; 8]> = bytes.chunks(block).map(|b| xxh3_64(b).to_le_bytes()).collect();
            let root = xxh3_64(digests.as_flattened());
            let span = |digests| DigestSpan {
                object: 0,
                range: 100..1100,
                number: 5,
                digest: Digest::Xxh3Tree { block: block as u64, root, number: 77, digests },
            };
            let whole: Vec<_> = span(None).blocks(&(300..301)).collect();
            assert_eq!((whole.len(), whole[0].number, whole[0].range.clone()), (1, 77, 100..1100));
            assert_eq!(whole[0].compute(&bytes), root);
            let mut pieces = whole[0].hasher();
            bytes.chunks(13).for_each(|piece| pieces.update(piece));
            assert_eq!(pieces.finish(), root);
            let known = span(Some(&digests[..]));
            assert_eq!(known.root(), Some((77, root, digests.as_flattened())));
            assert!(known.covers(0, &(100..1100)) && !known.is_single());
            for found in known.blocks(&(100..1100)) {
                let at = found.range.start as usize - 100..found.range.end as usize - 100;
                assert_eq!(found.compute(&bytes[at]), found.expected);
            }
            let touched: Vec<_> = known.blocks(&(300..301)).collect();
            assert_eq!(touched.len(), 1);
            assert!(touched[0].range.contains(&300) && touched[0].number == 5 + 200 / block as u64);
        }
    }
}
