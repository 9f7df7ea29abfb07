//! Missing values: which values of a field represent "no value", and how attributes declare them.
//!
//! A cell is missing when its stored validity is 0, when it was never written, or when it equals one of
//! [`Field::missing_values`]. A storage fill ([`Field::fill`]) is what unwritten cells hold; it declares nothing about cells
//! that were written. NaN and the infinities are values unless they are declared.

use std::cmp::Ordering;

use crate::calendar::TimeUnits;
use crate::dtype::Class;
use crate::element::{bf16, f16};
use crate::packing::other_sign;
use crate::time::NOT_A_TIME;
use crate::{ArraySchema, Attributes, DType, Field, Scalar, Value};

/// The attributes that declare missing values. All of them count; the first also names the storage fill of formats that have no
/// other place for it.
pub const MISSING_ATTRIBUTES: [&str; 3] = ["_FillValue", "missing_value", "fill_value"];

/// Declarations of the attributes of an array for one field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declarations {
    /// Values of the field's dtype, without duplicates.
    pub values: Vec<Scalar>,
    /// Attribute and value of each declaration that the dtype cannot hold, and which therefore declares nothing.
    pub ignored: Vec<(String, String)>,
}

/// The attribute of a field: its own, or else that of the array.
pub fn attribute<'a>(schema: &'a ArraySchema, field: &str, key: &str) -> Option<(String, &'a Value)> {
    in_attributes(&schema.attributes, schema.field_attributes, field, key)
}

fn in_attributes<'a>(
    attributes: &'a Attributes,
    prefix: Option<&str>,
    field: &str,
    key: &str,
) -> Option<(String, &'a Value)> {
    let own = prefix.map(|prefix| format!("{prefix}{field}.{key}"));
    match own.and_then(|own| Some((attributes.get(&own)?, own))) {
        Some((value, own)) => Some((own, value)),
        None => attributes.get(key).map(|value| (key.to_owned(), value)),
    }
}

/// Reads the declarations of one field.
pub fn declarations(field: &Field, attributes: &Attributes, prefix: Option<&str>) -> Declarations {
    let mut out = Declarations::default();
    let unsigned =
        in_attributes(attributes, prefix, &field.name, "_Unsigned").and_then(|(_, value)| flag(value));
    for key in MISSING_ATTRIBUTES {
        let Some((name, value)) = in_attributes(attributes, prefix, &field.name, key) else { continue };
        for one in elements(field.dtype, value) {
            match one.to_scalar(field.dtype, unsigned) {
                Some(scalar) if out.values.iter().any(|known| same(known, &scalar)) => {}
                Some(scalar) => out.values.push(scalar),
                None => out.ignored.push((name.clone(), one.to_string())),
            }
        }
    }
    out
}

/// A sentence for each declaration of an array that has no effect, because its field's dtype cannot hold the value.
pub fn warnings(schema: &ArraySchema) -> Vec<String> {
    let of_field = |field: &Field| {
        let ignored = declarations(field, &schema.attributes, schema.field_attributes).ignored;
        let sentence = |(attribute, value): (String, String)| {
            format!("{attribute} = {value} has no effect: {:?} holds {}", field.name, field.type_name())
        };
        ignored.into_iter().map(sentence).collect::<Vec<_>>()
    };
    schema.fields.iter().flat_map(of_field).collect()
}

/// Sets the missing values and units of time of every field to those that the attributes of the schema declare.
pub fn declare(schema: &mut ArraySchema) {
    let times: Vec<_> = schema.fields.iter().map(|field| TimeUnits::of_field(schema, field)).collect();
    for (field, time) in schema.fields.iter_mut().zip(times) {
        field.time = time;
    }
    for field in &mut schema.fields {
        field.missing = declarations(field, &schema.attributes, schema.field_attributes).values;
    }
}

