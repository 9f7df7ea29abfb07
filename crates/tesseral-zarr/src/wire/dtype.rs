//! Data types: NumPy notation in v2, names in v3.

use serde_json::{Map, Value as Json, json};
use tesseral_core::dtype::TimeUnit;
use tesseral_core::{CellLen, DType, Error, Result, numpy};

use super::json::shown;

/// How cells are stored before the codecs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredCell {
    /// As the elements of the dtype.
    Elements,
    /// As this many UTF-32 characters, padded with NUL.
    Utf32(u32),
    /// By a codec for variable-length cells.
    Var,
}

/// The cells of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZarrCellType {
    /// Dtype in the model.
    pub dtype: DType,
    /// Elements per cell in the model.
    pub cell: CellLen,
    /// Stored form.
    pub stored: StoredCell,
}

/// The most characters of fixed-length text.
const MAX_CHARS: u32 = 1 << 24;

impl ZarrCellType {
    fn elements(dtype: DType, cell: CellLen) -> Self {
        Self { dtype, cell, stored: StoredCell::Elements }
    }

    /// Variable-length cells of a dtype.
    pub fn var(dtype: DType) -> Self {
        Self { dtype, cell: CellLen::Var, stored: StoredCell::Var }
    }

    fn utf32(chars: u32) -> Self {
        Self { dtype: DType::Utf8, cell: CellLen::Var, stored: StoredCell::Utf32(chars) }
    }

    /// Bytes of a stored cell; `None` for variable-length cells.
    pub fn stored_size(self) -> Option<usize> {
        match (self.stored, self.cell) {
            (StoredCell::Var, _) => None,
            (StoredCell::Utf32(chars), _) => usize::try_from(chars).ok()?.checked_mul(4),
            (StoredCell::Elements, CellLen::Fixed(n)) => {
                self.dtype.size()?.checked_mul(usize::try_from(n).ok()?)
            }
            (StoredCell::Elements, _) => self.dtype.size(),
        }
    }

    /// Bytes of a machine number, the unit of byte swapping.
    pub fn word(self) -> usize {
        if matches!(self.stored, StoredCell::Utf32(_)) { 4 } else { self.dtype.word() }
    }
}

/// Parses a dtype of v2; also returns whether numbers are big-endian. `None` for `|O`, whose filters decide.
///
/// # Errors
/// `Unsupported` with the dtype.
pub fn parse_v2(value: &Json) -> Result<Option<(ZarrCellType, bool)>> {
    let unsupported = || Error::unsupported(format!("Zarr dtype {}", shown(value)));
    let Some(descr) = value.as_str() else {
        return Err(Error::unsupported(format!("structured Zarr dtype {}", shown(value))));
    };
    if descr == "|O" {
        return Ok(None);
    }
    if let Some((dtype, cell, big)) = numpy::parse_descr(descr) {
        return Ok(Some((ZarrCellType::elements(dtype, cell), big)));
    }
    let length = |kind: char| {
        let plain = descr.trim_start_matches(['<', '>', '|']);
        let digits = plain.strip_prefix(kind)?;
        digits.parse::<u32>().ok().filter(|n| (1..=MAX_CHARS).contains(n) && n.to_string() == digits)
    };
    if let Some(chars) = length('U') {
        return Ok(Some((ZarrCellType::utf32(chars), descr.starts_with('>'))));
    }
    if let Some(bytes) = length('V') {
        return Ok(Some((ZarrCellType::elements(DType::Bytes, CellLen::Fixed(bytes)), false)));
    }
    Err(unsupported())
}

/// Parses a data type of v3.
///
/// # Errors
/// `Unsupported` with the data type.
pub fn parse_v3(value: &Json) -> Result<ZarrCellType> {
    let unsupported = || Error::unsupported(format!("Zarr data type {}", shown(value)));
    let (name, configuration) = named(value).ok_or_else(unsupported)?;
    let number = |key: &str| configuration?.get(key)?.as_u64();
    let length = |unit: u64| {
        let bytes = number("length_bytes").filter(|n| *n > 0 && n.is_multiple_of(unit))?;
        u32::try_from(bytes / unit).ok().filter(|n| *n <= MAX_CHARS)
    };
    let found = match name {
        "string" => Some(ZarrCellType::var(DType::Utf8)),
        "bytes" | "variable_length_bytes" => Some(ZarrCellType::var(DType::Bytes)),
        "null_terminated_bytes" => length(1).map(|n| ZarrCellType::elements(DType::Ascii, CellLen::Fixed(n))),
        "raw_bytes" => length(1).map(|n| ZarrCellType::elements(DType::Bytes, CellLen::Fixed(n))),
        "fixed_length_utf32" => length(4).map(ZarrCellType::utf32),
        "numpy.datetime64" | "numpy.timedelta64" => {
            let unit = configuration.and_then(|c| c.get("unit")).and_then(Json::as_str);
            let unit = unit.map(|unit| if unit == "μs" { "us" } else { unit });
            let unit = TimeUnit::ALL.into_iter().find(|known| unit == Some(known.abbreviation()));
            let of: fn(TimeUnit) -> DType =
                if name == "numpy.datetime64" { DType::DateTime } else { DType::TimeDelta };
            let single = number("scale_factor").is_none_or(|factor| factor == 1);
            unit.filter(|_| single).map(|unit| ZarrCellType::elements(of(unit), CellLen::One))
        }
        "bitmask" | "char" | "string_ascii" | "string_utf8" => None,
        _ => match name.strip_prefix('r').and_then(|bits| bits.parse::<u32>().ok()) {
            Some(bits) if bits > 0 && bits.is_multiple_of(8) && bits / 8 <= MAX_CHARS => {
                Some(ZarrCellType::elements(DType::Bytes, CellLen::Fixed(bits / 8)))
            }
            _ => name.parse().ok().map(|dtype| ZarrCellType::elements(dtype, CellLen::One)),
        },
    };
    found
        .filter(|cell| {
            !matches!(cell.dtype, DType::DateTime(_) | DType::TimeDelta(_)) || name.starts_with("numpy.")
        })
        .ok_or_else(unsupported)
}

