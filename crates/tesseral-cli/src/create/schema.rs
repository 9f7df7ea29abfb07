//! What an array is, from JSON or from words on the command line.

use serde_json::{Map, Value as Json, json};
use tesseral::core::Coords;
use tesseral::core::schema::{Enumeration, Labels};
use tesseral::{
    ArraySchema, ArraySpec, CellLen, CodecSpec, DType, Dimension, Error, Field, Order, Scalar, Value,
};

use super::Arguments;
use crate::failure::Outcome;

type Options = Vec<(String, Value)>;

fn odd(what: &str, value: &Json) -> Error {
    Error::invalid(format!("{value} is no {what}"))
}

/// Words of the command line as the JSON they stand for.
pub(super) fn from_words(arguments: &Arguments) -> Outcome<Json> {
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
    field(&field_words(word)?)
}

/// An array from its JSON, and the options that only the format knows.
pub(super) fn parse(name: &str, document: &Json) -> Outcome<(ArraySpec, Options)> {
    let empty = Map::new();
    let map = document.as_object().unwrap_or(&empty);
    let sparse = map.get("sparse").and_then(Json::as_bool).unwrap_or(false);
    let list = |key: &str| map.get(key).and_then(Json::as_array).cloned().unwrap_or_default();
    let mut dims = Vec::new();
    let mut domains = tesseral::Attributes::new();
    let mut chunk = Some(Coords::new());
    for value in list("dims") {
        let (mut dim, tile) = dimension(&value)?;
        if let Some(used) = value.get("current") {
            domains.insert(dim.name.clone(), whole(&dim));
            in_use(&mut dim, used)?;
        }
        match (&mut chunk, tile) {
            (Some(chunk), Some(tile)) if !sparse => chunk.push(tile),
            (chunk, _) => *chunk = None,
        }
        dims.push(dim);
    }
    let mut fields = Vec::new();
    let mut codecs = Vec::new();
    for value in list("fields") {
        let (field, of_field) = field(&value)?;
        fields.push(field);
        codecs.push(of_field);
    }
    let cell_order = match map.get("cell_order").and_then(Json::as_str).unwrap_or("row-major") {
        "row-major" => Order::RowMajor,
        "col-major" => Order::ColMajor,
        "hilbert" => Order::Hilbert,
        other => return Err(Error::invalid(format!("{other:?} is no order of cells")).into()),
    };
    let schema = ArraySchema {
        name: name.to_owned(),
        dims,
        fields,
        chunk_shape: chunk.filter(|c| !c.is_empty()),
        cell_order,
        sparse,
        allows_duplicates: map.get("duplicates").and_then(Json::as_bool).unwrap_or(false),
        attributes: tesseral::Attributes::new(),
    };
    let mut options = Options::new();
    if !domains.is_empty() {
        options.push(("domains".to_owned(), Value::Map(domains)));
    }
    if let Some(capacity) = map.get("capacity").and_then(Json::as_u64) {
        options.push(("capacity".to_owned(), Value::UInt(capacity)));
    }
    for key in ["tile_order", "coordinates", "offsets", "validity"] {
        if let Some(text) = map.get(key).and_then(Json::as_str) {
            options.push((key.to_owned(), Value::from(text)));
        }
    }
    Ok((ArraySpec { schema, codecs }, options))
}

/// A value of a dtype: a number, or text as people write it.
fn scalar(dtype: DType, value: &Json) -> Outcome<Scalar> {
    let text = match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    Ok(Scalar::parse(dtype, &text)?)
}

fn dtype(value: &Json) -> Outcome<(DType, CellLen)> {
    let text = value["dtype"].as_str().ok_or_else(|| odd("dtype", &value["dtype"]))?;
    let cell = match &value["cell"] {
        Json::String(word) if word == "var" => CellLen::Var,
        Json::Number(n) => match n.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(1) => CellLen::One,
            Some(n) => CellLen::Fixed(n),
            None => return Err(odd("number of values per cell", &value["cell"]).into()),
        },
        _ => match text {
            "string_ascii" | "string_utf8" | "bytes" => CellLen::Var,
            _ => CellLen::One,
        },
    };
    Ok((text.parse()?, cell))
}

