//! Attributes: typed values, and those that describe dimensions.

use hdf5_reader::RawAttribute;
use hdf5_reader::messages::dataspace::DataspaceType;
use tesseral_core::{
    Attributes, CellLen, CountedValues, Cursor, DType, ErrorKind, MetadataCost, Result, Value,
};

use crate::datatype::Hdf5CellType;
use crate::file::{File, HeapReader, has_references};
use crate::header_messages::attribute_order;

/// Attributes by which NetCDF-4 and the dimension scale interface describe dimensions. They are not shown.
pub(crate) const HIDDEN: [&str; 9] = [
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "DIMENSION_LABELS",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_NCProperties",
    "_nc3_strict",
];

/// The attributes of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectAttributes {
    /// Visible attributes, in creation order where the file records it.
    pub(crate) shown: Attributes,
    /// Attributes that describe dimensions.
    pub(crate) hidden: Attributes,
    /// Addresses of the dimension scales of each dimension, from `DIMENSION_LIST`; 0 for none.
    pub(crate) scales: Vec<u64>,
    /// Name and reason of each attribute without a representation.
    pub(crate) unread: Vec<(String, String)>,
}

impl ObjectAttributes {
    /// Converts the attributes of the object whose header is at `address`.
    pub(crate) fn new(file: &File, address: u64, mut raw: Vec<RawAttribute>) -> Result<Self> {
        let orders = attribute_order(file, address)?;
        if raw.iter().all(|attribute| orders.contains_key(attribute.name().as_bytes())) {
            raw.sort_by_key(|attribute| orders.get(attribute.name().as_bytes()));
        }
        let mut out = Self::default();
        let mut counted = CountedValues::new(file.limits, 0);
        for attribute in raw {
            let name = attribute.name().to_owned();
            if name == "DIMENSION_LIST" {
                out.scales = scales(file, &attribute)?;
                continue;
            }
            let hidden = HIDDEN.contains(&name.as_str());
            match value(file, &attribute, &mut counted)? {
                Ok(value) if hidden => drop(out.hidden.insert(name, value)),
                Ok(value) => drop(out.shown.insert(name, value)),
                Err(_) if hidden => {}
                Err(reason) => out.unread.push((name, reason)),
            }
        }
        Ok(out)
    }

