//! The two lists about objects: where they are and what their hashes are.

use tesseral_core::Result;

use super::cbor::{Item, Place};
use super::frame::Frame;
use super::part::Part;

/// What a list says otherwise than the frames do: the reference's name of the check, and how the two differ.
pub(crate) type Difference = (&'static str, String);

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

    /// Compares it with the objects of a message that begins at `start`.
    pub(crate) fn differences(&self, objects: &[&Frame], start: u64) -> Vec<Difference> {
        if self.offsets.len() != objects.len() {
            let detail = format!("the index lists {} of {} objects", self.offsets.len(), objects.len());
            return vec![("index_count_mismatch", detail)];
        }
        let places = self.offsets.iter().zip(&self.lengths).map(|(offset, len)| (*offset, *len));
        let compared = objects.iter().map(|object| (object.offset - start, object.len)).zip(places);
        compared
            .enumerate()
            .filter(|(_, (place, said))| place != said)
            .map(|(i, (place, said))| {
                let detail = format!("object {i} is at {place:?}, the index says {said:?}");
                ("index_offset_mismatch", detail)
            })
            .collect()
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

    /// Whether its algorithm is one that can be compared.
    pub(crate) fn is_known(&self) -> bool {
        self.algorithm == "xxh3"
    }

    /// Compares it with the hashes that the objects of its message carry.
    pub(crate) fn differences(&self, objects: &[&Frame]) -> Vec<Difference> {
        if self.hashes.len() != objects.len() {
            let detail = format!("{} hashes of {} objects", self.hashes.len(), objects.len());
            return vec![("hash_frame_count_mismatch", detail)];
        }
        let compared = objects.iter().map(|object| format!("{:016x}", object.hash)).zip(&self.hashes);
        compared
            .enumerate()
            .filter(|(_, (stored, listed))| stored != *listed)
            .map(|(i, (stored, listed))| {
                ("hash_mismatch", format!("the hash of object {i} is {stored}, the list says {listed:?}"))
            })
            .collect()
    }

    /// Its canonical form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let hashes = self.hashes.iter().map(|hash| Part::Text(hash)).collect();
        Part::Map(vec![("hashes", Part::Array(hashes)), ("algorithm", Part::Text(&self.algorithm))])
            .to_bytes()
    }
}
