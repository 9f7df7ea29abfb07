//! Array schemas from JSON documents.

use std::cmp::Ordering;
use std::path::Path;

use serde_json::{Map, Value as Json};
use tesseral_core::schema::{Enumeration, Labels};
use tesseral_core::{
    Advice, ArraySchema, Attributes, CellLen, Coords, DType, Dimension, Error, Field, Order, Result, Scalar,
    Value,
};
use tesseral_format::{ArraySpec, CodecSpec, Format};

use crate::create::{Create, Session};
use tesseral_registry as registry;

impl Create {
    /// Starts an empty array from a document, for appends after its commit. An empty id selects the format by file extension.
    ///
    /// The document:
    /// `{"dims": [{"name", "dtype", "domain", "tile", "current", "labels"}], "fields": [{"name", "dtype", "cell", "nullable", "fill", "codecs", "enumeration"}], "sparse", "duplicates", "cell_order"}`,
    /// of which only `dims` and `fields` are required. Labels of a dimension are `[{"name", "dtype", "order"}]`, in increasing or
    /// decreasing order; appends fill them by their name. Other keys are the
    /// [creation options](tesseral_format::Format::create_options) of the format.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # let path = std::env::temp_dir().join(format!("tesseral-declare-{}", std::process::id()));
    /// let document = serde_json::json!({
    ///     "sparse": true,
    ///     "dims": [{"name": "day", "dtype": "int32", "domain": [0, 364], "tile": 30}],
    ///     "fields": [{"name": "temperature", "dtype": "float64", "codecs": ["zstd"]}],
    /// });
    /// tesseral::Create::new().declare(&path, "tiledb", &document)?.commit()?;
    /// assert!(tesseral::open(&path)?.array_at(0)?.schema().sparse);
    /// # std::fs::remove_dir_all(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidRequest` for invalid documents; `Unsupported` if the format cannot store such an array, or no empty one; `Io`.
    pub fn declare(&self, path: impl AsRef<Path>, format: &str, document: &Json) -> Result<Session> {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let known = if format.is_empty() { registry::of_output(path)? } else { registry::format(format)? };
        if known.versioned().is_none() {
            let what = format!("an empty array in {}, which has no appends", known.title());
            let able = registry::formats().filter(|f| f.versioned().is_some()).map(|f| f.id()).collect();
            return Err(Error::unsupported(what).hint(Advice::OtherFormat { able }));
        }
        let (spec, options) = declared_array(&name, document, known)?;
        let mut create = self.clone().empty();
        for (name, value) in options {
            create = create.option(name, value);
        }
        let mut session = create.begin(path, known.id())?;
        session.add(&spec)?;
        Ok(session)
    }
}

fn unexpected(what: &str, value: &Json) -> Error {
    Error::invalid(format!("invalid {what}: {value}"))
}

/// Returns the object of a document after checking its keys.
fn object<'a>(what: &str, value: &'a Json, known: &[&str]) -> Result<&'a Map<String, Json>> {
    let map = value.as_object().ok_or_else(|| unexpected(what, value))?;
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            let hint = format!("available: {}", known.join(", "));
            Err(Error::invalid(format!("unknown key {key:?} of {what}")).hint(hint))
        }
        None => Ok(map),
    }
}

/// Returns the value of a key; `None` if absent.
fn get<'a, T>(
    map: &'a Map<String, Json>,
    key: &str,
    read: impl FnOnce(&'a Json) -> Option<T>,
) -> Result<Option<T>> {
    match map.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| unexpected(key, value)),
    }
}

fn list<'a>(map: &'a Map<String, Json>, key: &str) -> Result<&'a [Json]> {
    Ok(get(map, key, Json::as_array)?.map_or(&[], Vec::as_slice))
}

/// Keys of an array, in addition to the creation options of its format.
const ARRAY: [&str; 5] = ["dims", "fields", "sparse", "duplicates", "cell_order"];

/// Name of the creation option with the domains of dimensions that have a current domain.
const DOMAINS: &str = "domains";

/// Name of the creation option with the labels of dimensions.
const LABELS: &str = "labels";

