//! Coordinate ranges of sparse arrays.

use std::cmp::Ordering;

use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, DType, Dimension, Error, Result, Scalar, Slice, TimeUnit};
use tesseral_format::CoordinateRanges;

use super::axis::numeral;
use super::{AxisSelector, instant, name, parse_axis_selector, resolve, split};

/// Parses one argument per dimension; other dimensions are selected completely.
pub(crate) fn parse<'a>(
    schema: &ArraySchema,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<CoordinateRanges>> {
    let located = |e: Error| e.in_array(&schema.name);
    let mut ranges: Vec<Option<CoordinateRanges>> = vec![None; schema.dims.len()];
    for argument in arguments {
        let (dim, wanted) = split(schema, argument)?;
        let wanted = parse_axis_selector(argument, wanted).map_err(located)?;
        let range = range(&schema.dims[dim], argument, wanted).map_err(located)?;
        if ranges[dim].replace(vec![range]).is_some() {
            return Err(located(Error::invalid(format!(
                "duplicate selection {argument:?} of dimension {}",
                name(&schema.dims[dim], dim)
            ))));
        }
    }
    Ok(ranges.into_iter().map(Option::unwrap_or_default).collect())
}

fn range(dim: &Dimension, argument: &str, wanted: AxisSelector<'_>) -> Result<(Scalar, Scalar)> {
    match wanted {
        AxisSelector::Position(_) | AxisSelector::Positions { .. } => positions(dim, argument, wanted),
        AxisSelector::Nearest(_) => Err(Error::invalid(format!(
            "{argument:?}: selecting the nearest coordinate requires a dense array"
        ))
        .hint("select a range instead, as in `dim=a..b`")),
        AxisSelector::Value("") => Err(Error::invalid(format!("{argument:?}: missing value after `@`"))),
        AxisSelector::Value(text) => {
            let (low, _) = ends(dim.dtype, argument, text)?;
            let (_, high) = ends(dim.dtype, argument, text)?;
            Ok((low, high))
        }
        AxisSelector::Between(text) => {
            let (low, high) = text.split_once("..").unwrap_or((text, ""));
            let parse_end =
                |text: &str| (!text.is_empty()).then(|| ends(dim.dtype, argument, text)).transpose();
            let (mut low, mut high) = (parse_end(low)?, parse_end(high)?);
            if let (Some(a), Some(b)) = (&low, &high)
                && a.0.compare(&b.1) == Some(Ordering::Greater)
            {
                std::mem::swap(&mut low, &mut high);
            }
            let (least, most) = extremes(dim.dtype)
                .ok_or_else(|| Error::unsupported(format!("{argument:?}: ranges of dtype {}", dim.dtype)))?;
            Ok((low.map_or(least, |ends| ends.0), high.map_or(most, |ends| ends.1)))
        }
    }
}

/// Positions relative to the start of the domain.
fn positions(dim: &Dimension, argument: &str, wanted: AxisSelector<'_>) -> Result<(Scalar, Scalar)> {
    let first = dim.domain.as_ref().and_then(|(first, _)| first.as_i128());
    let (Some(extent), Some(first)) = (dim.extent, first) else {
        return Err(Error::invalid(format!(
            "{argument:?}: coordinates of dtype {} have no countable positions",
            dim.dtype
        ))
        .hint("select by value instead, as in `dim=a..b` or `dim=@v`"));
    };
    let Slice { start, end, step } = resolve(dim, extent, argument, wanted)?;
    if step != 1 {
        return Err(Error::invalid(format!(
            "{argument:?}: a selection of a sparse array cannot have a step"
        )));
    }
    let at = |position: i128| {
        integer(dim.dtype, first + position)
            .ok_or_else(|| Error::invalid(format!("{argument:?} exceeds the range of {}", dim.dtype)))
    };
    if start == end {
        // A range with exchanged ends is empty.
        let (low, high) = extremes(dim.dtype)
            .ok_or_else(|| Error::invalid(format!("empty selection {argument:?} of {}", dim.dtype)))?;
        return Ok((high, low));
    }
    Ok((at(start.into())?, at(i128::from(end) - 1)?))
}

fn integer(dtype: DType, value: i128) -> Option<Scalar> {
    let size = dtype.size()?;
    let scalar = Scalar::from_le_bytes(dtype, value.to_le_bytes().get(..size)?).ok()?;
    (scalar.as_i128() == Some(value)).then_some(scalar)
}

/// Minimum and maximum value of a dtype.
fn extremes(dtype: DType) -> Option<(Scalar, Scalar)> {
    match dtype.class() {
        // Text does not contain this byte.
        Class::Text => {
            Some((Scalar::from_le_bytes(dtype, &[]).ok()?, Scalar::from_le_bytes(dtype, &[0xFF; 64]).ok()?))
        }
        Class::Float => Some((Scalar::parse(dtype, "-inf").ok()?, Scalar::parse(dtype, "inf").ok()?)),
        _ => {
            let bits = u32::try_from(dtype.size()?).ok()? * 8;
            let signed = integer(dtype, -1).is_some();
            let (low, high) = match signed {
                true => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
                false => (0, (1_i128 << bits) - 1),
            };
            Some((integer(dtype, low)?, integer(dtype, high)?))
        }
    }
}

/// First and last coordinate of a text: several for a partial date.
fn ends(dtype: DType, argument: &str, text: &str) -> Result<(Scalar, Scalar)> {
    if let DType::DateTime(unit) = dtype {
        let counts = instant::span(text).and_then(|span| counts(span, unit));
        let (low, high) = counts.ok_or_else(|| {
            Error::invalid(format!(
                "{argument:?}: invalid date {text:?}: expected a date such as 2015, 2015-07 or 2015-07-01T06:00"
            ))
        })?;
        return Ok((
            Scalar::from_element(low).with_dtype(dtype),
            Scalar::from_element(high).with_dtype(dtype),
        ));
    }
    // Numbers outside the dtype still compare as numbers.
    let value = match dtype.class() {
        Class::Text => Scalar::from_le_bytes(dtype, text.as_bytes()).ok(),
        _ => Scalar::parse(dtype, text).ok().or_else(|| numeral(text)),
    };
    let value =
        value.ok_or_else(|| Error::invalid(format!("{argument:?}: invalid {dtype} value {text:?}")))?;
    Ok((value.clone(), value))
}

/// First and last count of units that begin inside a period.
fn counts(span: std::ops::Range<instant::Instant>, unit: TimeUnit) -> Option<(i64, i64)> {
    let first_from = |at: instant::Instant| -> Option<i64> {
        let (mut low, mut high): (i64, i64) = match unit {
            // The calendar ends before counts of these units do.
            TimeUnit::Year => (-200_000, 200_000),
            TimeUnit::Month => (-2_400_000, 2_400_000),
            _ => (i64::MIN + 1, i64::MAX),
        };
        while low < high {
            // Round down below zero too, otherwise the search would not terminate.
            let middle = low + (high.abs_diff(low) / 2).cast_signed();
            if instant::of_count(middle, unit).is_none_or(|begin| begin >= at) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    };
    Some((first_from(span.start)?, first_from(span.end)?.checked_sub(1)?))
}
