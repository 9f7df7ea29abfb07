//! Distributing the cells of a block to slots.

use std::ops::Range;

use tesseral_core::{DType, Region, Result};

use super::layout::{self, CellOffsets, OffsetStrides, Positions, SlotPositions};
use super::run::Fold;
use super::state::{FoldState, Reducer, SlotValues};
use crate::reduce::kernel::block::Cell;

/// Fewer selected cells are copied before they are folded.
const MASKED: usize = 64;

/// Distributes the cells of a block to slots.
pub(super) struct SlotDistributor<'a, T> {
    fold: &'a Fold,
    dtype: DType,
    cells: BlockCells<'a, T>,
    lists: &'a [SlotPositions<'a>],
    strides: Vec<OffsetStrides>,
    /// The first position of the block along each axis of the selection.
    starts: Vec<u64>,
}

impl<'a, T: Cell> SlotDistributor<'a, T> {
    /// A distributor of a block at `place` in a selection of `extents`.
    pub(super) fn new(
        fold: &'a Fold,
        dtype: DType,
        cells: BlockCells<'a, T>,
        extents: &[u64],
        place: &[(u64, u64)],
        lists: &'a [SlotPositions<'a>],
    ) -> Self {
        let mut strides = layout::offset_strides(&fold.roles, extents, fold.weights.as_ref());
        let mut stride = 1_usize;
        for (axis, (start, end)) in strides.iter_mut().zip(place).rev() {
            axis.offset = stride;
            stride = stride.saturating_mul(usize::try_from(end - start).unwrap_or(usize::MAX));
        }
        Self { fold, dtype, cells, lists, strides, starts: place.iter().map(|place| place.0).collect() }
    }

    /// Folds the cells into the states of a region of slots, one list per reducer.
    pub(super) fn distribute(
        &self,
        slots: &Region,
        whole: &[u64],
        states: &mut [Vec<FoldState>],
    ) -> Result<()> {
        let rank = self.lists.len();
        let counts: Vec<usize> = self.lists.iter().map(|list| list.len()).collect();
        if counts.contains(&0) {
            return Ok(());
        }
        let mut at = vec![0_usize; rank];
        let mut gathered = SlotCells::default();
        let weighted = self.cells.weighted && self.fold.reducers.iter().all(Reducer::takes_runs);
        let summaries = self.fold.reducers.iter().all(|reducer| matches!(reducer, Reducer::Summary(_)));
        let mut scratch = Vec::new();
        for i in 0..states.first().map_or(0, Vec::len) {
            let slot = global_slot(i, slots, whole);
            let mut here = states.iter_mut().filter_map(|states| states.get_mut(i));
            let run = if weighted { self.equal_weights(&at) } else { None };
            match (self.adjacent(&at), self.cells.mask.filter(|_| summaries), run) {
                (Some(cells), None, _) if self.cells.all_selected() => {
                    let values = SlotValues::plain(&self.cells.values[cells]);
                    for (state, reducer) in here.zip(&self.fold.reducers) {
                        state.fold(reducer, self.dtype, slot, values)?;
                    }
                }
                (Some(cells), Some(mask), _) if cells.len() >= MASKED => {
                    let (values, mask) = (&self.cells.values[cells.clone()], &mask[cells.clone()]);
                    let validity = self.cells.validity.map(|validity| &validity[cells.clone()]);
                    here.try_for_each(|state| state.fold_masked(values, validity, mask))?;
                }
                (_, _, Some(run)) => here.try_for_each(|state| {
                    self.fold_runs(0, &at, (run.first, 0), &run, &mut |values, weight| {
                        state.fold_run(values, weight, &mut scratch)
                    })
                })?,
                _ => {
                    gathered.clear();
                    self.gather(0, &at, CellOffsets::default(), &mut gathered);
                    for (state, reducer) in here.zip(&self.fold.reducers) {
                        gathered.fold_into(state, reducer, self.dtype, slot)?;
                    }
                }
            }
            for d in (0..rank).rev() {
                at[d] += 1;
                if at[d] < counts[d] {
                    break;
                }
                at[d] = 0;
            }
        }
        Ok(())
    }

    /// The cells of a slot where they are neighbors in the block, and their places have no effect: they need not be copied.
    fn adjacent(&self, at: &[usize]) -> Option<Range<usize>> {
        if self.cells.placed || self.cells.weighted || self.cells.paired.is_some() {
            return None;
        }
        let (mut start, mut len) = (0, 1);
        for (d, lists) in self.lists.iter().enumerate().rev() {
            let Positions::Range(range) = lists.slot(at[d]) else { return None };
            // Positions of this axis follow one another when each takes all of what lies within it.
            if range.len() > 1 && len != self.strides[d].offset {
                return None;
            }
            start += range.start * self.strides[d].offset;
            len *= range.len();
        }
        let cells = start..start.checked_add(len)?;
        self.cells.values.get(cells.clone()).map(|_| cells)
    }

    /// The cells of a slot that are neighbors in the block and have one weight, if there are enough of them and all are selected.
    fn equal_weights(&self, at: &[usize]) -> Option<WeightRun> {
        if !self.cells.all_selected() || self.cells.placed || self.cells.paired.is_some() {
            return None;
        }
        let mut run = WeightRun { axes: self.lists.len(), first: 0, len: 1 };
        for (d, lists) in self.lists.iter().enumerate().rev() {
            let (Positions::Range(range), stride) = (lists.slot(at[d]), self.strides[d]) else { break };
            if stride.weight != 0 || (range.len() > 1 && run.len != stride.offset) {
                break;
            }
            run.first += range.start * stride.offset;
            run.len *= range.len();
            run.axes = d;
        }
        (run.len >= WeightRun::LEAST).then_some(run)
    }

    /// Folds the runs of a slot with their weights, given the number of the first cell and the place of its weight.
    fn fold_runs(
        &self,
        d: usize,
        at: &[usize],
        (first, weight): (usize, u64),
        run: &WeightRun,
        fold: &mut dyn FnMut(&[T], f64) -> Result<()>,
    ) -> Result<()> {
        if d == run.axes {
            let values = self.cells.values.get(first..first + run.len).unwrap_or_default();
            return fold(values, self.fold.weights.as_ref().map_or(0.0, |weights| weights.at(weight)));
        }
        let stride = self.strides[d];
        self.lists[d].slot(at[d]).try_for_each(|p| {
            let weight = weight + (self.starts[d] + p as u64) * stride.weight;
            self.fold_runs(d + 1, at, (first + p * stride.offset, weight), run, fold)
        })
    }

    /// Collects the selected cells of a slot, axis by axis.
    fn gather(&self, d: usize, at: &[usize], place: CellOffsets, out: &mut SlotCells<T>) {
        let Some(lists) = self.lists.get(d) else {
            self.cells.push(place, self.fold, out);
            return;
        };
        let positions = lists.slot(at[d]);
        let stride = self.strides[d];
        let last = d + 1 == self.lists.len();
        let cells = &self.cells;
        if last && !cells.placed {
            let weight = |p: usize| place.weight + (self.starts[d] + p as u64) * stride.weight;
            match positions {
                Positions::Range(range) if stride.offset == 1 => {
                    if cells.weighted && cells.all_selected() {
                        let weights = self.fold.weights.iter();
                        weights.for_each(|weights| {
                            out.weights.extend(range.clone().map(|p| weights.at(weight(p))))
                        });
                    }
                    if !cells.weighted || cells.all_selected() {
                        cells.push_run(place.offset + range.start..place.offset + range.end, out);
                        return;
                    }
                    return range.for_each(|p| {
                        let next = CellOffsets { offset: place.offset + p, weight: weight(p), ..place };
                        cells.push(next, self.fold, out);
                    });
                }
                positions if cells.all_selected() && !cells.weighted && cells.paired.is_none() => {
                    return out
                        .values
                        .extend(positions.map(|p| cells.values[place.offset + p * stride.offset]));
                }
                _ => {}
            }
        }
        let positions = lists.slot(at[d]);
        for p in positions {
            let position = self.starts[d] + p as u64;
            let next = CellOffsets {
                offset: place.offset + p * stride.offset,
                fiber: place.fiber + lists.fiber_position(at[d], p) * stride.fiber,
                order: place.order + position * stride.order,
                weight: place.weight + position * stride.weight,
            };
            self.gather(d + 1, at, next, out);
        }
    }
}

