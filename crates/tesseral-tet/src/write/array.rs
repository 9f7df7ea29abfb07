//! One array being written: validation of its schema, and encoding of its chunks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use smallvec::smallvec;
use tesseral_codec::zstd;
use tesseral_core::schema::{CellLen, Dimension};
use tesseral_core::{
    Advice, ArraySchema, ChunkGrid, ChunkStats, Coords, DType, Error, Order, Result, Scalar, Value,
};
use tesseral_format::convention::KEY;
use tesseral_format::{
    ArraySpec, CodecSpec, Column, ColumnData, EncodedChunk, EncodedPart, Role, Scratch, StoredChunk,
};

use super::{ZONE, stats_of_zone};
use crate::decode::to_native;
use crate::stats::FillRule;
use crate::wire::chunk_index::{RAW, ZSTD};
use crate::wire::directory::{self, DatasetRecord, MAX_RANK};
use crate::wire::json::JsonObject;
use crate::wire::metadata::{DatasetMetadata, StoredLabels, check_text};
use crate::wire::statistics_region::MAX_MISSING;

/// Size of the smallest chunks with statistics in bytes.
const SMALLEST_CHUNK: u64 = 4 << 10;

/// An array being written.
#[derive(Debug)]
pub(super) struct ArrayState {
    pub(super) record: DatasetRecord,
    pub(super) grid: ChunkGrid,
    dtype: DType,
    /// Size of one cell in bytes.
    cell: usize,
    /// Compression level of zstd; `None` for raw.
    pub(super) level: Option<i32>,
    /// Declared missing value, for zone maps.
    fill: FillRule,
    /// The values that statistics exclude.
    pub(super) missing: Vec<Scalar>,
    pub(super) metadata: DatasetMetadata,
    /// The marker of the storage conventions.
    pub(super) marker: Option<String>,
}

