//! Series and profiles: one dimension.

use serde_json::{Value as Json, json};
use tesseral::{Cancel, Error, Point, Result};
use tesseral_display::json::float;
use tesseral_display::picture;

use crate::plane::{self, PlaneParameters};
use crate::server::Shared;

/// Most points of a series.
const POINTS: usize = 4096;

/// Means along a dimension with at most `width` points; each is one cell, if there are no more.
pub(crate) fn series(shared: &Shared, query: &PlaneParameters, cancel: Cancel) -> Result<Json> {
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
    Ok(json!({
        "values": values.collect::<Vec<_>>(),
        "low": low,
        "high": high,
        "cells": overview.cells,
        "selected": overview.selected,
        "sampled": overview.cells < overview.selected,
        "each": selection.slices().get(dim).map_or(1, tesseral::Slice::count) <= overview.points.len() as u64,
        "axis": axis,
    }))
}