/// Name and configuration of an extension point: text, or an object with both.
pub(crate) fn named(value: &Json) -> Option<(&str, Option<&Map<String, Json>>)> {
    match value {
        Json::String(name) => Some((name, None)),
        Json::Object(map) => {
            Some((map.get("name")?.as_str()?, map.get("configuration").and_then(Json::as_object)))
        }
        _ => None,
    }
}

/// The notation of v2 and v3 for cells that can be written; `None` for others.
pub(crate) fn names(dtype: DType, cell: CellLen) -> Option<(String, Json)> {
    let numpy = |kind: &str, size: usize| format!("{}{kind}{size}", if size == 1 { '|' } else { '<' });
    let plain = |kind: &str| Some((numpy(kind, dtype.size()?), json!(dtype.to_string())));
    match (dtype, cell) {
        (DType::Utf8, CellLen::Var) => Some(("|O".to_owned(), json!("string"))),
        (DType::Bytes, CellLen::Var) => Some(("|O".to_owned(), json!("variable_length_bytes"))),
        (DType::Ascii, CellLen::Fixed(n)) => {
            let configuration = json!({"length_bytes": n});
            Some((format!("|S{n}"), json!({"name": "null_terminated_bytes", "configuration": configuration})))
        }
        (_, CellLen::Fixed(_) | CellLen::Var) => None,
        (DType::Bool, _) => plain("b"),
        (DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64, _) => plain("i"),
        (DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64, _) => plain("u"),
        (DType::Float16 | DType::Float32 | DType::Float64, _) => plain("f"),
        (DType::Complex64 | DType::Complex128, _) => plain("c"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_versions_are_read() {
        for (v2, v3, size) in [
            ("|b1", json!("bool"), 1),
            ("<f2", json!("float16"), 2),
            ("<c16", json!("complex128"), 16),
            (
                "<M8[ns]",
                json!({"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}}),
                8,
            ),
            ("|S3", json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}), 3),
            ("<U2", json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}), 8),
            ("|V2", json!("r16"), 2),
        ] {
            let (old, big) = parse_v2(&json!(v2)).unwrap().unwrap();
            assert_eq!((old, big), (parse_v3(&v3).unwrap(), false), "{v2}");
            assert_eq!(old.stored_size(), Some(size));
        }
        assert!(parse_v2(&json!(">U2")).unwrap().unwrap().1);
        assert_eq!(parse_v2(&json!("|O")).unwrap(), None);
        assert_eq!(parse_v3(&json!("string")).unwrap().stored_size(), None);
    }

    #[test]
    fn other_types_are_unsupported() {
        for v2 in
            [json!([["a", "<i4"]]), json!("<f16"), json!("U0"), json!("<U99999999"), json!(3), json!("M8")]
        {
            assert!(parse_v2(&v2).is_err(), "{v2}");
        }
        for v3 in [
            json!("float128"),
            json!("r7"),
            json!("datetime64[ns]"),
            json!("bitmask"),
            json!({"name": "structured"}),
            json!({"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 10}}),
            json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 7}}),
            json!([1]),
        ] {
            assert!(parse_v3(&v3).is_err(), "{v3}");
        }
    }

    #[test]
    fn written_names_read_back() {
        for dtype in DType::PLAIN {
            for cell in [CellLen::One, CellLen::Var, CellLen::Fixed(3)] {
                let Some((v2, v3)) = names(dtype, cell) else { continue };
                let read = parse_v3(&v3).unwrap();
                assert_eq!((read.dtype, read.cell), (dtype, cell));
                let old = parse_v2(&json!(v2)).unwrap();
                assert!(old.is_none_or(|(old, big)| old == read && !big), "{v2}");
            }
        }
    }
}