impl ArrayState {
    pub(super) fn new(spec: &ArraySpec) -> Result<Self> {
        let schema = &spec.schema;
        let unsupported = |what: String| Err(Error::unsupported(format!("{what} in .tet")));
        if schema.name.is_empty() {
            return Err(Error::invalid("an array of a .tet file requires a name"));
        }
        check_text("the name of an array", &schema.name)?;
        if schema.sparse {
            return unsupported("a sparse array".to_owned());
        }
        if schema.cell_order != Order::RowMajor {
            return unsupported(format!("cells in {:?} order", schema.cell_order));
        }
        let [field] = schema.fields.as_slice() else {
            return unsupported(format!("an array of {} fields", schema.fields.len()));
        };
        if field.nullable {
            return unsupported(format!("the nullable field {:?}", field.name));
        }
        if field.enumeration.is_some() {
            return unsupported(format!("the enumeration of field {:?}", field.name));
        }
        let tag = directory::tag_of(field.dtype).filter(|_| field.cell == CellLen::One);
        let Some(tag) = tag else {
            let rejection = unsupported(format!("cells of {}", field.type_name()));
            return rejection.map_err(|e: Error| e.hint(Advice::Cast { to: None }));
        };
        let rank = schema.dims.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return unsupported(format!("an array of {rank} dimensions"));
        }
        let Some(shape) = schema.shape() else {
            return unsupported("a dimension without an extent".to_owned());
        };
        if shape.contains(&0) {
            return unsupported(format!("an empty array of shape {shape:?}"));
        }
        let Some(chunk_shape) = schema.chunk_shape.clone() else {
            return Err(Error::invalid("an array of a .tet file requires a chunk shape"));
        };
        let record = DatasetRecord { name: schema.name.clone(), dtype: tag, reserved: 0, shape, chunk_shape };
        let (dtype, grid) = match record.geometry("the new file") {
            Ok(geometry) => geometry,
            // The same checks as for reading, reported as an invalid request.
            Err(e) => return Err(Error::invalid(e.to_string())),
        };
        let metadata = dataset_metadata(schema, &record)?;
        let marker = schema.attributes.get(KEY).map(|marker| text_of(KEY, marker)).transpose()?;
        let fill = FillRule::new(dtype, metadata.fill_text());
        let level = level_of(spec.codecs.first().map_or(&[][..], Vec::as_slice))?;
        let cell = dtype.size().unwrap_or(1);
        let missing = field.missing_values();
        Ok(Self { record, grid, dtype, cell, level, fill, missing, metadata, marker })
    }

    /// Whether its chunks have statistics: reading a small chunk is as fast as reading a row of statistics.
    pub(super) fn has_statistics(&self) -> bool {
        let chunk = self.grid.chunk_shape().iter().zip(self.grid.shape()).map(|(chunk, n)| chunk.min(n));
        let cells = chunk.fold(1_u64, |cells, n| cells.saturating_mul(*n));
        cells.saturating_mul(self.cell as u64) >= SMALLEST_CHUNK
            && self.cell <= 8
            && self.missing.len() <= MAX_MISSING
    }

    /// Codec number of its chunks.
    pub(super) fn codec(&self) -> u32 {
        if self.level.is_some() { ZSTD } else { RAW }
    }

    pub(super) fn name_chunk(&self, error: Error, coords: &[u64]) -> Error {
        error.in_array(&self.record.name).in_chunk(coords)
    }

    /// Size of all cells in bytes. `geometry` has checked that it fits `u64`.
    pub(super) fn bytes(&self) -> u64 {
        self.record.shape.iter().product::<u64>() * self.cell as u64
    }

    pub(super) fn tile_bytes(&self, coords: &[u64]) -> u64 {
        self.grid.region(coords).cells().unwrap_or(0) * self.cell as u64
    }

    /// Size of all chunks before this one in canonical order, in bytes.
    ///
    /// The chunks that equal `coords` before dimension `d` and are smaller at `d` cover a box: the chunk's own extents before
    /// `d`, everything up to the chunk's start along `d`, the whole array after `d`. The sizes of the boxes are added.
    pub(super) fn bytes_before(&self, coords: &[u64]) -> u64 {
        let region = self.grid.region(coords);
        let shape = &self.record.shape;
        let cells: u64 = (0..shape.len())
            .map(|d| {
                let before: u64 = (0..d).map(|k| region.extent(k)).product();
                before * region.start(d) * shape[d + 1..].iter().product::<u64>()
            })
            .sum();
        cells * self.cell as u64
    }

    pub(super) fn encode<'a>(
        &self,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        mut stats: Vec<ChunkStats>,
        zone_maps: bool,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        if !self.grid.contains(coords) {
            return Err(Error::invalid(format!(
                "chunk coordinates out of bounds for a grid of {:?}",
                self.grid.counts()
            )));
        }
        let [ColumnData::Fixed { values, validity }] = columns else {
            return Err(Error::invalid("expected one fixed-size column"));
        };
        let raw_len = self.tile_bytes(coords);
        if values.len() as u64 != raw_len {
            return Err(Error::invalid(format!(
                "expected {raw_len} bytes for the tile, found {}",
                values.len()
            )));
        }
        if let Some(cell) = validity.and_then(|v| v.iter().position(|valid| *valid == 0)) {
            return Err(Error::unsupported(format!("a null (cell {cell} of the tile) in .tet")));
        }
        let cells = raw_len / self.cell as u64;
        stats.truncate(1);
        if zone_maps {
            stats.resize(ZONE, ChunkStats::unknown(cells));
            stats.push(stats_of_zone(self.dtype, cells, &self.fill.zone_of(self.dtype, values)));
        }
        let mut values = Cow::Borrowed(*values);
        if cfg!(target_endian = "big") && self.cell > 1 {
            to_native(values.to_mut(), self.cell);
        }
        let (bytes, codec) = match self.level {
            None => (values, RAW),
            Some(level) => {
                let mut packed = Vec::new();
                zstd::encode(&values, level, &mut packed, &mut scratch.contexts)?;
                (Cow::Owned(packed), ZSTD)
            }
        };
        let part = EncodedPart { column: Column::Field(0), role: Role::Values, bytes, raw_len, codec };
        Ok(EncodedChunk { coords: Coords::from_slice(coords), parts: smallvec![part], stats })
    }
}

impl ArrayState {
    /// Accepts stored bytes of another container as a chunk of this array.
    pub(super) fn push_encoded<'a>(
        &self,
        coords: &[u64],
        stored: &'a StoredChunk,
    ) -> Result<EncodedChunk<'a>> {
        if !self.grid.contains(coords) || stored.raw_len != self.tile_bytes(coords) {
            return Err(Error::invalid(format!(
                "a stored chunk of {} bytes does not match the tile",
                stored.raw_len
            )));
        }
        let part = EncodedPart {
            column: Column::Field(0),
            role: Role::Values,
            bytes: Cow::Borrowed(&stored.bytes),
            raw_len: stored.raw_len,
            codec: ZSTD,
        };
        let stats = vec![stored.stats.clone()];
        Ok(EncodedChunk { coords: Coords::from_slice(coords), parts: smallvec![part], stats })
    }
}

