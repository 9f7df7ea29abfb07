//! JSON helpers of the footer: bounded depth, strict objects, hex digits.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Serialize, Serializer};

/// A struct that must be a JSON object. Serde would accept an array of its fields as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonObject<T>(pub T);

impl<T: Serialize> Serialize for JsonObject<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Nesting depth of a JSON text, computed without parsing, so that it needs no stack.
pub fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Decodes an even number of hex digits of either case into `out`; returns the number of bytes.
pub fn hex_into(text: &str, out: &mut [u8]) -> Option<usize> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() / 2 > out.len() {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(digits.len() / 2)
}

/// Appends bytes as lowercase hex digits.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_ignores_strings() {
        assert_eq!(depth(br#"{"a":[1,{"b":"[[[\"[["}]}"#), 3);
        assert_eq!(depth(&[b'['; 1000]), 1000);
        assert_eq!(depth(b"]]]["), 1);
    }

    #[test]
    fn hex_round_trips() {
        let mut text = Vec::new();
        write_hex(&[0, 0x80, 0x3f, 0xff], &mut text);
        assert_eq!(text, b"00803fff");
        let mut out = [0; 8];
        assert_eq!(hex_into("00803fFF", &mut out), Some(4));
        assert_eq!(out[..4], [0, 0x80, 0x3f, 0xff]);
        assert_eq!(hex_into("0", &mut out), None);
        assert_eq!(hex_into("0g", &mut out), None);
        assert_eq!(hex_into("+1", &mut out), None);
        assert_eq!(hex_into("000000000000000000", &mut out), None);
    }

    #[test]
    fn arrays_are_not_accepted_as_objects() {
        #[derive(Debug, serde::Deserialize)]
        struct KeyValue {
            a: u8,
        }
        assert_eq!(serde_json::from_str::<JsonObject<KeyValue>>(r#"{"a":1}"#).unwrap().0.a, 1);
        assert!(serde_json::from_str::<KeyValue>("[1]").is_ok(), "serde alone accepts the array");
        assert!(serde_json::from_str::<JsonObject<KeyValue>>("[1]").is_err());
    }
}
