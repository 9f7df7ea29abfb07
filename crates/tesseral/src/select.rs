//! Selections as people write them, one argument per dimension.
//!
//! ```text
//! dim=a:b[:step]   positions from the array's start, half-open; negative ones count from the end
//! dim=7            one position
//! dim=a..b         coordinate values, closed at both ends; either side may be left out
//! dim=@v           one coordinate value
//! ```
//! `dim` is a name or a position number. Coordinates are an axis's labels or, for axes that have a domain of their own,
//! its numbers and dates. Numbers compare as numbers and dates as dates; a date that names less than the labels do means all of
//! it (`2015-07` is the whole month). Other text goes by order of appearance. Both ends of `a..b` may be given in either order,
//! so axes that descend need no care.

mod axis;
mod instant;
pub(crate) mod ranges;
#[cfg(test)]
mod tests;

use tesseral_core::condition::Op;
use tesseral_core::{ArraySchema, Dimension, Error, Result, Selection, Slice};

use axis::Axis;
pub(crate) use axis::numeral;

/// What one argument asks of its dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted<'a> {
    /// `a:b:step`.
    Positions { start: Option<i64>, end: Option<i64>, step: u64 },
    /// `7`.
    Position(i64),
    /// `a..b`, undivided: labels may hold dots themselves.
    Between(&'a str),
    /// `@v`.
    Value(&'a str),
}

/// The selections written in one text, apart by spaces: `time=0 lat=10..20`.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// Reads one argument per dimension; dimensions that are not named are taken whole.
pub(crate) fn parse<'a>(
    schema: &ArraySchema,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Selection> {
    let located = |e: Error| e.in_array(&schema.name);
    let Some(shape) = schema.shape() else {
        return Err(located(Error::invalid("the array's positions cannot be counted")));
    };
    let mut slices: Vec<Option<Slice>> = vec![None; shape.len()];
    for argument in arguments {
        let (dim, wanted) = split(schema, argument)?;
        let wanted = parse_wanted(argument, wanted).map_err(located)?;
        let slice = resolve(&schema.dims[dim], shape[dim], argument, wanted).map_err(located)?;
        if slices[dim].replace(slice).is_some() {
            return Err(located(Error::invalid(format!(
                "{argument:?} selects along dimension {} a second time",
                name(&schema.dims[dim], dim)
            ))));
        }
    }
    Selection::new(slices.iter().zip(&shape).map(|(s, &n)| s.unwrap_or(Slice::new(0, n))), &shape)
        .map_err(located)
}

/// The positions of one dimension whose coordinates lie between two, both included; `None` leaves a side open.
pub(crate) fn between(
    schema: &ArraySchema,
    dim: usize,
    low: Option<&str>,
    high: Option<&str>,
) -> Result<Slice> {
    let argument = format!("{}..{}", low.unwrap_or(""), high.unwrap_or(""));
    axis(schema, dim, &argument, |axis| axis.range(low, high))
}

/// The positions of one dimension at a coordinate: more than one where neighbours share it.
pub(crate) fn value(schema: &ArraySchema, dim: usize, text: &str) -> Result<Slice> {
    axis(schema, dim, &format!("@{text}"), |axis| axis.value(text))
}

/// The positions of one dimension whose coordinates compare so with a value, in runs.
pub(crate) fn meeting(schema: &ArraySchema, dim: usize, op: Op, text: &str) -> Result<Vec<Slice>> {
    axis(schema, dim, text, |axis| axis.meeting(op, text))
}

fn axis<T>(
    schema: &ArraySchema,
    dim: usize,
    argument: &str,
    find: impl FnOnce(Axis<'_>) -> Result<T>,
) -> Result<T> {
    let found = || {
        let dimension = schema.dims.get(dim).ok_or_else(|| {
            Error::invalid(format!("dimension {dim} is none of the {} there are", schema.dims.len()))
        })?;
        let extent =
            dimension.extent.ok_or_else(|| Error::invalid("the dimension's positions cannot be counted"))?;
        find(Axis::new(dimension, extent, argument)?)
    };
    found().map_err(|e| e.in_array(&schema.name))
}

fn name(dim: &Dimension, number: usize) -> String {
    if dim.name.is_empty() { number.to_string() } else { format!("{:?}", dim.name) }
}

/// The dimension an argument is about and what follows its `=`.
fn split<'a>(schema: &ArraySchema, argument: &'a str) -> Result<(usize, &'a str)> {
    // A dimension's own name may hold `=`, so names are tried before the text is cut.
    let rest = |dim: &Dimension| argument.strip_prefix(dim.name.as_str())?.strip_prefix('=');
    let named = schema.dims.iter().enumerate().filter(|(_, dim)| !dim.name.is_empty());
    let longest =
        named.filter_map(|(i, dim)| rest(dim).map(|rest| (i, rest))).min_by_key(|(_, rest)| rest.len());
    if let Some(found) = longest {
        return Ok(found);
    }
    let (dim, rest) = argument.split_once('=').ok_or_else(|| {
        let example = schema.dims.first().map_or("0".to_owned(), |d| match d.name.as_str() {
            "" => "0".to_owned(),
            name => name.to_owned(),
        });
        Error::invalid(format!("{argument:?} is no selection: a dimension and `=` are missing"))
            .in_array(&schema.name)
            .hint(format!("write `{example}=3`, `{example}=2:5` or `{example}=a..b`"))
    })?;
    let hint = format!("`{argument}` names a dimension the array does not have");
    Ok((schema.dim(dim).map_err(|e| e.hint(hint))?, rest))
}

fn parse_wanted<'a>(argument: &str, text: &'a str) -> Result<Wanted<'a>> {
    let integer = |text: &str| -> Result<i64> {
        text.parse().map_err(|_| {
            Error::invalid(format!("{argument:?}: {text:?} is not a position"))
                .hint("positions are whole numbers; coordinate values are written `dim=@value` or `dim=a..b`")
        })
    };
    if let Some(value) = text.strip_prefix('@') {
        return Ok(Wanted::Value(value));
    }
    if text.contains("..") {
        return Ok(Wanted::Between(text));
    }
    if !text.contains(':') {
        return integer(text).map(Wanted::Position);
    }
    let end = |text: Option<&str>| match text {
        None | Some("") => Ok(None),
        Some(text) => integer(text).map(Some),
    };
    let mut parts = text.split(':');
    let (start, stop, step) = (end(parts.next())?, end(parts.next())?, end(parts.next())?);
    if parts.next().is_some() {
        return Err(Error::invalid(format!("{argument:?} has more than start, end and step")));
    }
    let step = u64::try_from(step.unwrap_or(1))
        .ok()
        .filter(|s| *s > 0)
        .ok_or_else(|| Error::invalid(format!("{argument:?}: a step is a whole number from 1 up")))?;
    Ok(Wanted::Positions { start, end: stop, step })
}

