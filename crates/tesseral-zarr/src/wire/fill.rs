//! Fill values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, DType, Scalar};

use super::dtype::ZarrCellType;
use super::json::special_float;

/// Parses a fill value as the bytes of a cell of the model: native numbers, or text, without the zeros that pad it. `None` if the
/// cells cannot represent it.
pub fn parse(value: &Json, cells: ZarrCellType) -> Option<Vec<u8>> {
    let ZarrCellType { dtype, cell, .. } = cells;
    if value.is_null() {
        return Some(default(cells));
    }
    match (dtype.class(), cell) {
        (Class::Text, CellLen::Var) => text(value, dtype),
        (Class::Text, _) => {
            // Shorter values end with zeros, which are not held: a cell can be long.
            text(value, DType::Bytes).filter(|bytes| Some(bytes.len()) <= cells.stored_size())
        }
        (Class::Complex, _) => {
            let part = if dtype == DType::Complex64 { DType::Float32 } else { DType::Float64 };
            let [re, im] = value.as_array()?.as_slice() else { return None };
            Some([native(number(re, part)?), native(number(im, part)?)].concat())
        }
        _ => number(value, dtype).map(native),
    }
}

/// The value of cells without a fill value, as in the reference: zero, or empty text.
pub fn default(cells: ZarrCellType) -> Vec<u8> {
    match cells.cell {
        CellLen::Var | CellLen::Fixed(_) => Vec::new(),
        CellLen::One => std::iter::repeat_n(0, cells.stored_size().unwrap_or(0)).collect(),
    }
}

fn native(scalar: Scalar) -> Vec<u8> {
    let mut bytes = scalar.bytes().to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_mut(scalar.dtype().word()).for_each(<[u8]>::reverse);
    }
    bytes
}

fn text(value: &Json, dtype: DType) -> Option<Vec<u8>> {
    match value {
        Json::String(text) if dtype == DType::Utf8 => Some(text.clone().into_bytes()),
        Json::String(text) => STANDARD.decode(text).ok(),
        Json::Array(bytes) => bytes.iter().map(|b| u8::try_from(b.as_u64()?).ok()).collect(),
        // Older versions of the reference write 0 for objects and text.
        Json::Number(n) if n.as_u64() == Some(0) => Some(Vec::new()),
        _ => None,
    }
}

fn number(value: &Json, dtype: DType) -> Option<Scalar> {
    let float = dtype.class() == Class::Float;
    match value {
        Json::Bool(v) => Scalar::from_i128(dtype, i128::from(*v)),
        Json::Number(n) if !float => {
            let int = n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from));
            // Whole numbers are also written as floats.
            let int =
                int.or_else(|| n.as_f64().filter(|v| v.fract() == 0.0 && v.abs() < 9e15).map(|v| v as i128));
            let bit = |int: &i128| dtype != DType::Bool || matches!(int, 0 | 1);
            Scalar::from_i128(dtype, int.filter(bit)?)
        }
        Json::Number(n) => Scalar::parse(dtype, &n.to_string()).ok(),
        Json::String(text) if float => match special_float(text) {
            Some(special) => special_bits(special, dtype),
            None => {
                let digits = text.strip_prefix("0x")?;
                let bits = u64::from_str_radix(digits, 16).ok()?;
                let size = dtype.size()?;
                let exact = digits.len() == size * 2;
                exact.then(|| Scalar::from_le_bytes(dtype, &bits.to_le_bytes()[..size]).ok())?
            }
        },
        Json::String(text) if text == "NaT" && dtype.class() == Class::Time => {
            Scalar::from_i128(dtype, i128::from(i64::MIN))
        }
        _ => None,
    }
}

/// NaN or an infinity of a dtype.
fn special_bits(value: f64, dtype: DType) -> Option<Scalar> {
    let sign = u64::from(value.is_sign_negative());
    let (exponent, quiet) = match dtype {
        DType::Float16 => (0x7c00, 0x0200),
        DType::BFloat16 => (0x7f80, 0x0040),
        DType::Float32 => (0x7f80_0000, 0x0040_0000),
        _ => (0x7ff0_0000_0000_0000, 0x0008_0000_0000_0000),
    };
    let bits = if value.is_nan() { exponent | quiet } else { exponent | sign << (dtype.bits() - 1) };
    Scalar::from_le_bytes(dtype, &bits.to_le_bytes()[..dtype.size()?]).ok()
}

