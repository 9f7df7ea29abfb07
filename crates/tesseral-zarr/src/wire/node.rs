//! Nodes of a hierarchy: `.zarray`, `.zgroup` and `.zattrs` of v2, `zarr.json` of v3.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use tesseral_core::{Attributes, CellLen, ChunkGrid, Coords, DType, Error, Result, Scalar, Value};

use super::codecs::{Codecs, parse_v2_codecs, parse_v3_codecs};
use super::dtype::{ZarrCellType, named, parse_v3};
use super::json::{attributes, shown};
use super::key::KeyEncoding;
use super::{damaged, fill};

/// The most dimensions, as in NumPy.
const DIMENSIONS: usize = 64;

/// The attribute by which xarray names dimensions in v2.
pub(crate) const DIMENSION_KEY: &str = "_ARRAY_DIMENSIONS";

/// The attribute that declares missing values.
pub(crate) const FILL_KEY: &str = "_FillValue";

/// Metadata of an array of either version.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayMetadata {
    /// Zarr version, 2 or 3.
    pub version: u8,
    /// Shape of the array.
    pub shape: Coords,
    /// Shape of the stored objects: chunks, or shards.
    pub chunk: Coords,
    /// Type of the cells.
    pub cells: ZarrCellType,
    /// Cells of chunks that do not exist, as bytes of the model; shorter ones are padded with zeros.
    pub fill: Vec<u8>,
    /// Whether the metadata have a fill value.
    pub has_fill: bool,
    /// Cells of a chunk are in column-major order, before its codecs.
    pub col_major: bool,
    /// The codecs.
    pub codecs: Codecs,
    /// Names of chunk objects.
    pub keys: KeyEncoding,
    /// Names of dimensions; empty for unnamed ones.
    pub dims: Vec<String>,
    /// Attributes, without those that the members above express.
    pub attributes: Attributes,
    /// The document without its attributes, as JSON: parsed, it takes ten times as much memory.
    pub document: Vec<u8>,
}

fn member<'a>(map: &'a Map<String, Json>, key: &str, object: &str) -> Result<&'a Json> {
    map.get(key).ok_or_else(|| damaged(object, format!("no member {key:?}")))
}

fn coords(value: &Json, key: &str, object: &str) -> Result<Coords> {
    let list = value.as_array().filter(|list| list.len() <= DIMENSIONS);
    let coords = list.and_then(|list| list.iter().map(Json::as_u64).collect());
    coords.ok_or_else(|| damaged(object, format!("invalid {key:?}: {}", shown(value))))
}

/// Rejects chunk shapes of another rank, with zeros, or whose last position exceeds 2^64.
fn check_grid(shape: &[u64], chunk: &[u64], object: &str) -> Result<()> {
    let grid = ChunkGrid::new(shape, chunk).map_err(|e| damaged(object, e.to_string()))?;
    let ends = grid.counts().iter().zip(chunk).all(|(n, extent)| n.checked_mul(*extent).is_some());
    if ends { Ok(()) } else { Err(damaged(object, "the chunks end beyond position 2^64")) }
}

fn parse_fill(value: &Json, cells: ZarrCellType, object: &str) -> Result<Vec<u8>> {
    let detail = || format!("the fill value {} is not a value of {}", shown(value), cells.dtype);
    fill::parse(value, cells).ok_or_else(|| damaged(object, detail()))
}

/// Checks the version of a document.
///
/// # Errors
/// `Unsupported` for other versions.
pub(crate) fn check_version(map: &Map<String, Json>, version: u64, object: &str) -> Result<()> {
    match map.get("zarr_format").and_then(Json::as_u64) {
        Some(found) if found == version => Ok(()),
        Some(found) => Err(Error::unsupported(format!("Zarr version {found} in {object}"))),
        None => Err(damaged(object, "no member \"zarr_format\"")),
    }
}

