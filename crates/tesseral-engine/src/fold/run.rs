//! Cutting a selection into units, folding them, merging what they give.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tesseral_core::{DType, Error, Field, Region, Result, Selection, Slice, dispatch_element};
use tesseral_format::{Column, Request, Target};

use super::layout::{self, Lists, Role};
use super::predicate::{Predicate, Test};
use super::rows;
use super::state::{Reducer, State};
use crate::aggregate::summarize;
use crate::budget::Blocks;
use crate::condition::any_chunk;
use crate::dense::{self, fixed_size};
use crate::divide::divisible;
use crate::handle::Handle;
use crate::kernel::block::Cell;
use crate::kernel::summary::Wanted;
use crate::options::Options;
use crate::reduce::reduce;
use crate::visit::gaps;

/// Bytes of cells in a unit whose cells are dealt out one by one, and in one that the fast folds take.
const UNIT: u64 = 16 << 20;
const FAST_UNIT: u64 = 256 << 20;
/// Chunks up to which each is a unit of its own, so that statistics can leave it out.
const CHUNK_UNITS: u64 = 1 << 16;
/// Units folded at once.
const AT_ONCE: usize = 8;

/// What to do with the cells of a selection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fold {
    /// What is kept of the cells of each slot.
    pub reducer: Reducer,
    /// What becomes of each axis.
    pub roles: Vec<Role>,
    /// Positions that count along each axis; all where there is none.
    pub masks: Vec<Option<Vec<bool>>>,
    /// Which cells count.
    pub predicate: Option<Predicate>,
}

/// A part of a selection that is folded by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its place in the order of merging.
    pub number: u64,
    /// Start, end and step along each axis, in positions of the array.
    pub slices: Vec<(u64, u64, u64)>,
    /// Where it lies in the selection.
    pub place: Vec<(u64, u64)>,
}

impl Unit {
    fn cells(&self) -> u64 {
        self.place.iter().fold(1, |n, (start, end)| n.saturating_mul(end - start))
    }

    /// The parts of a selection, in their order.
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

/// What one unit gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// The unit's number.
    pub number: u64,
    /// The box of slots it reached.
    pub slots: Vec<(u64, u64)>,
    /// Their states, row-major.
    pub states: Vec<State>,
    /// Statistics left the unit's chunks unread: none could hold a cell that counts.
    pub skipped: bool,
}

/// What a fold gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Slots along each axis that is not reduced.
    pub shape: Vec<u64>,
    /// The state of each slot, row-major.
    pub states: Vec<State>,
    /// Units that statistics left unread.
    pub skipped: u64,
}

impl Fold {
    /// A fold that keeps every axis whole and every cell, for a selection of `rank` axes.
    pub fn new(reducer: Reducer, roles: Vec<Role>) -> Self {
        let masks = vec![None; roles.len()];
        Self { reducer, roles, masks, predicate: None }
    }

    /// States of no cells for a box of slots.
    pub(super) fn states(
        &self,
        handle: &Handle,
        field: u16,
        slots: &Region,
        options: &Options,
    ) -> Result<Vec<State>> {
        let cells = slots.cells().and_then(|n| usize::try_from(n).ok());
        let cells = cells.ok_or_else(|| Error::limit("slots", u64::MAX, usize::MAX as u64))?;
        options.check_memory("the results", (cells as u64).saturating_mul(size_of::<State>() as u64))?;
        let dtype = handle.schema().fields[usize::from(field)].dtype;
        Ok(vec![State::new(&self.reducer, dtype)?; cells])
    }

    /// Whether the folds that know no slots and no predicates give the same.
    fn fast(&self, field: &Field) -> Option<Wanted> {
        let Reducer::Summary(wanted) = self.reducer else { return None };
        let plain = self.roles.iter().all(|role| matches!(role, Role::Keep | Role::Reduce));
        let whole = self.predicate.is_none() && self.masks.iter().all(Option::is_none);
        let scalar = self.roles.iter().all(|role| *role == Role::Reduce);
        // They take cells equal to a declared fill for null, which here are values.
        let ok = plain && whole && field.missing().is_none() && (scalar || !wanted.has(Wanted::INFINITIES));
        ok.then_some(wanted)
    }
}

