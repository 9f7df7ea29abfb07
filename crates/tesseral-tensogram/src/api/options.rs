//! Options of encoding and decoding.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::{Limits, TimeUnit, time};

use crate::assemble::AggregateHash;
use crate::encode::MaskOptions;
use crate::wire::block_hashes::ObjectHashes;
use crate::wire::cbor::{CborItem, Map};

/// A provenance value that differs between messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// Generated when the message is encoded.
    #[default]
    Fresh,
    /// A fixed value.
    Pinned(String),
    /// Omitted, for reproducible output.
    Omit,
}

impl Stamp {
    fn text(&self, fresh: impl FnOnce() -> String) -> Option<String> {
        match self {
            Self::Fresh => Some(fresh()),
            Self::Pinned(text) => Some(text.clone()),
            Self::Omit => None,
        }
    }
}

/// Provenance metadata of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Creation time, as `2026-01-02T03:04:05Z`.
    pub time: Stamp,
    /// UUID of the message.
    pub uuid: Stamp,
    /// Name and version of the encoding library.
    pub encoder: (String, String),
}

impl Default for Provenance {
    fn default() -> Self {
        let encoder = ("tesseral".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Self { time: Stamp::Fresh, uuid: Stamp::Fresh, encoder }
    }
}

impl Provenance {
    /// Returns provenance without time and UUID, so that equal input produces equal bytes.
    pub fn reproducible() -> Self {
        Self { time: Stamp::Omit, uuid: Stamp::Omit, ..Self::default() }
    }

    /// Returns the provenance as metadata keys.
    pub(crate) fn reserved(&self) -> Map {
        let mut reserved = Map::new();
        if let Some(time) = self.time.text(now) {
            reserved.insert("time".to_owned(), CborItem::Text(time));
        }
        if let Some(uuid) = self.uuid.text(uuid) {
            reserved.insert("uuid".to_owned(), CborItem::Text(uuid));
        }
        let text = |text: &String| CborItem::Text(text.clone());
        let encoder = [("name", text(&self.encoder.0)), ("version", text(&self.encoder.1))];
        reserved.insert("encoder".to_owned(), CborItem::map(encoder));
        reserved
    }
}

fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut text = String::new();
    // Writing to a `String` is infallible.
    let _ = time::write(&mut text, i64::try_from(seconds).unwrap_or(0), TimeUnit::Second);
    text + "Z"
}

/// Generates a random UUID (version 4) from the seeds of the standard library's hash maps, which come from the system's random
/// source.
fn uuid() -> String {
    let random = || RandomState::new().hash_one(0);
    let (high, low) = (random(), random());
    let high = high & !0xf000 | 0x4000;
    let low = low & !(3 << 62) | 2 << 62;
    let bits = u128::from(high) << 64 | u128::from(low);
    let digits = (0..32).map(|i| char::from_digit((bits >> (124 - 4 * i)) as u32 & 15, 16).unwrap_or('0'));
    let mut text = String::with_capacity(36);
    for (i, digit) in digits.enumerate() {
        if matches!(i, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

/// Options of encoding a message.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodeOptions {
    /// Store a hash in every frame. Default: true.
    pub hashing: bool,
    /// Where the list of object hashes is stored.
    pub aggregate_hash: AggregateHash,
    /// Store hashes of the blocks of objects above 128 KiB in the list after the objects, so that ranges verify the blocks they touch. The
    /// reference ignores them, but the bytes are no longer those of the reference. Default: false.
    pub block_hashes: bool,
    /// How non-finite cells are handled.
    pub masks: MaskOptions,
    /// Provenance metadata.
    pub provenance: Provenance,
    /// Number of threads that compress a large object; 0 for the number of cores. The bytes do not depend on it.
    pub threads: usize,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self {
            hashing: true,
            aggregate_hash: AggregateHash::Auto,
            block_hashes: false,
            masks: MaskOptions::default(),
            provenance: Provenance::default(),
            threads: 0,
        }
    }
}

impl EncodeOptions {
    /// Returns whether the hashes of the objects are listed.
    pub(crate) fn lists_hashes(&self) -> bool {
        self.hashing && self.aggregate_hash != AggregateHash::None
    }

    /// Returns the hashes of each object.
    pub(crate) fn object_hashes(&self) -> ObjectHashes {
        let blocks = !matches!(self.aggregate_hash, AggregateHash::None | AggregateHash::Header);
        ObjectHashes::of_options(self.hashing, self.block_hashes && blocks)
    }
}

/// Returns the number of threads to use; 0 for the number of cores.
pub(crate) fn threads_of(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, Into::into),
        threads => threads,
    }
}

/// Options of decoding a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Return cells in native byte order; otherwise as stored.
    pub native_byte_order: bool,
    /// Replace masked cells by NaN and infinities; otherwise return the stored zeros.
    pub restore_non_finite: bool,
    /// Verify all stored hashes. Default: true. A [`TensogramFile`](crate::TensogramFile) verifies an object once.
    pub verify_hash: bool,
    /// Verify the hash of an object also when ranges of it are decoded from a buffer, which hashes all of it each time. Default:
    /// false, as in the reference.
    pub verify_ranges: bool,
    /// Return an error for objects without a hash.
    pub require_hash: bool,
    /// Number of threads that decode a large object whose compression supports random access; 0 for the number of cores. The
    /// result does not depend on it.
    pub threads: usize,
    /// Resource limits for untrusted messages.
    pub limits: Limits,
}

impl DecodeOptions {
    /// Returns the number of threads to use.
    pub(crate) fn threads(&self) -> usize {
        threads_of(self.threads)
    }
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            native_byte_order: true,
            restore_non_finite: true,
            verify_hash: true,
            verify_ranges: false,
            require_hash: false,
            threads: 0,
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_have_the_form_of_the_reference() {
        let (a, b) = (uuid(), uuid());
        assert_ne!(a, b);
        for text in [a, b] {
            assert_eq!(text.len(), 36);
            assert_eq!((&text[14..15], &text[8..9]), ("4", "-"));
            assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
        }
        let now = now();
        assert_eq!((now.len(), &now[10..11], &now[19..]), (20, "T", "Z"), "{now}");
    }
}
