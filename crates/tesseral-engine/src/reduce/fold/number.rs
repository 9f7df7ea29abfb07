//! Numbers of documents and results.

use serde::{Deserialize, Serialize};
use tesseral_core::condition::Condition;
use tesseral_core::{DType, Error, Result, Scalar};

/// A number: integers stay integers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Number {
    /// An integer.
    Int(i128),
    /// Any other number.
    Float(f64),
}

impl Number {
    /// The nearest `f64`.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// The value of a dtype for the number: the nearest value of a float dtype; `None` if an integer dtype cannot represent it.
    pub fn to_scalar(self, dtype: DType) -> Option<Scalar> {
        Condition::value_of(dtype, &self.to_string())
    }
}

/// Decimal digits that denote this number and no other.
impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
        }
    }
}

impl From<Number> for String {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(value) => value.to_string(),
            Number::Float(value) => format!("f{:016x}", value.to_bits()),
        }
    }
}

impl TryFrom<String> for Number {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        let float = text.strip_prefix('f').and_then(|bits| u64::from_str_radix(bits, 16).ok());
        let number = match float {
            Some(bits) => Some(Self::Float(f64::from_bits(bits))),
            None => text.parse().ok().map(Self::Int),
        };
        number.ok_or_else(|| Error::invalid(format!("invalid number: {text:?}")))
    }
}
