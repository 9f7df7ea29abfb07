//! Statistics and histograms, computed by the engine.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tesseral::fold::{Answer, BinRange, Histogram, Number, Statistic};
use tesseral::{Array, Cancel, Error, Request, Result, Scalar, Selection, StatSet, Summarized, Target};
use tesseral_core::calendar::TimeScale;
use tesseral_display::json::float;
use tesseral_display::statistic::{edge, summary};

use crate::server::ServerState;
use crate::view::CellParameters;

/// Cells of one request at most.
const CELLS: u64 = 1 << 32;
/// Bins of a histogram at most.
const BINS: u32 = 512;

/// Cells, and the number of bins.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HistogramParameters {
    source: usize,
    array: usize,
    field: u16,
    as_of: Option<String>,
    stored: bool,
    at: String,
    bins: u32,
    /// Whether cells are read however many bytes they take.
    all: bool,
}

/// Bytes to decode up to which statistics are computed automatically, as a multiple of those of a map.
const UNASKED: u64 = 4;

/// Bytes of the chunks that hold the selected cells, decoded.
pub(crate) fn decoded_bytes(array: &Array, selection: &Selection) -> u64 {
    let schema = array.schema();
    let size = array.selected_field().cell_size().unwrap_or(1).max(1) as u64;
    let grid = schema.grid().ok();
    let along = selection.slices().iter().enumerate().map(|(d, slice)| {
        let chunk = grid.as_ref().and_then(|grid| grid.chunk_shape().get(d).copied()).unwrap_or(1).max(1);
        match slice.count() {
            0 => 0,
            _ => ((slice.tight_end() - 1) / chunk - slice.start / chunk + 1).saturating_mul(chunk),
        }
    });
    along.fold(size, u64::saturating_mul)
}

/// Limits the cells that a request reads.
pub(crate) fn check_cells(array: &Array, cells: u64) -> Result<()> {
    if cells > CELLS {
        let error = Error::limit("the cells of a request", cells, CELLS);
        return Err(error.in_array(array.name()).hint("select a smaller range"));
    }
    Ok(())
}

fn summarized(array: &Array, target: Target) -> Result<Summarized> {
    check_cells(array, array.cells_at_most(&target)?)?;
    let request = Request { target, ..array.request(&Selection::all(&[])) };
    tesseral_engine::fold::summary(array.handle(), &request, StatSet::ALL, array.options())
}

/// Count, missing cells, minimum, maximum, mean, standard deviation and sum of cells.
pub(crate) fn statistics(shared: &ServerState, query: &CellParameters, cancel: Cancel) -> Result<Json> {
    let opened = query.open(shared, cancel)?;
    let target = query.target(&opened.array)?;
    let times = TimeScale::of_values(opened.array.selected_field(), query.stored);
    Ok(Json::Object(summary(times.as_ref(), &summarized(&opened.array, target)?)))
}

fn number(value: &Scalar) -> Option<Number> {
    value.as_i128().map(Number::Int).or_else(|| value.as_f64().map(Number::Float))
}

/// Counts of cells in equal bins between the smallest and the largest finite value.
pub(crate) fn histogram(shared: &ServerState, query: &HistogramParameters, cancel: Cancel) -> Result<Json> {
    let cells = CellParameters {
        source: query.source,
        array: query.array,
        field: query.field,
        as_of: query.as_of.clone(),
        stored: query.stored,
        at: query.at.clone(),
    };
    let opened = cells.open(shared, cancel)?;
    let array = &opened.array;
    let target = cells.target(array)?;
    if let (Target::Cells(selection), false) = (&target, query.all) {
        let bytes = decoded_bytes(array, selection);
        if bytes > shared.settings.work.saturating_mul(UNASKED) {
            return Ok(json!({"deferred": {"bytes": bytes, "cells": selection.cells()}}));
        }
    }
    let found = summarized(array, target)?;
    let times = TimeScale::of_values(array.selected_field(), query.stored);
    let statistics = summary(times.as_ref(), &found);
    let ends = (found.summary.min(), found.summary.max());
    let finite = |value: &Scalar| value.as_f64().is_none_or(f64::is_finite);
    let range: Option<BinRange> = match &ends {
        (Some(low), Some(high)) if finite(low) && finite(high) => number(low).zip(number(high)),
        _ => None,
    };
    let Some(range) = range else {
        return Ok(json!({"counts": [], "edges": [], "statistics": statistics}));
    };
    let bins = query.bins.clamp(1, BINS);
    let histogram = Histogram::new(bins, vec![range], false);
    let numbers = histogram.edges().unwrap_or_default();
    let edges: Vec<Json> = numbers.iter().map(|edge| float(*edge)).collect();
    let times =
        times.map(|times| numbers.iter().map(|number| edge(Some(&times), *number)).collect::<Vec<_>>());
    let asked = array.reduction(vec![Statistic::Histogram(histogram)])?.select(cells.selection(array)?);
    let answers = asked.options(array.options().clone()).resolve()?.ask()?;
    let counts = match answers.columns.first().and_then(|column| column.first()) {
        Some(Answer::Counts(counts)) => counts.clone(),
        _ => Vec::new(),
    };
    Ok(json!({"counts": counts, "edges": edges, "times": times, "statistics": statistics}))
}
