//! One summary for each coordinate of a dimension with cells.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tesseral_core::{DType, Error, Result, Scalar};
use tesseral_format::{Column, Request};

use super::layout::CellOffsets;
use super::rows::fold_column;
use super::run::Fold;
use super::state::{FoldState, Reducer};
use crate::decode::columns::{Cells, sort_keys};
use crate::handle::Handle;
use crate::merge::sparse::{CellOrder, valid_cells};
use crate::options::Options;
use crate::reduce::kernel::summary::{StatSet, Summary};

/// Sort key of a coordinate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupKey {
    Number(u64),
    Text(Vec<u8>),
}

/// Folds one column of the requested cells by their coordinates along a dimension, in ascending order.
///
/// # Errors
/// As [`valid_cells`]; `Unsupported` for columns that cannot be folded; `Limit` when the results pass the memory limit.
pub fn summaries_by_coordinate(
    handle: &Handle,
    request: &Request,
    dim: u16,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<(Scalar, Summary)>> {
    let schema = handle.schema();
    let refuse = || Error::invalid("grouping requires one column and one dimension").in_array(&schema.name);
    let ([column], Some(dimension)) = (request.columns.as_slice(), schema.dims.get(usize::from(dim))) else {
        return Err(refuse());
    };
    let dtype: DType = match *column {
        Column::Field(f) => schema.fields.get(usize::from(f)).map(|f| f.dtype),
        Column::Dim(d) => schema.dims.get(usize::from(d)).map(|d| d.dtype),
        _ => None,
    }
    .ok_or_else(refuse)?;
    let fold = Fold::new(vec![Reducer::Summary(wanted)], Vec::new());
    let empty = FoldState::new(&fold.reducers[0], dtype).map_err(|e| e.in_array(&schema.name))?;
    let both = Request { columns: vec![Column::Dim(dim), *column], ..request.clone() };
    // A group is in the map, then in the result, and in a row of the output.
    let group_bytes = 3 * (size_of::<(GroupKey, Scalar, FoldState)>() + 32) as u64;
    let mut slots: BTreeMap<GroupKey, (Scalar, usize)> = BTreeMap::new();
    let mut states: Vec<FoldState> = Vec::new();
    for batch in valid_cells(handle, &both, CellOrder::Stored, options)? {
        let batch = batch?;
        let [(_, coordinates), (_, values)] = batch.columns.as_slice() else { return Err(refuse()) };
        let mut slot_rows = Vec::with_capacity(batch.rows);
        for rows in grouped(dimension.dtype, coordinates, batch.rows) {
            let row = rows[0] as usize;
            let slot = match slots.entry(key(dimension.dtype, coordinates, row)) {
                Entry::Occupied(known) => known.get().1,
                Entry::Vacant(new) => {
                    let held = (states.len() as u64 + 1).saturating_mul(group_bytes);
                    let checked = options.check_memory("one row per coordinate", held);
                    checked.map_err(|e| e.in_array(&schema.name))?;
                    let coordinate = Scalar::from_le_bytes(dimension.dtype, coordinates.get(row))?;
                    states.push(empty.clone());
                    new.insert((coordinate, states.len() - 1)).1
                }
            };
            let at = |row: u32| CellOffsets { offset: row as usize, ..CellOffsets::default() };
            slot_rows.extend(rows.into_iter().map(|row| (slot, at(row))));
        }
        let states = std::slice::from_mut(&mut states);
        fold_column(&fold, (dtype, values), None, &slot_rows, &|slot| slot, states)?;
    }
    let summary = |(coordinate, slot): (Scalar, usize)| match states.get(slot) {
        Some(FoldState::Summary(summary)) => Ok((coordinate, summary.clone())),
        _ => Err(Error::internal("missing summary of a fold")),
    };
    slots.into_values().map(summary).collect()
}

fn key(dtype: DType, coordinates: &Cells, row: usize) -> GroupKey {
    match crate::decode::columns::sort_key(dtype, coordinates.get(row)) {
        Some(number) => GroupKey::Number(number),
        None => GroupKey::Text(coordinates.get(row).to_vec()),
    }
}

/// Rows of each coordinate, in input order.
fn grouped(dtype: DType, coordinates: &Cells, count: usize) -> Vec<Vec<u32>> {
    let mut rows: Vec<u32> = (0..).take(count).collect();
    let groups =
        |rows: &[u32], same: &dyn Fn(&u32, &u32) -> bool| rows.chunk_by(same).map(<[u32]>::to_vec).collect();
    match sort_keys(dtype, coordinates) {
        Some(keys) => {
            rows.sort_by_key(|row| keys[*row as usize]);
            groups(&rows, &|a, b| keys[*a as usize] == keys[*b as usize])
        }
        None => {
            let text = |row: &u32| coordinates.get(*row as usize);
            rows.sort_by(|a, b| text(a).cmp(text(b)));
            groups(&rows, &|a, b| text(a) == text(b))
        }
    }
}
