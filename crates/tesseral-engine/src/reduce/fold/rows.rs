//! Folding rows with coordinates: cells of sparse arrays.

use tesseral_core::{DType, Error, Region, Result, Selection, Slice, dispatch_element};
use tesseral_format::{Column, PlannedChunk, Request, Target};

use super::distribute::{BlockCells, SlotCells, global_slot};
use super::layout::{self, AxisRole, CellOffsets, OffsetStrides};
use super::merger::Partial;
use super::pairs::Paired;
use super::run::{Fold, Unit, share};
use super::state::FoldState;
use crate::decode::columns::Cells;
use crate::handle::Handle;
use crate::merge::sparse::{CellBatch, CellOrder, bounds, valid_cells};
use crate::options::Options;
use crate::paint::scatter::{number_in, origin, positions, ranges};

/// Approximate number of cells of a sparse array per unit.
const CELLS: u64 = 4 << 20;

/// Divides a selection of a sparse array along its first dimension, at chunk boundaries, into parts of about equally many
/// cells.
pub(super) fn parts(
    handle: &Handle,
    columns: &[Column],
    selection: &Selection,
    options: &Options,
) -> Result<Vec<Selection>> {
    let schema = handle.schema();
    let request = Request {
        target: Target::Coordinates(ranges(&schema.dims, selection).map_err(|e| e.in_array(&schema.name))?),
        columns: columns.to_vec(),
        condition: None,
    };
    let chunks = handle.plan(&request)?.chunks;
    let (Some(dim), Some(&slice)) = (schema.dims.first(), selection.slices().first()) else {
        return Ok(vec![selection.clone()]);
    };
    // The index in the slice at which a chunk begins.
    let start_index = |chunk: &PlannedChunk| {
        let low = bounds(chunk).first()?.0.as_i128()?;
        let from_start = u64::try_from(low - origin(dim)? - i128::from(slice.start)).unwrap_or(0);
        Some((from_start.div_ceil(slice.step.max(1)).min(slice.count()), chunk.cells))
    };
    let mut starts: Vec<(u64, u64)> = chunks.iter().filter_map(start_index).collect();
    starts.sort_unstable();
    let most = options.memory.map_or(CELLS, |memory| CELLS.min(memory / 128));
    let (mut cuts, mut pending) = (vec![0], 0_u64);
    for (number, cells) in starts {
        if pending >= most && cuts.last().is_some_and(|last| *last < number) && number < slice.count() {
            cuts.push(number);
            pending = 0;
        }
        pending = pending.saturating_add(cells);
    }
    cuts.push(slice.count());
    let bounds: Vec<u64> = selection.slices().iter().map(|slice| slice.end).collect();
    let part = |ends: &[u64]| {
        let mut slices = selection.slices().to_vec();
        let last = slice.start + ends[1].saturating_sub(1) * slice.step + 1;
        slices[0] = Slice { start: slice.start + ends[0] * slice.step, end: last.min(slice.end), ..slice };
        Selection::new(slices, &bounds)
    };
    cuts.windows(2).map(part).collect()
}

/// Folds the rows of a unit of a selection.
pub(super) fn fold_unit(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    unit: &Unit,
    options: &Options,
) -> Result<Partial> {
    let schema = handle.schema();
    let (fields, whole, part) = share(handle, request, fold, unit)?;
    fold.check_paired(handle)?;
    let target = Target::Coordinates(ranges(&schema.dims, &part).map_err(|e| e.in_array(&schema.name))?);
    let dims = (0..).take(schema.dims.len()).map(Column::Dim);
    let paired = fold.paired.as_ref().and_then(Paired::column);
    let columns = dims.chain(fields.iter().copied().map(Column::Field)).chain(paired).collect();
    let request = Request { target, columns, condition: request.condition.clone() };
    let slots = layout::reached(&fold.roles, &unit.place);
    let mut partial = unit.partial(&slots);
    partial.states = fold.states(handle, &fields, &slots, options)?;
    let axes = SlotAssignment::new(fold, &whole, &slots);
    for batch in valid_cells(handle, &request, CellOrder::Stored, options)? {
        axes.distribute(handle, &batch?, &mut partial.states).map_err(|e| e.in_array(&schema.name))?;
    }
    Ok(partial)
}

/// Assigns a cell to slots by its position along each axis.
struct SlotAssignment<'a> {
    fold: &'a Fold,
    slices: &'a [Slice],
    /// The region of slots.
    slots: &'a Region,
    /// Slots along each axis of the full selection.
    whole: Vec<u64>,
    /// The first slot along each axis, and the slot index stride.
    steps: Vec<(u64, u64)>,
    strides: Vec<OffsetStrides>,
}

/// A slot, and the place of a row that belongs to it; the offset is the number of the row.
pub(super) type SlotRow = (usize, CellOffsets);