/// Cells of a slot that follow one another and have one weight: of all axes from one on.
struct WeightRun {
    axes: usize,
    /// Where they begin within those axes.
    first: usize,
    len: usize,
}

impl WeightRun {
    /// Fewer cells are multiplied one by one.
    const LEAST: usize = 8;
}

/// The cells of one field of a block.
pub(super) struct BlockCells<'a, T> {
    values: &'a [T],
    /// One byte per cell, 0 for missing ones.
    validity: Option<&'a [u8]>,
    /// One byte per cell, 0 for those that do not meet the condition.
    mask: Option<&'a [u8]>,
    /// Whether some reducer needs the places of cells, and whether some needs their weights.
    placed: bool,
    weighted: bool,
    /// The second variable at the same cells.
    paired: Option<&'a [f64]>,
}

impl<'a, T: Cell> BlockCells<'a, T> {
    pub(super) fn new(
        fold: &Fold,
        values: &'a [T],
        validity: Option<&'a [u8]>,
        mask: Option<&'a [u8]>,
    ) -> Self {
        let placed = fold.reducers.iter().any(Reducer::placed);
        let weighted = fold.weights.is_some() && fold.reducers.iter().any(Reducer::weighted);
        Self { values, validity, mask, placed, weighted, paired: None }
    }

