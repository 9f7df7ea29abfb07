//! Documents of arrays and groups.

use serde_json::{Map, Value as Json, json};
use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, Attributes, Error, Result, Scalar, Value, missing};

use super::attribute_map;
use super::codecs::Steps;
use crate::wire::node::{DIMENSION_KEY, FILL_KEY};
use crate::wire::{dtype, fill};

/// `.zarray` and `.zattrs`.
pub(super) type DocumentsV2 = (Map<String, Json>, Map<String, Json>);

/// Document of a group of v3.
pub(super) fn group_v3(attributes: Map<String, Json>) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("zarr_format".to_owned(), json!(3));
    out.insert("node_type".to_owned(), json!("group"));
    out.insert("attributes".to_owned(), Json::Object(attributes));
    out
}

/// The names of all dimensions, if they have any.
fn dimension_names(schema: &ArraySchema) -> Option<Vec<&str>> {
    let names: Vec<&str> = schema.dims.iter().map(|dim| dim.name.as_str()).collect();
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

fn type_names(schema: &ArraySchema) -> Result<(String, Json)> {
    let field = &schema.fields[0];
    let names = dtype::names(field.dtype, field.cell);
    names.ok_or_else(|| Error::unsupported(format!("cells of {} in Zarr", field.type_name())))
}

fn fill_json(fill: Option<&Scalar>, exact: bool) -> Option<Json> {
    fill.and_then(|scalar| fill::to_json(scalar, exact))
}

fn zero(schema: &ArraySchema) -> Json {
    let dtype = schema.fields[0].dtype;
    match dtype.class() {
        Class::Bool => json!(false),
        Class::Float => json!(0.0),
        Class::Complex => json!([0.0, 0.0]),
        Class::Text => json!(""),
        _ => json!(0),
    }
}

/// Document of an array of v3.
pub(super) fn array_v3(
    schema: &ArraySchema,
    steps: &Steps,
    shard: Option<&[u64]>,
) -> Result<Map<String, Json>> {
    let field = &schema.fields[0];
    let (_, data_type) = type_names(schema)?;
    let shape = schema.shape().unwrap_or_default();
    let serializer = match data_type.as_str() {
        Some("string") => json!({"name": "vlen-utf8"}),
        Some("variable_length_bytes") => json!({"name": "vlen-bytes"}),
        _ if field.dtype.word() > 1 => json!({"name": "bytes", "configuration": {"endian": "little"}}),
        _ => json!({"name": "bytes"}),
    };
    let chunk = schema.chunk_shape.clone().unwrap_or_default();
    let mut codecs = steps.document_v3(serializer, shape.len());
    if shard.is_some() {
        let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]);
        let configuration = json!({
            "chunk_shape": chunk.as_slice(), "codecs": codecs, "index_codecs": index, "index_location": "end",
        });
        codecs = vec![json!({"name": "sharding_indexed", "configuration": configuration})];
    }
    let mut attributes = missing::attributes(schema);
    // As in xarray: JSON has no NaN.
    if let Some(Value::Float(value)) = attributes.get(FILL_KEY) {
        let value = *value;
        let text = match field.dtype.class() {
            Class::Float => Some(fill::encode_declared(value)),
            _ if !value.is_finite() => Some(value.to_string()),
            _ => None,
        };
        if let Some(text) = text {
            attributes.insert(FILL_KEY.to_owned(), Value::Text(text));
        }
    }
    let mut out = Map::new();
    let mut put = |key: &str, value: Json| drop(out.insert(key.to_owned(), value));
    put("zarr_format", json!(3));
    put("node_type", json!("array"));
    put("shape", json!(shape.as_slice()));
    put("data_type", data_type);
    let object = shard.unwrap_or(&chunk);
    put("chunk_grid", json!({"name": "regular", "configuration": {"chunk_shape": object}}));
    put("chunk_key_encoding", json!({"name": "default", "configuration": {"separator": "/"}}));
    put("fill_value", fill_json(field.fill.as_ref(), true).unwrap_or_else(|| zero(schema)));
    put("codecs", Json::Array(codecs));
    put("attributes", Json::Object(attribute_map(&attributes)?));
    if schema.dims.iter().any(|dim| !dim.name.is_empty()) {
        let name = |name: &String| if name.is_empty() { Json::Null } else { json!(name) };
        put("dimension_names", schema.dims.iter().map(|dim| name(&dim.name)).collect());
    }
    put("storage_transformers", json!([]));
    Ok(out)
}

/// Documents of an array of v2: `.zarray` and `.zattrs`.
pub(super) fn array_v2(schema: &ArraySchema, steps: &Steps) -> Result<DocumentsV2> {
    let field = &schema.fields[0];
    let (descr, data_type) = type_names(schema)?;
    let (mut filters, compressor) = steps.document_v2();
    match data_type.as_str() {
        Some("string") => filters.insert(0, json!({"id": "vlen-utf8"})),
        Some("variable_length_bytes") => filters.insert(0, json!({"id": "vlen-bytes"})),
        _ => {}
    }
    let filters = if filters.is_empty() { Json::Null } else { Json::Array(filters) };
    let all = missing::attributes(schema);
    let names = dimension_names(schema);
    let declared = missing::declarations(field, &all, None).values;
    // Where dimensions are named, readers take the fill value for a declaration.
    let fill = if names.is_some() { declared.first() } else { field.fill.as_ref() };
    let mut attributes = attribute_map(&finite(all))?;
    if let Some(names) = names {
        attributes.insert(DIMENSION_KEY.to_owned(), json!(names));
    }
    let mut out = Map::new();
    let mut put = |key: &str, value: Json| drop(out.insert(key.to_owned(), value));
    put("zarr_format", json!(2));
    put("shape", json!(schema.shape().unwrap_or_default().as_slice()));
    put("chunks", json!(schema.chunk_shape.clone().unwrap_or_default().as_slice()));
    put("dtype", json!(descr));
    put("order", json!(if steps.col_major() { "F" } else { "C" }));
    put("fill_value", fill_json(fill, false).unwrap_or(Json::Null));
    put("filters", filters);
    put("compressor", compressor);
    put("dimension_separator", json!("."));
    Ok((out, attributes))
}

/// Drops a declaration that JSON cannot express: the fill value of the array states it.
fn finite(mut attributes: Attributes) -> Attributes {
    if matches!(attributes.get(FILL_KEY), Some(Value::Float(value)) if !value.is_finite()) {
        attributes.shift_remove(FILL_KEY);
    }
    attributes
}