/// The attributes of a schema, completed so that they declare the missing values of its fields.
pub fn attributes(schema: &ArraySchema) -> Attributes {
    let (mut out, prefix) = (schema.attributes.clone(), schema.field_attributes);
    for field in &schema.fields {
        let declared = declarations(field, &out, prefix).values;
        let mut more = field.missing.iter().filter(|value| !declared.iter().any(|known| same(known, value)));
        let key = |key: &str| match prefix.filter(|_| schema.fields.len() > 1) {
            None => key.to_owned(),
            Some(prefix) => format!("{prefix}{}.{key}", field.name),
        };
        let [first, second, _] = MISSING_ATTRIBUTES;
        if in_attributes(&out, prefix, &field.name, first).is_none()
            && let Some(value) = more.next()
        {
            out.insert(key(first), value_of(value));
        }
        let more: Vec<&Scalar> = more.collect();
        if !more.is_empty() {
            let held = in_attributes(&out, prefix, &field.name, second).map(|(_, value)| value.clone());
            let value = match (held, more.as_slice()) {
                (None, [one]) => value_of(one),
                (None, many) if field.dtype.class() != Class::Text => Value::Numbers {
                    dtype: field.dtype,
                    bytes: many.iter().flat_map(|value| value.bytes()).copied().collect(),
                },
                (held, many) => {
                    let mut values: Vec<Value> = match held {
                        None => Vec::new(),
                        Some(Value::List(values)) => values,
                        Some(value) => {
                            elements(field.dtype, &value).map(AttributeNumber::into_value).collect()
                        }
                    };
                    values.extend(many.iter().map(|value| value_of(value)));
                    Value::List(values)
                }
            };
            out.insert(key(second), value);
        }
    }
    out
}

/// A declared value in another dtype, as the attribute that declares it would be read there: the nearest float, an equal integer, or
/// `None` where the dtype does not hold it.
pub fn declared_as(value: &Scalar, dtype: DType) -> Option<Scalar> {
    AttributeNumber::Typed(value.clone()).to_scalar(dtype, None)
}

/// Whether two values of one dtype are the same declaration: equal numbers, any two NaN, equal bytes.
pub fn same(a: &Scalar, b: &Scalar) -> bool {
    let nan = |v: &Scalar| v.as_f64().is_some_and(f64::is_nan);
    a.bytes() == b.bytes() || a.compare(b) == Some(Ordering::Equal) || (nan(a) && nan(b))
}

impl Field {
    /// The values that mean "missing": the declared ones, and NaT in dates and durations.
    pub fn missing_values(&self) -> Vec<Scalar> {
        let mut out = self.missing.clone();
        if matches!(self.dtype, DType::DateTime(_) | DType::TimeDelta(_)) {
            let not_a_time = Scalar::from_element(NOT_A_TIME).with_dtype(self.dtype);
            if !out.contains(&not_a_time) {
                out.push(not_a_time);
            }
        }
        out
    }

    /// Whether the bytes of a valid cell mean "missing": each of its elements equals one of `values`, a text all of it.
    pub fn is_missing(&self, values: &[Scalar], cell: &[u8]) -> bool {
        if values.is_empty() {
            return false;
        }
        let element = |bytes: &[u8]| {
            Scalar::from_le_bytes(self.dtype, bytes)
                .is_ok_and(|found| values.iter().any(|value| same(value, &found)))
        };
        match self.dtype.size() {
            Some(size) if self.dtype.class() != Class::Text => {
                !cell.is_empty() && cell.chunks(size).all(element)
            }
            _ => values.iter().any(|value| value.bytes() == cell),
        }
    }
}

