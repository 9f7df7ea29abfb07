//! Contents of sources: arrays, dimensions, attributes, versions.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tesseral::{Array, Cancel, Container, DType, Dimension, Error, Result};
use tesseral_core::description;
use tesseral_core::schema::{Labels, VariableRole};
use tesseral_display::picture::ColorMap;
use tesseral_display::{ArraySummary, dim_name, document, json};

use crate::failure::described;
use crate::server::ServerState;
use crate::view::CellParameters;

/// Arrays of one page of the tree.
const ARRAYS: usize = 500;
/// Versions that are listed.
const VERSIONS: usize = 5000;
/// Coordinates of one answer.
const COORDINATES: u64 = 1024;

/// A request without parameters.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Nothing {}

/// Name of a color map.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ColorParameters {
    map: String,
}

/// A source, and where its list begins.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SourceParameters {
    source: usize,
    as_of: Option<String>,
    from: usize,
}

/// Positions along a dimension.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CoordinateParameters {
    source: usize,
    array: usize,
    as_of: Option<String>,
    dim: usize,
    from: u64,
    count: u64,
}

/// The sources.
pub(crate) fn sources(shared: &ServerState, _: &Nothing, _: Cancel) -> Result<Json> {
    let described = |source: &crate::sources::ServedSource| {
        let container = &source.container;
        json!({
            "name": source.name,
            "format": container.format().title(),
            "size": container.inner().store().len("").ok(),
            "arrays": container.len(),
            "versioned": container.format().versioned().is_some(),
            "attributes": json::attributes(container.attributes()),
            "groups": container.groups().iter().map(|(path, own)| (path.clone(), json::attributes(own))).collect::<Map<_, _>>(),
            "history": container.history().iter().map(document::history).collect::<Vec<_>>(),
        })
    };
    let version = env!("CARGO_PKG_VERSION");
    Ok(json!({"version": version, "sources": shared.sources.all().iter().map(described).collect::<Vec<_>>()}))
}

/// The 256 colors of a color map, three bytes each.
pub(crate) fn colors(_: &ServerState, query: &ColorParameters, _: Cancel) -> Result<Json> {
    let names = ColorMap::ALL.into_iter().map(ColorMap::name);
    let map = ColorMap::by_name(&query.map);
    let map = map.ok_or_else(|| Error::not_found("color map", &query.map, names.collect()))?;
    let colors: Vec<u8> = (0..256_u16).flat_map(|i| map.at(f64::from(i) / 255.0)).collect();
    Ok(json!({"colors": colors}))
}

/// Arrays of a source, in brief.
pub(crate) fn arrays(shared: &ServerState, query: &SourceParameters, cancel: Cancel) -> Result<Json> {
    let container = shared.sources.container(query.source, query.as_of.as_deref())?;
    let mut found = Vec::new();
    for index in (query.from..container.len()).take(ARRAYS) {
        cancel.check()?;
        found.push(match container.lazy_array(index) {
            Ok(array) => brief(&container, &array, index),
            Err(error) => {
                json!({"index": index, "name": container.inner().name(index), "error": described(&error)})
            }
        });
    }
    Ok(json!({"total": container.len(), "from": query.from, "arrays": found}))
}

fn brief(container: &Container, array: &Array, index: usize) -> Json {
    let schema = array.schema();
    let role = container.role(index).unwrap_or(VariableRole::Data);
    let fields = schema.fields.iter().map(|field| {
        json!({
            "name": field.name,
            "dtype": field.type_name().to_string(),
            "units": description::units(schema, field).to_string(),
            "long_name": description::long_name(schema, field),
        })
    });
    json!({
        "index": index,
        "name": schema.name,
        "variable": array.variable_name(),
        "role": role.name(),
        "coordinate": role.is_coordinate(),
        "sparse": schema.sparse,
        "dims": schema.dims.iter().enumerate().map(|(i, dim)| json!({"name": dim_name(dim, i), "extent": dim.extent})).collect::<Vec<_>>(),
        "fields": fields.collect::<Vec<_>>(),
    })
}

