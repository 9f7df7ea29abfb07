//! What array metadata hold beside plain attributes, so that labels, nested values and history survive.
//!
//! | key | value |
//! |---|---|
//! | `KEY` | a plain attribute of the array: number, numbers, text, bytes |
//! | `__tesseral:json:KEY` | a list or map, as JSON |
//! | `__tesseral:file:KEY`, `__tesseral:file:json:KEY` | attributes of the file that the array came from |
//! | `__tesseral:labels:D` | labels of dimension D: numbers as they are, texts as a JSON list |
//! | `__tesseral:unnamed` | numbers of the dimensions that have no name |
//! | `__tesseral:history` | how the array came to be, as JSON |
//! | `__tesseral:version` | 1 wherever one of the others may be |

use std::collections::BTreeMap;

use serde_json::json;
use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, Attributes, DType, HistoryRow, Value};

const PREFIX: &str = "__tesseral:";

/// What the metadata of an array say.
#[derive(Debug, Default)]
pub(crate) struct Meaning {
    /// Attributes of the array.
    pub attributes: Attributes,
    /// Attributes of its file, where they are kept apart.
    pub file: Option<Attributes>,
    /// Labels by dimension.
    pub labels: BTreeMap<usize, Labels>,
    /// Dimensions without a name.
    pub unnamed: Vec<usize>,
    pub history: Vec<HistoryRow>,
}

/// Metadata entries of an array.
pub(crate) fn entries(schema: &ArraySchema, file: &Attributes, history: &[HistoryRow]) -> Attributes {
    let mut out = Attributes::new();
    for (key, value) in &schema.attributes {
        put(&mut out, "", key, value);
    }
    for (key, value) in file {
        put(&mut out, "file:", key, value);
    }
    for (d, dim) in schema.dims.iter().enumerate() {
        let value = match &dim.labels {
            None => continue,
            Some(Labels::Text(labels)) => Value::Text(json!(labels).to_string()),
            Some(Labels::Numbers { dtype, bytes }) => Value::Numbers { dtype: *dtype, bytes: bytes.clone() },
        };
        out.insert(format!("{PREFIX}labels:{d}"), value);
    }
    let unnamed = schema.dims.iter().enumerate().filter(|(_, d)| d.name.is_empty());
    let unnamed: Vec<u8> = unnamed.flat_map(|(d, _)| (d as u64).to_le_bytes()).collect();
    if !unnamed.is_empty() {
        let value = Value::Numbers { dtype: DType::UInt64, bytes: unnamed };
        out.insert(format!("{PREFIX}unnamed"), value);
    }
    if !history.is_empty() {
        let rows: Vec<serde_json::Value> = history.iter().map(history_json).collect();
        out.insert(format!("{PREFIX}history"), Value::Text(json!(rows).to_string()));
    }
    if !out.is_empty() {
        out.insert(format!("{PREFIX}version"), Value::Int(1));
    }
    out
}

/// Metadata entries of a group: the attributes of a file of several arrays.
pub(crate) fn group_entries(file: &Attributes, history: &[HistoryRow]) -> Attributes {
    let empty = ArraySchema { attributes: file.clone(), dims: Vec::new(), ..nothing() };
    entries(&empty, &Attributes::new(), history)
}

fn nothing() -> ArraySchema {
    ArraySchema::dense("", DType::UInt8, &[], &[])
}

/// Adds a value under its own key where metadata can hold it, else as JSON. Keys that look like ours are always JSON.
pub(crate) fn put(out: &mut Attributes, scope: &str, key: &str, value: &Value) {
    let nested = matches!(value, Value::List(_) | Value::Map(_) | Value::Bool(_));
    let odd = matches!(value, Value::Numbers { dtype, .. } if crate::wire::datatype::Datatype::of(*dtype).is_none());
    let one = matches!(value, Value::Numbers { dtype, bytes } if Some(bytes.len()) == dtype.size() || bytes.is_empty());
    if nested || odd || one || key.starts_with(PREFIX) {
        out.insert(format!("{PREFIX}{scope}json:{key}"), Value::Text(to_json(value).to_string()));
    } else if scope.is_empty() {
        out.insert(key.to_owned(), value.clone());
    } else {
        out.insert(format!("{PREFIX}{scope}{key}"), value.clone());
    }
}

