//! Series and profiles: one dimension, at a point or as the mean of the shown cells.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tesseral::fold::{Answer, Statistic};
use tesseral::{Array, Cancel, Error, Point, Result, Selection};
use tesseral_display::coordinate;
use tesseral_display::json::{float, integer, scalar};
use tesseral_display::picture;

use crate::plane::{self, PlaneParameters};
use crate::server::ServerState;
use crate::statistics::{self, decoded_bytes};
use crate::view::CellParameters;

/// Most points of a series.
const POINTS: usize = 4096;
/// Bytes to decode up to which a series of means is computed automatically, as a multiple of those of a map.
const UNASKED: u64 = 16;
/// Ticks of the axis of a series of means.
const TICKS: usize = 5;

/// Cells, the dimension to keep, and the part of its times to group by.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MeansParameters {
    source: usize,
    array: usize,
    field: u16,
    as_of: Option<String>,
    stored: bool,
    at: String,
    along: usize,
    by: String,
    /// Whether cells are read however many bytes they take.
    all: bool,
}

/// Means along a dimension with at most `width` points; each is one cell, if there are no more.
pub(crate) fn series(shared: &ServerState, query: &PlaneParameters, cancel: Cancel) -> Result<Json> {
    let cells = query.cells();
    let opened = cells.open(shared, cancel)?;
    let selection = cells.selection(&opened.array)?;
    let long: Vec<usize> = (0..selection.rank()).filter(|d| selection.slices()[*d].count() > 1).collect();
    let width = long.len();
    let dim = match long.as_slice() {
        [dim] => *dim,
        [] => query.x.filter(|d| *d < selection.rank()).unwrap_or(0),
        _ => {
            let detail = format!("a series has one dimension, the selection has {width}");
            return Err(Error::invalid(detail).in_array(opened.array.name()));
        }
    };
    let most = [1, query.width.clamp(1, POINTS)];
    let overview = shared.overviews.get(shared, &cells, &opened.array, most)?;
    let array = opened.array.labeled(|d| d == dim)?;
    let values = overview.points.iter().map(|point| match point {
        Point::Value(v) => float(*v),
        Point::NotFinite => json!("NaN"),
        Point::Null => Json::Null,
    });
    let (low, high) = overview.range(0.0).map_or((Json::Null, Json::Null), |(a, b)| (float(a), float(b)));
    let axis = (!overview.dims.is_empty()).then(|| {
        let axis = picture::axis(&opened.container, &array, &overview, 0, false);
        plane::axis(&axis, dim, selection.slices()[dim], 6)
    });
    let sampled = overview.cells < overview.selected;
    let ends = if sampled || overview.dims.is_empty() { Json::Null } else { ends(&array, &selection, dim)? };
    let bands = overview.ends.iter().map(|ends| ends.map(|(low, high)| json!([float(low), float(high)])));
    Ok(json!({
        "values": values.collect::<Vec<_>>(),
        "bands": bands.collect::<Vec<_>>(),
        "low": low,
        "high": high,
        "cells": overview.cells,
        "selected": overview.selected,
        "sampled": sampled,
        "each": selection.slices().get(dim).map_or(1, tesseral::Slice::count) <= overview.points.len() as u64,
        "axis": axis,
        "ends": ends,
    }))
}

/// The lowest and the highest cell of a series, with their coordinates.
fn ends(array: &Array, selection: &Selection, dim: usize) -> Result<Json> {
    let statistics = vec![Statistic::Min, Statistic::ArgMin, Statistic::Max, Statistic::ArgMax];
    let asked = array.reduction(statistics)?.select(selection.clone()).options(array.options().clone());
    let answers = asked.resolve()?.ask()?;
    let slice = selection.slices()[dim];
    let end = |column: usize| {
        let value = answers.columns.get(column).and_then(|column| column.first());
        let place = answers.columns.get(column + 1).and_then(|column| column.first());
        let (Some(Answer::Value(value)), Some(Answer::Int(index))) = (value, place) else {
            return Json::Null;
        };
        let Ok(index) = u64::try_from(*index) else { return Json::Null };
        let position = slice.start + index * slice.step;
        let text = coordinate(&array.schema().dims[dim], position);
        json!({"value": scalar(value), "text": text, "position": position})
    };
    Ok(json!({"low": end(0), "high": end(2)}))
}

