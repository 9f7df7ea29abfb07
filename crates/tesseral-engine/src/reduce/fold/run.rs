//! Dividing a selection into units, folding them, and merging their results.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tesseral_core::{DType, Error, Field, Region, Result, Selection, Slice, alloc, dispatch_element};
use tesseral_format::{Column, Request, Target};

use super::layout::{self, AxisRole, Positions, SlotPositions};
use super::predicate::{CompiledPredicate, Predicate};
use super::rows;
use super::state::{FoldState, Reducer};
use crate::handle::Handle;
use crate::kernel::block::Cell;
use crate::kernel::summary::StatSet;
use crate::options::Options;
use crate::paint::dense::{self, fixed_size};
use crate::plan::blocks::Blocks;
use crate::plan::claims::{check_results, check_total, work_space};
use crate::plan::condition::any_chunk;
use crate::plan::subdivide::divisible;
use crate::reduce::axes::reduce;
use crate::reduce::summary::summarize;

/// Bytes of cells in a unit whose cells are distributed one by one, and in a unit of the fast folds.
const UNIT: u64 = 16 << 20;
const FAST_UNIT: u64 = 256 << 20;
/// Up to this many chunks, each is a separate unit, so that statistics can skip it.
const CHUNK_UNITS: u64 = 1 << 16;
/// Units folded concurrently.
const AT_ONCE: usize = 8;

/// A fold over the cells of a selection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fold {
    /// The state kept for each slot.
    pub reducer: Reducer,
    /// The role of each axis.
    pub roles: Vec<AxisRole>,
    /// Selected positions along each axis; all where there is no mask.
    pub masks: Vec<Option<Vec<bool>>>,
    /// The condition on cells.
    pub predicate: Option<Predicate>,
}

/// A part of a selection that is folded separately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Index in the order of merging.
    pub number: u64,
    /// Start, end and step along each axis, in positions of the array.
    pub slices: Vec<(u64, u64, u64)>,
    /// Its bounds in the selection.
    pub place: Vec<(u64, u64)>,
}

impl Unit {
    fn cells(&self) -> u64 {
        self.place.iter().fold(1, |n, (start, end)| n.saturating_mul(end - start))
    }

    /// The units of a selection, in order.
    pub(super) fn all(selection: &Selection, parts: Vec<Selection>) -> impl Iterator<Item = Self> {
        parts.into_iter().enumerate().map(|(number, part)| {
            let place = part.slices().iter().zip(selection.slices()).map(|(part, whole)| {
                let first = (part.start - whole.start) / whole.step;
                (first, first + part.count())
            });
            Self {
                number: number as u64,
                slices: part.slices().iter().map(|s| (s.start, s.end, s.step)).collect(),
                place: place.collect(),
            }
        })
    }
}

/// The result of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// The unit's number.
    pub number: u64,
    /// The region of slots that the unit covers.
    pub slots: Vec<(u64, u64)>,
    /// Their states, row-major.
    pub states: Vec<FoldState>,
    /// Whether statistics skipped the unit: none of its chunks can hold a selected cell.
    pub skipped: bool,
}

/// The result of a fold.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Number of slots along each axis that is not reduced.
    pub shape: Vec<u64>,
    /// The state of each slot, row-major.
    pub states: Vec<FoldState>,
    /// Number of units that statistics skipped.
    pub skipped: u64,
}

impl Fold {
    /// A fold that keeps every axis and selects every cell, for a selection of `rank` axes.
    pub fn new(reducer: Reducer, roles: Vec<AxisRole>) -> Self {
        let masks = vec![None; roles.len()];
        Self { reducer, roles, masks, predicate: None }
    }

