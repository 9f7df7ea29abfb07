//! Conversion of values to JSON without rounding or loss.

use serde_json::{Map, Value as Json, json};
use tesseral::{Attributes, CellLen, DType, Field, Finding, Scalar, TimeUnit, Value, Version};
use tesseral_core::dtype::Class;
use tesseral_core::schema::Labels;
use tesseral_core::{Sum, scalar};

/// Integers beyond this are written as strings, because readers that use `f64` would round them.
const EXACT: u128 = 1 << 53;

/// An integer, as a string beyond 2^53, from where doubles skip integers.
pub fn integer(value: i128) -> Json {
    if value.unsigned_abs() > EXACT {
        return Json::from(value.to_string());
    }
    // Within ±2^53 it fits.
    i64::try_from(value).map_or(Json::Null, Json::from)
}

/// A float; NaN and the infinities as strings.
pub fn float(value: f64) -> Json {
    match value {
        v if v.is_nan() => json!("NaN"),
        v if v.is_infinite() => json!(if v > 0.0 { "Infinity" } else { "-Infinity" }),
        v => json!(v),
    }
}

/// A sum.
pub fn sum(sum: Sum) -> Json {
    match sum {
        Sum::Int(sum) => integer(sum),
        Sum::Float(sum) => float(sum),
    }
}

/// One element, from its bytes.
pub fn element(dtype: DType, bytes: &[u8]) -> Json {
    let value = Scalar::from_le_bytes(dtype, bytes);
    match (dtype.class(), &value) {
        (Class::Bool, Ok(value)) => value.as_i128().map_or(Json::Null, |v| json!(v != 0)),
        (Class::Int | Class::UInt, Ok(value)) => value.as_i128().map_or(Json::Null, integer),
        (Class::Float, Ok(value)) => value.as_f64().map_or(Json::Null, |v| {
            // The shortest digits of the dtype itself: 0.1 as float32 is printed as 0.1.
            let mut digits = String::new();
            let finite = v.is_finite() && scalar::write_element(&mut digits, dtype, bytes).is_ok();
            finite.then(|| digits.parse::<f64>().ok()).flatten().map_or_else(|| float(v), |v| json!(v))
        }),
        (Class::Complex, _) => {
            let part = if dtype == DType::Complex64 { DType::Float32 } else { DType::Float64 };
            let halves = bytes.chunks(part.size().unwrap_or(1)).map(|half| element(part, half));
            Json::Array(halves.collect())
        }
        _ => {
            let mut text = String::new();
            // Writing to a `String` is infallible.
            let _ = scalar::write_element(&mut text, dtype, bytes);
            Json::String(text)
        }
    }
}

/// A scalar; several elements as a list.
pub fn scalar(value: &Scalar) -> Json {
    let (dtype, bytes) = (value.dtype(), value.bytes());
    match dtype.size() {
        Some(size) if dtype.class() != Class::Text && bytes.len() != size => {
            Json::Array(bytes.chunks(size).map(|one| element(dtype, one)).collect())
        }
        _ => element(dtype, bytes),
    }
}

/// One cell of a field.
pub fn cell(field: &Field, bytes: &[u8]) -> Json {
    if let Some(time) = time(field, bytes) {
        return Json::String(time);
    }
    if let Some(label) = label(field, bytes) {
        return scalar(&label);
    }
    match (field.cell, field.dtype.size()) {
        (CellLen::Fixed(_) | CellLen::Var, Some(size)) if field.dtype.class() != Class::Text => {
            Json::Array(bytes.chunks(size).map(|one| element(field.dtype, one)).collect())
        }
        _ => element(field.dtype, bytes),
    }
}

/// The time of a number that counts time, or of the label of a code, in its calendar.
pub fn time(field: &Field, bytes: &[u8]) -> Option<String> {
    let units = field.time?;
    let number = label(field, bytes).or_else(|| Scalar::from_le_bytes(field.dtype, bytes).ok())?;
    units.at(&number).map(|time| time.to_string())
}

/// Label of an enumeration code.
pub fn label(field: &Field, bytes: &[u8]) -> Option<Scalar> {
    let labels = &field.enumeration.as_ref()?.labels;
    let code = Scalar::from_le_bytes(field.dtype, bytes).ok()?.as_i128()?;
    labels.get(usize::try_from(code).ok()?)
}

