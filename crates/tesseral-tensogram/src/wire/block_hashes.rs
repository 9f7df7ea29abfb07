//! Hashes of the blocks of an object, which the hash list of a message can hold in addition to the hashes of the objects. Other readers ignore
//! keys of the list that they do not know.
//!
//! ```text
//! hash list: {"hashes": […], "algorithm": "xxh3", "tesseral_blocks": [null | [block size, hashes], …]}
//! ```
//!
//! Blocks divide the body of an object frame from its start; the last one can be shorter. Each hash is XXH3-64 with seed 0, 8 big-endian bytes.

use tesseral_core::Result;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::cbor::{CborItem, ErrorLocation};
use super::frame::{CBOR_AFTER, Frame};

/// Key of the hash list.
pub const KEY: &str = "tesseral_blocks";
/// Bodies up to this length have no blocks: their hash is quickly computed.
pub const SMALL: u64 = 128 << 10;
/// Smallest size of a block.
const BLOCK: u64 = 4 << 10;

/// Returns whether an object can have hashes of blocks. Its descriptor follows the payload, so that both are inside known blocks.
pub(crate) fn may_have(object: &Frame) -> bool {
    let body = object.body();
    body.end - body.start > SMALL && object.flags & CBOR_AFTER != 0
}

/// Hashes of the blocks of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHashes {
    /// Size of a block in bytes.
    pub block: u64,
    /// The hash of each block.
    pub hashes: Vec<u64>,
}

impl BlockHashes {
    /// Size of the blocks of a body of about `len` bytes: about twice its square root, so that a range hashes as much of the list as of the
    /// body.
    pub fn block_of(len: u64) -> u64 {
        len.isqrt().saturating_mul(2).clamp(BLOCK, 1 << 40).next_power_of_two()
    }

    /// Number of blocks of a body of `len` bytes.
    pub(crate) fn count(&self, len: u64) -> u64 {
        len.div_ceil(self.block.max(1))
    }

    /// Parses the entry of an object; `None` if it has no blocks.
    pub(crate) fn from_item(item: &CborItem, place: ErrorLocation<'_>) -> Result<Option<Self>> {
        let CborItem::Array(parts) = item else {
            return match item {
                CborItem::Null => Ok(None),
                _ => Err(place.corrupt("hashes of blocks are neither null nor a list")),
            };
        };
        let [CborItem::UInt(block @ 1..), CborItem::Bytes(bytes)] = parts.as_slice() else {
            return Err(place.corrupt("hashes of blocks are not a block size and bytes"));
        };
        let (hashes, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(place.corrupt(format!("{} bytes of block hashes", bytes.len())));
        }
        Ok(Some(Self {
            block: *block,
            hashes: hashes.iter().map(|hash| u64::from_be_bytes(*hash)).collect(),
        }))
    }

    /// Returns the entry.
    pub(crate) fn to_item(&self) -> CborItem {
        let bytes = self.hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect();
        CborItem::Array(vec![CborItem::UInt(self.block), CborItem::Bytes(bytes)])
    }
}

/// Which hashes of an object are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectHashes {
    /// None.
    None,
    /// The hash of the frame.
    Frame,
    /// The hash of the frame, and those of its blocks if it is large.
    #[default]
    Blocks,
}

impl ObjectHashes {
    /// The hashes of objects with or without blocks, if they have any.
    pub(crate) fn of_options(hashed: bool, blocks: bool) -> Self {
        match (hashed, blocks) {
            (false, _) => Self::None,
            (true, false) => Self::Frame,
            (true, true) => Self::Blocks,
        }
    }

    /// Returns whether any are computed.
    pub(crate) fn any(self) -> bool {
        self != Self::None
    }

    /// Creates a hasher of a body of about `len` bytes; `None` without hashes. The number only determines the size of the blocks.
    pub(crate) fn hasher(self, len: u64) -> Option<BodyHasher> {
        let blocks = || BlockHasherState::new(BlockHashes::block_of(len), SMALL);
        self.any().then(|| BodyHasher { whole: Xxh3::new(), blocks: (self == Self::Blocks).then(blocks) })
    }
}

/// Hashes a body that arrives in pieces: all of it, and its blocks.
pub(crate) struct BodyHasher {
    whole: Xxh3,
    blocks: Option<BlockHasherState>,
}

