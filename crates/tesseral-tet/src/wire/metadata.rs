//! Metadata of the file and its datasets, and its limits (`docs/formats/tet.md` §6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tesseral_core::Error;
use tesseral_core::missing::MISSING_ATTRIBUTES;

type Result<T, E = Error> = std::result::Result<T, E>;

use super::footer::HistoryEvent;
use super::json::JsonObject;

/// Maximum length of a text in bytes: names, attributes, labels, fields of the history.
pub const MAX_TEXT: usize = 1024;
/// Maximum number of datasets with metadata.
pub const MAX_DATASETS: usize = 256;
/// Maximum number of attributes of one dataset.
pub const MAX_ATTRS: usize = 64;
/// Maximum number of dimension names or labeled axes of one dataset.
pub const MAX_AXES: usize = 8;
/// Maximum number of labels of one axis in the reference. The format itself has no limit.
pub const MAX_LABELS: usize = 64;
/// Maximum number of history rows.
pub const MAX_HISTORY: usize = 4096;
/// Maximum number of parents of one history row.
pub const MAX_PARENTS: usize = 16;
/// Maximum number of parameters of one history row.
pub const MAX_PARAMS: usize = 32;

/// The object under `metadata`, inline or in a spill. Keys are written in this order, maps sorted bytewise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FooterMetadata {
    /// The program that wrote the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<JsonObject<FileMetadata>>,
    /// Metadata of datasets by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub datasets: BTreeMap<String, JsonObject<DatasetMetadata>>,
    /// Markers of the storage conventions by dataset; that of the file under the empty name. The reference skips this key.
    #[serde(
        default,
        rename = "_tesseral",
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "markers"
    )]
    pub markers: BTreeMap<String, String>,
}

/// Reads markers. Values other than text by name are ignored, because the format does not define the key.
fn markers<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let serde_json::Value::Object(map) = serde_json::Value::deserialize(from)? else {
        return Ok(BTreeMap::new());
    };
    let text = |value| if let serde_json::Value::String(text) = value { Some(text) } else { None };
    Ok(map.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect())
}

/// The program that wrote the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMetadata {
    /// Name of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Version of the library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_version: Option<String>,
    /// Creation time in decimal seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

impl FileMetadata {
    /// Returns the fields that are set, by name.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("tool", &self.tool), ("library_version", &self.library_version), ("created_at", &self.created_at)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// Metadata of one dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetMetadata {
    /// Attributes; all values are text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attrs: BTreeMap<String, String>,
    /// One name per dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dim_names: Option<Vec<String>>,
    /// Labels by axis: its name, or else its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coords: Option<BTreeMap<String, JsonObject<StoredLabels>>>,
}

/// Labels of one axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLabels {
    /// One label per position.
    pub labels: Vec<String>,
}

impl DatasetMetadata {
    /// Returns whether all parts are empty.
    pub fn is_empty(&self) -> bool {
        self.attrs.is_empty() && self.dim_names.is_none() && self.coords.is_none()
    }

    /// Returns the labels of dimension `d` of `shape`: those under its name, else those under its number, else the only list
    /// whose length equals the extent and that no dimension is given by name or number.
    pub fn labels(&self, d: usize, shape: &[u64]) -> Option<&[String]> {
        let coords = self.coords.as_ref()?;
        let key = |d: usize| {
            let name = self.dim_names.as_ref().and_then(|names| names.get(d));
            name.and_then(|name| coords.get_key_value(name)).or_else(|| coords.get_key_value(&d.to_string()))
        };
        if let Some((_, found)) = key(d) {
            return Some(&found.0.labels);
        }
        let extent = *shape.get(d)?;
        let claimed: Vec<&String> = (0..shape.len()).filter_map(key).map(|(name, _)| name).collect();
        let mut fitting =
            coords.iter().filter(|(name, c)| c.0.labels.len() as u64 == extent && !claimed.contains(name));
        match (fitting.next(), fitting.next()) {
            (Some((_, only)), None) => Some(&only.0.labels),
            _ => None,
        }
    }

    /// Returns the declared fill value: the first of three attributes that is present.
    pub fn fill_text(&self) -> Option<&str> {
        fill_text(|name| self.attrs.get(name).map(String::as_str))
    }
}

/// Returns the first attribute that declares a fill value.
pub fn fill_text<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<&'a str> {
    MISSING_ATTRIBUTES.iter().find_map(|name| get(name))
}

/// Rejects a text that is empty or too long. `what` names it in the error.
pub(crate) fn check_text(what: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{what} is empty, which .tet metadata does not support")));
    }
    check_count(what, text.len(), MAX_TEXT)
}

pub(crate) fn check_count(what: &str, count: usize, most: usize) -> Result<()> {
    if count > most { Err(Error::limit(what, count as u64, most as u64)) } else { Ok(()) }
}

