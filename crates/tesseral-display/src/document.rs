//! Arrays as JSON, as in `tet info --json`.

use serde_json::{Map, Value as Json, json};
use tesseral::{ArraySchema, ChunkStats, Dimension, Field, Scalar};
use tesseral_core::{HistoryRow, Stat, description};

use crate::{ArraySummary, ChunkRow, dim_name, json};

/// An array with its fields, sizes, attributes and coordinates.
pub fn array(known: &ArraySummary) -> Map<String, Json> {
    let schema = known.array.schema();
    let dtype = match known.fields() {
        [field] => json!(field.type_name().to_string()),
        _ => Json::Null,
    };
    let names = schema.dims.iter().enumerate().map(|(i, dim)| dim_name(dim, i));
    let mut out = Map::new();
    out.insert("name".into(), json!(schema.name));
    out.insert("variable".into(), json!(known.array.variable_name()));
    out.insert("dtype".into(), dtype);
    out.insert("shape".into(), schema.dims.iter().map(|d| json!(d.extent)).collect());
    out.insert("dims".into(), names.collect());
    out.insert("chunk_shape".into(), json!(schema.chunk_shape.as_ref().map(|c| c.as_slice())));
    out.insert("chunks".into(), json!(known.chunks));
    out.insert("sparse".into(), json!(schema.sparse));
    out.insert("role".into(), json!(known.role.name()));
    out.insert("fields".into(), known.fields().iter().map(|f| field(schema, f)).collect());
    out.insert("raw_bytes".into(), json!(known.raw()));
    out.insert("stored_bytes".into(), json!(known.stored));
    if schema.dims.iter().any(|d| d.domain.is_some()) {
        out.insert("domain".into(), schema.dims.iter().map(domain).collect());
    }
    if let Some(domain) = &known.non_empty {
        let pair = |(low, high): &(Scalar, Scalar)| json!([json::scalar(low), json::scalar(high)]);
        let pairs = domain.as_ref().map(|dims| dims.iter().map(pair).collect::<Vec<_>>());
        out.insert("non_empty_domain".into(), json!(pairs));
    }
    out.insert("attributes".into(), json::attributes(&schema.attributes));
    out.insert("coords".into(), coords(schema));
    let warnings = tesseral_core::missing::warnings(schema);
    if !warnings.is_empty() {
        out.insert("warnings".into(), json!(warnings));
    }
    out
}

fn field(schema: &ArraySchema, field: &Field) -> Json {
    let mut out = Map::new();
    out.insert("name".into(), json!(field.name));
    out.insert("dtype".into(), json!(field.type_name().to_string()));
    out.insert("nullable".into(), json!(field.nullable));
    out.insert("codecs".into(), json!(field.codecs));
    for key in ["units", "long_name"] {
        if let Some(text) = description::text_attribute(schema, field, key) {
            out.insert(key.into(), json!(text));
        }
    }
    if let Some(fill) = &field.fill {
        out.insert("fill".into(), json::scalar(fill));
    }
    if !field.missing.is_empty() {
        out.insert("missing".into(), field.missing.iter().map(json::scalar).collect());
    }
    if let Some(enumeration) = &field.enumeration {
        out.insert("enumeration".into(), json!({"name": enumeration.name, "ordered": enumeration.ordered}));
    }
    Json::Object(out)
}

fn domain(dim: &Dimension) -> Json {
    match &dim.domain {
        Some((first, last)) => json!([json::scalar(first), json::scalar(last)]),
        None => Json::Null,
    }
}

fn coords(schema: &ArraySchema) -> Json {
    let labeled = schema.dims.iter().enumerate().filter_map(|(i, dim)| {
        let mut coordinate = Map::from_iter([("labels".to_owned(), json::labels(dim.labels.as_ref()?))]);
        if let Some(units) = dim.time {
            let ends = [("first", 0), ("last", dim.extent.unwrap_or(0).saturating_sub(1))];
            coordinate.insert("calendar".to_owned(), json!(units.calendar().to_string()));
            coordinate.extend(ends.map(|(name, at)| (name.to_owned(), json!(dim.coordinate_text(at)))));
        }
        Some((dim_name(dim, i), Json::Object(coordinate)))
    });
    Json::Object(labeled.collect())
}

/// A chunk with its statistics.
pub fn chunk(row: &ChunkRow) -> Json {
    let chunk = &row.info;
    let mut out = Map::new();
    out.insert("coords".into(), json!(chunk.coords.as_slice()));
    out.insert("raw_bytes".into(), json!(chunk.raw_len));
    out.insert("stored_bytes".into(), json!(chunk.stored_len));
    out.insert("codec".into(), json!(chunk.codec));
    out.insert("offset".into(), json!(chunk.offset));
    if let Some(bounds) = &row.bounds {
        out.insert("cells".into(), json!(row.cells));
        let pairs = bounds.iter().map(|(low, high)| json!([json::scalar(low), json::scalar(high)]));
        out.insert("bounds".into(), pairs.collect());
    }
    if !row.statistics.is_empty() {
        let fields = row.statistics.iter().map(|(name, stats)| (name.clone(), statistics(stats)));
        out.insert("statistics".into(), Json::Object(fields.collect()));
    }
    Json::Object(out)
}

fn statistics(stats: &ChunkStats) -> Json {
    let value = |stat: &Stat<Scalar>| stat.bound().map_or(Json::Null, json::scalar);
    json!({
        "min": value(&stats.min),
        "max": value(&stats.max),
        "sum": stats.sum.bound().map_or(Json::Null, |sum| json::sum(*sum)),
        "nulls": stats.nulls.exact(),
        "exact": stats.min.exact().is_some() && stats.nulls.exact().is_some(),
    })
}

/// A row of the history.
pub fn history(row: &HistoryRow) -> Json {
    let mut out = Map::new();
    out.insert("op".into(), json!(row.op));
    out.insert("source".into(), json!(row.source));
    out.insert("at".into(), json!(row.at));
    if !row.parents.is_empty() {
        out.insert("parents".into(), json!(row.parents));
    }
    if !row.params.is_empty() {
        out.insert("params".into(), json!(row.params));
    }
    for (name, text) in &row.extra {
        out.entry(name.clone()).or_insert_with(|| json!(text));
    }
    Json::Object(out)
}
