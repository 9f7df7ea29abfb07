//! A single value of any dtype, stored as its bits.

use std::cmp::Ordering;
use std::fmt;

use smallvec::SmallVec;

use crate::dtype::Class;
use crate::element::{Element, bf16, f16};
use crate::{DType, Error, Result, dispatch_element, time};

/// A value of any dtype, as its little-endian bytes: NaN payloads and −0.0 are preserved.
///
/// Text and bytes are variable-length; every other dtype holds a whole number of elements.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scalar {
    dtype: DType,
    bytes: SmallVec<[u8; 16]>,
}

impl Scalar {
    /// A value from its little-endian bytes.
    ///
    /// # Errors
    /// `InvalidRequest` when the length is not a whole number of elements.
    pub fn from_le_bytes(dtype: DType, bytes: &[u8]) -> Result<Self> {
        let size = dtype.size().unwrap_or(1);
        if dtype.class() != Class::Text && (bytes.is_empty() || !bytes.len().is_multiple_of(size)) {
            return Err(Error::invalid(format!(
                "invalid length of a {dtype} value: expected a multiple of {size} bytes, found {}",
                bytes.len()
            )));
        }
        Ok(Self { dtype, bytes: SmallVec::from_slice(bytes) })
    }

    /// A value from a number.
    pub fn from_element<T: Element>(value: T) -> Self {
        Self { dtype: T::DTYPE, bytes: SmallVec::from_slice(bytemuck::bytes_of(&value)) }
    }

    /// An integer, bool, date or duration; `None` when the dtype cannot represent the value.
    pub fn from_i128(dtype: DType, value: i128) -> Option<Self> {
        let bytes = value.to_le_bytes();
        let scalar = Self::from_le_bytes(dtype, bytes.get(..dtype.size()?)?).ok()?;
        (scalar.as_i128() == Some(value)).then_some(scalar)
    }

    /// A UTF-8 text value.
    pub fn from_text(text: &str) -> Self {
        Self { dtype: DType::Utf8, bytes: SmallVec::from_slice(text.as_bytes()) }
    }

    /// Reinterprets the bits as another dtype of the same size, for dates and bools that are processed as integers.
    #[must_use]
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        debug_assert_eq!(self.dtype.size(), dtype.size());
        self.dtype = dtype;
        self
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number as `T`, when `T` is the element type of the dtype and there is exactly one element.
    pub fn get<T: Element>(&self) -> Option<T> {
        let native = dispatch_element!(self.dtype, U => U::DTYPE == T::DTYPE, else => false);
        (native && self.bytes.len() == size_of::<T>()).then(|| bytemuck::pod_read_unaligned(&self.bytes))
    }

    /// The value as an integer, for integers, bools, dates and durations.
    pub fn as_i128(&self) -> Option<i128> {
        match self.dtype.class() {
            Class::Float | Class::Complex | Class::Bits | Class::Text => None,
            _ => dispatch_element!(self.dtype, T => {
                (self.bytes.len() == size_of::<T>())
                    .then(|| bytemuck::pod_read_unaligned::<T>(&self.bytes).to_i128())
            }, else => None),
        }
    }

    /// The value as the nearest `f64`, for numbers.
    pub fn as_f64(&self) -> Option<f64> {
        dispatch_element!(self.dtype, T => {
            (self.bytes.len() == size_of::<T>()).then(|| bytemuck::pod_read_unaligned::<T>(&self.bytes).to_f64())
        }, else => None)
    }

