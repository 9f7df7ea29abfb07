//! Maps: two dimensions at the resolution of the screen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tesseral::{Array, Cancel, Error, Overview, Point, Result, overview_within};
use tesseral_display::json::float;
use tesseral_display::picture::{self, PictureAxis, Tick};

use crate::server::ServerState;
use crate::view::{CellParameters, OpenedField};

/// Most points along either side.
const SIDE: usize = 1024;

/// Cells, and the number of points to show them with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct PlaneParameters {
    source: usize,
    array: usize,
    field: u16,
    as_of: Option<String>,
    stored: bool,
    at: String,
    /// Horizontal dimension.
    pub(crate) x: Option<usize>,
    pub(crate) width: usize,
    height: usize,
}

impl PlaneParameters {
    pub(crate) fn cells(&self) -> CellParameters {
        CellParameters {
            source: self.source,
            array: self.array,
            field: self.field,
            as_of: self.as_of.clone(),
            stored: self.stored,
            at: self.at.clone(),
        }
    }
}

/// Points of overviews that were computed before, the most recently used ones.
#[derive(Debug)]
pub(crate) struct Overviews {
    budget: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_cells: HashMap<(CellParameters, [usize; 2]), (u64, Arc<Overview>)>,
    bytes: u64,
    /// Number of uses so far.
    clock: u64,
}

/// Approximate memory of an overview with the cells that it is kept under.
fn held(cells: &CellParameters, overview: &Overview) -> u64 {
    let texts = cells.at.len() + cells.as_of.as_ref().map_or(0, String::len);
    let ends = overview.ends.len() * size_of::<Option<(f64, f64)>>();
    (overview.points.len() * size_of::<Point>() + ends + texts + 512) as u64
}

impl Overviews {
    pub(crate) fn new(budget: u64) -> Self {
        Self { budget, kept: Mutex::default() }
    }

    /// The overview of cells with at most so many points along each dimension.
    pub(crate) fn get(
        &self,
        shared: &ServerState,
        cells: &CellParameters,
        array: &Array,
        most: [usize; 2],
    ) -> Result<Arc<Overview>> {
        let key = (cells.clone(), most);
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.clock += 1;
            let now = kept.clock;
            if let Some((used, overview)) = kept.by_cells.get_mut(&key) {
                *used = now;
                return Ok(Arc::clone(overview));
            }
        }
        let selection = cells.selection(array)?;
        let overview = Arc::new(overview_within(array, &selection, most, shared.settings.work)?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held(cells, &overview);
        while kept.bytes + own > self.budget && !kept.by_cells.is_empty() {
            let oldest = kept.by_cells.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            if let Some((oldest, (_, gone))) = oldest.and_then(|oldest| kept.by_cells.remove_entry(&oldest)) {
                kept.bytes -= held(&oldest.0, &gone);
            }
        }
        if own <= self.budget {
            let now = kept.clock;
            if let Some((_, before)) = kept.by_cells.insert(key, (now, Arc::clone(&overview))) {
                kept.bytes -= held(cells, &before);
            }
            kept.bytes += own;
        }
        Ok(overview)
    }
}

/// Ticks of an axis.
pub(crate) fn ticks(ticks: &[Tick]) -> Json {
    ticks.iter().map(|tick| json!([tick.place, tick.label])).collect()
}

/// An axis with ticks about `apart` points from one another.
pub(crate) fn axis(axis: &PictureAxis, dim: usize, slice: tesseral::Slice, most: usize) -> Json {
    json!({
        "dim": dim,
        "name": axis.name,
        "title": axis.title(),
        "first": axis.ends.0,
        "last": axis.ends.1,
        "reversed": axis.reversed,
        "from": slice.start,
        "to": slice.end,
        "ticks": ticks(&axis.ticks(most)),
    })
}

/// A map: a header in JSON after its length, then the points from the top left as `float32` on a scale from the lowest (0) to the
/// highest value (1), then one byte each: 0 for a value, 1 for missing cells, 2 for cells that are not finite.
pub(crate) fn plane(shared: &ServerState, query: &PlaneParameters, cancel: Cancel) -> Result<Vec<u8>> {
    let cells = query.cells();
    let opened = cells.open(shared, cancel)?;
    let most = [query.height.clamp(1, SIDE), query.width.clamp(1, SIDE)];
    let selection = cells.selection(&opened.array)?;
    let long: Vec<usize> = (0..selection.rank()).filter(|d| selection.slices()[*d].count() > 1).collect();
    let turned = long.len() == 2 && query.x == long.first().copied();
    let most = if turned { [most[1], most[0]] } else { most };
    let overview = shared.overviews.get(shared, &cells, &opened.array, most)?;
    encode(&opened, &overview, turned)
}

fn encode(opened: &OpenedField, overview: &Overview, turned: bool) -> Result<Vec<u8>> {
    let (rows, columns) = match *overview.shape.as_slice() {
        [] => (1, 1),
        [n] => (1, n),
        [rows, columns, ..] => (rows, columns),
    };
    let array = opened.array.labeled(|d| overview.dims.contains(&d))?;
    let two = overview.dims.len() == 2;
    let axes: Vec<PictureAxis> = (0..overview.dims.len())
        .map(|i| picture::axis(&opened.container, &array, overview, i, two && (i == 0) != turned))
        .collect();
    let shown = |i: usize| {
        let dim = overview.dims[i];
        let vertical = two && (i == 0) != turned;
        axis(&axes[i], dim, overview.selection.slices()[dim], if vertical { 9 } else { 7 })
    };
    let (vertical, horizontal) = match (two, turned) {
        (false, _) => (None, (!axes.is_empty()).then_some(0)),
        (true, false) => (Some(0), Some(1)),
        (true, true) => (Some(1), Some(0)),
    };
    let upside_down = vertical.is_some_and(|i| axes[i].reversed);
    let (low, high) = overview.range(0.0).unwrap_or((0.0, 0.0));
    let robust = overview.range(0.02).unwrap_or((low, high));
    let (height, width) = if turned { (columns, rows) } else { (rows, columns) };
    let header = json!({
        "width": width,
        "height": height,
        "low": float(low),
        "high": float(high),
        "robust": [float(robust.0), float(robust.1)],
        "empty": overview.range(0.0).is_none(),
        "cells": overview.cells,
        "selected": overview.selected,
        "sampled": overview.cells < overview.selected,
        "nulls": overview.nulls,
        "not_finite": overview.not_finite,
        "x": horizontal.map(shown),
        "y": vertical.map(shown),
    });
    let mut out = vec![0; 4];
    out.extend(header.to_string().into_bytes());
    // The points are aligned for the reader.
    out.resize(out.len().next_multiple_of(4), b' ');
    let length = u32::try_from(out.len() - 4).map_err(|_| Error::internal("a header is too long"))?;
    out[..4].copy_from_slice(&length.to_le_bytes());
    let mut kinds = Vec::with_capacity(width * height);
    let span = if high > low { high - low } else { 1.0 };
    for row in 0..height {
        let row = if upside_down { height - 1 - row } else { row };
        for column in 0..width {
            let at = if turned { column * columns + row } else { row * columns + column };
            let (value, kind) = match overview.points.get(at) {
                Some(Point::Value(v)) => ((v / span - low / span), 0),
                Some(Point::NotFinite) => (0.0, 2),
                _ => (0.0, 1),
            };
            #[allow(clippy::cast_possible_truncation)]
            out.extend((value as f32).to_le_bytes());
            kinds.push(kind);
        }
    }
    out.extend(kinds);
    Ok(out)
}
