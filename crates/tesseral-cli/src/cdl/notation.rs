//! Names, types and constants in the notation of CDL.

use std::fmt::Write as _;

use tesseral::{CellLen, DType, Field};
use tesseral_core::dtype::Class;
use tesseral_core::scalar;

use crate::text;

/// Type of a variable or attribute in CDL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CdlType {
    /// The dtype of each element as it is written.
    pub dtype: DType,
    /// Whether cells are whole strings.
    pub string: bool,
    /// Whether CDL has this type. A comment names the dtype otherwise.
    pub exact: bool,
}

impl CdlType {
    /// The type of the cells of a field; `None` if CDL has none that holds them.
    pub(super) fn of_field(field: &Field) -> Option<Self> {
        let text = field.dtype.class() == Class::Text && field.dtype != DType::Char;
        match (field.cell, text) {
            (CellLen::One, _) | (_, true) => Self::of_dtype(field.dtype, field.cell != CellLen::One),
            _ => None,
        }
    }

    /// The type of one element, or of strings of such elements.
    pub(super) fn of_dtype(dtype: DType, string: bool) -> Option<Self> {
        let held = match dtype {
            DType::Bool => DType::Int8,
            DType::Float16 | DType::BFloat16 => DType::Float32,
            DType::DateTime(_) | DType::TimeDelta(_) => DType::Int64,
            DType::Complex64 | DType::Complex128 | DType::Bitmask | DType::Bytes => return None,
            other => other,
        };
        Some(Self { dtype: held, string, exact: held == dtype })
    }

    /// Name of the type.
    pub(super) fn name(self) -> &'static str {
        match self.dtype {
            _ if self.string => "string",
            DType::Int8 => "byte",
            DType::UInt8 => "ubyte",
            DType::Int16 => "short",
            DType::UInt16 => "ushort",
            DType::Int32 => "int",
            DType::UInt32 => "uint",
            DType::Int64 => "int64",
            DType::UInt64 => "uint64",
            DType::Float32 => "float",
            DType::Float64 => "double",
            _ => "char",
        }
    }

    /// Ending of a constant that states its type.
    pub(super) fn suffix(self) -> &'static str {
        match self.dtype {
            DType::Int8 => "b",
            DType::UInt8 => "ub",
            DType::Int16 => "s",
            DType::UInt16 => "us",
            DType::UInt32 => "u",
            DType::Int64 => "ll",
            DType::UInt64 => "ull",
            DType::Float32 => "f",
            _ => "",
        }
    }

    /// Writes a number: the shortest decimal that denotes it. Floats always end with their type where a word such as `NaN`
    /// represents a number.
    pub(super) fn write_number(self, out: &mut String, stored: DType, bytes: &[u8]) {
        let dtype = if stored == DType::Float16 || stored == DType::BFloat16 { stored } else { self.dtype };
        let start = out.len();
        // Writing to a `String` is infallible.
        let _ = scalar::write_element(out, dtype, bytes);
        let word = match &out[start..] {
            "NaN" => "NaN",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            _ => return,
        };
        out.truncate(start);
        out.push_str(word);
        if self.dtype == DType::Float32 {
            out.push('f');
        }
    }
}

/// A name, with characters that have a meaning in CDL escaped.
pub(super) fn name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (i, c) in name.chars().enumerate() {
        let plain = c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '@' | '+' | '-') || !c.is_ascii();
        if (!plain && !c.is_ascii_control()) || (i == 0 && !(c.is_alphabetic() || c == '_')) {
            out.push('\\');
        }
        out.push(c);
    }
    text::escape(&out).into_owned()
}

/// Text as a string constant.
pub(super) fn string(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_ascii_control() => push_byte(&mut out, c as u8),
                // Invisible and bidirectional characters, byte by byte.
                c if text::escape(c.encode_utf8(&mut [0; 4])).as_ref() != c.encode_utf8(&mut [0; 4]) => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_byte(&mut out, byte));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut out, *byte));
    }
    out.push('"');
    out
}

/// Three octal digits, so that a digit that follows is not parsed as a part of them.
fn push_byte(out: &mut String, byte: u8) {
    let _ = write!(out, "\\{byte:03o}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_escape_what_has_a_meaning() {
        assert_eq!(name("air_temperature.2m"), "air_temperature.2m");
        assert_eq!(name("2m temp(K)"), "\\2m\\ temp\\(K\\)");
        assert_eq!(name("größe"), "größe");
        assert!(!name("a\u{1b}[31m").contains('\u{1b}'));
    }

    #[test]
    fn strings_escape_quotes_controls_and_invalid_bytes() {
        assert_eq!(string(b"a \"b\"\\\n"), "\"a \\\"b\\\"\\\\\\n\"");
        assert_eq!(string(b"\x1b\xff1"), "\"\\033\\3771\"");
        assert_eq!(string("\u{202e}".as_bytes()), "\"\\342\\200\\256\"");
        assert_eq!(string("°C".as_bytes()), "\"°C\"");
    }

    #[test]
    fn numbers_are_the_shortest_decimals() {
        let float = CdlType::of_dtype(DType::Float32, false).unwrap();
        let text = |value: f32| {
            let mut out = String::new();
            float.write_number(&mut out, DType::Float32, &value.to_le_bytes());
            out
        };
        assert_eq!([text(0.1), text(-1e30), text(f32::NAN)], ["0.1", "-1e30", "NaNf"]);
        assert_eq!([text(f32::INFINITY), text(f32::NEG_INFINITY)], ["Infinityf", "-Infinityf"]);
        assert!(CdlType::of_dtype(DType::Complex64, false).is_none());
    }
}
