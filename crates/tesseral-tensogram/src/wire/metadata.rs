//! What a message says about itself and its objects.

use tesseral_core::Result;

use super::cbor::{Item, Map, Place};
use super::part::Part;

/// Metadata of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// One map per object.
    pub base: Vec<Map>,
    /// Keys of the message.
    pub extra: Map,
    /// What the library that wrote it says.
    pub reserved: Map,
}

/// The key of what libraries write into maps of users.
pub const RESERVED: &str = "_reserved_";
/// The key of the message's own keys.
pub const EXTRA: &str = "_extra_";
/// The key of the objects' keys.
pub const BASE: &str = "base";

impl Metadata {
    /// From its item. Keys that the format does not know belong to the message.
    ///
    /// # Errors
    /// `Corrupt` when it is not made so, or says one of the message's keys twice.
    pub fn from_item(item: Item, place: Place<'_>) -> Result<Self> {
        let map = item.into_map().ok_or_else(|| place.corrupt("it is not a map of text keys"))?;
        let sub = |item: Item, key: &str| {
            item.into_map().ok_or_else(|| place.corrupt(format!("{key} is not a map of text keys")))
        };
        let mut metadata = Self::default();
        let mut loose = Map::new();
        for (key, item) in map {
            match (key.as_str(), item) {
                (BASE, Item::Array(items)) => {
                    metadata.base = items.into_iter().map(|item| sub(item, BASE)).collect::<Result<_>>()?;
                }
                (BASE, _) => return Err(place.corrupt("base is not a list")),
                (EXTRA, item) => metadata.extra = sub(item, EXTRA)?,
                (RESERVED, item) => metadata.reserved = sub(item, RESERVED)?,
                (_, item) => {
                    loose.insert(key, item);
                }
            }
        }
        for (key, item) in loose {
            if metadata.extra.contains_key(&key) {
                return Err(place.corrupt(format!("{key:?} is there twice")));
            }
            metadata.extra.insert(key, item);
        }
        Ok(metadata)
    }

    /// What it is made of; what is empty is left out.
    fn part(&self) -> Part<'_> {
        let mut pairs = Vec::new();
        if !self.base.is_empty() {
            pairs.push((BASE, Part::Array(self.base.iter().map(Part::of).collect())));
        }
        if !self.extra.is_empty() {
            pairs.push((EXTRA, Part::of(&self.extra)));
        }
        if !self.reserved.is_empty() {
            pairs.push((RESERVED, Part::of(&self.reserved)));
        }
        Part::Map(pairs)
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        self.part().to_item()
    }

    /// Its canonical form.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.part().to_bytes()
    }
}