    /// The text of a hidden attribute.
    pub(crate) fn hidden_text(&self, name: &str) -> Option<&str> {
        match self.hidden.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The integers of a hidden attribute.
    pub(crate) fn hidden_integers(&self, name: &str) -> Vec<i64> {
        let little = |bytes: &[u8]| bytes.first_chunk().map(|four| i64::from(i32::from_le_bytes(*four)));
        match self.hidden.get(name) {
            Some(Value::Numbers { dtype: DType::Int32, bytes }) => {
                bytes.chunks_exact(4).filter_map(little).collect()
            }
            Some(Value::Scalar(scalar)) => scalar.get::<i32>().map(i64::from).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// The first scale of each dimension: a list of references to references.
fn scales(file: &File, attribute: &RawAttribute) -> Result<Vec<u64>> {
    let (mut heap, width) = (HeapReader::new(file), usize::from(file.offset_size));
    let mut out = Vec::new();
    for reference in attribute.message().raw_data.chunks(file.reference_size()) {
        let targets = heap.value(reference, width)?;
        let address = targets.get(..width).unwrap_or_default();
        out.push(address.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte)));
    }
    Ok(out)
}

/// The value of an attribute, or the reason why it has no representation.
fn value(
    file: &File,
    attribute: &RawAttribute,
    counted: &mut CountedValues,
) -> Result<std::result::Result<Value, String>> {
    let object = file.storage.describe();
    let cell = match Hdf5CellType::parse(Cursor::new(&object, attribute.raw_datatype())) {
        Ok(cell) => cell,
        Err(error) => {
            return match error.kind() {
                ErrorKind::Unsupported { feature } => Ok(Err(format!("unsupported: {feature}"))),
                ErrorKind::Corrupt { detail, .. } => Ok(Err(detail.clone())),
                _ => Err(error),
            };
        }
    };
    let message = attribute.message();
    let null = message.dataspace.dataspace_type == DataspaceType::Null;
    let data: &[u8] = if null { &[] } else { &message.raw_data };
    if cell.cell == CellLen::Var {
        return variable_length(file, &cell, data, counted);
    }
    if matches!(cell.dtype, DType::Ascii | DType::Utf8 | DType::Char) {
        count(counted, data, cell.size)?;
        let mut texts = data.chunks(cell.size).map(|one| characters(&cell, one));
        return Ok(Ok(match texts.len() {
            0 => Value::from(""),
            1 => texts.next().unwrap_or(Value::Null),
            _ => Value::List(texts.collect()),
        }));
    }
    if cell.dtype == DType::Bytes {
        return Ok(Ok(Value::Bytes(data.to_vec())));
    }
    if !data.len().is_multiple_of(cell.size) {
        return Ok(Err("its length is not a multiple of its datatype's".to_owned()));
    }
    Ok(Ok(match cell.number(data) {
        Some(scalar) if data.len() == cell.size => Value::from(scalar),
        Some(scalar) => Value::Numbers { dtype: cell.dtype, bytes: scalar.bytes().to_vec() },
        None => Value::Numbers { dtype: cell.dtype, bytes: Vec::new() },
    }))
}

/// Counts values that are not numbers together with those of the other attributes of the object.
fn count(counted: &mut CountedValues, data: &[u8], size: usize) -> Result<()> {
    counted.stored(data.len() as u64);
    counted.add(MetadataCost::default().lists(1).values(data.len().div_ceil(size.max(1)) as u64))
}

/// Text of characters. NetCDF stores arrays of characters as terminated text, with zero bytes that end nothing: they are not part of
/// text, as in netCDF4, and a part of bytes that are not text.
fn characters(cell: &Hdf5CellType, one: &[u8]) -> Value {
    let own = cell.text(one);
    if own.len() == one.len() || one[own.len()..].iter().all(|byte| matches!(byte, 0 | b' ')) {
        return text(own);
    }
    match std::str::from_utf8(one) {
        Ok(text) => Value::from(text.replace('\0', "")),
        Err(_) => Value::Bytes(one.to_vec()),
    }
}

/// Text, or bytes that are not text.
fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => Value::Bytes(bytes.to_vec()),
    }
}

/// One or several values of variable length.
fn variable_length(
    file: &File,
    cell: &Hdf5CellType,
    data: &[u8],
    counted: &mut CountedValues,
) -> Result<std::result::Result<Value, String>> {
    if !has_references(file, cell) {
        return Ok(Err("references whose size differs from that of the file".to_owned()));
    }
    let (mut heap, element) = (HeapReader::new(file), cell.dtype.size().unwrap_or(1));
    count(counted, data, cell.size)?;
    let mut values = Vec::new();
    let mut held = 0_u64;
    for reference in data.chunks(cell.size) {
        let bytes = heap.value(reference, element)?;
        held = held.saturating_add(bytes.len() as u64);
        values.push(match cell.dtype {
            DType::Utf8 => text(bytes.split(|byte| *byte == 0).next().unwrap_or_default()),
            _ => Value::Numbers {
                dtype: cell.dtype,
                bytes: cell.number(bytes).map_or_else(Vec::new, |scalar| scalar.bytes().to_vec()),
            },
        });
        // Many references can point to one large value.
        file.limits.check_held("an attribute", held, heap.read.saturating_add(data.len() as u64))?;
    }
    Ok(Ok(match values.len() {
        0 if cell.dtype == DType::Utf8 => Value::from(""),
        1 => values.pop().unwrap_or(Value::Null),
        _ => Value::List(values),
    }))
}