/// A number or text as an attribute holds it.
enum AttributeNumber<'a> {
    Typed(Scalar),
    Value(&'a Value),
    Text(&'a str),
}

impl std::fmt::Display for AttributeNumber<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Typed(scalar) => scalar.fmt(f),
            Self::Value(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl AttributeNumber<'_> {
    /// The value in a dtype, where the dtype holds it. Integers of the other signedness are reinterpreted by their bits where
    /// `_Unsigned` declares the same of the cells.
    fn to_scalar(&self, dtype: DType, unsigned: Option<bool>) -> Option<Scalar> {
        if let Self::Typed(scalar) = self
            && scalar.dtype() == dtype
        {
            return Some(scalar.clone());
        }
        if dtype.class() == Class::Text {
            return Scalar::parse(dtype, &self.to_string()).ok();
        }
        let exact = match self {
            Self::Typed(scalar) => scalar.as_i128().map(Exact::Int).or(scalar.as_f64().map(Exact::Float)),
            Self::Value(Value::Int(v)) => Some(Exact::Int((*v).into())),
            Self::Value(Value::UInt(v)) => Some(Exact::Int((*v).into())),
            Self::Value(Value::Float(v)) => Some(Exact::Float(*v)),
            Self::Value(Value::Bool(v)) => Some(Exact::Int((*v).into())),
            Self::Value(_) => None,
            Self::Text(text) => {
                // Dates, and decimal text that a narrow float holds in its own shortest form.
                if let Ok(scalar) = Scalar::parse(dtype, text) {
                    return Some(scalar);
                }
                text.parse().map(Exact::Int).or_else(|_| text.parse().map(Exact::Float)).ok()
            }
        };
        let other = unsigned.and_then(|unsigned| other_sign(dtype, unsigned));
        let exact = exact?;
        exact.to_scalar(dtype).or_else(|| Some(exact.to_scalar(other?)?.with_dtype(dtype)))
    }

    fn into_value(self) -> Value {
        match self {
            Self::Typed(scalar) => value_of(&scalar),
            Self::Value(value) => value.clone(),
            Self::Text(text) => Value::from(text),
        }
    }
}

/// A number without rounding.
enum Exact {
    Int(i128),
    Float(f64),
}

impl Exact {
    fn to_scalar(&self, dtype: DType) -> Option<Scalar> {
        if dtype.class() == Class::Float {
            let value = match self {
                Self::Int(v) => *v as f64,
                Self::Float(v) => *v,
            };
            // Declarations are often wider than the cells: the nearest value is meant, unless it is beyond the dtype.
            let scalar = match dtype {
                DType::Float64 => Scalar::from_element(value),
                DType::Float32 => Scalar::from_element(value as f32),
                DType::Float16 => Scalar::from_element(f16::from_f64(value)),
                _ => Scalar::from_element(bf16::from_f64(value)),
            };
            return (value.is_infinite() || !scalar.as_f64().is_some_and(f64::is_infinite)).then_some(scalar);
        }
        let whole = match self {
            Self::Int(v) => *v,
            Self::Float(v) if v.fract() == 0.0 && v.abs() < 2_f64.powi(100) => *v as i128,
            Self::Float(_) => return None,
        };
        Scalar::from_i128(dtype, whole)
    }
}

/// The values that an attribute lists. Text may be a list in brackets, for formats whose attributes are all text.
fn elements<'a>(dtype: DType, value: &'a Value) -> Box<dyn Iterator<Item = AttributeNumber<'a>> + 'a> {
    match value {
        Value::List(values) => Box::new(values.iter().flat_map(move |value| elements(dtype, value))),
        Value::Numbers { dtype, bytes } => {
            let size = dtype.size().unwrap_or(1).max(1);
            let dtype = *dtype;
            Box::new(
                bytes
                    .chunks(size)
                    .filter_map(move |one| Scalar::from_le_bytes(dtype, one).ok())
                    .map(AttributeNumber::Typed),
            )
        }
        Value::Text(text) if dtype.class() != Class::Text => {
            let trimmed = text.trim();
            let list = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            match list {
                Some(list) => Box::new(
                    list.split(',')
                        .map(|one| one.trim().trim_matches('"'))
                        .filter(|one| !one.is_empty())
                        .map(AttributeNumber::Text),
                ),
                None => Box::new(std::iter::once(AttributeNumber::Text(trimmed))),
            }
        }
        Value::Text(text) => Box::new(std::iter::once(AttributeNumber::Text(text))),
        Value::Scalar(scalar) => Box::new(std::iter::once(AttributeNumber::Typed(scalar.clone()))),
        Value::Null | Value::Map(_) => Box::new(std::iter::empty()),
        _ => Box::new(std::iter::once(AttributeNumber::Value(value))),
    }
}

/// A number as the value of an attribute. Floats are widened without loss.
pub fn value_of(scalar: &Scalar) -> Value {
    if let Some(text) = scalar.as_text() {
        return Value::from(text);
    }
    if let Some(int) = scalar.as_i128() {
        let small = i64::try_from(int).map(Value::Int);
        return small.or_else(|_| u64::try_from(int).map(Value::UInt)).unwrap_or(Value::Null);
    }
    scalar.as_f64().map_or_else(|| Value::Bytes(scalar.bytes().to_vec()), Value::Float)
}

