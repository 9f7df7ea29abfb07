//! The secondary index: chunks by value or label, as JSON before the footer (`docs/formats/tet.md` §7).
//!
//! Zone maps already prune the same chunks, so the reader only reports and validates the index. Queries do not use it, and the
//! writer does not write it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tesseral_core::{Error, Result};

use super::json::{JsonObject, depth};

/// The supported version.
pub const VERSION: u64 = 1;

const WHAT: &str = "secondary index";

#[derive(Deserialize)]
struct IndexListText {
    version: u64,
    indexes: Vec<JsonObject<IndexEntryText>>,
}

#[derive(Deserialize)]
struct IndexEntryText {
    kind: String,
    dataset_id: u64,
    #[serde(default)]
    postings: Vec<IgnoredAny>,
    #[serde(default)]
    segments: Vec<IgnoredAny>,
}

/// Summary of a secondary index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondaryIndex {
    /// Number of lists by kind: `value_postings`, `sorted_axis_range`, `coord_label_postings`.
    pub kinds: BTreeMap<String, usize>,
    /// Number of postings and segments over all lists.
    pub postings: usize,
}

impl SecondaryIndex {
    /// Parses an index for the given number of datasets.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub fn parse(text: &[u8], object: &str, at: u64, max_depth: usize, datasets: usize) -> Result<Self> {
        let corrupt = |detail: String| Error::corrupt(WHAT, object, at, detail);
        if depth(text) > max_depth {
            return Err(corrupt(format!("nested more than {max_depth} levels deep")));
        }
        let JsonObject(text) =
            serde_json::from_slice::<JsonObject<IndexListText>>(text).map_err(|e| corrupt(e.to_string()))?;
        if text.version != VERSION {
            return Err(Error::unsupported(format!(".tet secondary index version {}", text.version)));
        }
        let mut index = Self::default();
        for JsonObject(entry) in text.indexes {
            if entry.dataset_id >= datasets as u64 {
                return Err(corrupt(format!("unknown dataset {}", entry.dataset_id)));
            }
            index.postings += entry.postings.len() + entry.segments.len();
            *index.kinds.entry(entry.kind).or_default() += 1;
        }
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lists_by_kind() {
        let text = br#"{"version":1,"generation":0,"indexes":[
            {"kind":"value_postings","dataset_id":0,"dtype":1,"postings":[{"value_le":"00","chunks":[[0]]}]},
            {"kind":"sorted_axis_range","dataset_id":0,"axis":0,"segments":[]}]}"#;
        let index = SecondaryIndex::parse(text, "f", 0, 64, 1).unwrap();
        assert_eq!((index.kinds.len(), index.kinds["value_postings"], index.postings), (2, 1, 1));
        assert!(SecondaryIndex::parse(text, "f", 0, 64, 0).is_err());
        assert!(SecondaryIndex::parse(br#"{"version":2,"indexes":[]}"#, "f", 0, 64, 1).is_err());
    }
}