/// Folds the cells of one column of rows, which are sorted by slot, into the states of the slots: a list of them for each reducer.
/// `global` is the number of a slot among all slots of the fold.
pub(super) fn fold_column(
    fold: &Fold,
    (dtype, cells): (DType, &Cells),
    paired: Option<&[f64]>,
    slot_rows: &[SlotRow],
    global: &dyn Fn(usize) -> usize,
    states: &mut [Vec<FoldState>],
) -> Result<()> {
    let outside = || Error::internal("slot outside the result");
    dispatch_element!(dtype, T => {
        let values: Vec<T> = bytemuck::pod_collect_to_vec(cells.data());
        let cells = BlockCells::new(fold, &values, cells.validity(), None).with_paired(paired);
        let mut gathered = SlotCells::default();
        for rows in slot_rows.chunk_by(|a, b| a.0 == b.0) {
            gathered.clear();
            rows.iter().for_each(|&(_, place)| cells.push(place, fold, &mut gathered));
            let slot = rows[0].0;
            for (states, reducer) in states.iter_mut().zip(&fold.reducers) {
                let state = states.get_mut(slot).ok_or_else(outside)?;
                gathered.fold_into(state, reducer, dtype, global(slot))?;
            }
        }
        Ok(())
    }, else => Err(Error::unsupported(format!("folds of {dtype}"))))
}

impl<'a> SlotAssignment<'a> {
    fn new(fold: &'a Fold, selection: &'a Selection, slots: &'a Region) -> Self {
        let mut steps = vec![(0, 0); fold.roles.len()];
        let (mut stride, mut kept) = (1_u64, slots.rank());
        for (d, _) in fold.roles.iter().enumerate().rev().filter(|(_, role)| **role != AxisRole::Reduce) {
            kept -= 1;
            steps[d] = (slots.start(kept), stride);
            stride = stride.saturating_mul(slots.extent(kept));
        }
        let whole = layout::shape(&fold.roles, selection);
        let strides = layout::offset_strides(&fold.roles, &selection.shape(), fold.weights.as_ref());
        Self { fold, slices: selection.slices(), slots, whole, steps, strides }
    }

    /// Folds the rows of a batch.
    fn distribute(&self, handle: &Handle, batch: &CellBatch, states: &mut [Vec<FoldState>]) -> Result<()> {
        let schema = handle.schema();
        let (coordinates, columns) = batch.columns.split_at(schema.dims.len().min(batch.columns.len()));
        let outside = || Error::internal("coordinate outside the domain");
        let axes = schema.dims.iter().zip(coordinates);
        let axes = axes.map(|(dim, (_, cells))| positions(dim, cells).ok_or_else(outside));
        let axes = axes.collect::<Result<Vec<_>>>()?;
        let mut slot_rows: Vec<SlotRow> = Vec::with_capacity(batch.rows);
        for row in 0..batch.rows {
            self.assign(0, &axes, 0, CellOffsets { offset: row, ..CellOffsets::default() }, &mut slot_rows);
        }
        // The sort is stable: rows of a slot keep their order.
        slot_rows.sort_by_key(|(slot, _)| *slot);
        let (columns, paired) = match &self.fold.paired {
            Some(paired) => match columns.split_last() {
                Some(((_, cells), columns)) => (columns, Some(paired.of_rows(handle, cells)?)),
                None => return Err(Error::internal("missing column of a second variable")),
            },
            None => (columns, None),
        };
        let lists = states.chunks_mut(self.fold.reducers.len().max(1));
        for ((column, cells), states) in columns.iter().zip(lists) {
            let Column::Field(field) = column else { continue };
            let dtype = schema.fields[usize::from(*field)].dtype;
            let global = |slot: usize| global_slot(slot, self.slots, &self.whole);
            fold_column(self.fold, (dtype, cells), paired.as_deref(), &slot_rows, &global, states)?;
        }
        Ok(())
    }

    /// Adds every slot that a row belongs to, axis by axis.
    fn assign(&self, d: usize, axes: &[Vec<u64>], slot: u64, place: CellOffsets, out: &mut Vec<SlotRow>) {
        let Some(axis) = axes.get(d) else {
            out.push((usize::try_from(slot).unwrap_or(usize::MAX), place));
            return;
        };
        let Some(n) = number_in(&self.slices[d], axis[place.offset]) else { return };
        let index = usize::try_from(n).unwrap_or(usize::MAX);
        let masked =
            self.fold.masks[d].as_ref().is_some_and(|mask| !mask.get(index).copied().unwrap_or(false));
        if masked {
            return;
        }
        let mut assign_next = |along: u64, in_fiber: u64| {
            let ((first, slot_stride), stride) = (self.steps[d], self.strides[d]);
            let next = CellOffsets {
                offset: place.offset,
                fiber: place.fiber + in_fiber * stride.fiber,
                order: place.order + n * stride.order,
                weight: place.weight + n * stride.weight,
            };
            self.assign(d + 1, axes, slot + (along - first) * slot_stride, next, out);
        };
        match &self.fold.roles[d] {
            AxisRole::Keep => assign_next(n, 0),
            AxisRole::Reduce => assign_next(0, n),
            AxisRole::Groups { slots, count } => slots
                .get(index)
                .filter(|group| **group < *count)
                .into_iter()
                .for_each(|&group| assign_next(group, 0)),
            role @ AxisRole::Windows { step, before, .. } => {
                let (first, last) = role.reached(n, n + 1);
                (first..last)
                    .for_each(|window| assign_next(window, (n + before).saturating_sub(window * step)));
            }
        }
    }
}
