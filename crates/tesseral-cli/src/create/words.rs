//! What an array is, from words on the command line.

use serde_json::{Value as Json, json};
use tesseral::{CodecSpec, DType, Error, Field};

use super::Arguments;
use crate::failure::Outcome;

/// Words of the command line as the JSON they stand for.
pub(super) fn document(arguments: &Arguments) -> Outcome<Json> {
    let mut dims = Vec::new();
    for word in &arguments.dim {
        let refuse =
            || Error::invalid(format!("{word:?} is no dimension")).hint("write time=0..364/30:int32");
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
        let dim = dim.ok_or_else(|| Error::invalid(format!("there is no dimension {name:?}")))?;
        dim["current"] = json!([low, high]);
    }
    let fields = arguments.field.iter().map(|word| field_words(word)).collect::<Outcome<Vec<_>>>()?;
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
    let (name, (low, high)) =
        parts.ok_or_else(|| Error::invalid(format!("{word:?} is no range")).hint("write time=0..364"))?;
    Ok((name, low, high))
}

/// `NAME:DTYPE[?][:CODEC+CODEC…]` as the JSON it stands for.
fn field_words(word: &str) -> Outcome<Json> {
    let mut parts = word.splitn(3, ':');
    let (Some(name), Some(dtype)) = (parts.next(), parts.next()) else {
        let refused = Error::invalid(format!("{word:?} is no field"));
        return Err(refused.hint("write temperature:float32 or name:string_utf8?:zstd").into());
    };
    let codecs: Vec<&str> = parts.next().map(|c| c.split('+').collect()).unwrap_or_default();
    let nullable = dtype.ends_with('?');
    Ok(json!({"name": name, "dtype": dtype.trim_end_matches('?'), "nullable": nullable, "codecs": codecs}))
}

/// A field with its codecs from `NAME:DTYPE[?][:CODEC+CODEC…]`.
pub(crate) fn field_of(word: &str) -> Outcome<(Field, Vec<CodecSpec>)> {
    Ok(tesseral::declared_field(&field_words(word)?)?)
}
