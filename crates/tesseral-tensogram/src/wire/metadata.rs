//! Metadata of a message and its objects.

use tesseral_core::{MetadataCost, Result};

use super::cbor::{CborItem, ErrorLocation, Map};
use super::cbor_ref::CborRef;

/// Metadata of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// One map of metadata per object.
    pub base: Vec<Map>,
    /// Metadata of the message itself.
    pub extra: Map,
    /// Reserved metadata, written by the library.
    pub reserved: Map,
}

/// The reserved key, also in maps of users.
pub const RESERVED: &str = "_reserved_";
/// Key of the message's own metadata.
pub const EXTRA: &str = "_extra_";
/// Key of the objects' metadata.
pub const BASE: &str = "base";

impl Metadata {
    /// Parses a CBOR item. Unknown keys become metadata of the message.
    ///
    /// # Errors
    /// `Corrupt` when the structure is invalid or a key of the message is duplicated.
    pub fn from_item(item: CborItem, place: ErrorLocation<'_>) -> Result<Self> {
        let map = item.into_map().ok_or_else(|| place.corrupt("not a map with text keys"))?;
        let sub = |item: CborItem, key: &str| {
            item.into_map().ok_or_else(|| place.corrupt(format!("{key} is not a map with text keys")))
        };
        let mut metadata = Self::default();
        let mut loose = Map::new();
        for (key, item) in map {
            match (key.as_str(), item) {
                (BASE, CborItem::Array(items)) => {
                    metadata.base = items.into_iter().map(|item| sub(item, BASE)).collect::<Result<_>>()?;
                }
                (BASE, _) => return Err(place.corrupt("`base` is not a list")),
                (EXTRA, item) => metadata.extra = sub(item, EXTRA)?,
                (RESERVED, item) => metadata.reserved = sub(item, RESERVED)?,
                (_, item) => {
                    loose.insert(key, item);
                }
            }
        }
        for (key, item) in loose {
            if metadata.extra.contains_key(&key) {
                return Err(place.corrupt(format!("duplicate key {key:?}")));
            }
            metadata.extra.insert(key, item);
        }
        Ok(metadata)
    }

    /// What the values and their copies take in memory.
    pub fn cost(&self) -> MetadataCost {
        let maps = self.base.iter().chain([&self.extra, &self.reserved]);
        maps.fold(MetadataCost::default(), |sum, map| {
            map.values().fold(sum.maps(1).names(map.len() as u64), |sum, item| sum.and(item.cost()))
        })
    }

    /// Returns the keys and values to encode; empty parts are omitted.
    fn part(&self) -> CborRef<'_> {
        let mut pairs = Vec::new();
        if !self.base.is_empty() {
            pairs.push((BASE, CborRef::Array(self.base.iter().map(CborRef::from_map).collect())));
        }
        if !self.extra.is_empty() {
            pairs.push((EXTRA, CborRef::from_map(&self.extra)));
        }
        if !self.reserved.is_empty() {
            pairs.push((RESERVED, CborRef::from_map(&self.reserved)));
        }
        CborRef::Map(pairs)
    }

    /// Converts to a CBOR item.
    pub fn to_item(&self) -> CborItem {
        self.part().to_item()
    }

    /// Returns the canonical encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.part().to_bytes()
    }
}