/// The means of the selected cells at each position of a dimension, or in each group of its times.
pub(crate) fn means(shared: &ServerState, query: &MeansParameters, cancel: Cancel) -> Result<Json> {
    let cells = CellParameters {
        source: query.source,
        array: query.array,
        field: query.field,
        as_of: query.as_of.clone(),
        stored: query.stored,
        at: query.at.clone(),
    };
    let opened = cells.open(shared, cancel)?;
    let selection = cells.selection(&opened.array)?;
    let dim = query.along;
    if dim >= selection.rank() {
        return Err(Error::invalid("a dimension does not exist").in_array(opened.array.name()));
    }
    let bytes = decoded_bytes(&opened.array, &selection);
    if !query.all && bytes > shared.settings.work.saturating_mul(UNASKED) {
        return Ok(json!({"deferred": {"bytes": bytes, "cells": selection.cells()}}));
    }
    statistics::check_cells(&opened.array, selection.cells().unwrap_or(u64::MAX))?;
    let array = opened.array.labeled(|d| d == dim)?;
    let part = match query.by.as_str() {
        "" => None,
        part => Some(part.parse()?),
    };
    let asked = array.reduction(vec![Statistic::Mean])?.select(selection.clone()).by_axis(dim, part);
    let asked = asked.options(array.options().clone()).resolve()?;
    let answers = asked.ask()?;
    let groups = asked.axes().iter().find_map(|axis| axis.groups.as_ref());
    let (slice, dimension) = (selection.slices()[dim], &array.schema().dims[dim]);
    let text = |i: usize| match groups {
        Some(groups) => groups.numbers.get(i).map_or_else(String::new, |n| groups.part.text(*n)),
        None => coordinate(dimension, slice.start + i as u64 * slice.step),
    };
    let found = answers.columns.into_iter().next().unwrap_or_default();
    let values: Vec<Option<f64>> = found
        .iter()
        .map(|answer| match answer {
            Answer::Float(v) => Some(*v),
            _ => None,
        })
        .collect();
    let finite =
        || values.iter().enumerate().filter_map(|(i, v)| v.filter(|v| v.is_finite()).map(|v| (i, v)));
    let end = |found: Option<(usize, f64)>| {
        found.map(|(i, v)| {
            let position = groups.is_none().then(|| slice.start + i as u64 * slice.step);
            json!({"value": float(v), "text": text(i), "position": position})
        })
    };
    let low = finite().min_by(|a, b| a.1.total_cmp(&b.1));
    // Of equal values, the first one.
    let high = finite().min_by(|a, b| b.1.total_cmp(&a.1));
    let count = values.len();
    let points = thinned(&values);
    let ticks = (0..TICKS.min(count)).map(|k| {
        let i = (2 * k + 1) * count / (2 * TICKS.min(count));
        json!([(i as f64 + 0.5) / count as f64, text(i)])
    });
    let name = tesseral_display::dim_name(dimension, dim);
    let axis = json!({
        "dim": dim,
        "name": name,
        "title": part.map_or_else(|| name.clone(), |part| format!("{name}.{part}")),
        "first": if count > 0 { text(0) } else { String::new() },
        "last": if count > 0 { text(count - 1) } else { String::new() },
        "reversed": false,
        "from": slice.start,
        "to": slice.end,
        "ticks": ticks.collect::<Vec<_>>(),
    });
    Ok(json!({
        "values": points.iter().map(|v| v.map_or(Json::Null, float)).collect::<Vec<_>>(),
        "low": low.map(|(_, v)| float(v)),
        "high": high.map(|(_, v)| float(v)),
        "cells": selection.cells().map(|n| integer(n.into())),
        "selected": selection.cells().map(|n| integer(n.into())),
        "sampled": false,
        "each": points.len() == count,
        "grouped": part.is_some(),
        "axis": axis,
        "ends": {"low": end(low), "high": end(high)},
    }))
}

/// At most [`POINTS`] points, each the mean of adjacent values.
fn thinned(values: &[Option<f64>]) -> Vec<Option<f64>> {
    let run = values.len().div_ceil(POINTS).max(1);
    let mean = |values: &[Option<f64>]| {
        let known = || values.iter().flatten();
        let count = known().count();
        (count > 0).then(|| known().sum::<f64>() / count as f64)
    };
    match run {
        1 => values.to_vec(),
        _ => values.chunks(run).map(mean).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_are_thinned() {
        assert_eq!(thinned(&[Some(1.0), None]), [Some(1.0), None]);
        let long: Vec<Option<f64>> = (0..2 * POINTS).map(|i| (i % 4 != 3).then_some(i as f64)).collect();
        let thin = thinned(&long);
        assert_eq!((thin.len(), thin[0], thin[1]), (POINTS, Some(0.5), Some(2.0)));
    }
}
