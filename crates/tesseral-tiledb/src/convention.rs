//! Convention for array metadata that stores labels, nested values and history next to plain attributes.
//!
//! | key | value |
//! |---|---|
//! | `KEY` | a plain attribute of the array: number, numbers, text, bytes |
//! | `__tesseral:json:KEY` | a list or map, as JSON |
//! | `__tesseral:file:KEY`, `__tesseral:file:json:KEY` | attributes of the source file of the array |
//! | `__tesseral:labels:D` | labels of dimension D: numbers directly, texts as a JSON list |
//! | `__tesseral:unnamed` | indexes of unnamed dimensions |
//! | `__tesseral:history` | history rows, as JSON |
//! | `__tesseral:version` | 1 if any of the other keys can be present |

use std::collections::BTreeMap;

use serde_json::json;
use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, Attributes, DType, HistoryRow, Value};
use tesseral_format::convention::value::{from_json, to_json};

pub(crate) const PREFIX: &str = "__tesseral:";

/// Content of array metadata.
#[derive(Debug, Default)]
pub(crate) struct ModelMetadata {
    /// Attributes of the array.
    pub attributes: Attributes,
    /// Attributes of the source file, if they are stored separately.
    pub file: Option<Attributes>,
    /// Labels by dimension.
    pub labels: BTreeMap<usize, Labels>,
    /// Dimensions without a name.
    pub unnamed: Vec<usize>,
    pub history: Vec<HistoryRow>,
}

/// Returns the metadata entries of an array.
pub(crate) fn entries(schema: &ArraySchema, file: &Attributes, history: &[HistoryRow]) -> Attributes {
    let mut out = Attributes::new();
    for (key, value) in &tesseral_core::missing::attributes(schema) {
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

/// Returns the metadata entries of a group: the attributes of a file of several arrays.
pub(crate) fn group_entries(file: &Attributes, history: &[HistoryRow]) -> Attributes {
    let empty = ArraySchema { attributes: file.clone(), dims: Vec::new(), ..nothing() };
    entries(&empty, &Attributes::new(), history)
}

fn nothing() -> ArraySchema {
    ArraySchema::dense("", DType::UInt8, &[], &[])
}

/// Adds a value under its own key if metadata supports it, otherwise as JSON. Keys with the reserved prefix are always JSON.
pub(crate) fn put(out: &mut Attributes, scope: &str, key: &str, value: &Value) {
    let nested = matches!(value, Value::List(_) | Value::Map(_) | Value::Bool(_));
    let odd = matches!(value, Value::Numbers { dtype, .. } if crate::wire::datatype::Datatype::from_dtype(*dtype).is_none());
    let odd = odd
        || matches!(value, Value::Scalar(v) if crate::wire::datatype::Datatype::from_dtype(v.dtype()).is_none());
    let single_number = matches!(value, Value::Numbers { dtype, bytes } if Some(bytes.len()) == dtype.size() || bytes.is_empty());
    if nested || odd || single_number || key.starts_with(PREFIX) {
        out.insert(format!("{PREFIX}{scope}json:{key}"), Value::Text(to_json(value).to_string()));
    } else if scope.is_empty() {
        out.insert(key.to_owned(), value.clone());
    } else {
        out.insert(format!("{PREFIX}{scope}{key}"), value.clone());
    }
}

/// The keys under which an attribute can be stored.
pub(crate) fn forms(key: &str) -> [String; 2] {
    [key.to_owned(), format!("{PREFIX}json:{key}")]
}

/// Interprets metadata entries. Entries that do not match their key's convention stay plain attributes.
pub(crate) fn meaning(entries: Attributes) -> ModelMetadata {
    let mut out = ModelMetadata::default();
    let ours = entries.keys().any(|key| key.starts_with(PREFIX));
    if ours {
        out.file = Some(Attributes::new());
    }
    for (key, value) in entries {
        if !key.strip_prefix(PREFIX).is_some_and(|name| interpret(&mut out, name, &value)) {
            out.attributes.insert(key, value);
        }
    }
    out
}

fn interpret(out: &mut ModelMetadata, name: &str, value: &Value) -> bool {
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
        // A single number reads back as a plain value.
        let labels = labels.or_else(|| single(value));
        return labels.map(|labels| out.labels.insert(dim, labels)).is_some();
    }
    match (name, value) {
        ("version", _) => true,
        ("unnamed", Value::Numbers { bytes, .. }) => {
            let numbers = bytes.chunks_exact(8).map(crate::wire::primitive::le64);
            out.unnamed = numbers.filter_map(|n| usize::try_from(n).ok()).collect();
            true
        }
        ("unnamed", value) => match value.to_scalar().and_then(|d| d.as_i128()) {
            Some(d) => {
                out.unnamed = usize::try_from(d).into_iter().collect();
                true
            }
            None => false,
        },
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
    let scalar =
        value.to_scalar().filter(|scalar| scalar.dtype().class() != tesseral_core::dtype::Class::Text)?;
    Some(Labels::Numbers { dtype: scalar.dtype(), bytes: scalar.bytes().to_vec() })
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
    use tesseral_core::{CountedValues, Limits};

    use super::*;

    #[test]
    fn all_kinds_of_metadata_round_trip() {
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
            Value::Map(inner.into()),
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
        let mut counted = CountedValues::new(Limits::DEFAULT, bytes.len() as u64);
        crate::wire::metadata::apply("test", &bytes, &mut read, &mut counted).unwrap();
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