/// Returns the compression level of a codec chain; `None` for raw.
fn level_of(codecs: &[CodecSpec]) -> Result<Option<i32>> {
    let mut coded = codecs.iter().filter(|codec| codec.name != "raw");
    let codec = match (coded.next(), coded.next()) {
        (None, _) => return Ok(None),
        (Some(codec), None) if codec.name == "zstd" => codec,
        (Some(codec), None) => {
            let error = Error::unsupported(format!("the codec {:?} in .tet", codec.name));
            return Err(error.hint(Advice::Codecs(&["raw", "zstd"])));
        }
        (Some(_), Some(_)) => return Err(Error::unsupported("a codec chain in .tet")),
    };
    if let Some(name) = codec.options.keys().find(|name| *name != "level") {
        return Err(Error::invalid(format!("unknown option {name:?} of zstd")));
    }
    match codec.int("level").unwrap_or(0) {
        0 => Ok(Some(zstd::DEFAULT_LEVEL)),
        level @ -131_072..=22 => Ok(i32::try_from(level).ok()),
        level => Err(Error::invalid(format!("level {level} is out of range for zstd"))),
    }
}

/// Builds the footer metadata of a schema.
fn dataset_metadata(schema: &ArraySchema, record: &DatasetRecord) -> Result<DatasetMetadata> {
    let mut metadata = DatasetMetadata::default();
    for (name, value) in tesseral_core::missing::attributes(schema).iter().filter(|(name, _)| *name != KEY) {
        check_text("an attribute name", name)?;
        let text = text_of(name, value)?;
        check_text(&format!("the attribute {name:?}"), &text)?;
        metadata.attrs.insert(name.clone(), text);
    }
    if schema.dims.iter().any(|dim| !dim.name.is_empty()) {
        // Either all dimensions have names or none; an unnamed one is stored by its number, which lookups accept as well.
        let name = |(d, dim): (usize, &Dimension)| {
            if dim.name.is_empty() { d.to_string() } else { dim.name.clone() }
        };
        metadata.dim_names = Some(schema.dims.iter().enumerate().map(name).collect());
    }
    let mut coords = BTreeMap::new();
    for (d, dim) in schema.dims.iter().enumerate() {
        let Some(labels) = &dim.labels else { continue };
        let labels: Vec<String> =
            (0..labels.len()).filter_map(|i| labels.get(i)).map(|l| l.to_string()).collect();
        if labels.len() as u64 != record.shape[d] {
            let detail =
                format!("dimension {d} has {} positions and {} labels", record.shape[d], labels.len());
            return Err(Error::invalid(detail));
        }
        let axis = metadata.dim_names.as_ref().map_or_else(|| d.to_string(), |names| names[d].clone());
        coords.insert(axis, JsonObject(StoredLabels { labels }));
    }
    if !coords.is_empty() {
        metadata.coords = Some(coords);
    }
    // Two dimensions with the same name share the stored labels.
    for (d, dim) in schema.dims.iter().enumerate() {
        let wanted = dim.labels.as_ref().map(|labels| labels.len());
        let stored = metadata.labels(d, &record.shape);
        let same = match (&dim.labels, stored) {
            (None, None) => true,
            (Some(labels), Some(stored)) => {
                wanted == Some(stored.len())
                    && stored
                        .iter()
                        .enumerate()
                        .all(|(i, s)| labels.get(i).is_some_and(|l| l.to_string() == *s))
            }
            _ => false,
        };
        if !same {
            let detail = format!("labels of dimension {d} ({:?}), whose name is ambiguous", dim.name);
            return Err(Error::unsupported(format!("{detail}, in .tet")));
        }
    }
    Ok(metadata)
}

/// Returns the attribute as it reads back; `None` if the format cannot store it.
pub(crate) fn held_attribute(name: &str, value: &Value) -> Option<Value> {
    let text = text_of(name, value).ok()?;
    let fits = check_text("", name).is_ok() && check_text("", &text).is_ok();
    fits.then_some(Value::Text(text))
}

/// Formats an attribute as text, the only attribute type of the format: numbers and flat lists in display form, maps and nested
/// values as JSON. Bytes are not supported.
pub(super) fn text_of(name: &str, value: &Value) -> Result<String> {
    let has_parts = |value: &Value| matches!(value, Value::List(_) | Value::Map(_));
    Ok(match value {
        Value::Bytes(_) => {
            return Err(Error::unsupported(format!("the binary attribute {name:?} in .tet")));
        }
        Value::Map(_) => json_of(value).to_string(),
        Value::List(values) if values.iter().any(has_parts) => json_of(value).to_string(),
        _ => value.to_string(),
    })
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(v) => (*v).into(),
        Value::Int(v) => (*v).into(),
        Value::UInt(v) => (*v).into(),
        Value::Float(v) if v.is_finite() => (*v).into(),
        Value::List(values) => values.iter().map(json_of).collect(),
        Value::Map(map) => map.iter().map(|(name, value)| (name.clone(), json_of(value))).collect(),
        other => other.to_string().into(),
    }
}