/// The keys an attribute may be stored under.
pub(crate) fn forms(key: &str) -> [String; 2] {
    [key.to_owned(), format!("{PREFIX}json:{key}")]
}

/// Sorts metadata entries by what they mean. Entries that cannot be read as what their key says stay attributes.
pub(crate) fn meaning(entries: Attributes) -> Meaning {
    let mut out = Meaning::default();
    let ours = entries.keys().any(|key| key.starts_with(PREFIX));
    if ours {
        out.file = Some(Attributes::new());
    }
    for (key, value) in entries {
        if !key.strip_prefix(PREFIX).is_some_and(|name| place(&mut out, name, &value)) {
            out.attributes.insert(key, value);
        }
    }
    out
}

fn place(out: &mut Meaning, name: &str, value: &Value) -> bool {
    let json = || match value {
        Value::Text(text) => serde_json::from_str::<serde_json::Value>(text).ok(),
        _ => None,
    };
    if let Some(key) = name.strip_prefix("json:") {
        return json().map(|v| out.attributes.insert(key.to_owned(), from_json(&v))).is_some();
    }
    if let Some(name) = name.strip_prefix("file:") {
        let file = out.file.get_or_insert_default();
        if let Some(key) = name.strip_prefix("json:") {
            return json().map(|v| file.insert(key.to_owned(), from_json(&v))).is_some();
        }
        file.insert(name.to_owned(), value.clone());
        return true;
    }
    if let Some(dim) = name.strip_prefix("labels:").and_then(|d| d.parse().ok()) {
        let labels = match value {
            Value::Numbers { dtype, bytes } => Some(Labels::Numbers { dtype: *dtype, bytes: bytes.clone() }),
            _ => json().and_then(|v| serde_json::from_value(v).ok()).map(Labels::Text),
        };
        // One number reads back as a plain value.
        let labels = labels.or_else(|| single(value));
        return labels.map(|labels| out.labels.insert(dim, labels)).is_some();
    }
    match (name, value) {
        ("version", _) => true,
        ("unnamed", Value::Numbers { bytes, .. }) => {
            let numbers = bytes.chunks_exact(8).map(crate::wire::cursor::le64);
            out.unnamed = numbers.filter_map(|n| usize::try_from(n).ok()).collect();
            true
        }
        ("unnamed", Value::Int(d)) => {
            out.unnamed = usize::try_from(*d).into_iter().collect();
            true
        }
        ("history", _) => match json() {
            Some(serde_json::Value::Array(rows)) => {
                out.history = rows.iter().map(history_row).collect();
                true
            }
            _ => false,
        },
        _ => false,
    }
}

fn single(value: &Value) -> Option<Labels> {
    let (dtype, bytes) = match value {
        Value::Int(v) => (DType::Int64, v.to_le_bytes()),
        Value::UInt(v) => (DType::UInt64, v.to_le_bytes()),
        Value::Float(v) => (DType::Float64, v.to_le_bytes()),
        _ => return None,
    };
    Some(Labels::Numbers { dtype, bytes: bytes.to_vec() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect())?
}

/// A value as JSON; what JSON has no word for is a map of one key that begins with `$`.
fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(v) => json!(v),
        Value::Int(v) => json!(v),
        Value::UInt(v) => json!({"$uint": v.to_string()}),
        Value::Float(v) if v.is_finite() => json!(v),
        Value::Float(v) => json!({"$float": format!("{:016x}", v.to_bits())}),
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

fn from_json(value: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match value {
        Json::Null => Value::Null,
        Json::Bool(v) => Value::Bool(*v),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(v), _) => Value::Int(v),
            (None, Some(v)) => Value::Float(v),
            _ => Value::Null,
        },
        Json::String(v) => Value::Text(v.clone()),
        Json::Array(values) => Value::List(values.iter().map(from_json).collect()),
        Json::Object(map) => special(map)
            .unwrap_or_else(|| Value::Map(map.iter().map(|(k, v)| (k.clone(), from_json(v))).collect())),
    }
}

