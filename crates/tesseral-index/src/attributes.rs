//! Attributes as bytes: a tag and a value each.

use tesseral_core::{Attributes, CountedValues, Cursor, DType, Error, MetadataCost, Result, Scalar, Value};

/// The most nested lists and maps.
const DEPTH: usize = 16;

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Metadata of more than 4 GiB is rejected before it is written.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

pub(crate) fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes) -> Result<()> {
    out.extend_from_slice(&(attributes.len() as u32).to_le_bytes());
    for (name, value) in attributes {
        put_text(out, name);
        put_value(out, value)?;
    }
    Ok(())
}

fn put_value(out: &mut Vec<u8>, value: &Value) -> Result<()> {
    match value {
        Value::Null => out.push(0),
        Value::Bool(flag) => out.extend_from_slice(&[1, u8::from(*flag)]),
        Value::Int(n) => {
            out.push(2);
            out.extend_from_slice(&n.to_le_bytes());
        }
        Value::UInt(n) => {
            out.push(3);
            out.extend_from_slice(&n.to_le_bytes());
        }
        Value::Float(n) => {
            out.push(4);
            out.extend_from_slice(&n.to_le_bytes());
        }
        Value::Scalar(scalar) => {
            out.push(5);
            put_scalar(out, scalar);
        }
        Value::Text(text) => {
            out.push(6);
            put_text(out, text);
        }
        Value::Bytes(bytes) => {
            out.push(7);
            put_bytes(out, bytes);
        }
        Value::List(values) => {
            out.push(8);
            out.extend_from_slice(&(values.len() as u32).to_le_bytes());
            values.iter().try_for_each(|value| put_value(out, value))?;
        }
        Value::Map(map) => {
            out.push(9);
            put_attributes(out, map)?;
        }
        Value::Numbers { dtype, bytes } => {
            out.push(10);
            put_text(out, &dtype.to_string());
            put_bytes(out, bytes);
        }
        other => return Err(Error::unsupported(format!("the attribute value {other} in an index"))),
    }
    Ok(())
}

/// Appends a scalar: its dtype and its little-endian bytes.
pub(crate) fn put_scalar(out: &mut Vec<u8>, scalar: &Scalar) {
    put_text(out, &scalar.dtype().to_string());
    let mut bytes = scalar.bytes().to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_mut(scalar.dtype().word().max(1)).for_each(<[u8]>::reverse);
    }
    put_bytes(out, &bytes);
}

pub(crate) fn bytes32<'a>(cursor: &mut Cursor<'a>, what: &str) -> Result<&'a [u8]> {
    let len = cursor.u32(what)?;
    cursor.take64(len.into(), what)
}

pub(crate) fn dtype(cursor: &mut Cursor<'_>, object: &str) -> Result<DType> {
    let name = cursor.text32("dtype")?;
    name.parse().map_err(|_| Error::corrupt("index", object, cursor.at(), format!("unknown dtype {name:?}")))
}

pub(crate) fn scalar(cursor: &mut Cursor<'_>, object: &str) -> Result<Scalar> {
    let dtype = dtype(cursor, object)?;
    let bytes = bytes32(cursor, "value")?;
    Scalar::from_le_bytes(dtype, bytes)
        .map_err(|e| Error::corrupt("index", object, cursor.at(), e.to_string()))
}

pub(crate) fn attributes(
    cursor: &mut Cursor<'_>,
    object: &str,
    counted: &mut CountedValues,
) -> Result<Attributes> {
    map(cursor, object, DEPTH, counted)
}

fn map(
    cursor: &mut Cursor<'_>,
    object: &str,
    depth: usize,
    counted: &mut CountedValues,
) -> Result<Attributes> {
    let count = cursor.u32("number of attributes")?;
    // A name and a tag take five bytes at least.
    let count = cursor.count(count.into(), 5, "attributes")?;
    counted.add(MetadataCost::default().maps(1).names(count as u64))?;
    let mut out = Attributes::new();
    for _ in 0..count {
        let name = cursor.text32("attribute name")?;
        let value = value(cursor, object, depth, counted)?;
        if out.insert(name, value).is_some() {
            return Err(Error::corrupt("index", object, cursor.at(), "duplicate attribute"));
        }
    }
    Ok(out)
}

fn value(cursor: &mut Cursor<'_>, object: &str, depth: usize, counted: &mut CountedValues) -> Result<Value> {
    counted.add(MetadataCost::default().values(1))?;
    let corrupt = |at: u64, detail: String| Error::corrupt("index", object, at, detail);
    let Some(depth) = depth.checked_sub(1) else {
        return Err(corrupt(cursor.at(), "attributes are nested too deeply".to_owned()));
    };
    Ok(match cursor.u8("attribute tag")? {
        0 => Value::Null,
        1 => Value::Bool(cursor.flag("attribute")?),
        2 => Value::Int(cursor.u64("attribute")?.cast_signed()),
        3 => Value::UInt(cursor.u64("attribute")?),
        4 => Value::Float(cursor.f64("attribute")?),
        5 => Value::Scalar(scalar(cursor, object)?),
        6 => Value::Text(cursor.text32("attribute")?),
        7 => Value::Bytes(bytes32(cursor, "attribute")?.to_vec()),
        8 => {
            let count = cursor.u32("number of values")?;
            let count = cursor.count(count.into(), 1, "values")?;
            counted.add(MetadataCost::default().lists(1))?;
            Value::List((0..count).map(|_| value(cursor, object, depth, counted)).collect::<Result<_>>()?)
        }
        9 => Value::Map(Box::new(map(cursor, object, depth, counted)?)),
        10 => {
            let dtype = dtype(cursor, object)?;
            let bytes = bytes32(cursor, "numbers")?;
            if dtype.size().is_none_or(|size| !bytes.len().is_multiple_of(size)) {
                return Err(corrupt(cursor.at(), format!("{} bytes of {dtype}", bytes.len())));
            }
            Value::Numbers { dtype, bytes: bytes.to_vec() }
        }
        tag => return Err(corrupt(cursor.at(), format!("unknown attribute tag {tag}"))),
    })
}
