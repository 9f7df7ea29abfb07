//! Packed values: physical values stored as small integers, by the CF conventions.
//!
//! `physical = stored · scale_factor + add_offset`, in the order of the operations as written. `_Unsigned` declares that the bits
//! of a signed integer are those of an unsigned one, or the reverse. Missing cells have no physical value.
//!
//! | stored | `scale_factor`, `add_offset` | physical |
//! |---|---|---|
//! | integers of at most 16 bits | both absent or `float32` | `float32` |
//! | anything else | | `float64` |
//! | integers with `_Unsigned` alone | absent | the integer dtype of the other signedness |

use crate::dtype::Class;
use crate::missing::{attribute, flag};
use crate::{ArraySchema, CellLen, DType, Element, Field, Scalar, Value, dispatch_element};

/// How stored values of a field become physical ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    /// The dtype of stored values.
    pub stored: DType,
    /// The dtype whose value the stored bits are: that of `stored`, or the one of the other signedness.
    pub taken_as: DType,
    /// The dtype of physical values.
    pub physical: DType,
    /// Factor.
    pub scale: f64,
    /// Summand.
    pub offset: f64,
    /// The smallest and the largest valid stored value, where declared. They are shown; cells beyond them are not missing.
    pub valid: (Option<f64>, Option<f64>),
}

/// The packing of a field, where attributes declare one that changes something.
pub fn packing(schema: &ArraySchema, field: &Field) -> Option<Packing> {
    let stored = field.dtype;
    if field.cell != CellLen::One
        || field.enumeration.is_some()
        || !matches!(stored.class(), Class::Int | Class::UInt | Class::Float)
    {
        return None;
    }
    let get = |key: &str| attribute(schema, &field.name, key).map(|(_, value)| value);
    let number = |key: &str| get(key).and_then(single);
    let (scale, offset) = (number("scale_factor"), number("add_offset"));
    let taken_as = get("_Unsigned").and_then(flag).and_then(|unsigned| other_sign(stored, unsigned));
    let taken_as = taken_as.unwrap_or(stored);
    let plain = |found: &Option<(f64, bool)>, neutral: f64| found.is_none_or(|(value, _)| value == neutral);
    if plain(&scale, 1.0) && plain(&offset, 0.0) {
        let valid = (None, None);
        return (taken_as != stored).then_some(Packing {
            stored,
            taken_as,
            physical: taken_as,
            scale: 1.0,
            offset: 0.0,
            valid,
        });
    }
    if [scale, offset].iter().flatten().any(|(value, _)| !value.is_finite()) {
        return None;
    }
    let narrow = [scale, offset].iter().flatten().all(|(_, narrow)| *narrow);
    let small = stored.class() != Class::Float && stored.size().is_some_and(|size| size <= 2);
    let range = get("valid_range").map(pair).unwrap_or_default();
    Some(Packing {
        stored,
        taken_as,
        physical: if narrow && small { DType::Float32 } else { DType::Float64 },
        scale: scale.map_or(1.0, |(value, _)| value),
        offset: offset.map_or(0.0, |(value, _)| value),
        valid: (
            number("valid_min").map(|(value, _)| value).or(range.0),
            number("valid_max").map(|(value, _)| value).or(range.1),
        ),
    })
}

/// A number and whether it is stored as a `float32`.
fn single(value: &Value) -> Option<(f64, bool)> {
    match value {
        Value::Float(value) => Some((*value, false)),
        Value::Int(value) => Some((*value as f64, false)),
        Value::UInt(value) => Some((*value as f64, false)),
        Value::Scalar(scalar) => scalar.as_f64().map(|value| (value, scalar.dtype() == DType::Float32)),
        Value::Text(text) => text.trim().parse().ok().map(|value| (value, false)),
        Value::List(values) if values.len() == 1 => single(&values[0]),
        Value::Numbers { dtype, bytes } if Some(bytes.len()) == dtype.size() => {
            let scalar = Scalar::from_le_bytes(*dtype, bytes).ok()?;
            scalar.as_f64().map(|value| (value, *dtype == DType::Float32))
        }
        _ => None,
    }
}