/// Parses an array with that name, and options of its format.
fn declared_array(name: &str, document: &Json, format: &dyn Format) -> Result<(ArraySpec, Attributes)> {
    let own = format.create_options().describe();
    // Domains and labels are given with the dimensions.
    let own = own.iter().map(|option| option.name).filter(|name| ![DOMAINS, LABELS].contains(name));
    let known: Vec<&str> = ARRAY.into_iter().chain(own).collect();
    let map = object("an array", document, &known)?;
    let flag = |key: &str| -> Result<bool> { Ok(get(map, key, Json::as_bool)?.unwrap_or(false)) };
    let sparse = flag("sparse")?;
    let mut dims = Vec::new();
    let mut domains = Attributes::new();
    let mut labels = Vec::new();
    let mut chunk = Some(Coords::new());
    for value in list(map, "dims")? {
        let (mut dim, tile) = dimension(value)?;
        if let Some(used) = value.get("current").filter(|used| !used.is_null()) {
            domains.insert(dim.name.clone(), whole(&dim));
            in_use(&mut dim, used)?;
        }
        if let Some(map) = value.as_object() {
            for value in list(map, "labels")? {
                labels.push(label(&dim, value)?);
            }
        }
        match (&mut chunk, tile) {
            (Some(chunk), Some(tile)) if !sparse => chunk.push(tile),
            (chunk, _) => *chunk = None,
        }
        dims.push(dim);
    }
    let mut fields = Vec::new();
    let mut codecs = Vec::new();
    for value in list(map, "fields")? {
        let (field, of_field) = declared_field(value)?;
        fields.push(field);
        codecs.push(of_field);
    }
    for (what, none) in [("dimension", dims.is_empty()), ("field", fields.is_empty())] {
        if none {
            return Err(Error::invalid(format!("an array requires at least one {what}")));
        }
    }
    let cell_order = match get(map, "cell_order", Json::as_str)?.unwrap_or("row-major") {
        "row-major" => Order::RowMajor,
        "col-major" => Order::ColMajor,
        "hilbert" => Order::Hilbert,
        other => return Err(Error::invalid(format!("unknown cell order {other:?}"))),
    };
    let schema = ArraySchema {
        field_attributes: None,
        role: Default::default(),
        name: name.to_owned(),
        dims,
        fields,
        chunk_shape: chunk.filter(|c| !c.is_empty()),
        shard_shape: None,
        cell_order,
        sparse,
        allows_duplicates: flag("duplicates")?,
        attributes: Attributes::new(),
    };
    let mut options = Attributes::new();
    if !domains.is_empty() {
        options.insert(DOMAINS.to_owned(), Value::Map(domains.into()));
    }
    if !labels.is_empty() {
        options.insert(LABELS.to_owned(), Value::List(labels));
    }
    for key in &known[ARRAY.len()..] {
        if let Some(value) = get(map, key, option_value)? {
            options.insert((*key).to_owned(), value);
        }
    }
    Ok((ArraySpec { schema, codecs, text: None }, options))
}

/// Parses a label of a dimension: `[dimension, name, dtype, order]`.
fn label(dim: &Dimension, value: &Json) -> Result<Value> {
    let map = object("a label", value, &["name", "dtype", "order"])?;
    let text = |key: &str| get(map, key, Json::as_str);
    let required =
        |key: &str| text(key)?.ok_or_else(|| unexpected(&format!("{key} of a label"), &Json::Null));
    let words = [&dim.name, required("name")?, required("dtype")?, text("order")?.unwrap_or("increasing")];
    Ok(Value::List(words.map(Value::from).to_vec()))
}

/// Converts the value of a creation option.
fn option_value(value: &Json) -> Option<Value> {
    match value {
        Json::Number(n) => n.as_u64().map(Value::UInt),
        Json::String(text) => Some(Value::Text(text.clone())),
        _ => None,
    }
}

/// Parses a value of a dtype: a number, or text.
fn scalar(dtype: DType, value: &Json) -> Result<Scalar> {
    let text = match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    Scalar::parse(dtype, &text)
}

fn dtype(value: &Json) -> Result<(DType, CellLen)> {
    let text = value["dtype"].as_str().ok_or_else(|| unexpected("dtype", &value["dtype"]))?;
    let cell = match &value["cell"] {
        Json::String(word) if word == "var" => CellLen::Var,
        Json::Number(n) => match n.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(1) => CellLen::One,
            Some(n) => CellLen::Fixed(n),
            None => return Err(unexpected("number of values per cell", &value["cell"])),
        },
        _ => match text {
            "string_ascii" | "string_utf8" | "bytes" => CellLen::Var,
            _ => CellLen::One,
        },
    };
    Ok((text.parse()?, cell))
}

