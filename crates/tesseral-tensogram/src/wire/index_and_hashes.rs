//! The index and the hash list of a message's objects.

use tesseral_core::Result;

use super::block_hashes::{self, BlockHashes};
use super::cbor::{CborItem, ErrorLocation};
use super::cbor_ref::CborRef;
use super::frame::Frame;

/// A contradiction between a list and the frames: name of the check as in the reference, and a description.
pub(crate) type ListDifference = (&'static str, String);

/// Offsets and lengths of the objects of a message, relative to its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Offset of each object frame.
    pub offsets: Vec<u64>,
    /// Length of each object frame in bytes.
    pub lengths: Vec<u64>,
}

impl Index {
    /// Parses a CBOR item.
    ///
    /// # Errors
    /// `Corrupt` when it is not a map with two lists of equal length.
    pub fn from_item(item: CborItem, place: ErrorLocation<'_>) -> Result<Self> {
        let map = item.into_map().ok_or_else(|| place.corrupt("not a map with text keys"))?;
        let list = |key: &str| match map.get(key) {
            None => Ok(Vec::new()),
            Some(item) => {
                item.as_u64s().ok_or_else(|| place.corrupt(format!("{key} is not a list of numbers")))
            }
        };
        let index = Self { offsets: list("offsets")?, lengths: list("lengths")? };
        if index.offsets.len() != index.lengths.len() {
            let detail = format!("{} offsets and {} lengths", index.offsets.len(), index.lengths.len());
            return Err(place.corrupt(detail));
        }
        Ok(index)
    }

    /// Compares the index with the objects of a message at offset `start`.
    pub(crate) fn differences(&self, objects: &[&Frame], start: u64) -> Vec<ListDifference> {
        if self.offsets.len() != objects.len() {
            let detail =
                format!("the index lists {} objects, the message has {}", self.offsets.len(), objects.len());
            return vec![("index_count_mismatch", detail)];
        }
        let places = self.offsets.iter().zip(&self.lengths).map(|(offset, len)| (*offset, *len));
        let compared = objects.iter().map(|object| (object.offset - start, object.len)).zip(places);
        compared
            .enumerate()
            .filter(|(_, (place, listed))| place != listed)
            .map(|(i, (place, listed))| {
                let detail = format!("object {i}: the index has {listed:?}, expected {place:?}");
                ("index_offset_mismatch", detail)
            })
            .collect()
    }

    /// Returns the canonical encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        CborRef::Map(vec![
            ("offsets", CborRef::UInts(&self.offsets)),
            ("lengths", CborRef::UInts(&self.lengths)),
        ])
        .to_bytes()
    }
}

/// The hashes of the objects of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashList {
    /// Name of the algorithm; only `xxh3` is supported.
    pub algorithm: String,
    /// One hash per object, 16 hexadecimal digits each.
    pub hashes: Vec<String>,
    /// Hashes of the blocks of each object that has them; empty if no object has.
    pub blocks: Vec<Option<BlockHashes>>,
}

impl HashList {
    /// Parses a CBOR item.
    ///
    /// # Errors
    /// `Corrupt` when it is not a map with a list of text.
    pub fn from_item(item: CborItem, place: ErrorLocation<'_>) -> Result<Self> {
        let map = item.into_map().ok_or_else(|| place.corrupt("not a map with text keys"))?;
        let texts = match map.get("hashes") {
            None => Some(Vec::new()),
            Some(CborItem::Array(items)) => {
                items.iter().map(|item| item.as_text().map(str::to_owned)).collect()
            }
            Some(_) => None,
        };
        let hashes = texts.ok_or_else(|| place.corrupt("hashes is not a list of text"))?;
        let algorithm = map.get("algorithm").and_then(CborItem::as_text).unwrap_or_default().to_owned();
        let blocks = match map.get(block_hashes::KEY) {
            None => Vec::new(),
            Some(CborItem::Array(items)) if items.len() == hashes.len() => {
                items.iter().map(|item| BlockHashes::from_item(item, place)).collect::<Result<_>>()?
            }
            Some(_) => return Err(place.corrupt("hashes of blocks are not a list with an entry per object")),
        };
        Ok(Self { algorithm, hashes, blocks })
    }

    /// Returns the hashes of the blocks of an object, if it has them, after comparing its hash.
    pub(crate) fn blocks_of(
        &self,
        number: usize,
        object: &Frame,
        place: ErrorLocation<'_>,
    ) -> Result<Option<&BlockHashes>> {
        let Some(blocks) = self.blocks.get(number).and_then(Option::as_ref).filter(|_| self.is_known())
        else {
            return Ok(None);
        };
        let listed = self.hashes.get(number).map_or("", String::as_str);
        if listed != format!("{:016x}", object.hash) {
            let detail =
                format!("hash of object {number}: the list has {listed:?}, expected {:016x}", object.hash);
            return Err(place.corrupt(detail));
        }
        let body = object.body();
        let expected = blocks.count(body.end - body.start);
        if expected != blocks.hashes.len() as u64 {
            let detail =
                format!("object {number} has {expected} blocks, the list has {}", blocks.hashes.len());
            return Err(place.corrupt(detail));
        }
        Ok(Some(blocks))
    }

    /// Returns whether the algorithm is supported.
    pub(crate) fn is_known(&self) -> bool {
        self.algorithm == "xxh3"
    }

    /// Compares the list with the hashes of the object frames.
    pub(crate) fn differences(&self, objects: &[&Frame]) -> Vec<ListDifference> {
        if self.hashes.len() != objects.len() {
            let detail = format!("{} hashes for {} objects", self.hashes.len(), objects.len());
            return vec![("hash_frame_count_mismatch", detail)];
        }
        let compared = objects.iter().map(|object| format!("{:016x}", object.hash)).zip(&self.hashes);
        compared
            .enumerate()
            .filter(|(_, (stored, listed))| stored != *listed)
            .map(|(i, (stored, listed))| {
                ("hash_mismatch", format!("hash of object {i}: the list has {listed:?}, expected {stored}"))
            })
            .collect()
    }

    /// Returns the canonical encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let hashes = self.hashes.iter().map(|hash| CborRef::Text(hash)).collect();
        let mut pairs =
            vec![("hashes", CborRef::Array(hashes)), ("algorithm", CborRef::Text(&self.algorithm))];
        let blocks: Vec<CborItem> = self
            .blocks
            .iter()
            .map(|blocks| blocks.as_ref().map_or(CborItem::Null, BlockHashes::to_item))
            .collect();
        if !blocks.is_empty() {
            pairs.push((block_hashes::KEY, CborRef::Array(blocks.iter().map(CborRef::Item).collect())));
        }
        CborRef::Map(pairs).to_bytes()
    }
}