struct BlockHasherState {
    block: u64,
    current: Xxh3,
    /// Number of bytes in the current block.
    held: u64,
    hashes: Vec<u64>,
    /// Length of a body up to which it has no blocks.
    small: u64,
}

impl BlockHasherState {
    fn new(block: u64, small: u64) -> Self {
        Self { block: block.max(1), current: Xxh3::new(), held: 0, hashes: Vec::new(), small }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.held == 0
                && let Some((block, rest)) =
                    usize::try_from(self.block).ok().and_then(|len| bytes.split_at_checked(len))
            {
                self.hashes.push(xxh3_64(block));
                bytes = rest;
                continue;
            }
            let free = usize::try_from(self.block - self.held).unwrap_or(usize::MAX).min(bytes.len());
            let (now, rest) = bytes.split_at(free);
            self.current.update(now);
            self.held += now.len() as u64;
            if self.held == self.block {
                self.end();
            }
            bytes = rest;
        }
    }

    fn end(&mut self) {
        self.hashes.push(self.current.digest());
        self.current.reset();
        self.held = 0;
    }
}

/// Number of bytes that are hashed twice while they are in the cache: whole blocks, if these are not larger.
const AT_ONCE: usize = 32 << 10;

impl BodyHasher {
    /// Creates a hasher of blocks of a known size.
    pub(crate) fn with_block(block: u64) -> Self {
        Self { whole: Xxh3::new(), blocks: Some(BlockHasherState::new(block, 0)) }
    }

    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let Some(blocks) = &mut self.blocks else { return self.whole.update(bytes) };
        for bytes in bytes.chunks(AT_ONCE) {
            self.whole.update(bytes);
            blocks.update(bytes);
        }
    }

    /// Returns the hash of all bytes, and those of the blocks.
    pub(crate) fn finish(self) -> (u64, Option<BlockHashes>) {
        let blocks = self.blocks.and_then(|mut blocks| {
            let len = blocks.block * blocks.hashes.len() as u64 + blocks.held;
            if blocks.held > 0 {
                blocks.end();
            }
            (len > blocks.small).then_some(BlockHashes { block: blocks.block, hashes: blocks.hashes })
        });
        (self.whole.digest(), blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_body_in_any_pieces() {
        let body: Vec<u8> = (0..300_001_u32).map(|i| (i * 31 % 251) as u8).collect();
        let block = BlockHashes::block_of(body.len() as u64);
        assert_eq!(block, 4 << 10);
        let expected: Vec<u64> = body.chunks(4 << 10).map(xxh3_64).collect();
        for piece in [1000, 4 << 10, 100_000, body.len()] {
            let mut hasher = ObjectHashes::Blocks.hasher(body.len() as u64).unwrap();
            body.chunks(piece).for_each(|piece| hasher.update(piece));
            let (whole, blocks) = hasher.finish();
            let blocks = blocks.unwrap();
            assert_eq!((whole, &blocks.hashes), (xxh3_64(&body), &expected), "{piece}");
            let place = ErrorLocation { what: "hash list", object: "", offset: 0 };
            assert_eq!(BlockHashes::from_item(&blocks.to_item(), place).unwrap(), Some(blocks));
        }
        assert!(ObjectHashes::None.hasher(1 << 20).is_none());
        for (hashes, len) in [(ObjectHashes::Frame, 1 << 20), (ObjectHashes::Blocks, SMALL)] {
            let mut hasher = hashes.hasher(1 << 20).unwrap();
            hasher.update(&vec![0; len as usize]);
            assert_eq!(hasher.finish().1, None);
        }
        assert_eq!(BlockHashes::block_of(67 << 20), 32 << 10);
    }

    #[test]
    fn other_entries_are_rejected() {
        let place = ErrorLocation { what: "hash list", object: "", offset: 0 };
        let parse = |item: CborItem| BlockHashes::from_item(&item, place);
        assert_eq!(parse(CborItem::Null).unwrap(), None);
        let bytes = |len: usize| CborItem::Bytes(vec![1; len]);
        for item in [
            CborItem::UInt(3),
            CborItem::Array(vec![CborItem::UInt(16)]),
            CborItem::Array(vec![CborItem::UInt(0), bytes(8)]),
            CborItem::Array(vec![CborItem::UInt(16), bytes(9)]),
            CborItem::Array(vec![CborItem::UInt(16), CborItem::UInt(1)]),
        ] {
            assert!(parse(item).is_err());
        }
    }
}
