//! Parser of selections, one argument per dimension.
//!
//! ```text
//! dim=a:b[:step]   positions from the array's start, half-open; negative ones count from the end
//! dim=7            one position
//! dim=a..b         coordinate values, closed at both ends; either side can be omitted
//! dim=@v           one coordinate value
//! dim=~v           the nearest coordinate; of two at the same distance, the larger one
//! ```
//! `dim` is a name or an index. Coordinates are an axis's labels or domain values. Numbers compare as numbers and dates as
//! dates; a partial date covers its whole period (`2015-07` is the whole month). Other text is compared by order of appearance.
//! The ends of `a..b` can be given in either order, so that descending axes need no special treatment. Longitudes are cyclic:
//! `lon=-30..-10` selects 330 to 350 of an axis from 0 to 360, and `lon=-10..10` selects 350 to 360 followed by 0 to 10: the axis
//! continues at its start. Each position is selected at most once.

mod axis;
mod instant;
pub(crate) mod ranges;
#[cfg(test)]
mod tests;

use tesseral_core::condition::Op;
use tesseral_core::{Advice, ArraySchema, Dimension, Error, Result, Selection, Slice};

use axis::AxisCoordinates;

/// Selection of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AxisSelector<'a> {
    /// `a:b:step`.
    Positions { start: Option<i64>, end: Option<i64>, step: u64 },
    /// `7`.
    Position(i64),
    /// `a..b`, not yet split: labels can contain dots.
    Between(&'a str),
    /// `@v`.
    Value(&'a str),
    /// `~v`.
    Nearest(&'a str),
}

/// Splits selections at spaces: `time=0 lat=10..20`.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// Dimensions that arguments select by coordinates. Arguments that cannot be parsed are reported by [`parse`].
pub(crate) fn by_coordinate(schema: &ArraySchema, arguments: &[&str]) -> Vec<usize> {
    let dim = |argument: &&str| {
        let (dim, wanted) = split(schema, argument).ok()?;
        let wanted = parse_axis_selector(argument, wanted).ok()?;
        use AxisSelector::{Between, Nearest, Value};
        matches!(wanted, Between(_) | Value(_) | Nearest(_)).then_some(dim)
    };
    arguments.iter().filter_map(dim).collect()
}

/// Parses one argument per dimension; other dimensions are selected completely. Also returns the cyclic dimensions that the selection
/// continues at their start: it is a selection of the array with these dimensions [continued](tesseral_engine::Handle::continued).
pub(crate) fn parse<'a>(
    schema: &ArraySchema,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<(Selection, Vec<usize>)> {
    let located = |e: Error| e.in_array(&schema.name);
    let Some(shape) = schema.shape() else {
        return Err(located(Error::invalid("the positions of the array are not countable")));
    };
    let mut slices: Vec<Option<Slice>> = vec![None; shape.len()];
    for argument in arguments {
        let (dim, wanted) = split(schema, argument)?;
        let wanted = parse_axis_selector(argument, wanted).map_err(located)?;
        let slice = resolve(&schema.dims[dim], shape[dim], argument, wanted).map_err(located)?;
        if slices[dim].replace(slice).is_some() {
            return Err(located(Error::invalid(format!(
                "duplicate selection {argument:?} of dimension {}",
                name(&schema.dims[dim], dim)
            ))));
        }
    }
    let slices: Vec<Slice> = slices.iter().zip(&shape).map(|(s, &n)| s.unwrap_or(Slice::new(0, n))).collect();
    let continued: Vec<usize> = (0..shape.len()).filter(|&d| slices[d].end > shape[d]).collect();
    let mut shape = shape;
    continued.iter().for_each(|&d| shape[d] = shape[d].saturating_mul(2));
    Ok((Selection::new(slices, &shape).map_err(located)?, continued))
}

/// Returns the positions of one dimension between two coordinates, both included; `None` is unbounded. Positions from the extent on
/// are those of a cyclic dimension that continues at its start.
pub(crate) fn between(
    schema: &ArraySchema,
    dim: usize,
    low: Option<&str>,
    high: Option<&str>,
) -> Result<Slice> {
    let argument = format!("{}..{}", low.unwrap_or(""), high.unwrap_or(""));
    axis(schema, dim, &argument, |axis| axis.range(low, high))
}

/// Returns the positions of one dimension at a coordinate: several if adjacent positions share it.
pub(crate) fn value(schema: &ArraySchema, dim: usize, text: &str) -> Result<Slice> {
    axis(schema, dim, &format!("@{text}"), |axis| axis.value(text))
}

/// Returns which of some positions of one dimension have the coordinates nearest to some values.
pub(crate) fn nearest(schema: &ArraySchema, dim: usize, texts: &[String], among: Slice) -> Result<Vec<u64>> {
    let argument = texts.first().map_or_else(|| "~".to_owned(), |text| format!("~{text}"));
    axis(schema, dim, &argument, |axis| texts.iter().map(|text| axis.nearest(text, among)).collect())
}

/// Returns the positions of one dimension whose coordinates satisfy a comparison, as runs.
pub(crate) fn meeting(schema: &ArraySchema, dim: usize, op: Op, text: &str) -> Result<Vec<Slice>> {
    axis(schema, dim, text, |axis| axis.meeting(op, text))
}

fn axis<T>(
    schema: &ArraySchema,
    dim: usize,
    argument: &str,
    find: impl FnOnce(AxisCoordinates<'_>) -> Result<T>,
) -> Result<T> {
    let found = || {
        let dimension = schema.dims.get(dim).ok_or_else(|| {
            Error::invalid(format!(
                "dimension index {dim} is out of bounds for {} dimensions",
                schema.dims.len()
            ))
        })?;
        let extent = dimension
            .extent
            .ok_or_else(|| Error::invalid("the positions of the dimension are not countable"))?;
        find(AxisCoordinates::new(dimension, extent, argument)?)
    };
    found().map_err(|e| e.in_array(&schema.name))
}

fn name(dim: &Dimension, number: usize) -> String {
    if dim.name.is_empty() { number.to_string() } else { format!("{:?}", dim.name) }
}

/// Returns the dimension of an argument and the text after `=`.
fn split<'a>(schema: &ArraySchema, argument: &'a str) -> Result<(usize, &'a str)> {
    // A dimension name can contain `=`, so names are tried before splitting.
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
        Error::invalid(format!("invalid selection {argument:?}: expected a dimension and `=`"))
            .in_array(&schema.name)
            .hint(format!("example: `{example}=3`, `{example}=2:5` or `{example}=a..b`"))
    })?;
    Ok((schema.dim(dim).map_err(|e| e.hint(Advice::InSelection(argument.to_owned())))?, rest))
}

