//! JSON documents as Zarr writers produce them: Python writes NaN and infinities as bare words.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};
use tesseral_core::{Attributes, MetadataCost, Result, Value};

use super::damaged;

/// The words, longest first.
const WORDS: [(&str, f64); 3] =
    [("-Infinity", f64::NEG_INFINITY), ("Infinity", f64::INFINITY), ("NaN", f64::NAN)];

/// Prefix of the text that replaces a word.
const REPLACED: char = '\u{0}';

/// Parses a document. The parser limits the nesting depth.
///
/// # Errors
/// `Corrupt`.
pub fn parse(bytes: &[u8], object: &str) -> Result<Map<String, Json>> {
    let parsed = serde_json::from_slice(bytes).or_else(|error| match quote_words(bytes) {
        Some(text) => serde_json::from_str(&text),
        None => Err(error),
    });
    match parsed {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err(damaged(object, "the document is not a JSON object")),
        Err(error) => Err(damaged(object, format!("invalid JSON: {error}"))),
    }
}

/// Quotes the words outside strings; `None` if there are none.
fn quote_words(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut out = String::new();
    let (mut rest, mut in_string, mut any) = (text, false, false);
    while let Some(next) = rest.chars().next() {
        if in_string && next == '\\' {
            let end = rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        in_string ^= next == '"';
        let word = WORDS.iter().find(|(word, _)| !in_string && rest.starts_with(word));
        let len = match word {
            Some((word, _)) => {
                any = true;
                out.push_str("\"\\u0000");
                out.push_str(word);
                out.push('"');
                word.len()
            }
            None => {
                out.push(next);
                next.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    any.then_some(out)
}

/// Returns a number that JSON has no notation for: a replaced word, or one of the texts that Zarr uses for fill values.
pub(crate) fn special_float(text: &str) -> Option<f64> {
    let word = text.strip_prefix(REPLACED).unwrap_or(text);
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
}

/// What attributes and their copies take in memory.
pub fn cost(map: &Map<String, Json>) -> MetadataCost {
    let cost = MetadataCost::default().maps(1).names(map.len() as u64);
    map.values().fold(cost, |sum, value| sum.and(cost_of(value)))
}

fn cost_of(value: &Json) -> MetadataCost {
    let one = MetadataCost::default();
    match value {
        Json::Array(values) => values.iter().fold(one.lists(1), |sum, value| sum.and(cost_of(value))),
        Json::Object(map) => cost(map),
        _ => one.values(1),
    }
}

/// Converts attributes.
pub fn attributes(map: Map<String, Json>) -> Attributes {
    map.into_iter().map(|(name, value)| (name, value_of(value))).collect()
}

/// Converts one attribute value.
pub(crate) fn value_of(value: Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(v) => Value::Bool(v),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(v), _) => Value::Int(v),
            (None, Some(v)) => Value::UInt(v),
            (None, None) => n.as_f64().map_or(Value::Null, Value::Float),
        },
        Json::String(text) => match special_float(&text).filter(|_| text.starts_with(REPLACED)) {
            Some(word) => Value::Float(word),
            None => Value::Text(text),
        },
        Json::Array(values) => Value::List(values.into_iter().map(value_of).collect()),
        Json::Object(map) => Value::Map(Box::new(attributes(map))),
    }
}

/// Converts a value to JSON; `None` if JSON has no notation that reads back as the same kind of value.
pub(crate) fn to_json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Null => Json::Null,
        Value::Bool(v) => Json::Bool(*v),
        Value::Int(v) => Json::from(*v),
        Value::UInt(v) => Json::from(*v),
        Value::Float(v) => Json::Number(serde_json::Number::from_f64(*v)?),
        Value::Text(v) if v.starts_with(REPLACED) => return None,
        Value::Text(v) => Json::from(v.as_str()),
        Value::List(values) => Json::Array(values.iter().map(to_json).collect::<Option<_>>()?),
        Value::Map(map) => {
            let pair = |(name, value): (&String, &Value)| Some((name.clone(), to_json(value)?));
            Json::Object(map.iter().map(pair).collect::<Option<_>>()?)
        }
        Value::Scalar(scalar) => match scalar.as_i128() {
            Some(int) => Json::from(i64::try_from(int).ok()?),
            None => Json::Number(serde_json::Number::from_f64(scalar.as_f64()?)?),
        },
        Value::Numbers { dtype, bytes } => {
            let each = bytes.chunks(dtype.size()?).map(|one| {
                let scalar = tesseral_core::Scalar::from_le_bytes(*dtype, one).ok()?;
                to_json(&Value::Scalar(scalar))
            });
            Json::Array(each.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Formats a document as Zarr implementations do.
pub(crate) fn to_bytes(map: &Map<String, Json>) -> Vec<u8> {
    // Maps with text keys and finite numbers are always representable.
    serde_json::to_vec_pretty(map).unwrap_or_default()
}

/// Describes a value in an error, without repeating long ones.
pub(crate) fn shown(value: &Json) -> Cow<'static, str> {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_are_numbers_and_text_stays_text() {
        let text =
            br#"{"a": NaN, "b": [-Infinity, Infinity, 1.5], "c": "NaN, \" Infinity", "NaN": "Infinity"}"#;
        let read = attributes(parse(text, "x").unwrap());
        assert!(matches!(read["a"], Value::Float(v) if v.is_nan()));
        let infinite = Value::List(vec![
            Value::Float(f64::NEG_INFINITY),
            Value::Float(f64::INFINITY),
            Value::Float(1.5),
        ]);
        assert_eq!(read["b"], infinite);
        assert_eq!(read["c"], Value::from("NaN, \" Infinity"));
        assert_eq!(read["NaN"], Value::from("Infinity"));
    }

    #[test]
    fn malformed_documents_are_corrupt() {
        for text in ["", "{", "[]", "NaN", "{\"a\": Nan}", "{\"a\": NaN", "\u{e9}", "{\"\\"] {
            assert!(parse(text.as_bytes(), "x").is_err(), "{text}");
        }
        let deep = [&b"{\"a\":"[..], &[b'['; 100_000]].concat();
        assert!(parse(&deep, "x").is_err());
    }
}
