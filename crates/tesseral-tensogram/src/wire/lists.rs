//! The two lists about objects: where they are and what their hashes are.

use tesseral_core::Result;

use super::cbor::{Item, Place};
use super::part::Part;

/// Where the objects of a message are, counted from its first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Where each object's frame begins.
    pub offsets: Vec<u64>,
    /// How long each frame is.
    pub lengths: Vec<u64>,
}

impl Index {
    /// From its item.
    ///
    /// # Errors
    /// `Corrupt` when it is not a map of two lists of the same length.
    pub fn from_item(item: Item, place: Place<'_>) -> Result<Self> {
        let map = item.into_map().ok_or_else(|| place.corrupt("it is not a map of text keys"))?;
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

    /// Its canonical form.
    pub fn to_bytes(&self) -> Vec<u8> {
        Part::Map(vec![("offsets", Part::UInts(&self.offsets)), ("lengths", Part::UInts(&self.lengths))])
            .to_bytes()
    }
}

/// The hashes of the objects of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashList {
    /// The algorithm; `xxh3` is the only one there is.
    pub algorithm: String,
    /// One per object, 16 hexadecimal digits.
    pub hashes: Vec<String>,
}

impl HashList {
    /// From its item.
    ///
    /// # Errors
    /// `Corrupt` when it is not a map with a list of text.
    pub fn from_item(item: Item, place: Place<'_>) -> Result<Self> {
        let map = item.into_map().ok_or_else(|| place.corrupt("it is not a map of text keys"))?;
        let texts = match map.get("hashes") {
            None => Some(Vec::new()),
            Some(Item::Array(items)) => items.iter().map(|item| item.as_text().map(str::to_owned)).collect(),
            Some(_) => None,
        };
        let hashes = texts.ok_or_else(|| place.corrupt("hashes is not a list of text"))?;
        let algorithm = map.get("algorithm").and_then(Item::as_text).unwrap_or_default().to_owned();
        Ok(Self { algorithm, hashes })
    }

    /// Its canonical form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let hashes = self.hashes.iter().map(|hash| Part::Text(hash)).collect();
        Part::Map(vec![("hashes", Part::Array(hashes)), ("algorithm", Part::Text(&self.algorithm))])
            .to_bytes()
    }
}