fn special(map: &serde_json::Map<String, serde_json::Value>) -> Option<Value> {
    let (key, value) = map.iter().next().filter(|_| map.len() == 1)?;
    Some(match key.as_str() {
        "$uint" => Value::UInt(value.as_str()?.parse().ok()?),
        "$float" => Value::Float(f64::from_bits(u64::from_str_radix(value.as_str()?, 16).ok()?)),
        "$bytes" => Value::Bytes(unhex(value.as_str()?)?),
        "$numbers" => Value::Numbers {
            dtype: value.get(0)?.as_str()?.parse().ok()?,
            bytes: unhex(value.get(1)?.as_str()?)?,
        },
        "$map" => {
            let pair = |v: &serde_json::Value| Some((v.get(0)?.as_str()?.to_owned(), from_json(v.get(1)?)));
            Value::Map(value.as_array()?.iter().map(pair).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

fn history_json(row: &HistoryRow) -> serde_json::Value {
    json!({"op": row.op, "source": row.source, "at": row.at, "parents": row.parents, "params": row.params, "extra": row.extra})
}

fn history_row(value: &serde_json::Value) -> HistoryRow {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let texts = |key: &str| serde_json::from_value(value[key].clone()).unwrap_or_default();
    HistoryRow {
        op: text("op"),
        source: text("source"),
        at: text("at"),
        parents: serde_json::from_value(value["parents"].clone()).unwrap_or_default(),
        params: texts("params"),
        extra: texts("extra"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_back() {
        let mut schema = ArraySchema::dense("a", DType::Int32, &[2, 1], &[2, 1]);
        schema.dims[0].name = "x".to_owned();
        schema.dims[0].labels = Some(Labels::Text(vec!["a\"".to_owned(), String::new()]));
        schema.dims[1].labels = Some(Labels::Numbers { dtype: DType::Float32, bytes: vec![0, 0, 128, 63] });
        let inner = Attributes::from([
            ("$odd".to_owned(), Value::Bytes(vec![1, 255])),
            ("nan".to_owned(), Value::Float(f64::from_bits(0x7FF8_0000_0000_0001))),
        ]);
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Int(-3),
            Value::UInt(u64::MAX),
            Value::Float(1.0),
            Value::Text(String::new()),
            Value::Bytes(vec![0]),
            Value::List(vec![Value::UInt(7), Value::Float(2.0), Value::Int(1), Value::Text("x".into())]),
            Value::Map(inner),
            Value::Numbers { dtype: DType::Float16, bytes: vec![1, 2] },
            Value::Numbers { dtype: DType::Int16, bytes: vec![1, 2, 3, 4] },
            Value::Numbers { dtype: DType::Int16, bytes: vec![1, 2] },
        ];
        for (i, value) in values.into_iter().enumerate() {
            schema.attributes.insert(format!("k{i}"), value);
        }
        schema.attributes.insert("__tesseral:version".to_owned(), Value::Int(9));
        let file = Attributes::from([
            ("title".to_owned(), Value::from("t")),
            ("list".to_owned(), Value::List(Vec::new())),
        ]);
        let history = vec![HistoryRow { op: "convert".into(), at: "1".into(), ..HistoryRow::default() }];
        let stored = entries(&schema, &file, &history);
        let mut bytes = Vec::new();
        let pairs = stored.iter().map(|(k, v)| (k.as_str(), Some(v)));
        crate::wire::metadata::write(pairs, &mut bytes).unwrap();
        let mut read = Attributes::new();
        crate::wire::metadata::apply("test", &bytes, &mut read).unwrap();
        let found = meaning(read);
        let nan = |v: &Attributes| format!("{v:?}");
        assert_eq!(nan(&found.attributes), nan(&schema.attributes));
        assert_eq!(found.file, Some(file));
        assert_eq!(found.history, history);
        assert_eq!(found.unnamed, [1]);
        assert_eq!(found.labels.get(&0), schema.dims[0].labels.as_ref());
        assert_eq!(found.labels[&1].len(), 1);
    }
}
