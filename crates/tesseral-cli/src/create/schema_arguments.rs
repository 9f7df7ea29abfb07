//! Array schemas from command-line arguments.

use serde_json::{Value as Json, json};
use tesseral::{CodecSpec, DType, Error, Field};

use super::CreateArguments;
use crate::error::CliResult;

/// Converts arguments to the equivalent JSON.
pub(super) fn document(arguments: &CreateArguments) -> CliResult<Json> {
    let mut dims = Vec::new();
    for word in &arguments.dim {
        let refuse =
            || Error::invalid(format!("invalid dimension {word:?}")).hint("example: time=0..364/30:int32");
        if let Some(name) = word.strip_suffix(":string") {
            dims.push(json!({"name": name, "dtype": "string_ascii"}));
            continue;
        }
        let (name, rest) = word.split_once('=').ok_or_else(refuse)?;
        let (rest, dtype) = match rest.rsplit_once(':') {
            Some((rest, dtype)) if dtype.parse::<DType>().is_ok() => (rest, dtype),
            _ => (rest, "int64"),
        };
        let (range, tile) = rest.split_once('/').map_or((rest, None), |(range, tile)| (range, Some(tile)));
        let (low, high) = range.split_once("..").ok_or_else(refuse)?;
        dims.push(json!({"name": name, "dtype": dtype, "domain": [low, high], "tile": tile}));
    }
    for word in &arguments.current {
        let (name, low, high) = range(word)?;
        let dim = dims.iter_mut().find(|dim| dim["name"] == name);
        let dim = dim.ok_or_else(|| Error::invalid(format!("unknown dimension {name:?}")))?;
        dim["current"] = json!([low, high]);
    }
    for word in &arguments.label {
        let refuse = || {
            Error::invalid(format!("invalid label {word:?}")).hint("example: lat=latitude:float64:decreasing")
        };
        let (name, label) = word.split_once('=').ok_or_else(refuse)?;
        let mut parts = label.splitn(3, ':');
        let (Some(label), Some(dtype)) = (parts.next(), parts.next()) else { return Err(refuse().into()) };
        let order = parts.next().unwrap_or("increasing");
        let dim = dims.iter_mut().find(|dim| dim["name"] == name);
        let dim = dim.ok_or_else(|| Error::invalid(format!("unknown dimension {name:?}")))?;
        if dim["labels"].is_null() {
            dim["labels"] = json!([]);
        }
        if let Some(labels) = dim["labels"].as_array_mut() {
            labels.push(json!({"name": label, "dtype": dtype, "order": order}));
        }
    }
    let fields = arguments.field.iter().map(|word| field_words(word)).collect::<CliResult<Vec<_>>>()?;
    let mut document = json!({
        "dims": dims, "fields": fields, "sparse": arguments.sparse, "duplicates": arguments.duplicates,
        "cell_order": arguments.order,
    });
    if let Some(capacity) = arguments.capacity {
        document["capacity"] = json!(capacity);
    }
    Ok(document)
}

/// `NAME=LOW..HIGH`.
pub(crate) fn range(word: &str) -> tesseral::Result<(&str, &str, &str)> {
    let parts = word.split_once('=').and_then(|(name, range)| Some((name, range.split_once("..")?)));
    let (name, (low, high)) = parts
        .ok_or_else(|| Error::invalid(format!("invalid range {word:?}")).hint("example: time=0..364"))?;
    Ok((name, low, high))
}

/// Converts `NAME:DTYPE[?][:CODEC+CODEC…]` to the equivalent JSON.
fn field_words(word: &str) -> CliResult<Json> {
    let mut parts = word.splitn(3, ':');
    let (Some(name), Some(dtype)) = (parts.next(), parts.next()) else {
        let refused = Error::invalid(format!("invalid field {word:?}"));
        return Err(refused.hint("example: temperature:float32 or name:string_utf8?:zstd").into());
    };
    let codecs: Vec<&str> = parts.next().map(|c| c.split('+').collect()).unwrap_or_default();
    let nullable = dtype.ends_with('?');
    Ok(json!({"name": name, "dtype": dtype.trim_end_matches('?'), "nullable": nullable, "codecs": codecs}))
}

/// Parses a field with its codecs from `NAME:DTYPE[?][:CODEC+CODEC…]`.
pub(crate) fn field_of(word: &str) -> CliResult<(Field, Vec<CodecSpec>)> {
    Ok(tesseral::declared_field(&field_words(word)?)?)
}