fn field_of(handle: &Handle, request: &Request) -> Result<(u16, Field, Selection)> {
    let (Some(selection), [Column::Field(number)]) = (request.selection(), request.columns.as_slice()) else {
        return Err(Error::invalid("a fold takes positions of one field"));
    };
    fixed_size(handle, *number)?;
    let field = handle.schema().fields[usize::from(*number)].clone();
    Ok((*number, field, selection.clone()))
}

/// Cuts a selection into units, by the plan and the memory limit alone.
///
/// # Errors
/// `InvalidRequest` when the roles do not fit the selection, or the field's cells have no one size.
pub fn units(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Vec<Unit>> {
    handle.guarded(|| cut_units(handle, request, fold, options))
}

fn cut_units(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Vec<Unit>> {
    let (number, field, selection) = field_of(handle, request)?;
    if fold.roles.len() != selection.rank() || fold.masks.len() != selection.rank() {
        return Err(Error::invalid("a fold has a role for each axis").in_array(&handle.schema().name));
    }
    if handle.schema().sparse {
        return Ok(Unit::all(&selection, rows::parts(handle, number, &selection, options)?).collect());
    }
    let bytes = if fold.fast(&field).is_some() { FAST_UNIT } else { UNIT };
    // A small limit is shared by the units under way; others do not change how sums round.
    let bytes = options.memory.map_or(bytes, |memory| bytes.min((memory / 16).max(1)));
    let cells = (bytes / fixed_size(handle, number)? as u64).max(1);
    let chunk = handle.schema().chunk_shape.clone().unwrap_or_default();
    // A large chunk is cut where its parts are decoded by themselves; else it would be decoded again for each of them. A small one
    // is a unit where a predicate may leave it out.
    let large = chunk.iter().fold(1_u64, |n, extent| n.saturating_mul(*extent)) > cells;
    let apart = if large { !divisible(handle, request)? } else { fold.predicate.is_some() };
    let parts = match apart.then(|| by_chunk(handle, &selection)).flatten() {
        Some(parts) => parts,
        None => Blocks::new(&selection, &chunk, cells).collect(),
    };
    Ok(Unit::all(&selection, parts).collect())
}

/// Each chunk by itself, unless there are very many.
fn by_chunk(handle: &Handle, selection: &Selection) -> Option<Vec<Selection>> {
    let grid = handle.schema().grid().ok().filter(|grid| grid.rank() == selection.rank())?;
    let touched = grid.touched(selection);
    if touched.remaining() > CHUNK_UNITS {
        return None;
    }
    let parts = touched.filter_map(|coords| selection.clip(&grid.region(&coords)).map(|(part, _)| part));
    Some(parts.collect())
}

/// Folds one unit of a selection.
///
/// # Errors
/// What the plan, the store and the decoders meet; `InvalidRequest` when the unit is of another array.
pub fn fold_unit(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    unit: &Unit,
    options: &Options,
) -> Result<Partial> {
    handle.guarded(|| match handle.schema().sparse {
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
    let lists: Vec<Lists> = (0..extents.len())
        .map(|d| {
            let (start, end) = unit.place[d];
            Lists::new(&fold.roles[d], fold.masks[d].as_deref(), start, end, extents[d])
        })
        .collect();
    let slots = layout::slot_box(&fold.roles, &lists);
    let mut partial =
        Partial { number: unit.number, slots: slots.bounds().to_vec(), states: Vec::new(), skipped: false };
    if let Some(wanted) = fold.fast(field) {
        partial.states = fast_states(handle, &request, fold, wanted, options)?;
        return Ok(partial);
    }
    partial.states = fold.states(handle, number, &slots, options)?;
    if fold.predicate.as_ref().is_some_and(|p| !may_match(handle, &request, number, field, p)) {
        partial.skipped = true;
        return Ok(partial);
    }
    // Cells that nobody wrote are no values, whatever a field without nulls shows there. Without a fill there are none.
    let written = if field.nullable || field.fill.is_none() { None } else { gaps(handle, &request)? };
    dense::read_with(handle, &request, options, |block| {
        let validity = block.validity().or(written.as_deref());
        dispatch_element!(field.dtype, T => {
            let copied: Vec<T>;
            let values: &[T] = match bytemuck::try_cast_slice(block.bytes()) {
                Ok(values) => values,
                Err(_) => {
                    copied = bytemuck::pod_collect_to_vec(block.bytes());
                    &copied
                }
            };
            let dealer = Dealer::<T>::new(fold, field, values, validity, &extents, &block.shape, &lists);
            dealer.deal(&slots, &whole_shape(fold, &selection), &mut partial.states)
        }, else => Err(Error::unsupported(format!("folds of {}", field.dtype))))
    })?;
    Ok(partial)
}

/// The field that a unit is of, the whole selection, and the unit's part of it.
pub(super) fn share(handle: &Handle, request: &Request, unit: &Unit) -> Result<(u16, Selection, Selection)> {
    let (number, _, selection) = field_of(handle, request)?;
    let shape = handle.schema().shape().ok_or_else(|| Error::invalid("positions cannot be counted"))?;
    let slices = unit.slices.iter().map(|&(start, end, step)| Slice { start, end, step });
    let part = Selection::new(slices, &shape).map_err(|e| e.in_array(&handle.schema().name))?;
    let extents = selection.shape();
    if unit.place.len() != extents.len()
        || unit.place.iter().zip(&extents).any(|(p, n)| p.1 > *n || p.0 > p.1)
    {
        return Err(Error::invalid("a unit of another selection").in_array(&handle.schema().name));
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
    wanted: Wanted,
    options: &Options,
) -> Result<Vec<State>> {
    let reduced = |d: &usize| fold.roles[*d] == Role::Reduce;
    let axes: Vec<usize> = (0..fold.roles.len()).filter(reduced).collect();
    if axes.len() == fold.roles.len() {
        return Ok(vec![State::Summary(summarize(handle, request, wanted, options)?.summary)]);
    }
    let result = reduce(handle, request, &axes, wanted, options)?;
    let states = result.collect(|fold, i| fold.summary(i).map(State::Summary));
    states.into_iter().collect::<Option<_>>().ok_or_else(|| Error::invalid("a fold without a summary"))
}

/// Whether any chunk of a request may hold a cell that meets a predicate.
fn may_match(handle: &Handle, request: &Request, number: u16, field: &Field, predicate: &Predicate) -> bool {
    any_chunk(handle, request, |chunk| {
        let stats = handle.source().stats(chunk, Column::Field(number));
        predicate.may_match(field.dtype, field.missing(), &stats)
    })
}

/// Deals the cells of a block out to slots.
struct Dealer<'a, T> {
    fold: &'a Fold,
    judge: Judge<'a, T>,
    lists: &'a [Lists],
    strides: Vec<usize>,
    /// What a step along each axis adds to a place in the fibre.
    fibres: Vec<u64>,
}

impl<'a, T: Cell> Dealer<'a, T> {
    fn new(
        fold: &'a Fold,
        field: &Field,
        values: &'a [T],
        validity: Option<&'a [u8]>,
        extents: &[u64],
        block: &[u64],
        lists: &'a [Lists],
    ) -> Self {
        let mut strides = vec![1; block.len()];
        let mut stride = 1_usize;
        for (d, extent) in block.iter().enumerate().rev() {
            strides[d] = stride;
            stride = stride.saturating_mul(usize::try_from(*extent).unwrap_or(usize::MAX));
        }
        let fibres = layout::fibres(&fold.roles, extents);
        Self { fold, judge: Judge::new(fold, field, values, validity), lists, strides, fibres }
    }

    fn deal(&self, slots: &Region, whole: &[u64], states: &mut [State]) -> Result<()> {
        let rank = self.lists.len();
        let counts: Vec<usize> = self.lists.iter().map(Lists::len).collect();
        if counts.contains(&0) {
            return Ok(());
        }
        let mut at = vec![0_usize; rank];
        let mut gathered = Gathered::default();
        for (i, state) in states.iter_mut().enumerate() {
            gathered.clear();
            self.gather(0, &at, 0, 0, &mut gathered);
            gathered.fold_into(state, &self.fold.reducer, global_slot(i, slots, whole))?;
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

    /// Collects the cells of one slot that count, axis by axis.
    fn gather(&self, d: usize, at: &[usize], offset: usize, place: u64, out: &mut Gathered<T>) {
        let Some(lists) = self.lists.get(d) else {
            self.judge.take(offset, place, out);
            return;
        };
        let (positions, places) = lists.slot(at[d]);
        let (stride, fibre) = (self.strides[d], self.fibres[d]);
        let last = d + 1 == self.lists.len();
        let values = self.judge.values;
        if last && self.judge.takes_all() {
            if stride == 1
                && let (Some(&first), Some(&end)) = (positions.first(), positions.last())
                && end - first + 1 == positions.len()
            {
                out.values.extend_from_slice(&values[offset + first..=offset + end]);
                return;
            }
            out.values.extend(positions.iter().map(|p| values[offset + p * stride]));
            return;
        }
        for (&p, &in_fibre) in positions.iter().zip(places) {
            self.gather(d + 1, at, offset + p * stride, place + in_fibre * fibre, out);
        }
    }
}

/// Tells which cells count.
pub(super) struct Judge<'a, T> {
    tests: Vec<Test<T>>,
    values: &'a [T],
    validity: Option<&'a [u8]>,
    indexed: bool,
}

impl<'a, T: Cell> Judge<'a, T> {
    pub(super) fn new(fold: &Fold, field: &Field, values: &'a [T], validity: Option<&'a [u8]>) -> Self {
        let also = match &fold.reducer {
            Reducer::Matches(predicate) => Some(predicate),
            _ => None,
        };
        let tests = fold.predicate.iter().chain(also);
        let tests = tests.map(|p| p.test(field.dtype, field.missing())).collect();
        Self { tests, values, validity, indexed: fold.reducer.indexed() }
    }

    /// Whether every cell counts, and none is asked for its place.
    fn takes_all(&self) -> bool {
        self.tests.is_empty() && self.validity.is_none() && !self.indexed
    }

    /// Takes a cell if it counts.
    #[inline]
    pub(super) fn take(&self, cell: usize, place: u64, out: &mut Gathered<T>) {
        if self.validity.is_some_and(|v| v[cell] == 0) {
            out.nulls += u64::from(self.tests.iter().all(Test::null));
            return;
        }
        let value = self.values[cell];
        if self.tests.iter().all(|test| test.value(value)) {
            out.values.push(value);
            if self.indexed {
                out.index.push(place);
            }
        }
    }
}

/// The number of a state among all slots, from its number in its box.
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

/// Cells of one slot that count, their places in the fibre where the reducer asks for them, and how many nulls.
pub(super) struct Gathered<T> {
    values: Vec<T>,
    index: Vec<u64>,
    nulls: u64,
}

impl<T> Default for Gathered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), index: Vec::new(), nulls: 0 }
    }
}

impl<T: Cell> Gathered<T> {
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.index.clear();
        self.nulls = 0;
    }

    pub(super) fn fold_into(&self, state: &mut State, reducer: &Reducer, slot: usize) -> Result<()> {
        state.fold(reducer, slot, &self.values, &self.index)?;
        state.fold_nulls(self.nulls)
    }
}

