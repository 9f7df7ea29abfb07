//! Attribute values as JSON. Values without a JSON equivalent are objects with one key that begins with `$`.
//!
//! | value | JSON |
//! |---|---|
//! | null, bool, text, finite float of 64 bits, integer of 64 bits | itself |
//! | unsigned integer of 64 bits | `{"$uint": "18446744073709551615"}` |
//! | NaN and infinities of 64 bits | `{"$float": BITS}`, 16 hexadecimal digits |
//! | a value of another dtype | `{"$scalar": [DTYPE, TEXT]}`, or `{"$bits": [DTYPE, HEX]}` if its text is not exact |
//! | bytes | `{"$bytes": HEX}` |
//! | numbers of one dtype | `{"$numbers": [DTYPE, HEX]}`, little-endian |
//! | list | array |
//! | map | object; `{"$map": [[KEY, VALUE], …]}` where a key begins with `$` |

use serde_json::{Value as Json, json};
use tesseral_core::{DType, Limits, MetadataCost, Result, Scalar, Value};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect())?
}

/// Parses JSON that a file contains; `None` for other text.
///
/// # Errors
/// `Limit` if its values would take too much memory.
pub fn parse(text: &[u8], limits: &Limits) -> Result<Option<Json>> {
    limits.check_values(MetadataCost::of_json(text), text.len() as u64)?;
    // The parser limits the nesting depth.
    Ok(serde_json::from_slice(text).ok())
}

/// Converts a value to JSON.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(v) => json!(v),
        Value::Int(v) => json!(v),
        Value::UInt(v) => json!({"$uint": v.to_string()}),
        Value::Float(v) if v.is_finite() => json!(v),
        Value::Float(v) => json!({"$float": format!("{:016x}", v.to_bits())}),
        Value::Scalar(v) => {
            let text = v.to_string();
            match Scalar::parse(v.dtype(), &text) {
                Ok(parsed) if parsed == *v => json!({"$scalar": [v.dtype().to_string(), text]}),
                _ => json!({"$bits": [v.dtype().to_string(), hex(v.bytes())]}),
            }
        }
        Value::Text(v) => json!(v),
        Value::Bytes(v) => json!({"$bytes": hex(v)}),
        Value::List(values) => values.iter().map(to_json).collect(),
        Value::Map(map) if map.keys().any(|k| k.starts_with('$')) => {
            let pairs: Vec<_> = map.iter().map(|(k, v)| json!([k, to_json(v)])).collect();
            json!({"$map": pairs})
        }
        Value::Map(map) => map.iter().map(|(k, v)| (k.clone(), to_json(v))).collect(),
        Value::Numbers { dtype, bytes } => json!({"$numbers": [dtype.to_string(), hex(bytes)]}),
        other => json!(other.to_string()),
    }
}

/// Converts JSON to a value. Objects that are not a known notation are maps.
pub fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(v) => Value::Bool(*v),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(v), ..) => Value::Int(v),
            (None, Some(v), _) => Value::UInt(v),
            (None, None, Some(v)) => Value::Float(v),
            _ => Value::Null,
        },
        Json::String(v) => Value::Text(v.clone()),
        Json::Array(values) => Value::List(values.iter().map(from_json).collect()),
        Json::Object(map) => special(map).unwrap_or_else(|| {
            Value::Map(Box::new(map.iter().map(|(k, v)| (k.clone(), from_json(v))).collect()))
        }),
    }
}

fn special(map: &serde_json::Map<String, Json>) -> Option<Value> {
    let (key, value) = map.iter().next().filter(|_| map.len() == 1)?;
    let text = |i: usize| value.get(i).and_then(Json::as_str);
    let dtype = || text(0)?.parse::<DType>().ok();
    Some(match key.as_str() {
        "$uint" => Value::UInt(value.as_str()?.parse().ok()?),
        "$float" => Value::Float(f64::from_bits(u64::from_str_radix(value.as_str()?, 16).ok()?)),
        "$scalar" => Value::from(Scalar::parse(dtype()?, text(1)?).ok()?),
        "$bits" => Value::from(Scalar::from_le_bytes(dtype()?, &unhex(text(1)?)?).ok()?),
        "$bytes" => Value::Bytes(unhex(value.as_str()?)?),
        "$numbers" => {
            let (dtype, bytes) = (dtype()?, unhex(text(1)?)?);
            bytes.len().is_multiple_of(dtype.size()?).then_some(Value::Numbers { dtype, bytes })?
        }
        "$map" => {
            let pair = |v: &Json| Some((v.get(0)?.as_str()?.to_owned(), from_json(v.get(1)?)));
            Value::Map(Box::new(value.as_array()?.iter().map(pair).collect::<Option<_>>()?))
        }
        _ => return None,
    })
}
