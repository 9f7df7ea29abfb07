//! Array metadata: `u32 length, key`, `u8 deleted`, and unless deleted `u8 datatype`, `u32 count`, values.

use tesseral_core::dtype::Class;
use tesseral_core::{Attributes, DType, Result, Scalar, Value};

use super::cursor::Cursor;
use super::datatype::Datatype;

/// Applies one file to what earlier files said.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub fn apply(object: &str, bytes: &[u8], to: &mut Attributes) -> Result<()> {
    let cursor = &mut Cursor::new(object, bytes);
    while !cursor.rest().is_empty() {
        let key = cursor.text32("a metadata key")?;
        if cursor.flag("whether a metadata key is deleted")? {
            to.remove(&key);
            continue;
        }
        let datatype = Datatype::new(cursor.u8("a metadata datatype")?)?;
        let count = cursor.u32("a metadata count")?;
        let bytes = cursor.take64(u64::from(count) * datatype.size() as u64, "a metadata value")?;
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
    let numbers = || Value::Numbers { dtype, bytes: bytes.to_vec() };
    let Ok(scalar) = Scalar::from_le_bytes(dtype, bytes) else { return numbers() };
    match (dtype.class(), scalar.as_i128(), scalar.as_f64()) {
        (Class::Bool, Some(n), _) if n <= 1 => Value::Bool(n == 1),
        (Class::Int | Class::UInt, Some(n), _) => match (i64::try_from(n), u64::try_from(n)) {
            (Ok(n), _) => Value::Int(n),
            (_, Ok(n)) => Value::UInt(n),
            _ => numbers(),
        },
        (Class::Float, _, Some(v)) => Value::Float(v),
        _ => numbers(),
    }
}