    /// Empty states for a region of slots.
    pub(super) fn states(
        &self,
        handle: &Handle,
        field: u16,
        slots: &Region,
        options: &Options,
    ) -> Result<Vec<FoldState>> {
        let cells = slots.cells().and_then(|n| usize::try_from(n).ok());
        let cells = cells.ok_or_else(|| Error::limit("slots", u64::MAX, usize::MAX as u64))?;
        options.check_memory("the results", (cells as u64).saturating_mul(size_of::<FoldState>() as u64))?;
        let dtype = handle.schema().fields[usize::from(field)].dtype;
        alloc::filled("the results", FoldState::new(&self.reducer, dtype)?, cells)
    }

    /// The statistics to request of the fast folds, which have no predicates, if they give the same result.
    fn fast_statistics(&self) -> Option<StatSet> {
        let Reducer::Summary(wanted) = self.reducer else { return None };
        let plain = self.roles.iter().all(|role| matches!(role, AxisRole::Keep | AxisRole::Reduce));
        let whole = self.predicate.is_none() && self.masks.iter().all(Option::is_none);
        let scalar = self.roles.iter().all(|role| *role == AxisRole::Reduce);
        let ok = plain && whole && (scalar || !wanted.has(StatSet::INFINITIES));
        ok.then_some(wanted)
    }
}

fn single_field(handle: &Handle, request: &Request) -> Result<(u16, Field, Selection)> {
    let (Some(selection), [Column::Field(number)]) = (request.selection(), request.columns.as_slice()) else {
        return Err(Error::invalid("a fold requires positions of one field"));
    };
    fixed_size(handle, *number)?;
    let field = handle.schema().fields[usize::from(*number)].clone();
    Ok((*number, field, selection.clone()))
}