/// Coordinate labels.
pub fn labels(labels: &Labels) -> Json {
    match labels {
        Labels::Text(texts) => json!(texts),
        Labels::Numbers { .. } => {
            Json::Array((0..labels.len()).filter_map(|i| labels.get(i)).map(|l| scalar(&l)).collect())
        }
    }
}

/// An attribute's value.
pub fn value(value: &Value) -> Json {
    match value {
        Value::Bool(v) => json!(v),
        Value::Int(v) => integer((*v).into()),
        Value::UInt(v) => integer((*v).into()),
        Value::Float(v) => float(*v),
        Value::Scalar(v) => scalar(v),
        Value::Text(v) => json!(v),
        Value::Bytes(v) => element(DType::Bytes, v),
        Value::List(values) => Json::Array(values.iter().map(self::value).collect()),
        Value::Map(map) => attributes(map),
        Value::Numbers { dtype, bytes } => {
            Json::Array(bytes.chunks(dtype.size().unwrap_or(1)).map(|one| element(*dtype, one)).collect())
        }
        _ => Json::Null,
    }
}

/// Attributes by name.
pub fn attributes(attributes: &Attributes) -> Json {
    Json::Object(attributes.iter().map(|(name, v)| (name.clone(), value(v))).collect())
}

/// A finding; unknown locations are omitted.
pub fn finding(finding: &Finding) -> Json {
    let mut out = Map::new();
    out.insert("check".into(), json!(finding.check));
    out.insert("severity".into(), json!(finding.severity.name()));
    out.insert("ok".into(), json!(finding.ok));
    out.insert("detail".into(), json!(finding.detail));
    let places = [
        ("array", finding.array.as_ref().map(|v| json!(v))),
        ("chunk", finding.chunk.as_ref().map(|v| json!(v))),
        ("offset", finding.offset.map(|v| json!(v))),
        ("length", finding.length.map(|v| json!(v))),
        ("unsupported", finding.unsupported.then(|| json!(true))),
    ];
    out.extend(places.into_iter().filter_map(|(name, place)| Some((name.to_owned(), place?))));
    Json::Object(out)
}

/// Formats milliseconds since 1970 as a date.
pub fn date(at: u64) -> String {
    let mut out = String::new();
    if let Ok(count) = i64::try_from(at) {
        // Writing to a `String` is infallible.
        let _ = tesseral_core::time::write(&mut out, count, TimeUnit::Millisecond);
    }
    out
}

/// A stored version.
pub fn version(version: &Version) -> Json {
    let mut out = Map::new();
    if let Some(array) = &version.array {
        out.insert("array".into(), json!(array));
    }
    out.insert("name".into(), json!(version.name));
    out.insert("op".into(), json!(version.op));
    out.insert("state".into(), json!(version.state.name()));
    out.insert("timestamps".into(), json!([version.start, version.end]));
    out.insert("at".into(), json!(date(version.end)));
    out.insert("cells".into(), json!(version.cells));
    out.insert("bytes".into(), json!(version.bytes));
    Json::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_integers_become_strings() {
        assert_eq!(integer(1 << 53), json!(9_007_199_254_740_992_i64));
        assert_eq!(integer((1 << 53) + 1), json!("9007199254740993"));
        assert_eq!(integer(-(1 << 53) - 1), json!("-9007199254740993"));
        assert_eq!(sum(Sum::Int(i128::from(u64::MAX) * 2)), json!("36893488147419103230"));
    }

    #[test]
    fn elements_are_not_rounded() {
        assert_eq!(element(DType::Float32, &0.1_f32.to_le_bytes()), json!(0.1));
        assert_eq!(element(DType::Float64, &f64::NAN.to_le_bytes()), json!("NaN"));
        assert_eq!(element(DType::Float64, &f64::NEG_INFINITY.to_le_bytes()), json!("-Infinity"));
        assert_eq!(element(DType::UInt64, &u64::MAX.to_le_bytes()), json!("18446744073709551615"));
        assert_eq!(element(DType::Bool, &[1]), json!(true));
        assert_eq!(element(DType::Utf8, "Ω".as_bytes()), json!("Ω"));
        let complex: Vec<u8> = [1.5_f32, f32::INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(element(DType::Complex64, &complex), json!([1.5, "Infinity"]));
    }
}