fn dimension(value: &Json) -> Outcome<(Dimension, Option<u64>)> {
    let (dtype, _) = dtype(value)?;
    let mut dim = Dimension::new(value["name"].as_str().unwrap_or(""), 0);
    dim.dtype = dtype;
    dim.extent = None;
    let mut tile = None;
    if !value["domain"].is_null() {
        in_use(&mut dim, &value["domain"])?;
    }
    match &value["tile"] {
        Json::Null => {}
        // A tile of dates is a number of units, not a date.
        Json::Number(n) if n.is_u64() && dim.extent.is_some() => tile = n.as_u64(),
        Json::String(text) if dim.extent.is_some() => {
            tile = Some(text.parse().map_err(|_| odd("tile", &value["tile"]))?);
        }
        other => dim.tile = Some(scalar(dtype, other)?),
    }
    if let Some(tile) = tile {
        let whole = match dtype {
            DType::DateTime(_) | DType::TimeDelta(_) => DType::Int64,
            other => other,
        };
        let bytes = Scalar::parse(whole, &tile.to_string())?;
        dim.tile = Some(Scalar::from_le_bytes(dtype, bytes.bytes())?);
    }
    Ok((dim, tile.or(dim_extent(value))))
}

/// Sets the coordinates that a dimension uses from `[LOW, HIGH]`.
fn in_use(dim: &mut Dimension, range: &Json) -> Outcome<()> {
    let [low, high] = range.as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(odd("range of coordinates", range).into());
    };
    let (low, high) = (scalar(dim.dtype, low)?, scalar(dim.dtype, high)?);
    dim.extent = match (low.as_i128(), high.as_i128()) {
        (Some(a), Some(b)) => u64::try_from(b - a + 1).ok(),
        _ => None,
    };
    dim.domain = Some((low, high));
    Ok(())
}

/// All coordinates that a dimension may ever use; nothing for text, which has no ends.
fn whole(dim: &Dimension) -> Value {
    let ends = dim.domain.iter().flat_map(|(low, high)| [low, high]);
    Value::List(ends.map(|end| Value::Text(end.to_string())).collect())
}

/// Without a tile, one covers the dimension.
fn dim_extent(value: &Json) -> Option<u64> {
    let number = |v: &Json| v.as_i64().or_else(|| v.as_str()?.parse().ok());
    let domain = value["domain"].as_array()?;
    u64::try_from(number(domain.get(1)?)? - number(domain.first()?)? + 1).ok()
}

fn codec(value: &Json) -> Outcome<CodecSpec> {
    match value {
        Json::String(text) => Ok(text.parse()?),
        Json::Object(map) => {
            let mut spec = CodecSpec::new(map.get("name").and_then(Json::as_str).unwrap_or(""));
            for (name, option) in map.iter().filter(|(name, _)| *name != "name") {
                let option = match option {
                    Json::String(text) => Value::Text(text.clone()),
                    Json::Number(n) => match (n.as_i64(), n.as_f64()) {
                        (Some(n), _) => Value::Int(n),
                        (_, Some(v)) => Value::Float(v),
                        _ => return Err(odd("option of a codec", option).into()),
                    },
                    other => return Err(odd("option of a codec", other).into()),
                };
                spec.options.insert(name.clone(), option);
            }
            Ok(spec)
        }
        other => Err(odd("codec", other).into()),
    }
}

fn field(value: &Json) -> Outcome<(Field, Vec<CodecSpec>)> {
    let (dtype, cell) = dtype(value)?;
    let name = value["name"].as_str().ok_or_else(|| odd("name of a field", &value["name"]))?;
    let mut field = Field::new(name, dtype);
    field.cell = cell;
    field.nullable = value["nullable"].as_bool().unwrap_or(false);
    if !value["fill"].is_null() {
        field.fill = Some(scalar(dtype, &value["fill"])?);
    }
    if let Some(map) = value["enumeration"].as_object() {
        let labels = map.get("labels").and_then(Json::as_array).cloned().unwrap_or_default();
        let text = |l: &Json| l.as_str().map_or_else(|| l.to_string(), str::to_owned);
        field.enumeration = Some(Enumeration {
            name: map.get("name").and_then(Json::as_str).unwrap_or(name).to_owned(),
            ordered: map.get("ordered").and_then(Json::as_bool).unwrap_or(false),
            labels: Labels::Text(labels.iter().map(text).collect()),
        });
    }
    let codecs = value["codecs"].as_array().map_or(&[][..], Vec::as_slice);
    let codecs = codecs.iter().map(codec).collect::<Outcome<Vec<_>>>()?;
    Ok((field, codecs))
}