impl ArrayMetadata {
    /// Parses `.zarray` and `.zattrs`.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` with the dtype or codec.
    pub fn parse_v2(map: &Map<String, Json>, attrs: Map<String, Json>, object: &str) -> Result<Self> {
        check_version(map, 2, object)?;
        let shape = coords(member(map, "shape", object)?, "shape", object)?;
        let chunk = coords(member(map, "chunks", object)?, "chunks", object)?;
        check_grid(&shape, &chunk, object)?;
        let col_major = match map.get("order").and_then(Json::as_str) {
            Some("C") | None => false,
            Some("F") => shape.len() > 1,
            Some(other) => return Err(damaged(object, format!("invalid order {other:?}"))),
        };
        let separator = match map.get("dimension_separator").and_then(Json::as_str) {
            None | Some(".") => '.',
            Some("/") => '/',
            Some(other) => {
                return Err(Error::unsupported(format!("dimension separator {other:?} in {object}")));
            }
        };
        let (cells, codecs) = parse_v2_codecs(map, object)?;
        let stored = map.get("fill_value").unwrap_or(&Json::Null);
        let fill = parse_fill(stored, cells, object)?;
        let mut attributes = attributes(attrs);
        let names = match attributes.get(DIMENSION_KEY) {
            Some(Value::List(names)) if names.len() == shape.len() => {
                let text =
                    |name: &Value| if let Value::Text(name) = name { Some(name.clone()) } else { None };
                names.iter().map(text).collect::<Option<Vec<String>>>()
            }
            _ => None,
        };
        let has_fill = !stored.is_null();
        if names.is_some() {
            attributes.shift_remove(DIMENSION_KEY);
            // By the convention of xarray, which this attribute marks, the fill value of v2 declares missing cells.
            if let Some(declared) = declared(cells, &fill).filter(|_| has_fill) {
                attributes.entry(FILL_KEY.to_owned()).or_insert(declared);
            }
        }
        let dims = names.unwrap_or_else(|| std::iter::repeat_n(String::new(), shape.len()).collect());
        let keys = KeyEncoding::V2(separator);
        Ok(Self {
            version: 2,
            shape,
            chunk,
            cells,
            fill,
            has_fill,
            col_major,
            codecs,
            keys,
            dims,
            attributes,
            document: bare(map),
        })
    }

    /// Parses `zarr.json` of an array.
    ///
    /// # Errors
    /// As [`parse_v2`](Self::parse_v2).
    pub fn parse_v3(mut map: Map<String, Json>, object: &str) -> Result<Self> {
        let attributes = taken_attributes(&mut map);
        let map = &map;
        check_version(map, 3, object)?;
        let transformers = map.get("storage_transformers").and_then(Json::as_array);
        if transformers.is_some_and(|list| !list.is_empty()) {
            return Err(Error::unsupported(format!("storage transformers in {object}")));
        }
        check_extensions(map, object)?;
        let shape = coords(member(map, "shape", object)?, "shape", object)?;
        let (grid, configuration) = named(member(map, "chunk_grid", object)?).unwrap_or(("?", None));
        if grid != "regular" {
            return Err(Error::unsupported(format!("chunk grid {grid:?} in {object}")));
        }
        let chunk = configuration.and_then(|c| c.get("chunk_shape")).unwrap_or(&Json::Null);
        let chunk = coords(chunk, "chunk_shape", object)?;
        check_grid(&shape, &chunk, object)?;
        let keys = parse_keys(member(map, "chunk_key_encoding", object)?, object)?;
        let cells = parse_v3(member(map, "data_type", object)?)?;
        let codecs = parse_v3_codecs(member(map, "codecs", object)?, cells, shape.len(), object)?;
        if let Some(sharding) = &codecs.sharding {
            let whole = chunk.iter().zip(&sharding.chunk).all(|(shard, chunk)| shard.is_multiple_of(*chunk));
            if !whole {
                return Err(damaged(object, "the shard shape is not a multiple of the chunk shape"));
            }
            check_grid(&shape, &sharding.chunk, object)?;
        }
        let fill = parse_fill(member(map, "fill_value", object)?, cells, object)?;
        let mut attributes = self::attributes(attributes);
        // Floats are declared as Base64, because JSON has no NaN.
        if let Some(Value::Text(text)) = attributes.get(FILL_KEY)
            && cells.dtype.class() == tesseral_core::dtype::Class::Float
            && let Some(value) = fill::decode_declared(text)
        {
            attributes.insert(FILL_KEY.to_owned(), Value::Float(value));
        }
        let dims = dimension_names(map.get("dimension_names"), shape.len(), object)?;
        let (col_major, has_fill) = (false, true);
        Ok(Self {
            version: 3,
            shape,
            chunk,
            cells,
            fill,
            has_fill,
            col_major,
            codecs,
            keys,
            dims,
            attributes,
            document: bare(map),
        })
    }
}