/// The notation of a fill value; `exact` allows bits in hexadecimal for NaN other than the usual one.
pub(crate) fn to_json(scalar: &Scalar, exact: bool) -> Option<Json> {
    let dtype = scalar.dtype();
    match dtype.class() {
        Class::Bool => Some(json!(scalar.as_i128()? != 0)),
        Class::Int | Class::Time => Some(json!(i64::try_from(scalar.as_i128()?).ok()?)),
        Class::UInt => Some(json!(u64::try_from(scalar.as_i128()?).ok()?)),
        Class::Float => {
            let value = scalar.as_f64()?;
            if value.is_nan() {
                let usual = special_bits(f64::NAN, dtype).is_some_and(|usual| usual == *scalar);
                let hex = scalar.bytes().iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
                return Some(if usual || !exact { json!("NaN") } else { json!(format!("0x{hex}")) });
            }
            Some(match value {
                f64::INFINITY => json!("Infinity"),
                f64::NEG_INFINITY => json!("-Infinity"),
                finite => json!(finite),
            })
        }
        Class::Complex => {
            let part = if dtype == DType::Complex64 { DType::Float32 } else { DType::Float64 };
            let (re, im) = scalar.bytes().split_at_checked(part.size()?)?;
            let part_to_json = |bytes: &[u8]| to_json(&Scalar::from_le_bytes(part, bytes).ok()?, exact);
            Some(json!([part_to_json(re)?, part_to_json(im)?]))
        }
        Class::Text if dtype == DType::Utf8 => scalar.as_text().map(|text| json!(text)),
        Class::Text => Some(json!(STANDARD.encode(scalar.bytes()))),
        Class::Bits => None,
    }
}

/// Decodes a `_FillValue` attribute of v3 as xarray writes it for floats: the bytes of a double in Base64.
pub(crate) fn decode_declared(text: &str) -> Option<f64> {
    let bytes = STANDARD.decode(text).ok()?;
    Some(f64::from_le_bytes(*bytes.first_chunk::<8>().filter(|_| bytes.len() == 8)?))
}

/// The reverse of [`decode_declared`].
pub(crate) fn encode_declared(value: f64) -> String {
    STANDARD.encode(value.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dtype::{StoredCell, parse_v3};

    fn cells(name: &str) -> ZarrCellType {
        parse_v3(&json!(name)).unwrap()
    }

    #[test]
    fn every_notation_is_read() {
        for (name, value, bytes) in [
            ("bool", json!(true), vec![1]),
            ("int16", json!(-2), vec![0xfe, 0xff]),
            ("uint64", json!(u64::MAX), vec![0xff; 8]),
            ("int32", json!(3.0), vec![3, 0, 0, 0]),
            ("float32", json!(1), vec![0, 0, 0x80, 0x3f]),
            ("float16", json!("NaN"), vec![0, 0x7e]),
            ("float32", json!("-Infinity"), vec![0, 0, 0x80, 0xff]),
            ("float32", json!("0x7fc00001"), vec![1, 0, 0xc0, 0x7f]),
            ("complex64", json!([1.0, "NaN"]), vec![0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x7f]),
            ("r24", json!("AQI="), vec![1, 2]),
            ("r16", json!([1, 2]), vec![1, 2]),
            ("string", json!("ab"), b"ab".to_vec()),
            ("float64", Json::Null, vec![0; 8]),
        ] {
            assert_eq!(parse(&value, cells(name)), Some(bytes), "{name} {value}");
        }
        let dates = ZarrCellType {
            dtype: "datetime64[s]".parse().unwrap(),
            cell: CellLen::One,
            stored: StoredCell::Elements,
        };
        assert_eq!(parse(&json!("NaT"), dates), Some(i64::MIN.to_le_bytes().to_vec()));
    }

    #[test]
    fn values_that_do_not_fit_are_rejected() {
        for (name, value) in [
            ("int8", json!(200)),
            ("uint8", json!(-1)),
            ("int8", json!(1.5)),
            ("float32", json!("0x7f")),
            ("float32", json!("x")),
            ("complex64", json!([1])),
            ("r8", json!("AQI=")),
            ("string", json!(3)),
            ("bool", json!(2)),
        ] {
            assert_eq!(parse(&value, cells(name)), None, "{name} {value}");
        }
    }

    #[test]
    fn written_values_read_back() {
        let payload = Scalar::from_le_bytes(DType::Float32, &[1, 0, 0xc0, 0xff]).unwrap();
        for scalar in [
            Scalar::from_element(-0.0_f64),
            Scalar::from_element(0.1_f32),
            Scalar::from_element(f64::NEG_INFINITY),
            Scalar::from_element(u64::MAX),
            payload.clone(),
        ] {
            let cells =
                ZarrCellType { dtype: scalar.dtype(), cell: CellLen::One, stored: StoredCell::Elements };
            assert_eq!(parse(&to_json(&scalar, true).unwrap(), cells).unwrap(), scalar.bytes(), "{scalar:?}");
        }
        assert_eq!(to_json(&payload, false), Some(json!("NaN")));
        assert_eq!(decode_declared(&encode_declared(-999.5)), Some(-999.5));
        assert_eq!(decode_declared("AAAA"), None);
    }
}