/// One array with everything that is known of it without reading cells.
pub(crate) fn array(shared: &ServerState, query: &CellParameters, cancel: Cancel) -> Result<Json> {
    let opened = query.open(shared, cancel)?;
    let labeled = opened.labeled();
    let array = labeled.as_ref().unwrap_or(&opened.array);
    let role = opened.container.role(query.array).unwrap_or(VariableRole::Data);
    let schema = array.schema();
    let dims = schema.dims.iter().enumerate().map(|(i, dim)| dimension(&opened.container, array, dim, i));
    let dims: Vec<Json> = dims.collect();
    let packings: Map<String, Json> =
        array.packings().iter().map(|(name, packing)| (name.clone(), json!(packing.to_string()))).collect();
    let summary = ArraySummary::new(opened.array.clone(), role, None)?;
    let mut out = document::array(&summary);
    out.remove("coords");
    out.insert("dimensions".into(), json!(dims));
    out.insert("packings".into(), Json::Object(packings));
    out.insert("attributes".into(), json::attributes(&opened.array.field_attributes()));
    out.insert("digests".into(), json!(summary.digests));
    if let Err(error) = &labeled {
        out.insert("labels_error".into(), described(error));
    }
    Ok(Json::Object(out))
}

/// A dimension with its units and ends.
fn dimension(container: &Container, array: &Array, dim: &Dimension, number: usize) -> Json {
    let last = dim.extent.and_then(|extent| extent.checked_sub(1));
    let own = container.inner().find(array.name()).ok();
    let coordinate = own.and_then(|own| container.inner().sibling(own, &dim.name));
    let coordinate = coordinate.and_then(|index| container.lazy_array(index).ok());
    let attribute = |key: &str| {
        let found = coordinate.as_ref()?;
        description::text_attribute(found.schema(), found.selected_field(), key).map(str::to_owned)
    };
    // Positions are counted; labels have their own dtype.
    let labels = dim.labels.as_ref().map(|labels| match labels {
        Labels::Text(_) => DType::Utf8,
        Labels::Numbers { dtype, .. } => *dtype,
    });
    let dtype = match (&coordinate, labels) {
        (Some(array), _) => array.selected_field().type_name().to_string(),
        (None, labels) => labels.unwrap_or(dim.dtype).to_string(),
    };
    json!({
        "name": dim_name(dim, number),
        "named": !dim.name.is_empty(),
        "extent": dim.extent,
        "dtype": dtype,
        "first": last.and_then(|_| dim.coordinate_text(0)),
        "last": last.and_then(|last| dim.coordinate_text(last)),
        "domain": dim.domain.as_ref().map(|(low, high)| [low.to_string(), high.to_string()]),
        "time": dim.counts_time(),
        // Units of 1 are none.
        "units": attribute("units").filter(|units| dim.time.is_none() && units != "1"),
        "long_name": attribute("long_name").or_else(|| attribute("standard_name")),
    })
}

/// Coordinates along a dimension.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BetweenParameters {
    source: usize,
    array: usize,
    as_of: Option<String>,
    dim: usize,
    low: String,
    high: String,
}

/// The positions between two coordinates, as a selection of the command line has them: those from the extent on are at the start of a
/// cyclic axis.
pub(crate) fn between(shared: &ServerState, query: &BetweenParameters, cancel: Cancel) -> Result<Json> {
    let cells = CellParameters {
        source: query.source,
        array: query.array,
        as_of: query.as_of.clone(),
        ..CellParameters::default()
    };
    let array = cells.open(shared, cancel)?.array;
    if query.dim >= array.schema().dims.len() {
        return Err(Error::not_found("dimension", query.dim.to_string(), Vec::new()));
    }
    let end = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
    let (low, high) = (end(&query.low), end(&query.high));
    let found = array.between(query.dim, low.as_deref(), high.as_deref())?;
    Ok(json!({"from": found.start, "to": found.end}))
}

/// Coordinates of some positions.
pub(crate) fn coordinates(
    shared: &ServerState,
    query: &CoordinateParameters,
    cancel: Cancel,
) -> Result<Json> {
    let cells = CellParameters {
        source: query.source,
        array: query.array,
        as_of: query.as_of.clone(),
        ..CellParameters::default()
    };
    let array = cells.open(shared, cancel)?.array;
    let array = array.labeled(|d| d == query.dim)?;
    let Some(dim) = array.schema().dims.get(query.dim) else {
        return Err(tesseral::Error::not_found("dimension", query.dim.to_string(), Vec::new()));
    };
    let end = dim.extent.unwrap_or(0).min(query.from.saturating_add(query.count.clamp(1, COORDINATES)));
    let texts: Vec<String> = (query.from..end).map(|at| tesseral_display::coordinate(dim, at)).collect();
    Ok(json!({"from": query.from, "texts": texts}))
}

/// Stored versions.
pub(crate) fn versions(shared: &ServerState, query: &SourceParameters, _: Cancel) -> Result<Json> {
    let container = shared.sources.container(query.source, None)?;
    let versions = container.versions()?;
    let shown: Vec<Json> = versions.iter().rev().take(VERSIONS).map(json::version).collect();
    Ok(json!({"total": versions.len(), "versions": shown}))
}
