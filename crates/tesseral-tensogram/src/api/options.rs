//! How messages are encoded and decoded.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::{Limits, TimeUnit, time};

use crate::assemble::AggregateHash;
use crate::encode::MaskOptions;
use crate::wire::cbor::{Item, Map};

/// A part of the provenance that differs from message to message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// Made when the message is.
    #[default]
    Fresh,
    /// This text.
    Pinned(String),
    /// Left out, so that the same input gives the same bytes.
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

/// What a message says of who made it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// When: `2026-01-02T03:04:05Z`.
    pub time: Stamp,
    /// Which one: a UUID.
    pub uuid: Stamp,
    /// Name and version of the library.
    pub encoder: (String, String),
}

impl Default for Provenance {
    fn default() -> Self {
        let encoder = ("tesseral".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Self { time: Stamp::Fresh, uuid: Stamp::Fresh, encoder }
    }
}

impl Provenance {
    /// Without time and UUID: the same input gives the same bytes.
    pub fn reproducible() -> Self {
        Self { time: Stamp::Omit, uuid: Stamp::Omit, ..Self::default() }
    }

    /// The keys of it.
    pub(crate) fn reserved(&self) -> Map {
        let mut reserved = Map::new();
        if let Some(time) = self.time.text(now) {
            reserved.insert("time".to_owned(), Item::Text(time));
        }
        if let Some(uuid) = self.uuid.text(uuid) {
            reserved.insert("uuid".to_owned(), Item::Text(uuid));
        }
        let text = |text: &String| Item::Text(text.clone());
        let encoder = [("name", text(&self.encoder.0)), ("version", text(&self.encoder.1))];
        reserved.insert("encoder".to_owned(), Item::map(encoder));
        reserved
    }
}

fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = time::write(&mut text, i64::try_from(seconds).unwrap_or(0), TimeUnit::Second);
    text + "Z"
}

/// A random UUID (version 4). The seeds of std's hash maps come from the system's source of randomness.
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

/// How a message is encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodeOptions {
    /// Every frame gets a hash. On unless turned off.
    pub hashing: bool,
    /// Where the list of the objects' hashes goes.
    pub aggregate_hash: AggregateHash,
    /// What becomes of cells that are not finite.
    pub masks: MaskOptions,
    /// What the message says of who made it.
    pub provenance: Provenance,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self {
            hashing: true,
            aggregate_hash: AggregateHash::Auto,
            masks: MaskOptions::default(),
            provenance: Provenance::default(),
        }
    }
}

/// How a message is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Numbers come in this machine's byte order; else as stored.
    pub native_byte_order: bool,
    /// Cells that masks name become NaN and infinities; else they stay the zeros that are stored.
    pub restore_non_finite: bool,
    /// Every hash there is is compared.
    pub verify_hash: bool,
    /// An object without a hash is an error.
    pub require_hash: bool,
    /// Threads that share the decoding of a large object whose compression lets runs of cells decode by themselves; 0 for
    /// as many as there are cores. Cells do not depend on it.
    pub threads: usize,
    /// What a message may make us use.
    pub limits: Limits,
}

impl DecodeOptions {
    /// Threads that may share the work.
    pub(crate) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            threads => threads,
        }
    }
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            native_byte_order: true,
            restore_non_finite: true,
            verify_hash: true,
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
