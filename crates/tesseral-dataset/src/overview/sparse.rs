//! Overviews of sparse arrays: means of cells over equal boxes of positions.

use tesseral_core::condition::Condition;
use tesseral_core::{Advice, Dimension, Error, Result, Scalar, Selection, Slice};
use tesseral_engine::fold::{self, AxisRole, Fold, FoldState, Reducer};
use tesseral_engine::{StatSet, Summary};

use tesseral_format::{Request, Target};

use super::{Overview, Point};
use crate::Array;

/// Draws the last two dimensions with cells at several positions; all others are reduced.
pub(super) fn overview(
    array: &Array,
    selection: &Selection,
    most: [usize; 2],
    bytes: u64,
) -> Result<Overview> {
    let selection = occupied(array, selection)?;
    let target = Target::Coordinates(tesseral_engine::ranges(&array.schema().dims, &selection)?);
    let size = array.selected_field().cell_size().unwrap_or(1).max(1) as u64;
    let held = array.cells_at_most(&target)?.saturating_mul(size);
    if held > bytes {
        let error = Error::limit("the cells of an overview, in bytes,", held, bytes);
        return Err(error.in_array(array.name()).hint(Advice::SelectLess));
    }
    let long = (0..selection.rank()).filter(|d| selection.slices()[*d].count() > 1);
    let mut dims: Vec<usize> = long.collect();
    dims.drain(..dims.len().saturating_sub(2));
    let mut roles = vec![AxisRole::Reduce; selection.rank()];
    for (i, d) in dims.iter().enumerate() {
        let extent = selection.slices()[*d].count();
        let size = extent.div_ceil(most[if dims.len() == 1 { 1 } else { i }].max(1) as u64);
        roles[*d] = AxisRole::Windows { size, step: size, before: 0, count: extent.div_ceil(size) };
    }
    let field = array.selected_field();
    let finite = Condition::is_finite(&field.name, field.dtype);
    let one = dims.len() == 1;
    let wanted = if one { StatSet::RANGE | StatSet::SUM } else { StatSet::SUM };
    let means = summaries(array, &selection, &roles, wanted, Some(finite))?;
    let ends = |finite: &Summary| {
        let end = |value: Option<Scalar>| value.and_then(|value| value.as_f64());
        end(finite.min()).zip(end(finite.max()))
    };
    let all = summaries(array, &selection, &roles, StatSet::INFINITIES, None)?;
    let odd = |all: &Summary| all.nans() + all.infinities().unwrap_or(0);
    let point = |(finite, all): (&Summary, &Summary)| match finite.mean() {
        Some(mean) => Point::Value(mean),
        None if odd(all) > 0 => Point::NotFinite,
        None => Point::Null,
    };
    let (cells, not_finite) = (all.iter().map(Summary::count).sum(), all.iter().map(odd).sum());
    let drawn: u64 = means.iter().map(Summary::valid).sum();
    let slots = |d: &usize| usize::try_from(roles[*d].slots(0).unwrap_or(1)).unwrap_or(usize::MAX);
    Ok(Overview {
        shape: dims.iter().map(slots).collect(),
        ends: if one { means.iter().map(ends).collect() } else { Vec::new() },
        points: means.iter().zip(&all).map(point).collect(),
        nulls: u64::saturating_sub(cells, drawn + not_finite),
        dims,
        selection,
        cells,
        selected: cells,
        not_finite,
    })
}

fn summaries(
    array: &Array,
    selection: &Selection,
    roles: &[AxisRole],
    wanted: StatSet,
    condition: Option<Condition>,
) -> Result<Vec<Summary>> {
    let fold = Fold::new(vec![Reducer::Summary(wanted)], roles.to_vec());
    let request = Request { condition, ..array.request(selection) };
    let folded = fold::fold(array.handle(), &request, &fold, array.options())?;
    let summary = |state| if let FoldState::Summary(summary) = state { Some(summary) } else { None };
    Ok(folded.single()?.into_iter().filter_map(summary).collect())
}

/// The part of a selection with cells: a domain is often far larger.
fn occupied(array: &Array, selection: &Selection) -> Result<Selection> {
    let handle = array.handle();
    let Some(Some(domain)) = handle.guarded(|| handle.source().non_empty_domain())? else {
        return Ok(selection.clone());
    };
    let dims = array.schema().dims.iter().zip(&domain);
    let slices = selection.slices().iter().zip(dims).map(|(slice, (dim, (low, high)))| {
        let (Some(low), Some(high)) = (position(dim, low), position(dim, high)) else { return *slice };
        let skipped = low.saturating_sub(slice.start).div_ceil(slice.step);
        let start = slice.start.saturating_add(skipped.saturating_mul(slice.step));
        let end = slice.end.min(high.saturating_add(1));
        if start < end { Slice { start, end, ..*slice } } else { *slice }
    });
    let bounds: Vec<u64> = selection.slices().iter().map(|slice| slice.end).collect();
    Selection::new(slices, &bounds)
}

fn position(dim: &Dimension, coordinate: &Scalar) -> Option<u64> {
    let first = dim.domain.as_ref().map_or(Some(0), |(first, _)| first.as_i128())?;
    u64::try_from(coordinate.as_i128()? - first).ok()
}