/// Parses a dimension and its tile extent, by default its whole domain.
fn dimension(value: &Json) -> Result<(Dimension, Option<u64>)> {
    let map = object("a dimension", value, &["name", "dtype", "domain", "tile", "current", "labels"])?;
    let (dtype, _) = dtype(value)?;
    let mut dim = Dimension::new(get(map, "name", Json::as_str)?.unwrap_or(""), 0);
    dim.dtype = dtype;
    dim.extent = None;
    let mut tile = None;
    if !value["domain"].is_null() {
        in_use(&mut dim, &value["domain"])?;
    }
    match &value["tile"] {
        Json::Null => {}
        // A tile extent of dates is a number of units, not a date.
        Json::Number(n) if n.is_u64() && dim.extent.is_some() => tile = n.as_u64(),
        Json::String(text) if dim.extent.is_some() => {
            tile = Some(text.parse().map_err(|_| unexpected("tile", &value["tile"]))?);
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
    let tile = tile.or(dim.extent);
    Ok((dim, tile))
}

/// Sets the domain of a dimension from `[LOW, HIGH]`.
fn in_use(dim: &mut Dimension, range: &Json) -> Result<()> {
    let [low, high] = range.as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(unexpected("range of coordinates", range));
    };
    let (low, high) = (scalar(dim.dtype, low)?, scalar(dim.dtype, high)?);
    if low.compare(&high).is_none_or(Ordering::is_gt) {
        return Err(unexpected("range of coordinates", range));
    }
    dim.extent = match (low.as_i128(), high.as_i128()) {
        (Some(a), Some(b)) => u64::try_from(b - a + 1).ok(),
        _ => None,
    };
    dim.domain = Some((low, high));
    Ok(())
}

/// The maximum domain of a dimension; `None` for text.
fn whole(dim: &Dimension) -> Value {
    let ends = dim.domain.iter().flat_map(|(low, high)| [low, high]);
    Value::List(ends.map(|end| Value::Text(end.to_string())).collect())
}

fn codec(value: &Json) -> Result<CodecSpec> {
    match value {
        Json::String(text) => text.parse(),
        Json::Object(map) => {
            let mut spec = CodecSpec::new(map.get("name").and_then(Json::as_str).unwrap_or(""));
            for (name, option) in map.iter().filter(|(name, _)| *name != "name") {
                let option = match option {
                    Json::String(text) => Value::Text(text.clone()),
                    Json::Number(n) => match (n.as_i64(), n.as_f64()) {
                        (Some(n), _) => Value::Int(n),
                        (_, Some(v)) => Value::Float(v),
                        _ => return Err(unexpected("option of a codec", option)),
                    },
                    other => return Err(unexpected("option of a codec", other)),
                };
                spec.options.insert(name.clone(), option);
            }
            Ok(spec)
        }
        other => Err(unexpected("codec", other)),
    }
}

/// Parses a field and its codecs.
///
/// # Errors
/// `InvalidRequest`.
pub fn declared_field(value: &Json) -> Result<(Field, Vec<CodecSpec>)> {
    let known = ["name", "dtype", "cell", "nullable", "fill", "codecs", "enumeration"];
    let map = object("a field", value, &known)?;
    let (dtype, cell) = dtype(value)?;
    let name = get(map, "name", Json::as_str)?.ok_or_else(|| unexpected("name of a field", &Json::Null))?;
    let mut field = Field::new(name, dtype);
    field.cell = cell;
    field.nullable = get(map, "nullable", Json::as_bool)?.unwrap_or(false);
    field.fill = get(map, "fill", Some)?.map(|fill| scalar(dtype, fill)).transpose()?;
    if let Some(value) = get(map, "enumeration", Some)? {
        let map = object("an enumeration", value, &["name", "labels", "ordered"])?;
        let text = |l: &Json| l.as_str().map_or_else(|| l.to_string(), str::to_owned);
        field.enumeration = Some(Enumeration {
            name: get(map, "name", Json::as_str)?.unwrap_or(name).to_owned(),
            ordered: get(map, "ordered", Json::as_bool)?.unwrap_or(false),
            labels: Labels::Text(list(map, "labels")?.iter().map(text).collect()),
        });
    }
    Ok((field, list(map, "codecs")?.iter().map(codec).collect::<Result<_>>()?))
}