/// Removes the attributes from a document of v3.
pub(crate) fn taken_attributes(map: &mut Map<String, Json>) -> Map<String, Json> {
    match map.get_mut("attributes").map(Json::take) {
        Some(Json::Object(attributes)) => attributes,
        _ => Map::new(),
    }
}

/// A document without attributes and without the metadata of other nodes.
fn bare(map: &Map<String, Json>) -> Vec<u8> {
    let kept = |name: &str| !["attributes", "consolidated_metadata"].contains(&name);
    let own: BTreeMap<_, _> = map.iter().filter(|(name, _)| kept(name)).collect();
    serde_json::to_vec(&own).unwrap_or_default()
}

/// The fill value as an attribute; `None` for text of one length, where it cannot be distinguished from padding.
fn declared(cells: ZarrCellType, fill: &[u8]) -> Option<Value> {
    match cells.cell {
        CellLen::Var => {
            std::str::from_utf8(fill).ok().filter(|_| cells.dtype == DType::Utf8).map(Value::from)
        }
        CellLen::Fixed(_) => None,
        CellLen::One => Scalar::from_le_bytes(cells.dtype, fill).ok().map(Value::from),
    }
}

/// Members of v3 documents; others must be ignorable.
const MEMBERS: [&str; 12] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "dimension_names",
    "storage_transformers",
    "consolidated_metadata",
];

/// Rejects extensions that a reader must understand.
pub(crate) fn check_extensions(map: &Map<String, Json>, object: &str) -> Result<()> {
    let optional = |value: &Json| value.get("must_understand") == Some(&Json::Bool(false)) || value.is_null();
    match map.iter().find(|(name, value)| !MEMBERS.contains(&name.as_str()) && !optional(value)) {
        Some((name, _)) => Err(Error::unsupported(format!("Zarr extension {name:?} in {object}"))),
        None => Ok(()),
    }
}

fn parse_keys(value: &Json, object: &str) -> Result<KeyEncoding> {
    let (name, configuration) = named(value)
        .ok_or_else(|| damaged(object, format!("invalid chunk key encoding {}", shown(value))))?;
    let separator = match configuration.and_then(|c| c.get("separator")).and_then(Json::as_str) {
        None => None,
        Some("/") => Some('/'),
        Some(".") => Some('.'),
        Some(other) => return Err(Error::unsupported(format!("chunk key separator {other:?} in {object}"))),
    };
    match name {
        "default" => Ok(KeyEncoding::Default(separator.unwrap_or('/'))),
        "v2" => Ok(KeyEncoding::V2(separator.unwrap_or('.'))),
        other => Err(Error::unsupported(format!("chunk key encoding {other:?} in {object}"))),
    }
}

fn dimension_names(value: Option<&Json>, rank: usize, object: &str) -> Result<Vec<String>> {
    let name = |value: &Json| match value {
        Json::Null => Some(String::new()),
        Json::String(name) => Some(name.clone()),
        _ => None,
    };
    match value {
        None | Some(Json::Null) => Ok(std::iter::repeat_n(String::new(), rank).collect()),
        Some(Json::Array(names)) if names.len() == rank => names
            .iter()
            .map(name)
            .collect::<Option<_>>()
            .ok_or_else(|| damaged(object, "a dimension name is not text")),
        Some(other) => Err(damaged(object, format!("invalid dimension names {}", shown(other)))),
    }
}