fn resolve(dim: &Dimension, extent: u64, argument: &str, wanted: Wanted<'_>) -> Result<Slice> {
    // Positions count from the end when negative; `last` is the largest one allowed.
    let place = |position: i64, last: Option<u64>| -> Result<u64> {
        let from_start = match u64::try_from(position) {
            Ok(position) => Some(position),
            Err(_) => extent.checked_sub(position.unsigned_abs()),
        };
        from_start.filter(|p| last.is_some_and(|last| *p <= last)).ok_or_else(|| {
            Error::invalid(format!("{argument:?}: {position} lies outside the {extent} positions there are"))
        })
    };
    match wanted {
        Wanted::Position(position) => {
            let at = place(position, extent.checked_sub(1))?;
            Ok(Slice::new(at, at + 1))
        }
        Wanted::Positions { start, end, step } => {
            let start = start.map_or(Ok(0), |p| place(p, Some(extent)))?;
            let end = end.map_or(Ok(extent), |p| place(p, Some(extent)))?;
            if start > end {
                return Err(Error::invalid(format!("{argument:?} begins at {start}, after its end {end}")));
            }
            Ok(Slice { start, end, step })
        }
        Wanted::Between(text) => Axis::new(dim, extent, argument)?.between(text),
        Wanted::Value(text) => Axis::new(dim, extent, argument)?.value(text),
    }
}