impl FooterMetadata {
    /// Checks the limits of the format, except the number of labels, which only the reference limits.
    ///
    /// # Errors
    /// `Limit`, or `InvalidRequest` for an empty text.
    pub fn check(&self) -> Result<()> {
        for (name, value) in self.file.iter().flat_map(|file| file.0.fields()) {
            check_text(&format!("the file attribute {name}"), value)?;
        }
        check_count("datasets with metadata", self.datasets.len(), MAX_DATASETS)?;
        for (name, dataset) in &self.datasets {
            check_text("a dataset name", name)?;
            dataset.0.check().map_err(|e| e.in_array(name))?;
        }
        Ok(())
    }

    /// Returns the first axis with more labels than the reference accepts: dataset, axis, number of labels.
    pub fn long_axis(&self) -> Option<(&str, &str, usize)> {
        self.datasets.iter().find_map(|(name, dataset)| {
            let axes = dataset.0.coords.iter().flatten();
            axes.map(|(axis, c)| (name.as_str(), axis.as_str(), c.0.labels.len()))
                .find(|(_, _, count)| *count > MAX_LABELS)
        })
    }
}

impl DatasetMetadata {
    fn check(&self) -> Result<()> {
        check_count("attributes of a dataset", self.attrs.len(), MAX_ATTRS)?;
        for (name, value) in &self.attrs {
            check_text("an attribute name", name)?;
            check_text(&format!("the attribute {name:?}"), value)?;
        }
        let names = self.dim_names.as_deref().unwrap_or_default();
        check_count("dimension names", names.len(), MAX_AXES)?;
        names.iter().try_for_each(|name| check_text("a dimension name", name))?;
        check_count("labeled axes", self.coords.as_ref().map_or(0, BTreeMap::len), MAX_AXES)?;
        for (axis, coords) in self.coords.iter().flatten() {
            check_text("an axis name", axis)?;
            coords.0.labels.iter().try_for_each(|l| check_text(&format!("a label of axis {axis:?}"), l))?;
        }
        Ok(())
    }
}

/// Checks the limits of the format for a history.
///
/// # Errors
/// As [`FooterMetadata::check`].
pub fn check_history(history: &[HistoryEvent]) -> Result<()> {
    check_count("rows of the history", history.len(), MAX_HISTORY)?;
    history.iter().try_for_each(HistoryEvent::check)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(json: &str) -> DatasetMetadata {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn labels_are_found_by_name_number_and_length() {
        let by_name = dataset(r#"{"dim_names":["y","x"],"coords":{"x":{"labels":["a","b"]}}}"#);
        assert_eq!(by_name.labels(1, &[3, 2]).unwrap(), ["a", "b"]);
        assert_eq!(by_name.labels(0, &[3, 2]), None);
        // A square array: the labels of x do not apply to y.
        assert_eq!(by_name.labels(0, &[2, 2]), None);
        let by_number = dataset(r#"{"coords":{"1":{"labels":["a","b"]},"lat":{"labels":["p","q","r"]}}}"#);
        assert_eq!(by_number.labels(1, &[3, 2]).unwrap(), ["a", "b"]);
        assert_eq!(by_number.labels(0, &[3, 2]).unwrap(), ["p", "q", "r"]);
        let twice = dataset(r#"{"coords":{"a":{"labels":["1","2"]},"b":{"labels":["3","4"]}}}"#);
        assert_eq!(twice.labels(0, &[2]), None);
    }

    #[test]
    fn limit_errors_name_the_text() {
        let long = "x".repeat(MAX_TEXT + 1);
        for (json, ok) in [
            (r#"{"datasets":{"a":{"attrs":{"k":"v"}}}}"#.to_owned(), true),
            (r#"{"datasets":{"a":{"attrs":{"k":""}}}}"#.to_owned(), false),
            (r#"{"datasets":{"":{}}}"#.to_owned(), false),
            (format!(r#"{{"file":{{"tool":"{long}"}}}}"#), false),
            (format!(r#"{{"datasets":{{"a":{{"dim_names":["{long}"]}}}}}}"#), false),
            (r#"{"datasets":{"a":{"coords":{"0":{"labels":["x",""]}}}}}"#.to_owned(), false),
        ] {
            let metadata: FooterMetadata = serde_json::from_str(&json).unwrap();
            assert_eq!(metadata.check().is_ok(), ok, "{json}");
        }
        let labels: Vec<String> = (0..65).map(|i| format!(r#""{i}""#)).collect();
        let json =
            format!(r#"{{"datasets":{{"a":{{"coords":{{"0":{{"labels":[{}]}}}}}}}}}}"#, labels.join(","));
        let metadata: FooterMetadata = serde_json::from_str(&json).unwrap();
        assert!(metadata.check().is_ok());
        assert_eq!(metadata.long_axis(), Some(("a", "0", 65)));
    }
}
