//! Groups of positions by a part of their time.

use std::collections::BTreeMap;

use tesseral_core::calendar::TimePart;
use tesseral_core::{Error, Result, Selection, alloc};
use tesseral_engine::fold::AxisRole;

use super::TimeGroups;
use crate::Array;

/// Assigns the selected positions of an axis, whose labels have been read, to groups. Positions without a time are in no group.
///
/// # Errors
/// `InvalidRequest` if the coordinates are not times; `Limit` if there are too many positions for the memory limit.
pub fn time_groups(
    array: &Array,
    axis: usize,
    part: TimePart,
    selection: &Selection,
) -> Result<(AxisRole, TimeGroups)> {
    let (dim, slice) = (&array.schema().dims[axis], selection.slices()[axis]);
    if !dim.counts_time() {
        let detail =
            format!("the coordinates of dimension {:?} are not times: they have no {part}", dim.name);
        return Err(Error::invalid(detail).in_array(array.name()));
    }
    let count = usize::try_from(slice.count()).unwrap_or(usize::MAX);
    // Each position takes its part and its slot.
    array.options().check_memory("the groups of positions", (count as u64).saturating_mul(24))?;
    let mut parts: Vec<Option<i64>> = alloc::with_capacity("the groups of positions", count)?;
    for i in 0..slice.count() {
        let time = dim.civil(slice.start + i * slice.step);
        parts.push(time.map(|(time, calendar)| part.index(&time, calendar)));
    }
    let mut groups: BTreeMap<i64, u64> = parts.iter().flatten().map(|number| (*number, 0)).collect();
    groups.values_mut().zip(0..).for_each(|(slot, number)| *slot = number);
    let count = groups.len() as u64;
    let slot = |number: Option<i64>| number.and_then(|number| groups.get(&number)).copied().unwrap_or(count);
    let slots = parts.into_iter().map(slot).collect();
    Ok((AxisRole::Groups { slots, count }, TimeGroups { part, numbers: groups.into_keys().collect() }))
}