/// The first two numbers of a list.
fn pair(value: &Value) -> (Option<f64>, Option<f64>) {
    let number = |i: usize| match value {
        Value::List(values) => values.get(i).and_then(single).map(|(value, _)| value),
        Value::Numbers { dtype, bytes } => {
            let size = dtype.size()?;
            let cell = bytes.get(i.checked_mul(size)?..)?.get(..size)?;
            Scalar::from_le_bytes(*dtype, cell).ok()?.as_f64()
        }
        Value::Text(text) => {
            let list = text.trim().trim_start_matches('[').trim_end_matches(']');
            list.split([',', ' ']).filter(|part| !part.is_empty()).nth(i)?.parse().ok()
        }
        _ => None,
    };
    (number(0), number(1))
}

/// The integer dtype of the same size and the other signedness, where `unsigned` differs from that of the dtype.
pub(crate) fn other_sign(dtype: DType, unsigned: bool) -> Option<DType> {
    match (dtype, unsigned) {
        (DType::Int8, true) => Some(DType::UInt8),
        (DType::Int16, true) => Some(DType::UInt16),
        (DType::Int32, true) => Some(DType::UInt32),
        (DType::Int64, true) => Some(DType::UInt64),
        (DType::UInt8, false) => Some(DType::Int8),
        (DType::UInt16, false) => Some(DType::Int16),
        (DType::UInt32, false) => Some(DType::Int32),
        (DType::UInt64, false) => Some(DType::Int64),
        _ => None,
    }
}

impl Packing {
    /// Physical values of native-endian stored cells, into as many native-endian physical cells.
    pub fn unpack(&self, stored: &[u8], physical: &mut [u8]) {
        if self.physical == self.taken_as {
            physical.copy_from_slice(stored);
            return;
        }
        dispatch_element!(self.taken_as, T => match self.physical {
            DType::Float32 => self.unpack_f32::<T>(stored, physical),
            _ => self.unpack_f64::<T>(stored, physical),
        }, else => ());
    }

    fn unpack_f64<T: Element>(&self, stored: &[u8], physical: &mut [u8]) {
        let cells = stored.chunks_exact(size_of::<T>()).zip(physical.as_chunks_mut::<8>().0);
        for (from, to) in cells {
            let value: T = bytemuck::pod_read_unaligned(from);
            *to = (value.to_f64() * self.scale + self.offset).to_ne_bytes();
        }
    }

    fn unpack_f32<T: Element>(&self, stored: &[u8], physical: &mut [u8]) {
        let (scale, offset) = (self.scale as f32, self.offset as f32);
        let cells = stored.chunks_exact(size_of::<T>()).zip(physical.as_chunks_mut::<4>().0);
        for (from, to) in cells {
            let value: T = bytemuck::pod_read_unaligned(from);
            // Integers of 16 bits are exact in a float32.
            *to = (value.to_f64() as f32 * scale + offset).to_ne_bytes();
        }
    }

    /// The physical value of a stored one.
    pub fn value(&self, stored: &Scalar) -> Option<Scalar> {
        let mut out = vec![0; self.physical.size()?];
        if stored.dtype() != self.stored || Some(stored.bytes().len()) != self.stored.size() {
            return None;
        }
        self.unpack(stored.bytes(), &mut out);
        Scalar::from_le_bytes(self.physical, &out).ok()
    }

    /// Whether larger stored values have smaller physical ones. Values that are taken as the other signedness have no such order.
    pub fn reverses(&self) -> Option<bool> {
        (self.taken_as == self.stored).then_some(self.scale < 0.0)
    }
}