/// A yes or no, as an attribute spells it.
pub(crate) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Int(n) => Some(*n != 0),
        Value::Scalar(scalar) => scalar.as_i128().map(|n| n != 0),
        Value::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeUnit;

    fn found(dtype: DType, pairs: &[(&str, Value)]) -> (Vec<String>, usize) {
        let attributes = pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let found = declarations(&Field::new("x", dtype), &attributes, None);
        (found.values.iter().map(ToString::to_string).collect(), found.ignored.len())
    }

    #[test]
    fn values_are_compared_in_the_dtype() {
        let fill = |value: Value| [("_FillValue", value)];
        for (dtype, value, want) in [
            (DType::Int16, Value::Float(-999.0), "-999"),
            (DType::Int16, Value::from("-999.0"), "-999"),
            (DType::Int16, Value::from(" -999 "), "-999"),
            (DType::Float32, Value::Float(1e20), "1e20"),
            (DType::Float32, Value::from("1e20"), "1e20"),
            (DType::Float32, Value::from("NaN"), "NaN"),
            (DType::Float64, Value::Int(-9999), "-9999.0"),
            (DType::UInt64, Value::UInt(u64::MAX), "18446744073709551615"),
            (DType::Int64, Value::from("-9223372036854775808"), "-9223372036854775808"),
            (DType::DateTime(TimeUnit::Day), Value::from("1900-01-01"), "1900-01-01"),
            (DType::Utf8, Value::from("[n/a]"), "[n/a]"),
        ] {
            assert_eq!(found(dtype, &fill(value.clone())), (vec![want.to_owned()], 0), "{dtype} {value}");
        }
        for (dtype, value) in [
            (DType::Int16, Value::Float(1e20)),
            (DType::Int16, Value::Float(-999.5)),
            (DType::Int32, Value::from("NaN")),
            (DType::UInt8, Value::Int(-1)),
            (DType::Float32, Value::from("1e39")),
            (DType::Float32, Value::Float(1e39)),
            (DType::Float32, Value::from("n/a")),
        ] {
            assert_eq!(found(dtype, &fill(value.clone())), (vec![], 1), "{dtype} {value}");
        }
    }

    #[test]
    fn every_declaration_counts_once() {
        let list = Value::List(vec![Value::Int(-999), Value::Float(-998.0)]);
        let typed = Value::Numbers { dtype: DType::Int16, bytes: vec![0x19, 0xfc, 1, 0] };
        let pairs = [("_FillValue", Value::from("-999")), ("missing_value", list), ("fill_value", typed)];
        assert_eq!(found(DType::Int32, &pairs).0, ["-999", "-998", "1"]);
        assert_eq!(found(DType::Int32, &[("missing_value", Value::from("[-9, -8]"))]).0, ["-9", "-8"]);
    }

    #[test]
    fn unsigned_cells_are_declared_by_their_bits() {
        let pairs = [("_FillValue", Value::Int(255)), ("_Unsigned", Value::from("true"))];
        assert_eq!(found(DType::Int8, &pairs), (vec!["-1".to_owned()], 0));
        assert_eq!(found(DType::Int8, &pairs[..1]), (vec![], 1));
    }

    #[test]
    fn typed_attributes_declare() {
        let mut schema = ArraySchema::dense("a", DType::Int16, &[1], &[1]);
        schema.attributes.insert("_FillValue".to_owned(), Value::from(Scalar::from_element(-7_i16)));
        schema.attributes.insert("missing_value".to_owned(), Value::from(Scalar::from_element(3.0_f32)));
        declare(&mut schema);
        assert_eq!(schema.fields[0].missing, [-7_i16, 3].map(Scalar::from_element));
        assert!(warnings(&schema).is_empty());
    }

    #[test]
    fn attributes_are_completed() {
        let mut schema = ArraySchema::dense("a", DType::Float32, &[1], &[1]);
        let number = |v: f32| Scalar::from_element(v);
        schema.fields[0].missing = vec![number(-1.0), number(f32::NAN), number(0.5)];
        schema.attributes.insert("_FillValue".to_owned(), Value::from("-1"));
        schema.attributes.insert("missing_value".to_owned(), Value::Int(-1));
        let mut back = schema.clone();
        back.attributes = attributes(&schema);
        back.fields[0].missing.clear();
        declare(&mut back);
        assert_eq!(back.fields[0].missing, schema.fields[0].missing);
        assert_eq!(back.attributes["_FillValue"], Value::from("-1"));
        assert_eq!(format!("{:?}", attributes(&back)), format!("{:?}", back.attributes));

        let mut two = schema.clone();
        two.attributes.clear();
        two.field_attributes = Some("of:");
        two.fields.push(Field { missing: vec![Scalar::from_element(7_u8)], ..Field::new("b", DType::UInt8) });
        let mut back = two.clone();
        back.attributes = attributes(&two);
        declare(&mut back);
        assert_eq!(back.fields, two.fields);
    }

    #[test]
    fn cells_of_several_elements_are_missing_as_a_whole() {
        let field = Field {
            cell: crate::CellLen::Fixed(2),
            missing: vec![Scalar::from_element(9_u8)],
            ..Field::new("x", DType::UInt8)
        };
        let values = field.missing_values();
        assert!(field.is_missing(&values, &[9, 9]));
        assert!(!field.is_missing(&values, &[9, 1]));
        let date = Field::new("t", DType::DateTime(TimeUnit::Day));
        assert!(date.is_missing(&date.missing_values(), &i64::MIN.to_le_bytes()));
    }
}