/// Merges partial results, in the order of their units.
#[derive(Debug)]
pub struct Merger {
    reducer: Reducer,
    dtype: DType,
    shape: Vec<u64>,
    states: Vec<Option<State>>,
    next: u64,
    skipped: u64,
}

impl Merger {
    /// Nothing merged yet.
    ///
    /// # Errors
    /// `Limit` when the states do not fit.
    pub fn new(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Self> {
        let (_, field, selection) = field_of(handle, request)?;
        State::new(&fold.reducer, field.dtype).map_err(|e| e.in_array(&handle.schema().name))?;
        let shape = layout::shape(&fold.roles, &selection);
        let slots = Region::from_shape(&shape).cells().unwrap_or(u64::MAX);
        options.check_memory("the results", slots.saturating_mul(size_of::<State>() as u64))?;
        let count = usize::try_from(slots).map_err(|_| Error::limit("slots", slots, usize::MAX as u64))?;
        let states = vec![None; count];
        Ok(Self { reducer: fold.reducer.clone(), dtype: field.dtype, shape, states, next: 0, skipped: 0 })
    }

    /// Adds the partial result of the next unit.
    ///
    /// # Errors
    /// `InvalidRequest` when it is not the next, or does not fit.
    pub fn add(&mut self, partial: Partial) -> Result<()> {
        let misfit = || Error::invalid("partial results are merged in order, each once");
        let slots = Region::new(partial.slots.iter().copied());
        let inside = slots.rank() == self.shape.len() && Region::from_shape(&self.shape).contains(&slots);
        if partial.number != self.next || !inside || slots.cells() != Some(partial.states.len() as u64) {
            return Err(misfit());
        }
        self.next += 1;
        self.skipped += u64::from(partial.skipped);
        if partial.skipped {
            return Ok(());
        }
        for (i, state) in partial.states.into_iter().enumerate() {
            let held = self.states.get_mut(global_slot(i, &slots, &self.shape)).ok_or_else(misfit)?;
            match held {
                Some(held) => held.merge(&self.reducer, &state)?,
                None => *held = Some(state),
            }
        }
        Ok(())
    }

    /// What all of them gave.
    ///
    /// # Errors
    /// `Unsupported` for dtypes without arithmetic.
    pub fn finish(self) -> Result<Folded> {
        let empty = State::new(&self.reducer, self.dtype)?;
        let states = self.states.into_iter().map(|state| state.unwrap_or_else(|| empty.clone())).collect();
        Ok(Folded { shape: self.shape, states, skipped: self.skipped })
    }
}

/// Folds a selection of one field.
///
/// # Errors
/// As [`fold_unit`]; `Limit` when the states do not fit the memory limit.
pub fn fold(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Folded> {
    let (number, field, selection) = field_of(handle, request)?;
    if handle.schema().sparse {
        return rows::fold_rows(handle, number, &selection, None, fold, options);
    }
    let units = units(handle, request, fold, options)?;
    let mut merger = Merger::new(handle, request, fold, options)?;
    let fast = fold.fast(&field).is_some();
    // The fast folds are parallel themselves and tell how far they are.
    let quiet = if fast { options.clone() } else { Options { progress: None, ..options.clone() } };
    let ticker = options.ticker(units.len() as u64);
    let one = |unit: &Unit| {
        let partial = fold_unit(handle, request, fold, unit, &quiet)?;
        if fast {
            options.cancel.check()?
        } else {
            ticker.tick()?
        }
        Ok(partial)
    };
    // Chunks that are not cut may be large.
    let largest = units.iter().map(Unit::cells).max().unwrap_or(0);
    let room = largest.saturating_mul(2 * fixed_size(handle, number)? as u64).max(1);
    let at_once = options.memory.map_or(AT_ONCE as u64, |memory| (memory / room).clamp(1, AT_ONCE as u64));
    let at_once = usize::try_from(at_once).unwrap_or(AT_ONCE);
    for batch in units.chunks(if fast { 1 } else { at_once }) {
        let partials: Vec<Partial> = options.run(|| {
            if batch.len() > 1 {
                batch.par_iter().map(one).collect::<Result<_>>()
            } else {
                batch.iter().map(one).collect::<Result<_>>()
            }
        })?;
        partials.into_iter().try_for_each(|partial| merger.add(partial))?;
    }
    merger.finish()
}

impl Reducer {
    /// Counts cells that are null: by validity, or equal to `fill`, or to what the field declares.
    pub fn nulls(fill: Option<super::Number>) -> Self {
        Self::Matches(Predicate { null: Some(true), fill, ..Predicate::default() })
    }
}