impl std::fmt::Display for Packing {
    /// The conversion, as shown to users: `stored × 0.01 + 273.15`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let taken =
            if self.taken_as == self.stored { String::new() } else { format!(" as {}", self.taken_as) };
        if self.physical == self.taken_as {
            return write!(f, "stored {}{taken}", self.stored);
        }
        write!(f, "stored {}{taken} × {}", self.stored, Value::Float(self.scale))?;
        match self.offset {
            0.0 => Ok(()),
            offset if offset < 0.0 => write!(f, " − {}", Value::Float(-offset)),
            offset => write!(f, " + {}", Value::Float(offset)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dtype: DType, pairs: &[(&str, Value)]) -> Option<Packing> {
        let attributes = pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let schema = ArraySchema { attributes, ..ArraySchema::dense("x", dtype, &[1], &[1]) };
        packing(&schema, &schema.fields[0])
    }

    #[test]
    fn attributes_of_any_type_declare_a_packing() {
        let narrow = |v: f32| Value::Numbers { dtype: DType::Float32, bytes: v.to_le_bytes().to_vec() };
        let scale = ("scale_factor", Value::from("0.5"));
        let offset = ("add_offset", Value::Int(-3));
        let packing = found(DType::Int16, &[scale.clone(), offset]).unwrap();
        assert_eq!((packing.scale, packing.offset, packing.physical), (0.5, -3.0, DType::Float64));
        assert_eq!(packing.value(&Scalar::from_element(7_i16)), Some(Scalar::from_element(0.5_f64)));
        assert_eq!(packing.to_string(), "stored int16 × 0.5 − 3.0");
        let packing = found(DType::Int16, &[("scale_factor", narrow(0.1))]).unwrap();
        assert_eq!(packing.value(&Scalar::from_element(3_i16)), Some(Scalar::from_element(3_f32 * 0.1_f32)));
        assert_eq!(found(DType::Int32, &[("scale_factor", narrow(0.1))]).unwrap().physical, DType::Float64);
        assert_eq!(found(DType::Float32, std::slice::from_ref(&scale)).unwrap().physical, DType::Float64);
        for none in [
            vec![],
            vec![("scale_factor", Value::Float(1.0)), ("add_offset", Value::Int(0))],
            vec![("scale_factor", Value::from("large"))],
            vec![("scale_factor", Value::Float(f64::NAN))],
            vec![("_Unsigned", Value::from("false"))],
        ] {
            assert_eq!(found(DType::Int16, &none), None, "{none:?}");
        }
        assert_eq!(found(DType::Utf8, &[scale]), None);
    }

    #[test]
    fn unsigned_values_keep_their_bits() {
        let unsigned = ("_Unsigned", Value::from("true"));
        let packing = found(DType::Int8, std::slice::from_ref(&unsigned)).unwrap();
        let value = packing.value(&Scalar::from_element(-1_i8));
        assert_eq!(value, Some(Scalar::from_element(255_u8)));
        let packing = found(DType::Int8, &[unsigned, ("scale_factor", Value::Float(2.0))]).unwrap();
        assert_eq!(packing.value(&Scalar::from_element(-1_i8)), Some(Scalar::from_element(510_f64)));
        assert_eq!(packing.reverses(), None);
    }

    #[test]
    fn valid_ranges_are_read() {
        let scale = ("scale_factor", Value::Float(2.0));
        let packing =
            found(DType::Int16, &[scale.clone(), ("valid_range", Value::from("[0, 100]"))]).unwrap();
        assert_eq!(packing.valid, (Some(0.0), Some(100.0)));
        let packing = found(DType::Int16, &[scale, ("valid_max", Value::Int(9))]).unwrap();
        assert_eq!(packing.valid, (None, Some(9.0)));
    }

    #[test]
    fn typed_numbers_are_read() {
        let typed = |value: f32| Value::from(Scalar::from_element(value));
        let packed =
            found(DType::Int16, &[("scale_factor", typed(0.5)), ("add_offset", typed(1.0))]).unwrap();
        assert_eq!(packed.physical, DType::Float32);
    }
}
