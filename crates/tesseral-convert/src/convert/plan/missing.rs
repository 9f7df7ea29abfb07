//! Missing cells in the target: the fill value, the declared missing values, and what null and unwritten cells become.

use tesseral_core::dtype::Class;
use tesseral_core::{Advice, DType, Error, Field, Result, Scalar, Selection, missing};
use tesseral_dataset::variable::Variable;
use tesseral_engine::has_gaps;
use tesseral_engine::kernel::cast;
use tesseral_format::convention::Holds;

use crate::convert::feed::MissingPolicy;
use crate::convert::lossy;
use crate::convert::options::ConvertOptions;

/// Declared missing values in the target's dtype.
pub(crate) fn declared(field: &Field, dtype: DType) -> Vec<Scalar> {
    let mut out: Vec<Scalar> = Vec::new();
    for value in field.missing.iter().filter_map(|value| missing::declared_as(value, dtype)) {
        if !out.iter().any(|known| missing::same(known, &value)) {
            out.push(value);
        }
    }
    out
}

/// Declared missing values that cells of the target cannot hold as they are, with what replaces them: the value that the declaration
/// has there, or the one that packed cells have.
pub(super) fn replaced(field: &Field, dtype: DType, packed: bool) -> Vec<(Scalar, Scalar)> {
    let pair = |value: &Scalar| {
        let new = match (packed, cast_scalar(value, dtype)) {
            (true, _) => lossy::ErrorBound::missing(),
            (false, Some(_)) => return None,
            (false, None) => missing::declared_as(value, dtype)?,
        };
        Some((value.clone(), new))
    };
    field.missing.iter().filter_map(pair).take(usize::from(u8::MAX) - 1).collect()
}

/// Representation of null and unwritten cells of a variable in the target. They stay missing: as nulls where the target has them,
/// else as a declared missing value.
pub(super) fn missing_policy(
    variable: &Variable,
    selection: &Selection,
    dtype: DType,
    holds: Holds,
    options: &ConvertOptions,
) -> Result<MissingPolicy> {
    let (array, field) = (&variable.array, variable.array.selected_field());
    let named = options.fills.iter().rev().find(|fill| fill.name.as_ref() == Some(&variable.name));
    let requested = named.or_else(|| options.fills.iter().rev().find(|fill| fill.name.is_none()));
    let requested =
        requested.map(|fill| Scalar::parse(dtype, &fill.value).map(MissingPolicy::Value)).transpose()?;
    if field.nullable {
        // Floats have a value for it, unless a valid cell holds it: then the conversion stops.
        let nan =
            (dtype.class() == Class::Float).then(|| cast_scalar(&Scalar::from_element(f64::NAN), dtype));
        return Ok(match requested.or_else(|| nan.flatten().map(MissingPolicy::Value)) {
            _ if holds.nullable => MissingPolicy::Preserve,
            Some(value) => value,
            None => MissingPolicy::Reject,
        });
    }
    let sparse = array.schema().sparse;
    if !sparse && !has_gaps(array.handle(), &array.request(selection))? {
        return Ok(MissingPolicy::Preserve);
    }
    if let Some(policy) = requested {
        return Ok(policy);
    }
    let declared = |value: &Scalar| field.missing.iter().any(|known| missing::same(known, value));
    if !sparse && field.fill.as_ref().is_some_and(declared) {
        // Their fill value is declared to be missing.
        return Ok(MissingPolicy::Preserve);
    }
    if holds.nullable && field.missing.is_empty() {
        return Ok(MissingPolicy::Null);
    }
    let value = field.missing.first().or(field.fill.as_ref()).and_then(|fill| cast_scalar(fill, dtype));
    value
        .map(MissingPolicy::Value)
        .ok_or_else(|| Error::unsupported(format!("unwritten cells as {dtype}")).hint(Advice::FillValue))
}

/// The fill value, unless it is the format's default.
pub(crate) fn fill(field: &Field, dtype: DType) -> Option<Scalar> {
    let fill = field.fill.as_ref()?;
    if is_unset(fill) {
        return None;
    }
    cast_scalar(fill, dtype)
}

/// Converts a value to another dtype, if it fits.
fn cast_scalar(value: &Scalar, dtype: DType) -> Option<Scalar> {
    if dtype == value.dtype() {
        return Some(value.clone());
    }
    let mut out = vec![0; dtype.size()?];
    match cast::cast(value.dtype(), value.bytes(), dtype, &mut out) {
        Ok(None) => Scalar::from_le_bytes(dtype, &out).ok(),
        _ => None,
    }
}

/// NaN, the smallest signed and the largest unsigned integer, and zeros of text.
fn is_unset(fill: &Scalar) -> bool {
    let bytes = fill.bytes();
    let words = || bytes.chunks(fill.dtype().word().max(1));
    let signed = |word: &[u8]| {
        word.split_last().is_some_and(|(high, low)| *high == 0x80 && low.iter().all(|b| *b == 0))
    };
    match fill.dtype().class() {
        Class::Float => fill.as_f64().is_some_and(f64::is_nan),
        Class::Int | Class::Time => words().all(signed),
        Class::UInt | Class::Bool => bytes.iter().all(|b| *b == 0xff),
        Class::Complex => true,
        Class::Bits | Class::Text => bytes.iter().all(|b| matches!(b, 0 | 0x80 | 0xff)),
    }
}