    /// The value as text, for text dtypes holding valid UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        (self.dtype.class() == Class::Text).then(|| std::str::from_utf8(&self.bytes).ok()).flatten()
    }

    /// Order of values: numbers numerically across dtypes, text bytewise. NaN and complex numbers are unordered.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self.as_i128(), other.as_i128()) {
            (Some(a), Some(b)) => return Some(a.cmp(&b)),
            (Some(a), None) => return other.as_f64().and_then(|b| compare_int_float(a, b)),
            (None, Some(b)) => {
                return self.as_f64().and_then(|a| compare_int_float(b, a)).map(Ordering::reverse);
            }
            (None, None) => {}
        }
        if let (Some(a), Some(b)) = (self.as_f64(), other.as_f64()) {
            return a.partial_cmp(&b);
        }
        let text = self.dtype.class() == Class::Text && other.dtype.class() == Class::Text;
        text.then(|| self.bytes.cmp(&other.bytes))
    }

    /// Parses a value from its text form: `-9999`, `1e20`, `NaN`, `2015-07-01`. Decimal fractions become the nearest float.
    ///
    /// # Errors
    /// `InvalidRequest` when the text is not a value of the dtype, as `1e39` is none of `float32`.
    pub fn parse(dtype: DType, text: &str) -> Result<Self> {
        let invalid = || Error::invalid(format!("invalid {dtype} value: {text:?}"));
        fn number<T: Element + std::str::FromStr>(text: &str) -> Option<Scalar> {
            text.parse::<T>().ok().map(Scalar::from_element)
        }
        let text = text.trim();
        match dtype {
            DType::Int8 => number::<i8>(text),
            DType::Int16 => number::<i16>(text),
            DType::Int32 => number::<i32>(text),
            DType::Int64 => number::<i64>(text),
            DType::UInt8 => number::<u8>(text),
            DType::UInt16 => number::<u16>(text),
            DType::UInt32 => number::<u32>(text),
            DType::UInt64 => number::<u64>(text),
            DType::Float16 => text.parse::<f32>().ok().map(|v| Self::from_element(f16::from_f32(v))),
            DType::BFloat16 => text.parse::<f32>().ok().map(|v| Self::from_element(bf16::from_f32(v))),
            DType::Float32 => number::<f32>(text),
            DType::Float64 => number::<f64>(text),
            DType::Bool => match text {
                "0" | "false" => Some(Self::from_element(0_u8).with_dtype(dtype)),
                "1" | "true" => Some(Self::from_element(1_u8).with_dtype(dtype)),
                _ => None,
            },
            DType::DateTime(unit) => {
                let count = text.parse().ok().or_else(|| time::parse(text, unit));
                count.map(|c: i64| Self::from_element(c).with_dtype(dtype))
            }
            DType::TimeDelta(_) => number::<i64>(text).map(|s| s.with_dtype(dtype)),
            DType::Char | DType::Ascii | DType::Utf8 | DType::Bytes => {
                Some(Self { dtype, bytes: SmallVec::from_slice(text.as_bytes()) })
            }
            DType::Complex64 | DType::Complex128 | DType::Bitmask => None,
        }
        // Digits never mean an infinity.
        .filter(|value| text.contains(['n', 'N']) || !value.is_infinite())
        .ok_or_else(invalid)
    }

    fn is_infinite(&self) -> bool {
        self.dtype.class() == Class::Float && self.as_f64().is_some_and(f64::is_infinite)
    }
}

/// Compares without rounding the integer.
fn compare_int_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Above this magnitude every float is larger than any 64-bit integer.
    if float.abs() >= 2_f64.powi(100) {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let floor = float.floor();
    let whole = floor as i128;
    Some(int.cmp(&whole).then(if float > floor { Ordering::Less } else { Ordering::Equal }))
}

