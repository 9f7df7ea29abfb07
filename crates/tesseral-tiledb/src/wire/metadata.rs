//! Array metadata: `u32 length, key`, `u8 deleted`, and unless deleted `u8 datatype`, `u32 count`, values.

use tesseral_core::{Attributes, CountedValues, Cursor, DType, Error, MetadataCost, Result, Scalar, Value};

use crate::convention::PREFIX;

use super::datatype::Datatype;
use super::primitive::{put_text32, put_u32};

/// Applies one file on top of earlier ones.
///
/// # Errors
/// `Corrupt`, `Unsupported`; `Limit` if the values would take too much memory.
pub fn apply(object: &str, bytes: &[u8], to: &mut Attributes, counted: &mut CountedValues) -> Result<()> {
    let cursor = &mut Cursor::new(object, bytes);
    while !cursor.rest().is_empty() {
        let key = cursor.text32("a metadata key")?;
        if cursor.flag("whether a metadata key is deleted")? {
            to.shift_remove(&key);
            continue;
        }
        let datatype = Datatype::new(cursor.u8("a metadata datatype")?)?;
        let count = cursor.u32("a metadata count")?;
        let bytes = cursor.take64(u64::from(count) * datatype.size() as u64, "a metadata value")?;
        let own = MetadataCost::default().names(1).values(1);
        let is_json = key.starts_with(PREFIX);
        counted.add(if is_json { own.and(MetadataCost::of_json(bytes)) } else { own })?;
        to.insert(key, value(datatype.dtype(), bytes));
    }
    Ok(())
}

fn value(dtype: DType, bytes: &[u8]) -> Value {
    match dtype {
        DType::Ascii | DType::Utf8 | DType::Char => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Bytes(bytes.to_vec()),
        },
        DType::Bytes => Value::Bytes(bytes.to_vec()),
        _ if bytes.is_empty() => Value::Null,
        _ if Some(bytes.len()) == dtype.size() => single(dtype, bytes),
        _ => Value::Numbers { dtype, bytes: bytes.to_vec() },
    }
}

fn single(dtype: DType, bytes: &[u8]) -> Value {
    match Scalar::from_le_bytes(dtype, bytes) {
        Ok(scalar) => Value::from(scalar),
        Err(_) => Value::Numbers { dtype, bytes: bytes.to_vec() },
    }
}

/// Entries with their stored values, for consolidation.
#[derive(Clone, Debug, Default)]
pub struct Entries(std::collections::BTreeMap<String, (u8, Vec<u8>)>);

impl Entries {
    /// Applies one file on top of earlier ones.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub fn apply(&mut self, object: &str, bytes: &[u8]) -> Result<()> {
        let cursor = &mut Cursor::new(object, bytes);
        while !cursor.rest().is_empty() {
            let key = cursor.text32("a metadata key")?;
            if cursor.flag("whether a metadata key is deleted")? {
                self.0.remove(&key);
                continue;
            }
            let datatype = Datatype::new(cursor.u8("a metadata datatype")?)?;
            let count = cursor.u32("a metadata count")?;
            let bytes = cursor.take64(u64::from(count) * datatype.size() as u64, "a metadata value")?;
            self.0.insert(key, (datatype.number(), bytes.to_vec()));
        }
        Ok(())
    }

    /// Encodes all entries as one file.
    ///
    /// # Errors
    /// `Limit`.
    pub fn write(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for (key, (number, bytes)) in &self.0 {
            put_text32(key, &mut out)?;
            out.extend_from_slice(&[0, *number]);
            let count = bytes.len() / Datatype::new(*number)?.size();
            put_u32(count as u64, "a metadata value", &mut out)?;
            out.extend_from_slice(bytes);
        }
        Ok(out)
    }
}

/// Encodes entries as one file; `None` removes a key.
///
/// # Errors
/// `Unsupported` for a value without a metadata representation; `Limit`.
pub fn write<'a>(
    entries: impl IntoIterator<Item = (&'a str, Option<&'a Value>)>,
    out: &mut Vec<u8>,
) -> Result<()> {
    for (key, value) in entries {
        put_text32(key, out)?;
        let Some(value) = value else {
            out.push(1);
            continue;
        };
        out.push(0);
        let (datatype, bytes) = stored(value).ok_or_else(|| {
            Error::unsupported(format!("attribute {key:?} with value {value} in TileDB metadata"))
        })?;
        out.push(datatype.number());
        put_u32((bytes.len() / datatype.size()) as u64, "a metadata value", out)?;
        out.extend_from_slice(&bytes);
    }
    Ok(())
}

/// Encodes a value as the reference's Python package does: 64-bit integers, 64-bit floats, UTF-8 text, blobs.
fn stored(value: &Value) -> Option<(Datatype, Vec<u8>)> {
    let datatype = |dtype| Datatype::from_dtype(dtype);
    Some(match value {
        Value::Null => (datatype(DType::Int64)?, Vec::new()),
        Value::Bool(v) => (datatype(DType::Bool)?, vec![u8::from(*v)]),
        Value::Int(v) => (datatype(DType::Int64)?, v.to_le_bytes().to_vec()),
        Value::UInt(v) => (datatype(DType::UInt64)?, v.to_le_bytes().to_vec()),
        Value::Float(v) => (datatype(DType::Float64)?, v.to_le_bytes().to_vec()),
        Value::Scalar(v) => (datatype(v.dtype())?, v.bytes().to_vec()),
        Value::Text(v) => (Datatype::UTF8, v.as_bytes().to_vec()),
        Value::Bytes(v) => (Datatype::BLOB, v.clone()),
        Value::Numbers { dtype, bytes } => (datatype(*dtype)?, bytes.clone()),
        _ => return None,
    })
}