fn parse_axis_selector<'a>(argument: &str, text: &'a str) -> Result<AxisSelector<'a>> {
    let integer = |text: &str| -> Result<i64> {
        text.parse().map_err(|_| {
            Error::invalid(format!("{argument:?}: invalid position {text:?}"))
                .hint("positions are integers; use `dim=@value`, `dim=~value` or `dim=a..b` for coordinates")
        })
    };
    if let Some(value) = text.strip_prefix('@') {
        return Ok(AxisSelector::Value(value));
    }
    if let Some(value) = text.strip_prefix('~') {
        return Ok(AxisSelector::Nearest(value));
    }
    if text.contains("..") {
        return Ok(AxisSelector::Between(text));
    }
    if !text.contains(':') {
        return integer(text).map(AxisSelector::Position);
    }
    let end = |text: Option<&str>| match text {
        None | Some("") => Ok(None),
        Some(text) => integer(text).map(Some),
    };
    let mut parts = text.split(':');
    let (start, stop, step) = (end(parts.next())?, end(parts.next())?, end(parts.next())?);
    if parts.next().is_some() {
        return Err(Error::invalid(format!("{argument:?}: expected at most start, end and step")));
    }
    let step = u64::try_from(step.unwrap_or(1))
        .ok()
        .filter(|s| *s > 0)
        .ok_or_else(|| Error::invalid(format!("{argument:?}: the step must be an integer ≥ 1")))?;
    Ok(AxisSelector::Positions { start, end: stop, step })
}

fn resolve(dim: &Dimension, extent: u64, argument: &str, wanted: AxisSelector<'_>) -> Result<Slice> {
    // Negative positions count from the end; `last` is the largest valid one.
    let place = |position: i64, last: Option<u64>| -> Result<u64> {
        let from_start = match u64::try_from(position) {
            Ok(position) => Some(position),
            Err(_) => extent.checked_sub(position.unsigned_abs()),
        };
        from_start.filter(|p| last.is_some_and(|last| *p <= last)).ok_or_else(|| {
            let detail = format!("{argument:?}: position {position} is out of bounds for extent {extent}");
            let ends =
                extent.checked_sub(1).and_then(|last| dim.coordinate_text(0).zip(dim.coordinate_text(last)));
            match ends {
                Some((first, last)) => Error::invalid(detail)
                    .hint(format!("{}=@… selects a coordinate; they are {first} to {last}", dim.name)),
                None => Error::invalid(detail),
            }
        })
    };
    match wanted {
        AxisSelector::Position(position) => {
            let at = place(position, extent.checked_sub(1))?;
            Ok(Slice::new(at, at + 1))
        }
        AxisSelector::Positions { start, end, step } => {
            let start = start.map_or(Ok(0), |p| place(p, Some(extent)))?;
            let end = end.map_or(Ok(extent), |p| place(p, Some(extent)))?;
            if start > end {
                return Err(Error::invalid(format!("{argument:?}: start {start} is after end {end}")));
            }
            Ok(Slice { start, end, step })
        }
        AxisSelector::Between(text) => AxisCoordinates::new(dim, extent, argument)?.between(text),
        AxisSelector::Value(text) => AxisCoordinates::new(dim, extent, argument)?.value(text),
        AxisSelector::Nearest(text) => {
            let at = AxisCoordinates::new(dim, extent, argument)?.nearest(text, Slice::new(0, extent))?;
            Ok(Slice::new(at, at + 1))
        }
    }
}
