//! Datatypes by their number.

use std::cmp::Ordering;

use tesseral_codec::filter::{Kind, Word};
use tesseral_core::{CellLen, DType, Error, Result, TimeUnit};

use super::cursor::le64;

/// The number of values per cell that means "any".
pub const VAR: u32 = u32::MAX;

/// A datatype, valid by construction.
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
    /// One byte of text.
    pub const CHAR: Self = Self(4);
    /// One byte.
    pub const UINT8: Self = Self(6);
    /// Eight bytes.
    pub const UINT64: Self = Self(10);
    /// ASCII text.
    pub const ASCII: Self = Self(11);
    /// UTF-8 text.
    pub const UTF8: Self = Self(12);
    /// Bytes without meaning.
    pub const BLOB: Self = Self(40);
    /// "Use the input's type", in filter options.
    pub const ANY: Self = Self(17);

    /// The datatype of a number.
    ///
    /// # Errors
    /// `Unsupported` for numbers that no version has.
    pub fn new(number: u8) -> Result<Self> {
        if usize::from(number) < NAMES.len() {
            return Ok(Self(number));
        }
        Err(Error::unsupported(format!("TileDB datatype {number}")))
    }

    /// The datatype of a dtype; `None` when there is none of its size and arithmetic.
    pub fn of(dtype: DType) -> Option<Self> {
        if dtype == DType::Bytes {
            return Some(Self::BLOB);
        }
        (0..44).map(Self).find(|d| d.dtype() == dtype)
    }

    /// The datatype whose elements filters see as `word`.
    pub fn of_word(word: Word) -> Self {
        Self(match (word.kind, word.size) {
            (Kind::Signed, 1) => 5,
            (Kind::Signed, 2) => 7,
            (Kind::Signed, 4) => 0,
            (Kind::Signed, _) => 1,
            (Kind::Unsigned, 1) => 6,
            (Kind::Unsigned, 2) => 8,
            (Kind::Unsigned, 4) => 9,
            (Kind::Unsigned, _) => 10,
            (Kind::Float, 4) => 2,
            (Kind::Float, _) => 3,
            (Kind::Time, _) => 27,
            (Kind::Bool, _) => 41,
            (Kind::Text, 2) => 13,
            (Kind::Text, 4) => 14,
            (Kind::Text, _) => 4,
        })
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The fill that writers declare when nobody asks for another: the value least likely to be met.
    pub fn default_fill(self) -> Vec<u8> {
        match (self.word().kind, self.size()) {
            (Kind::Signed | Kind::Time, n) => {
                let mut least = vec![0; n];
                least[n - 1] = 0x80;
                least
            }
            (Kind::Unsigned, n) => vec![0xFF; n],
            (Kind::Float, 4) => f32::from_bits(0x7FC0_0000).to_le_bytes().to_vec(),
            (Kind::Float, _) => f64::from_bits(0x7FF8_0000_0000_0000).to_le_bytes().to_vec(),
            _ if self == Self::CHAR => vec![0x80],
            (_, n) => vec![0; n],
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// Bytes of one value.
    pub fn size(self) -> usize {
        match self.0 {
            1 | 3 | 10 | 18..=39 => 8,
            0 | 2 | 9 | 14 | 16 => 4,
            7 | 8 | 13 | 15 => 2,
            _ => 1,
        }
    }

    /// What filters see.
    pub fn word(self) -> Word {
        let kind = match self.0 {
            0 | 1 | 5 | 7 => Kind::Signed,
            6 | 8 | 9 | 10 => Kind::Unsigned,
            2 | 3 => Kind::Float,
            18..=39 => Kind::Time,
            41 => Kind::Bool,
            _ => Kind::Text,
        };
        Word::new(self.size(), kind)
    }

    /// The dtype of one value. Text of two or four bytes per character is bytes to everyone else.
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

    /// The cell length for `values` per cell, in elements of [`dtype`](Self::dtype).
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

    /// Whether a dimension of it counts positions.
    pub fn is_integral(self) -> bool {
        matches!(self.word().kind, Kind::Signed | Kind::Unsigned | Kind::Time)
    }
}

/// Order of two coordinates or values of a datatype: numbers numerically, text bytewise.
pub fn compare(datatype: Datatype, a: &[u8], b: &[u8]) -> Ordering {
    let word = datatype.word();
    match word.kind {
        Kind::Text => a.cmp(b),
        Kind::Float => {
            let (a, b) = (float(datatype, a), float(datatype, b));
            // Zeros of both signs are equal; NaNs are refused where it matters.
            a.partial_cmp(&b).unwrap_or_else(|| a.total_cmp(&b))
        }
        Kind::Signed | Kind::Time => signed(a).cmp(&signed(b)),
        Kind::Unsigned | Kind::Bool => le64(a).cmp(&le64(b)),
    }
}

/// A little-endian float of a datatype's width.
pub(crate) fn float(datatype: Datatype, bytes: &[u8]) -> f64 {
    if datatype.size() == 4 {
        return bytes.first_chunk().map_or(0.0, |b| f64::from(f32::from_le_bytes(*b)));
    }
    f64::from_bits(le64(bytes))
}

/// A little-endian signed integer of up to eight bytes.
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
