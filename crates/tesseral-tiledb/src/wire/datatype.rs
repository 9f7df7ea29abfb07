//! Datatypes and their numbers.

use std::cmp::Ordering;

use tesseral_codec::filter::{ElementKind, FilterElement};
use tesseral_core::{CellLen, DType, Error, Result, TimeUnit};

use super::primitive::le64;

/// The number of values per cell that means variable-length.
pub const VAR: u32 = u32::MAX;

/// A valid datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datatype(u8);

const NAMES: [&str; 44] = [
    "INT32",
    "INT64",
    "FLOAT32",
    "FLOAT64",
    "CHAR",
    "INT8",
    "UINT8",
    "INT16",
    "UINT16",
    "UINT32",
    "UINT64",
    "STRING_ASCII",
    "STRING_UTF8",
    "STRING_UTF16",
    "STRING_UTF32",
    "STRING_UCS2",
    "STRING_UCS4",
    "ANY",
    "DATETIME_YEAR",
    "DATETIME_MONTH",
    "DATETIME_WEEK",
    "DATETIME_DAY",
    "DATETIME_HR",
    "DATETIME_MIN",
    "DATETIME_SEC",
    "DATETIME_MS",
    "DATETIME_US",
    "DATETIME_NS",
    "DATETIME_PS",
    "DATETIME_FS",
    "DATETIME_AS",
    "TIME_HR",
    "TIME_MIN",
    "TIME_SEC",
    "TIME_MS",
    "TIME_US",
    "TIME_NS",
    "TIME_PS",
    "TIME_FS",
    "TIME_AS",
    "BLOB",
    "BOOL",
    "GEOM_WKB",
    "GEOM_WKT",
];

impl Datatype {
    /// Single-byte character.
    pub const CHAR: Self = Self(4);
    /// Unsigned 8-bit integer.
    pub const UINT8: Self = Self(6);
    /// Unsigned 64-bit integer.
    pub const UINT64: Self = Self(10);
    /// ASCII text.
    pub const ASCII: Self = Self(11);
    /// UTF-8 text.
    pub const UTF8: Self = Self(12);
    /// Uninterpreted bytes.
    pub const BLOB: Self = Self(40);
    /// In filter options: use the input's type.
    pub const ANY: Self = Self(17);

    /// Returns the datatype of a number.
    ///
    /// # Errors
    /// `Unsupported` for unknown numbers.
    pub fn new(number: u8) -> Result<Self> {
        if usize::from(number) < NAMES.len() {
            return Ok(Self(number));
        }
        Err(Error::unsupported(format!("TileDB datatype {number}")))
    }

    /// Returns the datatype of a dtype; `None` if there is no equivalent.
    pub fn from_dtype(dtype: DType) -> Option<Self> {
        if dtype == DType::Bytes {
            return Some(Self::BLOB);
        }
        (0..44).map(Self).find(|d| d.dtype() == dtype)
    }

    /// Returns the datatype whose elements filters process as `word`.
    pub fn of_word(word: FilterElement) -> Self {
        Self(match (word.kind, word.size) {
            (ElementKind::Signed, 1) => 5,
            (ElementKind::Signed, 2) => 7,
            (ElementKind::Signed, 4) => 0,
            (ElementKind::Signed, _) => 1,
            (ElementKind::Unsigned, 1) => 6,
            (ElementKind::Unsigned, 2) => 8,
            (ElementKind::Unsigned, 4) => 9,
            (ElementKind::Unsigned, _) => 10,
            (ElementKind::Float, 4) => 2,
            (ElementKind::Float, _) => 3,
            (ElementKind::Time, _) => 27,
            (ElementKind::Bool, _) => 41,
            (ElementKind::Text, 2) => 13,
            (ElementKind::Text, 4) => 14,
            (ElementKind::Text, _) => 4,
        })
    }

    /// The stored number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Default fill value of the reference.
    pub fn default_fill(self) -> Vec<u8> {
        match (self.word().kind, self.size()) {
            (ElementKind::Signed | ElementKind::Time, n) => {
                let mut least = vec![0; n];
                least[n - 1] = 0x80;
                least
            }
            (ElementKind::Unsigned, n) => vec![0xFF; n],
            (ElementKind::Float, 4) => f32::from_bits(0x7FC0_0000).to_le_bytes().to_vec(),
            (ElementKind::Float, _) => f64::from_bits(0x7FF8_0000_0000_0000).to_le_bytes().to_vec(),
            _ if self == Self::CHAR => vec![0x80],
            (_, n) => vec![0; n],
        }
    }

