//! Element types, with NumPy names.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// An element type.
///
/// [`Display`](fmt::Display) and [`FromStr`] use NumPy names; format-specific names stay in the format crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 8 bits.
    UInt8,
    /// Unsigned, 16 bits.
    UInt16,
    /// Unsigned, 32 bits.
    UInt32,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE binary16.
    Float16,
    /// The upper half of a binary32.
    BFloat16,
    /// IEEE binary32.
    Float32,
    /// IEEE binary64.
    Float64,
    /// Two `Float32`: real, imaginary.
    Complex64,
    /// Two `Float64`: real, imaginary.
    Complex128,
    /// One bit per cell, packed most significant bit first.
    Bitmask,
    /// Signed 64-bit count of units since 1970-01-01.
    DateTime(TimeUnit),
    /// Signed 64-bit count of units.
    TimeDelta(TimeUnit),
    /// One byte of text in an unspecified encoding.
    Char,
    /// ASCII text; a cell is a sequence of these bytes.
    Ascii,
    /// UTF-8 text; a cell is a sequence of these bytes.
    Utf8,
    /// Opaque bytes.
    Bytes,
}

/// The unit of a [`DType::DateTime`] or [`DType::TimeDelta`], as in NumPy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TimeUnit {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Picosecond,
    Femtosecond,
    Attosecond,
}

impl TimeUnit {
    /// All units, coarsest first.
    pub const ALL: [Self; 13] = [
        Self::Year,
        Self::Month,
        Self::Week,
        Self::Day,
        Self::Hour,
        Self::Minute,
        Self::Second,
        Self::Millisecond,
        Self::Microsecond,
        Self::Nanosecond,
        Self::Picosecond,
        Self::Femtosecond,
        Self::Attosecond,
    ];

    /// NumPy's abbreviation.
    pub fn abbreviation(self) -> &'static str {
        match self {
            Self::Year => "Y",
            Self::Month => "M",
            Self::Week => "W",
            Self::Day => "D",
            Self::Hour => "h",
            Self::Minute => "m",
            Self::Second => "s",
            Self::Millisecond => "ms",
            Self::Microsecond => "us",
            Self::Nanosecond => "ns",
            Self::Picosecond => "ps",
            Self::Femtosecond => "fs",
            Self::Attosecond => "as",
        }
    }
}

/// The arithmetic class of a [`DType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Bool.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    UInt,
    /// Floats of any width.
    Float,
    /// Complex numbers.
    Complex,
    /// Packed bits.
    Bits,
    /// Dates and durations: signed integers with a unit.
    Time,
    /// Text and bytes.
    Text,
}

impl DType {
    /// Every dtype without a unit.
    pub const PLAIN: [Self; 20] = [
        Self::Bool,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::UInt8,
        Self::UInt16,
        Self::UInt32,
        Self::UInt64,
        Self::Float16,
        Self::BFloat16,
        Self::Float32,
        Self::Float64,
        Self::Complex64,
        Self::Complex128,
        Self::Bitmask,
        Self::Char,
        Self::Ascii,
        Self::Utf8,
        Self::Bytes,
    ];

    /// The dtype of integers of this many bits; `None` for other widths than 8, 16, 32 and 64.
    pub fn integer(bits: i64, signed: bool) -> Option<Self> {
        Some(match (bits, signed) {
            (8, true) => Self::Int8,
            (16, true) => Self::Int16,
            (32, true) => Self::Int32,
            (64, true) => Self::Int64,
            (8, false) => Self::UInt8,
            (16, false) => Self::UInt16,
            (32, false) => Self::UInt32,
            (64, false) => Self::UInt64,
            _ => return None,
        })
    }

    /// Bytes of one element; `None` for [`Bitmask`](Self::Bitmask), whose cells share bytes.
    pub fn size(self) -> Option<usize> {
        Some(match self {
            Self::Bitmask => return None,
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Char | Self::Ascii | Self::Utf8 | Self::Bytes => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 | Self::BFloat16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 8,
            Self::DateTime(_) | Self::TimeDelta(_) => 8,
            Self::Complex128 => 16,
        })
    }

    /// Bits of one element.
    pub fn bits(self) -> usize {
        self.size().map_or(1, |bytes| bytes * 8)
    }

    /// The arithmetic class.
    pub fn class(self) -> Class {
        match self {
            Self::Bool => Class::Bool,
            Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 => Class::Int,
            Self::UInt8 | Self::UInt16 | Self::UInt32 | Self::UInt64 => Class::UInt,
            Self::Float16 | Self::BFloat16 | Self::Float32 | Self::Float64 => Class::Float,
            Self::Complex64 | Self::Complex128 => Class::Complex,
            Self::Bitmask => Class::Bits,
            Self::DateTime(_) | Self::TimeDelta(_) => Class::Time,
            Self::Char | Self::Ascii | Self::Utf8 | Self::Bytes => Class::Text,
        }
    }

    /// The unit of byte swapping: bytes of one machine number.
    pub fn word(self) -> usize {
        match self {
            Self::Complex64 => 4,
            Self::Complex128 => 8,
            other => other.size().unwrap_or(1),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
            Self::Bitmask => "bitmask",
            Self::Char => "char",
            Self::Ascii => "string_ascii",
            Self::Utf8 => "string_utf8",
            Self::Bytes => "bytes",
            Self::DateTime(unit) => return write!(f, "datetime64[{}]", unit.abbreviation()),
            Self::TimeDelta(unit) => return write!(f, "timedelta64[{}]", unit.abbreviation()),
        })
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let with_unit = |prefix: &str| {
            let unit = name.strip_prefix(prefix)?.strip_suffix(']')?;
            TimeUnit::ALL.into_iter().find(|u| u.abbreviation() == unit)
        };
        Self::PLAIN
            .into_iter()
            .find(|dtype| dtype.to_string() == name)
            .or_else(|| with_unit("datetime64[").map(Self::DateTime))
            .or_else(|| with_unit("timedelta64[").map(Self::TimeDelta))
            .ok_or_else(|| {
                Error::not_found("dtype", name, Self::PLAIN.iter().map(ToString::to_string).collect())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let timed = TimeUnit::ALL.into_iter().flat_map(|u| [DType::DateTime(u), DType::TimeDelta(u)]);
        for dtype in DType::PLAIN.into_iter().chain(timed) {
            assert_eq!(dtype.to_string().parse::<DType>().unwrap(), dtype);
        }
        assert!("datetime64[fortnight]".parse::<DType>().is_err());
        assert!("float".parse::<DType>().is_err());
    }

    #[test]
    fn integers_are_found_by_their_width() {
        for dtype in
            DType::PLAIN.into_iter().filter(|dtype| matches!(dtype.class(), Class::Int | Class::UInt))
        {
            let signed = dtype.class() == Class::Int;
            assert_eq!(DType::integer(dtype.bits() as i64, signed), Some(dtype));
            assert_eq!(DType::integer(dtype.bits() as i64 + 1, signed), None);
        }
    }

    #[test]
    fn words_are_the_swappable_unit() {
        assert_eq!(DType::Complex128.word(), 8);
        assert_eq!(DType::Float16.word(), 2);
        assert_eq!(DType::Bitmask.bits(), 1);
    }
}
