//! Attributes and history: what formats say about arrays beside their cells.

use std::collections::BTreeMap;
use std::fmt;

use crate::{DType, scalar};

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Present, but nothing.
    Null,
    /// A bool.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An integer beyond `i64`.
    UInt(u64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Values in order.
    List(Vec<Value>),
    /// Values by name.
    Map(Attributes),
    /// Numbers of one dtype, as little-endian bytes.
    Numbers {
        /// The dtype of each.
        dtype: DType,
        /// Their bytes, back to back.
        bytes: Vec<u8>,
    },
}

/// Attributes by name, sorted bytewise.
pub type Attributes = BTreeMap<String, Value>;

/// Attributes that declare the value that means "missing"; the first that is there counts, whether or not it can be read.
pub const FILL_ATTRIBUTES: [&str; 3] = ["_FillValue", "missing_value", "fill_value"];

/// An attribute whose name a format needs for itself is kept under its name with this before it.
pub const SET_ASIDE: &str = "attribute:";

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Int(v) => write!(f, "{v}"),
            Self::UInt(v) => write!(f, "{v}"),
            Self::Float(v) => scalar::write_element(f, DType::Float64, &v.to_le_bytes()),
            Self::Text(v) => f.write_str(v),
            Self::Bytes(v) => scalar::write_element(f, DType::Bytes, v),
            Self::List(values) => list(f, values.iter()),
            Self::Map(map) => {
                f.write_str("{")?;
                for (i, (name, value)) in map.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::Numbers { dtype, bytes } => {
                let shown = bytes.chunks(dtype.size().unwrap_or(1)).map(|one| {
                    let mut text = String::new();
                    // Writing to a String cannot fail.
                    let _ = scalar::write_element(&mut text, *dtype, one);
                    text
                });
                list(f, shown)
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    f.write_str("[")?;
    for (i, item) in items.enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
    }
    f.write_str("]")
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// One step of how a container came to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryRow {
    /// What was done: `write`, `convert`.
    pub op: String,
    /// From what.
    pub source: String,
    /// When, as the format stores it (`.tet`: decimal seconds since 1970).
    pub at: String,
    /// Inputs, by name or digest.
    pub parents: Vec<String>,
    /// Parameters.
    pub params: BTreeMap<String, String>,
    /// Further named texts a format knows: agent, activity, entity.
    pub extra: BTreeMap<String, String>,
}
