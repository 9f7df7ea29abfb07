//! Attributes and history of containers and arrays.

use std::collections::BTreeMap;
use std::fmt;

use indexmap::IndexMap;

use crate::{DType, Scalar, scalar};

/// An attribute's value, with its type. Two are equal when their bits are, NaN included.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    Null,
    /// A Boolean.
    Bool(bool),
    /// A signed 64-bit integer, also used for integers of unspecified width.
    Int(i64),
    /// An unsigned integer of 64 bits.
    UInt(u64),
    /// A 64-bit float, also used for floats of unspecified width.
    Float(f64),
    /// One value of another dtype, such as `int16`, `float32` or `datetime64[s]`.
    Scalar(Scalar),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list of values.
    List(Vec<Value>),
    /// A map of values by name. Boxed, because it is larger than all other values.
    Map(Box<Attributes>),
    /// Numbers of one dtype, as little-endian bytes.
    Numbers {
        /// Dtype of each number.
        dtype: DType,
        /// Contiguous little-endian bytes.
        bytes: Vec<u8>,
    },
}

/// Attributes by name, in insertion order. Equality ignores the order.
pub type Attributes = IndexMap<String, Value>;

/// Prefix of attributes whose name a format reserves.
pub const RESERVED_NAME_PREFIX: &str = "attribute:";

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Int(v) => write!(f, "{v}"),
            Self::UInt(v) => write!(f, "{v}"),
            Self::Float(v) => scalar::write_element(f, DType::Float64, &v.to_le_bytes()),
            Self::Scalar(v) => write!(f, "{v}"),
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
                    // Writing to a `String` is infallible.
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

impl Value {
    /// The name of its type: `text`, `float32`, `int16[]` for an array of numbers.
    pub fn type_name(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Text(_) => "text".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Numbers { dtype, .. } => format!("{dtype}[]"),
            other => other.to_scalar().map_or_else(String::new, |scalar| scalar.dtype().to_string()),
        }
    }

    /// Returns the value as a scalar; `None` for lists, maps and null.
    pub fn to_scalar(&self) -> Option<Scalar> {
        Some(match self {
            Self::Bool(v) => Scalar::from_element(u8::from(*v)).with_dtype(DType::Bool),
            Self::Int(v) => Scalar::from_element(*v),
            Self::UInt(v) => Scalar::from_element(*v),
            Self::Float(v) => Scalar::from_element(*v),
            Self::Scalar(v) => v.clone(),
            Self::Text(v) => Scalar::from_text(v),
            Self::Bytes(v) => Scalar::from_le_bytes(DType::Bytes, v).ok()?,
            Self::Null | Self::List(_) | Self::Map(_) | Self::Numbers { .. } => return None,
        })
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::UInt(a), Self::UInt(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Scalar(a), Self::Scalar(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Numbers { dtype, bytes }, Self::Numbers { dtype: other, bytes: theirs }) => {
                dtype == other && bytes == theirs
            }
            _ => false,
        }
    }
}

impl From<Scalar> for Value {
    /// Normalizes a value: 64-bit numbers, Booleans and text are not stored as [`Value::Scalar`].
    fn from(scalar: Scalar) -> Self {
        let plain = match scalar.dtype() {
            DType::Bool => match scalar.bytes() {
                [0] => Some(Self::Bool(false)),
                [1] => Some(Self::Bool(true)),
                _ => None,
            },
            DType::Int64 => scalar.get().map(Self::Int),
            DType::UInt64 => scalar.get().map(Self::UInt),
            DType::Float64 => scalar.get().map(Self::Float),
            DType::Ascii | DType::Utf8 | DType::Char => scalar.as_text().map(Self::from),
            DType::Bytes => Some(Self::Bytes(scalar.bytes().to_vec())),
            _ => None,
        };
        plain.unwrap_or(Self::Scalar(scalar))
    }
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

/// One step of the provenance of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryRow {
    /// Name of the operation: `write`, `convert`.
    pub op: String,
    /// Source of the data.
    pub source: String,
    /// Time, as stored by the format (`.tet`: decimal seconds since 1970).
    pub at: String,
    /// Inputs, by name or digest.
    pub parents: Vec<String>,
    /// Parameters of the operation.
    pub params: BTreeMap<String, String>,
    /// Further named texts of a format: agent, activity, entity.
    pub extra: BTreeMap<String, String>,
}