/// Divides a selection into units, depending only on the plan and the memory limit.
///
/// # Errors
/// `InvalidRequest` when the roles do not match the selection, or the field's cells are not fixed-size.
pub fn units(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Vec<Unit>> {
    handle.restartable(|handle| cut_units(handle, request, fold, options))
}

fn cut_units(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Vec<Unit>> {
    let (number, _, selection) = single_field(handle, request)?;
    if fold.roles.len() != selection.rank() || fold.masks.len() != selection.rank() {
        return Err(Error::invalid("a fold requires a role for each axis").in_array(&handle.schema().name));
    }
    if handle.schema().sparse {
        // The work is that of the stored cells, however many positions there are.
        return Ok(Unit::all(&selection, rows::parts(handle, number, &selection, options)?).collect());
    }
    check_total(handle, request)?;
    let bytes = if fold.fast_statistics().is_some() { FAST_UNIT } else { UNIT };
    // A small limit is shared by the concurrent units; other limits do not change how sums round.
    let bytes = options.memory.map_or(bytes, |memory| bytes.min((memory / 16).max(1)));
    let cells = (bytes / fixed_size(handle, number)? as u64).max(1);
    let chunk = handle.schema().chunk_shape.clone().unwrap_or_default();
    // A large chunk is divided where its parts decode independently; otherwise it would be decoded once per part. A small chunk is
    // a unit where a predicate may skip it.
    let large = chunk.iter().fold(1_u64, |n, extent| n.saturating_mul(*extent)) > cells;
    let apart = if large { !divisible(handle, request)? } else { fold.predicate.is_some() };
    let parts = match apart.then(|| by_chunk(handle, &selection)).flatten() {
        Some(parts) => parts,
        None => Blocks::new(&selection, &chunk, cells).collect(),
    };
    Ok(Unit::all(&selection, parts).collect())
}

/// One unit per chunk, unless there are very many.
fn by_chunk(handle: &Handle, selection: &Selection) -> Option<Vec<Selection>> {
    let grid = handle.schema().grid().ok().filter(|grid| grid.rank() == selection.rank())?;
    let touched = grid.touched(selection);
    if touched.remaining() > CHUNK_UNITS {
        return None;
    }
    let parts = touched.filter_map(|coords| selection.clip(&grid.region(&coords)).map(|(part, _)| part));
    Some(parts.collect())
}

/// Folds a unit of a selection.
///
/// # Errors
/// Errors of the plan, the store and the decoders; `InvalidRequest` when the unit belongs to another array.
pub fn fold_unit(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    unit: &Unit,
    options: &Options,
) -> Result<Partial> {
    handle.restartable(|handle| match handle.schema().sparse {
        true => rows::fold_unit(handle, request, fold, unit, options),
        false => fold_part(handle, request, fold, unit, options),
    })
}

fn fold_part(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    unit: &Unit,
    options: &Options,
) -> Result<Partial> {
    let (number, selection, part) = share(handle, request, unit)?;
    let field = &handle.schema().fields[usize::from(number)];
    let request = Request { target: Target::Cells(part), ..request.clone() };
    let extents = selection.shape();
    let lists: Vec<SlotPositions<'_>> = (0..extents.len())
        .map(|d| {
            let (start, end) = unit.place[d];
            SlotPositions::new(&fold.roles[d], fold.masks[d].as_deref(), start, end, extents[d])
        })
        .collect();
    let slots = layout::slot_box(&fold.roles, &lists);
    let mut partial =
        Partial { number: unit.number, slots: slots.bounds().to_vec(), states: Vec::new(), skipped: false };
    if let Some(wanted) = fold.fast_statistics() {
        partial.states = fast_states(handle, &request, fold, wanted, options)?;
        return Ok(partial);
    }
    partial.states = fold.states(handle, number, &slots, options)?;
    if fold.predicate.as_ref().is_some_and(|p| !may_match(handle, &request, number, p)) {
        partial.skipped = true;
        return Ok(partial);
    }
    dense::read_with(handle, &request, options, |block| {
        let validity = block.validity();
        dispatch_element!(field.dtype, T => {
            let copied: Vec<T>;
            let values: &[T] = match bytemuck::try_cast_slice(block.bytes()) {
                Ok(values) => values,
                Err(_) => {
                    copied = bytemuck::pod_collect_to_vec(block.bytes());
                    &copied
                }
            };
            let dealer = SlotDistributor::<T>::new(fold, field, values, validity, &extents, &block.shape, &lists);
            dealer.distribute(&slots, &whole_shape(fold, &selection), &mut partial.states)
        }, else => Err(Error::unsupported(format!("folds of {}", field.dtype))))
    })?;
    Ok(partial)
}

/// The field of a unit, the full selection, and the unit's part of it.
pub(super) fn share(handle: &Handle, request: &Request, unit: &Unit) -> Result<(u16, Selection, Selection)> {
    let (number, _, selection) = single_field(handle, request)?;
    let shape = handle
        .schema()
        .shape()
        .ok_or_else(|| Error::invalid("the array has dimensions without countable positions"))?;
    let slices = unit.slices.iter().map(|&(start, end, step)| Slice { start, end, step });
    let part = Selection::new(slices, &shape).map_err(|e| e.in_array(&handle.schema().name))?;
    let extents = selection.shape();
    if unit.place.len() != extents.len()
        || unit.place.iter().zip(&extents).any(|(p, n)| p.1 > *n || p.0 > p.1)
    {
        return Err(Error::invalid("the unit belongs to another selection").in_array(&handle.schema().name));
    }
    Ok((number, selection, part))
}

fn whole_shape(fold: &Fold, selection: &Selection) -> Vec<u64> {
    layout::shape(&fold.roles, selection)
}

fn fast_states(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<FoldState>> {
    let reduced = |d: &usize| fold.roles[*d] == AxisRole::Reduce;
    let axes: Vec<usize> = (0..fold.roles.len()).filter(reduced).collect();
    if axes.len() == fold.roles.len() {
        return Ok(vec![FoldState::Summary(summarize(handle, request, wanted, options)?.summary)]);
    }
    let result = reduce(handle, request, &axes, wanted, options)?;
    let states = result.collect(|fold, i| fold.summary(i).map(FoldState::Summary));
    states.into_iter().collect::<Option<_>>().ok_or_else(|| Error::internal("missing summary of a fold"))
}

/// Whether any chunk of a request may hold a cell that meets a predicate.
fn may_match(handle: &Handle, request: &Request, number: u16, predicate: &Predicate) -> bool {
    any_chunk(handle, request, |chunk| {
        let stats = handle.stats(chunk, Column::Field(number));
        predicate.may_match(&stats)
    })
}

/// Distributes the cells of a block to slots.
struct SlotDistributor<'a, T> {
    fold: &'a Fold,
    filter: CellFilter<'a, T>,
    lists: &'a [SlotPositions<'a>],
    strides: Vec<usize>,
    /// The fiber position stride of each axis.
    fiber_strides: Vec<u64>,
}

impl<'a, T: Cell> SlotDistributor<'a, T> {
    fn new(
        fold: &'a Fold,
        field: &Field,
        values: &'a [T],
        validity: Option<&'a [u8]>,
        extents: &[u64],
        block: &[u64],
        lists: &'a [SlotPositions<'a>],
    ) -> Self {
        let mut strides = vec![1; block.len()];
        let mut stride = 1_usize;
        for (d, extent) in block.iter().enumerate().rev() {
            strides[d] = stride;
            stride = stride.saturating_mul(usize::try_from(*extent).unwrap_or(usize::MAX));
        }
        let fiber_strides = layout::fiber_strides(&fold.roles, extents);
        Self {
            fold,
            filter: CellFilter::new(fold, field.dtype, values, validity),
            lists,
            strides,
            fiber_strides,
        }
    }

    fn distribute(&self, slots: &Region, whole: &[u64], states: &mut [FoldState]) -> Result<()> {
        let rank = self.lists.len();
        let counts: Vec<usize> = self.lists.iter().map(|list| list.len()).collect();
        if counts.contains(&0) {
            return Ok(());
        }
        let mut at = vec![0_usize; rank];
        let mut gathered = SlotCells::default();
        for (i, state) in states.iter_mut().enumerate() {
            let slot = global_slot(i, slots, whole);
            match self.contiguous(&at) {
                Some(values) => state.fold(&self.fold.reducer, slot, values, &[])?,
                None => {
                    gathered.clear();
                    self.gather(0, &at, 0, 0, &mut gathered);
                    gathered.fold_into(state, &self.fold.reducer, slot)?;
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

    /// The cells of a slot where they are neighbors in the block and all are selected: they need not be copied.
    fn contiguous(&self, at: &[usize]) -> Option<&'a [T]> {
        if !self.filter.selects_all() {
            return None;
        }
        let (mut start, mut len) = (0, 1);
        for (d, lists) in self.lists.iter().enumerate().rev() {
            let Positions::Range(range) = lists.slot(at[d]) else { return None };
            // Positions of this axis follow one another when each takes all of what lies within it.
            if range.len() > 1 && len != self.strides[d] {
                return None;
            }
            start += range.start * self.strides[d];
            len *= range.len();
        }
        self.filter.values.get(start..start.checked_add(len)?)
    }

    /// Collects the selected cells of a slot, axis by axis.
    fn gather(&self, d: usize, at: &[usize], offset: usize, fiber_position: u64, out: &mut SlotCells<T>) {
        let Some(lists) = self.lists.get(d) else {
            self.filter.push(offset, fiber_position, out);
            return;
        };
        let positions = lists.slot(at[d]);
        let (stride, fiber_stride) = (self.strides[d], self.fiber_strides[d]);
        let last = d + 1 == self.lists.len();
        let values = self.filter.values;
        if last && self.filter.selects_all() {
            match positions {
                Positions::Range(range) if stride == 1 => {
                    out.values.extend_from_slice(&values[offset + range.start..offset + range.end]);
                }
                positions => out.values.extend(positions.map(|p| values[offset + p * stride])),
            }
            return;
        }
        for p in positions {
            let in_fiber = lists.fiber_position(at[d], p);
            self.gather(d + 1, at, offset + p * stride, fiber_position + in_fiber * fiber_stride, out);
        }
    }
}

/// Selects the cells that count.
pub(super) struct CellFilter<'a, T> {
    tests: Vec<CompiledPredicate<T>>,
    values: &'a [T],
    validity: Option<&'a [u8]>,
    indexed: bool,
}

impl<'a, T: Cell> CellFilter<'a, T> {
    pub(super) fn new(fold: &Fold, dtype: DType, values: &'a [T], validity: Option<&'a [u8]>) -> Self {
        let reducer_predicate = match &fold.reducer {
            Reducer::Matches(predicate) => Some(predicate),
            _ => None,
        };
        let tests = fold.predicate.iter().chain(reducer_predicate);
        let tests = tests.map(|p| p.test(dtype)).collect();
        Self { tests, values, validity, indexed: fold.reducer.indexed() }
    }

    /// Whether every cell is selected and no fiber positions are needed.
    fn selects_all(&self) -> bool {
        self.tests.is_empty() && self.validity.is_none() && !self.indexed
    }

    /// Appends a cell if it is selected.
    #[inline]
    pub(super) fn push(&self, cell: usize, fiber_position: u64, out: &mut SlotCells<T>) {
        if self.validity.is_some_and(|v| v[cell] == 0) {
            out.nulls += u64::from(self.tests.iter().all(CompiledPredicate::null));
            return;
        }
        let value = self.values[cell];
        if self.tests.iter().all(|test| test.value(value)) {
            out.values.push(value);
            if self.indexed {
                out.index.push(fiber_position);
            }
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

/// Selected cells of a slot, their fiber positions where the reducer needs them, and the number of nulls.
pub(super) struct SlotCells<T> {
    values: Vec<T>,
    index: Vec<u64>,
    nulls: u64,
}

impl<T> Default for SlotCells<T> {
    fn default() -> Self {
        Self { values: Vec::new(), index: Vec::new(), nulls: 0 }
    }
}

impl<T: Cell> SlotCells<T> {
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.index.clear();
        self.nulls = 0;
    }

    pub(super) fn fold_into(&self, state: &mut FoldState, reducer: &Reducer, slot: usize) -> Result<()> {
        state.fold(reducer, slot, &self.values, &self.index)?;
        state.fold_nulls(self.nulls)
    }
}

/// Merges partial results in the order of their units.
#[derive(Debug)]
pub struct Merger {
    reducer: Reducer,
    dtype: DType,
    shape: Vec<u64>,
    states: Vec<Option<FoldState>>,
    next: u64,
    skipped: u64,
}

impl Merger {
    /// A merger without results.
    ///
    /// # Errors
    /// `Limit` when the states exceed the memory limit.
    pub fn new(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Self> {
        let (_, field, selection) = single_field(handle, request)?;
        FoldState::new(&fold.reducer, field.dtype).map_err(|e| e.in_array(&handle.schema().name))?;
        let shape = layout::shape(&fold.roles, &selection);
        let slots = Region::from_shape(&shape).cells().unwrap_or(u64::MAX);
        options.check_memory("the results", slots.saturating_mul(size_of::<FoldState>() as u64))?;
        let count = usize::try_from(slots).map_err(|_| Error::limit("slots", slots, usize::MAX as u64))?;
        let states = vec![None; count];
        Ok(Self { reducer: fold.reducer.clone(), dtype: field.dtype, shape, states, next: 0, skipped: 0 })
    }

    /// Adds the partial result of the next unit.
    ///
    /// # Errors
    /// `InvalidRequest` when it is not the next unit or has the wrong shape.
    pub fn add(&mut self, partial: Partial) -> Result<()> {
        let out_of_order = || Error::invalid("partial results must be merged in order, each once");
        let slots = Region::new(partial.slots.iter().copied());
        let inside = slots.rank() == self.shape.len() && Region::from_shape(&self.shape).contains(&slots);
        if partial.number != self.next || !inside || slots.cells() != Some(partial.states.len() as u64) {
            return Err(out_of_order());
        }
        self.next += 1;
        self.skipped += u64::from(partial.skipped);
        if partial.skipped {
            return Ok(());
        }
        for (i, state) in partial.states.into_iter().enumerate() {
            let slot = self.states.get_mut(global_slot(i, &slots, &self.shape)).ok_or_else(out_of_order)?;
            match slot {
                Some(slot) => slot.merge(&self.reducer, &state)?,
                None => *slot = Some(state),
            }
        }
        Ok(())
    }

    /// The merged result.
    ///
    /// # Errors
    /// `Unsupported` for dtypes without arithmetic.
    pub fn finish(self) -> Result<Folded> {
        let empty = FoldState::new(&self.reducer, self.dtype)?;
        let states = self.states.into_iter().map(|state| state.unwrap_or_else(|| empty.clone())).collect();
        Ok(Folded { shape: self.shape, states, skipped: self.skipped })
    }
}

/// Folds a selection of one field.
///
/// # Errors
/// As [`fold_unit`]; `Limit` when the states exceed the memory limit.
pub fn fold(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Folded> {
    let (number, _, selection) = single_field(handle, request)?;
    if handle.schema().sparse {
        return rows::fold_rows(handle, number, &selection, None, fold, options);
    }
    if matches!(fold.reducer, Reducer::Values) {
        // Values are collected by unit, merged and sorted.
        let cells = selection.cells().unwrap_or(u64::MAX);
        check_results(handle, request, cells.saturating_mul(2 * fixed_size(handle, number)? as u64))?;
    }
    let units = units(handle, request, fold, options)?;
    let mut merger = Merger::new(handle, request, fold, options)?;
    let fast = fold.fast_statistics().is_some();
    // Fast folds run in parallel and report their own progress.
    let quiet = if fast { options.clone() } else { Options { progress: None, ..options.clone() } };
    let ticker = options.ticker(units.len() as u64);
    let fold_and_tick = |unit: &Unit| {
        let partial = fold_unit(handle, request, fold, unit, &quiet)?;
        if fast {
            options.cancel.check()?
        } else {
            ticker.tick()?
        }
        Ok(partial)
    };
    // Undivided chunks may be large.
    let largest = units.iter().map(Unit::cells).max().unwrap_or(0);
    let unit_bytes = largest.saturating_mul(2 * fixed_size(handle, number)? as u64).max(1);
    let at_once =
        options.memory.map_or(AT_ONCE as u64, |memory| (memory / unit_bytes).clamp(1, AT_ONCE as u64));
    // Units of cells that the stored bytes do not justify are folded one after another.
    let allowed = work_space(handle, request, unit_bytes.saturating_mul(at_once))?;
    let at_once = at_once.min((allowed / unit_bytes).max(1));
    let at_once = usize::try_from(at_once).unwrap_or(AT_ONCE);
    for batch in units.chunks(if fast { 1 } else { at_once }) {
        let partials: Vec<Partial> = options.run(|| {
            if batch.len() > 1 {
                batch.par_iter().map(fold_and_tick).collect::<Result<_>>()
            } else {
                batch.iter().map(fold_and_tick).collect::<Result<_>>()
            }
        })?;
        partials.into_iter().try_for_each(|partial| merger.add(partial))?;
    }
    merger.finish()
}

impl Reducer {
    /// Counts missing cells, and those equal to `fill`.
    pub fn nulls(fill: Option<super::Number>) -> Self {
        Self::Matches(Predicate { null: Some(true), fill, ..Predicate::default() })
    }
}