/// Writes an element in text form: the shortest digits that round-trip, dates in ISO 8601.
///
/// # Errors
/// Only errors of `out`.
pub fn write_element(out: &mut dyn fmt::Write, dtype: DType, bytes: &[u8]) -> fmt::Result {
    fn float(out: &mut dyn fmt::Write, v: f64, shortest: &dyn fmt::Debug) -> fmt::Result {
        match v {
            v if v.is_nan() => out.write_str("NaN"),
            v if v.is_infinite() => out.write_str(if v > 0.0 { "inf" } else { "-inf" }),
            _ => write!(out, "{shortest:?}"),
        }
    }
    fn read<T: Element>(bytes: &[u8]) -> Option<T> {
        (bytes.len() == size_of::<T>()).then(|| bytemuck::pod_read_unaligned(bytes))
    }
    let malformed = |out: &mut dyn fmt::Write| write!(out, "<{} bytes>", bytes.len());
    match dtype {
        DType::Bool => match bytes {
            [0] => out.write_str("false"),
            [1] => out.write_str("true"),
            _ => malformed(out),
        },
        DType::Float16 => match read::<f16>(bytes) {
            Some(v) => float(out, v.to_f64(), &v.to_f32()),
            None => malformed(out),
        },
        DType::BFloat16 => match read::<bf16>(bytes) {
            Some(v) => float(out, v.to_f64(), &v.to_f32()),
            None => malformed(out),
        },
        DType::Float32 => match read::<f32>(bytes) {
            Some(v) => float(out, v.to_f64(), &v),
            None => malformed(out),
        },
        DType::Float64 => match read::<f64>(bytes) {
            Some(v) => float(out, v, &v),
            None => malformed(out),
        },
        DType::Complex64 | DType::Complex128 => {
            let (part, half) =
                if dtype == DType::Complex64 { (DType::Float32, 4) } else { (DType::Float64, 8) };
            let (Some(re), Some(im)) = (bytes.get(..half), bytes.get(half..2 * half)) else {
                return malformed(out);
            };
            let mut imaginary = String::new();
            write_element(&mut imaginary, part, im)?;
            write_element(out, part, re)?;
            if !imaginary.starts_with('-') {
                out.write_char('+')?;
            }
            write!(out, "{imaginary}j")
        }
        DType::DateTime(unit) => match read::<i64>(bytes) {
            Some(v) => time::write(out, v, unit),
            None => malformed(out),
        },
        DType::Char | DType::Ascii | DType::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => out.write_str(text),
            Err(_) => write_hex(out, bytes),
        },
        DType::Bytes => write_hex(out, bytes),
        DType::Bitmask => bytes.iter().try_for_each(|b| write!(out, "{b:08b}")),
        _ => dispatch_element!(dtype, T => match read::<T>(bytes) {
            Some(v) => write!(out, "{v:?}"),
            None => malformed(out),
        }, else => malformed(out)),
    }
}

fn write_hex(out: &mut dyn fmt::Write, bytes: &[u8]) -> fmt::Result {
    out.write_str("0x")?;
    bytes.iter().try_for_each(|b| write!(out, "{b:02x}"))
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.dtype.size().unwrap_or(1);
        if self.dtype.class() == Class::Text || self.bytes.len() == size {
            return write_element(f, self.dtype, &self.bytes);
        }
        f.write_str("[")?;
        for (i, element) in self.bytes.chunks(size).enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write_element(f, self.dtype, element)?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}_{}", self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeUnit;

    #[test]
    fn integers_and_floats_compare_without_rounding() {
        let big = Scalar::from_element((1_i64 << 53) + 1);
        let float = Scalar::from_element(9_007_199_254_740_992.0_f64);
        assert_eq!(big.compare(&float), Some(Ordering::Greater));
        assert_eq!(float.compare(&big), Some(Ordering::Less));
        assert_eq!(Scalar::from_element(3_u8).compare(&Scalar::from_element(3.5_f32)), Some(Ordering::Less));
        assert_eq!(Scalar::from_element(-3_i8).compare(&Scalar::from_element(-3.5)), Some(Ordering::Greater));
        assert_eq!(Scalar::from_element(f64::NAN).compare(&Scalar::from_element(1_u8)), None);
    }

    #[test]
    fn parse_round_trips_display() {
        for (dtype, text) in [
            (DType::Int64, "-9223372036854775808"),
            (DType::Float32, "1e20"),
            (DType::Float32, "-0.0"),
            (DType::Float64, "NaN"),
            (DType::Float16, "65504.0"),
            (DType::DateTime(TimeUnit::Day), "2015-07-01"),
            (DType::Utf8, "Ω"),
        ] {
            assert_eq!(Scalar::parse(dtype, text).unwrap().to_string(), text, "{dtype}");
        }
        assert!(Scalar::parse(DType::UInt8, "256").is_err());
        for (dtype, beyond) in [
            (DType::Float16, "65536"),
            (DType::BFloat16, "-4e38"),
            (DType::Float32, "1e39"),
            (DType::Float64, "-1e309"),
        ] {
            assert!(Scalar::parse(dtype, beyond).is_err(), "{dtype} {beyond}");
            assert!(Scalar::parse(dtype, "-Infinity").unwrap().is_infinite());
        }
        assert!(Scalar::parse(DType::Int32, "-9999.0").is_err());
    }
}
