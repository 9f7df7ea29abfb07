//! Attributes as NetCDF-4 has them: text, lists of text, and numbers.

use tesseral_core::{Attributes, DType, Error, Result, Scalar, Value};

use super::datatype;
use super::header::{ObjectHeader, null_space, space};
use super::heap::HeapBuilder;
use crate::attribute::HIDDEN;

/// The most bytes of values in an object header; longer text is in a heap.
const INLINE: usize = 60_000;
/// The most bytes of a name in NetCDF.
const NAME: usize = 256;

/// Whether the values of a dtype can be attributes.
fn is_number(dtype: DType) -> bool {
    dtype != DType::Char && datatype::plain(dtype).is_some()
}

fn is_text(value: &Value) -> bool {
    matches!(value, Value::Text(text) if !text.contains('\0'))
}

/// Numbers as they read back: a single one is not a list.
fn numbers(dtype: DType, bytes: &[u8]) -> Option<Value> {
    if !is_number(dtype) || bytes.len() > INLINE {
        return None;
    }
    match Scalar::from_le_bytes(dtype, bytes) {
        Ok(scalar) if Some(bytes.len()) == dtype.size() => Some(Value::from(scalar)),
        _ => Some(Value::Numbers { dtype, bytes: bytes.to_vec() }),
    }
}

/// A list of 64-bit numbers of one type as it reads back.
fn uniform(values: &[Value]) -> Option<Value> {
    let dtype = values.first()?.to_scalar()?.dtype();
    let mut bytes = Vec::new();
    for value in values {
        match value {
            Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Scalar(_) => {}
            _ => return None,
        }
        let scalar = value.to_scalar().filter(|scalar| scalar.dtype() == dtype)?;
        bytes.extend(scalar.bytes());
    }
    numbers(dtype, &bytes)
}

/// An attribute as it reads back; `None` if it cannot be stored.
pub(crate) fn read_back(name: &str, value: &Value) -> Option<Value> {
    let reserved =
        HIDDEN.contains(&name) || name.is_empty() || name.len() > NAME || name.contains(['/', '\0']);
    if reserved {
        return None;
    }
    match value {
        text @ Value::Text(_) => is_text(text).then(|| text.clone()),
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => Some(value.clone()),
        Value::Bool(truth) => Some(Value::Scalar(Scalar::from_element(i8::from(*truth)))),
        Value::Scalar(scalar) => is_number(scalar.dtype()).then(|| Value::from(scalar.clone())),
        Value::Bytes(bytes) => numbers(DType::UInt8, bytes),
        Value::Numbers { dtype, bytes } => numbers(*dtype, bytes),
        Value::List(values) if values.iter().all(is_text) => match values.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            many if many.len() * 16 <= INLINE => Some(value.clone()),
            _ => None,
        },
        Value::List(values) => uniform(values),
        _ => None,
    }
}

/// Adds attributes that [can be stored](read_back) to an object.
pub(super) fn write(
    header: &mut ObjectHeader,
    attributes: &Attributes,
    heap: &mut HeapBuilder,
    base: u64,
) -> Result<()> {
    attributes.iter().try_for_each(|(name, value)| write_attribute(header, name, value, heap, base))
}

fn write_attribute(
    header: &mut ObjectHeader,
    name: &str,
    value: &Value,
    heap: &mut HeapBuilder,
    base: u64,
) -> Result<()> {
    let rejected =
        || Error::unsupported(format!("the attribute {name:?} with the value {value} in NetCDF-4"));
    match value {
        Value::Text(value) if value.len() <= INLINE => text(header, name, value),
        Value::Text(text) => {
            let reference = heap.add(text.as_bytes(), text.len())?.bytes(base);
            header.attribute(name, &datatype::variable_text(), &space(&[], &[]), &reference)
        }
        Value::List(values) => {
            let mut references = Vec::new();
            for value in values {
                let Value::Text(text) = value else { return Err(rejected()) };
                references.extend(heap.add(text.as_bytes(), text.len())?.bytes(base));
            }
            let extents = [values.len() as u64];
            header.attribute(name, &datatype::variable_text(), &space(&extents, &[]), &references)
        }
        Value::Numbers { dtype, bytes } => {
            let stored = datatype::plain(*dtype).ok_or_else(rejected)?;
            let count = bytes.len() / dtype.size().unwrap_or(1);
            let extents = if count == 0 { null_space() } else { space(&[count as u64], &[]) };
            header.attribute(name, &stored, &extents, bytes)
        }
        other => {
            let scalar = other.to_scalar().ok_or_else(rejected)?;
            let stored = datatype::plain(scalar.dtype()).ok_or_else(rejected)?;
            header.attribute(name, &stored, &space(&[1], &[]), scalar.bytes())
        }
    }
}

/// Adds text of a fixed size, as NetCDF-4 stores it.
pub(super) fn text(header: &mut ObjectHeader, name: &str, text: &str) -> Result<()> {
    let size = u32::try_from(text.len()).unwrap_or(u32::MAX).max(1);
    let extents = if text.is_empty() { null_space() } else { space(&[], &[]) };
    header.attribute(name, &datatype::text(size, !text.is_ascii()), &extents, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_held_as_they_read_back() {
        let text = |text: &str| Value::from(text);
        let list = |values: &[Value]| Value::List(values.to_vec());
        let same = [
            text("m s-1"),
            text(""),
            Value::Int(-1),
            Value::UInt(u64::MAX),
            Value::Float(f64::NAN),
            Value::Scalar(Scalar::from_element(1.5_f32)),
            list(&[text("a"), text("")]),
            Value::Numbers { dtype: DType::Int16, bytes: vec![1, 0, 2, 0] },
            Value::Numbers { dtype: DType::Int16, bytes: vec![] },
        ];
        for value in same {
            assert_eq!(read_back("a", &value).as_ref(), Some(&value));
        }
        let one = Value::Numbers { dtype: DType::Int16, bytes: vec![1, 0] };
        assert_eq!(read_back("a", &one), Some(Value::Scalar(Scalar::from_element(1_i16))));
        assert_eq!(read_back("a", &list(&[text("a")])), Some(text("a")));
        assert_eq!(read_back("a", &Value::Bool(true)), Some(Value::Scalar(Scalar::from_element(1_i8))));
        let ints = list(&[Value::Int(1), Value::Int(2)]);
        assert!(matches!(read_back("a", &ints), Some(Value::Numbers { dtype: DType::Int64, .. })));
        let none = [
            text("a\0b"),
            Value::Null,
            list(&[]),
            list(&[Value::Int(1), text("a")]),
            Value::Map(Box::default()),
            Value::Numbers { dtype: DType::Float16, bytes: vec![0, 0] },
            Value::Numbers { dtype: DType::UInt8, bytes: vec![0; 70_000] },
        ];
        for value in none {
            assert_eq!(read_back("a", &value), None);
        }
        for name in ["", "CLASS", "_Netcdf4Dimid", "a/b"] {
            assert_eq!(read_back(name, &text("a")), None);
        }
    }
}
