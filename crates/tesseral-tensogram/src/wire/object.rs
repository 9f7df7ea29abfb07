//! Object frames for writing, in pieces: payloads are hashed and written without copying.

use std::borrow::Cow;
use std::collections::TryReserveError;

use super::block_hashes::{BlockHashes, BodyHasher, ObjectHashes};
use super::descriptor::Descriptor;
use super::frame::{CBOR_AFTER, END, FrameKind, HASH_PRESENT, HEADER_LEN, MAGIC};
use crate::buffer_cache;

/// An object frame with the descriptor after the payload.
#[derive(Clone, Debug)]
pub struct ObjectFrame<'a> {
    descriptor: Descriptor,
    region: Cow<'a, [u8]>,
    cbor: Vec<u8>,
    hashed: bool,
    hash: u64,
    blocks: Option<BlockHashes>,
}

impl<'a> ObjectFrame<'a> {
    /// Creates a frame from a descriptor and its payload region (payload, then masks), with a hash of the frame.
    pub fn new(descriptor: Descriptor, region: Cow<'a, [u8]>, hashed: bool) -> Self {
        let len = region.len() as u64;
        Self::with_hashes(descriptor, region, ObjectHashes::of_options(hashed, false), len)
    }

    /// As above, with the given hashes; `len` is the length of the region before compression.
    pub(crate) fn with_hashes(
        descriptor: Descriptor,
        region: Cow<'a, [u8]>,
        hashes: ObjectHashes,
        len: u64,
    ) -> Self {
        let mut hasher = hashes.hasher(len);
        if let Some(hasher) = &mut hasher {
            hasher.update(&region);
        }
        Self::hashed(descriptor, region, hasher)
    }

    /// As above, with a hasher that has already processed the payload region; `None` for no hash.
    pub(crate) fn hashed(descriptor: Descriptor, region: Cow<'a, [u8]>, hasher: Option<BodyHasher>) -> Self {
        let cbor = descriptor.to_bytes();
        let (hashed, (hash, blocks)) = match hasher {
            Some(mut hasher) => {
                hasher.update(&cbor);
                (true, hasher.finish())
            }
            None => (false, (0, None)),
        };
        Self { descriptor, region, cbor, hashed, hash, blocks }
    }

    /// The descriptor of the object.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The hash of payload region and descriptor; 0 without hashing.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The hashes of its blocks, if it has them.
    pub fn blocks(&self) -> Option<&BlockHashes> {
        self.blocks.as_ref()
    }

    /// Length without padding, in bytes.
    pub fn total_length(&self) -> u64 {
        FrameKind::Object.min_len() + (self.region.len() + self.cbor.len()) as u64
    }

    /// Returns whether the payload is borrowed.
    pub(crate) fn borrows(&self) -> bool {
        matches!(self.region, Cow::Borrowed(_))
    }

    /// Returns the payload buffer to the buffer cache.
    pub(crate) fn recycle(self) {
        if let Cow::Owned(region) = self.region {
            buffer_cache::release(region);
        }
    }

    /// Passes the bytes to `put` in order, padded to the frame alignment.
    ///
    /// # Errors
    /// Errors of `put`.
    pub fn write<E>(&self, mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (head, tail) = self.ends();
        put(&head)?;
        put(&self.region)?;
        put(&tail)
    }

    /// Appends the padded bytes after `prefix` in a buffer with capacity `total`. An owned payload is moved within its buffer,
    /// so that it is never in memory twice.
    ///
    /// # Errors
    /// When the allocation fails.
    pub fn behind(self, before: &[u8], total: usize) -> Result<Vec<u8>, TryReserveError> {
        let (head, tail) = self.ends();
        let start = before.len() + head.len();
        let mut out = match self.region {
            Cow::Owned(mut region) => {
                let len = region.len();
                region.try_reserve_exact(total.saturating_sub(len))?;
                region.resize(start + len, 0);
                region.copy_within(..len, start);
                region[..before.len()].copy_from_slice(before);
                region[before.len()..start].copy_from_slice(&head);
                region
            }
            Cow::Borrowed(region) => {
                let mut out = Vec::new();
                out.try_reserve_exact(total)?;
                for part in [before, &head, region] {
                    out.extend_from_slice(part);
                }
                out
            }
        };
        out.extend_from_slice(&tail);
        Ok(out)
    }

    /// Returns the bytes in order: header, payload, and footer with padding.
    pub fn into_parts(self) -> [Cow<'a, [u8]>; 3] {
        let (head, tail) = self.ends();
        [Cow::Owned(head), self.region, Cow::Owned(tail)]
    }

    /// Returns the bytes before and after the payload region.
    fn ends(&self) -> (Vec<u8>, Vec<u8>) {
        let (head, tail, _) = frame_ends(&self.cbor, self.region.len() as u64, self.hash, self.hashed);
        (head, tail)
    }
}

/// Returns the bytes before and after a payload region of the given length, padded to the frame alignment, and the length of
/// the frame without padding.
pub fn frame_ends(cbor: &[u8], region: u64, hash: u64, hashed: bool) -> (Vec<u8>, Vec<u8>, u64) {
    let length = FrameKind::Object.min_len() + region + cbor.len() as u64;
    let flags = CBOR_AFTER | if hashed { HASH_PRESENT } else { 0 };
    let mut head = Vec::with_capacity(16);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&FrameKind::Object.number().to_be_bytes());
    head.extend_from_slice(&1_u16.to_be_bytes());
    head.extend_from_slice(&flags.to_be_bytes());
    head.extend_from_slice(&length.to_be_bytes());
    let mut tail = Vec::with_capacity(cbor.len() + 32);
    tail.extend_from_slice(cbor);
    tail.extend_from_slice(&(HEADER_LEN + region).to_be_bytes());
    tail.extend_from_slice(&hash.to_be_bytes());
    tail.extend_from_slice(&END);
    let padding = length.wrapping_neg() % 8;
    tail.extend(std::iter::repeat_n(0, usize::try_from(padding).unwrap_or(0)));
    (head, tail, length)
}