    /// With a second variable.
    pub(super) fn with_paired(mut self, paired: Option<&'a [f64]>) -> Self {
        self.paired = paired;
        self
    }

    /// Whether every cell is selected.
    fn all_selected(&self) -> bool {
        self.validity.is_none() && self.mask.is_none()
    }

    /// Appends the selected cells of a run, without places and weights.
    fn push_run(&self, run: Range<usize>, out: &mut SlotCells<T>) {
        let values = &self.values[run.clone()];
        if self.all_selected() {
            out.values.extend_from_slice(values);
            out.paired.extend_from_slice(self.paired.map_or(&[], |paired| &paired[run]));
            return;
        }
        let (mask, validity) = (self.mask.map(|m| &m[run.clone()]), self.validity.map(|v| &v[run.clone()]));
        // Each cell is written, and the next one overwrites it unless it is kept: there is no branch to mispredict.
        let (first, mut kept) = (out.values.len(), 0);
        out.values.resize(first + values.len(), T::zeroed());
        for (i, &value) in values.iter().enumerate() {
            let chosen = mask.is_none_or(|mask| mask[i] != 0);
            let valid = validity.is_none_or(|validity| validity[i] != 0);
            out.values[first + kept] = value;
            kept += usize::from(chosen & valid);
            out.nulls += u64::from(chosen & !valid);
        }
        out.values.truncate(first + kept);
        if let Some(paired) = self.paired {
            let selected =
                |i: &usize| mask.is_none_or(|mask| mask[*i] != 0) && validity.is_none_or(|v| v[*i] != 0);
            let others = &paired[run];
            out.paired.extend((0..values.len()).filter(selected).map(|i| others[i]));
        }
    }

    /// Appends a cell if it is selected.
    #[inline]
    pub(super) fn push(&self, place: CellOffsets, fold: &Fold, out: &mut SlotCells<T>) {
        let cell = place.offset;
        if self.mask.is_some_and(|mask| mask[cell] == 0) {
            return;
        }
        if self.validity.is_some_and(|v| v[cell] == 0) {
            out.nulls += 1;
            return;
        }
        out.values.push(self.values[cell]);
        if self.placed {
            out.fiber.push(place.fiber);
            out.order.push(place.order);
        }
        if let (true, Some(weights)) = (self.weighted, &fold.weights) {
            out.weights.push(weights.at(place.weight));
        }
        if let Some(paired) = self.paired {
            out.paired.push(paired.get(cell).copied().unwrap_or(f64::NAN));
        }
    }
}

/// The index of a state among all slots, from its index in its region.
pub(super) fn global_slot(i: usize, slots: &Region, whole: &[u64]) -> usize {
    let mut rest = i as u64;
    let (mut flat, mut stride) = (0_u64, 1_u64);
    for d in (0..whole.len()).rev() {
        let extent = slots.extent(d).max(1);
        flat += (slots.start(d) + rest % extent) * stride;
        rest /= extent;
        stride = stride.saturating_mul(whole[d]);
    }
    usize::try_from(flat).unwrap_or(usize::MAX)
}

/// Selected cells of a slot, their places where reducers need them, and the number of missing ones.
pub(super) struct SlotCells<T> {
    values: Vec<T>,
    fiber: Vec<u64>,
    order: Vec<u64>,
    weights: Vec<f64>,
    paired: Vec<f64>,
    nulls: u64,
}

impl<T> Default for SlotCells<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            fiber: Vec::new(),
            order: Vec::new(),
            weights: Vec::new(),
            paired: Vec::new(),
            nulls: 0,
        }
    }
}

impl<T: Cell> SlotCells<T> {
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.fiber.clear();
        self.order.clear();
        self.weights.clear();
        self.paired.clear();
        self.nulls = 0;
    }

    pub(super) fn fold_into(
        &self,
        state: &mut FoldState,
        reducer: &Reducer,
        dtype: DType,
        slot: usize,
    ) -> Result<()> {
        let cells = SlotValues {
            values: &self.values,
            fiber: &self.fiber,
            order: &self.order,
            weights: &self.weights,
            paired: &self.paired,
        };
        state.fold(reducer, dtype, slot, cells)?;
        state.fold_nulls(self.nulls)
    }
}