    /// Name as in the specification.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// Size of one value in bytes.
    pub fn size(self) -> usize {
        match self.0 {
            1 | 3 | 10 | 18..=39 => 8,
            0 | 2 | 9 | 14 | 16 => 4,
            7 | 8 | 13 | 15 => 2,
            _ => 1,
        }
    }

    /// Element type for filters.
    pub fn word(self) -> FilterElement {
        let kind = match self.0 {
            0 | 1 | 5 | 7 => ElementKind::Signed,
            6 | 8 | 9 | 10 => ElementKind::Unsigned,
            2 | 3 => ElementKind::Float,
            18..=39 => ElementKind::Time,
            41 => ElementKind::Bool,
            _ => ElementKind::Text,
        };
        FilterElement::new(self.size(), kind)
    }

    /// Dtype of one value. Text with two or four bytes per character is mapped to bytes.
    pub fn dtype(self) -> DType {
        const UNITS: [TimeUnit; 13] = TimeUnit::ALL;
        match self.0 {
            0 => DType::Int32,
            1 => DType::Int64,
            2 => DType::Float32,
            3 => DType::Float64,
            4 => DType::Char,
            5 => DType::Int8,
            6 => DType::UInt8,
            7 => DType::Int16,
            8 => DType::UInt16,
            9 => DType::UInt32,
            10 => DType::UInt64,
            11 => DType::Ascii,
            12 | 43 => DType::Utf8,
            18..=30 => DType::DateTime(UNITS[usize::from(self.0 - 18)]),
            31..=39 => DType::TimeDelta(UNITS[usize::from(self.0 - 31) + 4]),
            41 => DType::Bool,
            _ => DType::Bytes,
        }
    }

    /// Cell length for `values` per cell, in elements of [`dtype`](Self::dtype).
    pub fn cell(self, values: u32) -> CellLen {
        if values == VAR {
            return CellLen::Var;
        }
        let elements = if self.dtype() == DType::Bytes {
            u32::try_from(self.size()).unwrap_or(1).saturating_mul(values)
        } else {
            values
        };
        if elements == 1 { CellLen::One } else { CellLen::Fixed(elements) }
    }

    /// Returns whether a dimension of this datatype has countable positions.
    pub fn is_integral(self) -> bool {
        matches!(self.word().kind, ElementKind::Signed | ElementKind::Unsigned | ElementKind::Time)
    }
}

/// Compares two coordinates or values: numbers numerically, text bytewise.
pub fn compare(datatype: Datatype, a: &[u8], b: &[u8]) -> Ordering {
    let word = datatype.word();
    match word.kind {
        ElementKind::Text => a.cmp(b),
        ElementKind::Float => {
            let (a, b) = (float(datatype, a), float(datatype, b));
            // Zeros of both signs are equal; callers reject NaN where it matters.
            a.partial_cmp(&b).unwrap_or_else(|| a.total_cmp(&b))
        }
        ElementKind::Signed | ElementKind::Time => signed(a).cmp(&signed(b)),
        ElementKind::Unsigned | ElementKind::Bool => le64(a).cmp(&le64(b)),
    }
}

/// Parses a little-endian float.
pub(crate) fn float(datatype: Datatype, bytes: &[u8]) -> f64 {
    if datatype.size() == 4 {
        return bytes.first_chunk().map_or(0.0, |b| f64::from(f32::from_le_bytes(*b)));
    }
    f64::from_bits(le64(bytes))
}

/// Parses a little-endian signed integer of up to eight bytes.
pub(crate) fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut wide = if negative { [0xFF; 8] } else { [0; 8] };
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    i64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_dtypes() {
        for number in 0..44 {
            let datatype = Datatype::new(number).unwrap();
            let dtype = datatype.dtype();
            if dtype != DType::Bytes {
                assert_eq!(dtype.size(), Some(datatype.size()), "{}", datatype.name());
            }
        }
        assert!(Datatype::new(44).is_err());
        assert_eq!(Datatype::new(27).unwrap().dtype().to_string(), "datetime64[ns]");
        assert_eq!(Datatype::new(31).unwrap().dtype().to_string(), "timedelta64[h]");
        assert_eq!(Datatype::new(39).unwrap().dtype().to_string(), "timedelta64[as]");
    }
}
