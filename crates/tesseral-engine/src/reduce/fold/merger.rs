//! Merging the results of units.

use serde::{Deserialize, Serialize};
use tesseral_core::{DType, Error, Region, Result, alloc};
use tesseral_format::Request;

use super::distribute::global_slot;
use super::layout;
use super::run::{Fold, fields};
use super::state::{FoldState, Reducer};
use crate::handle::Handle;
use crate::options::Options;

/// The result of a unit, or of several that follow one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// The number of the first unit.
    pub number: u64,
    /// Number of units.
    pub units: u64,
    /// The region of slots that they cover.
    pub slots: Vec<(u64, u64)>,
    /// Their states, row-major: a list for each reducer, of each column.
    pub states: Vec<Vec<FoldState>>,
    /// Number of units that statistics skipped: none of their chunks can hold a selected cell.
    pub skipped: u64,
}

impl Partial {
    /// Merges the result of the next units into this one if both cover the same slots; returns it otherwise.
    ///
    /// # Errors
    /// `InvalidRequest` when the states are of another fold.
    pub fn join(&mut self, reducers: &[Reducer], next: Self) -> Result<Option<Self>> {
        if self.slots != next.slots || self.number.checked_add(self.units) != Some(next.number) {
            return Ok(Some(next));
        }
        let reducers = reducers.iter().cycle();
        if self.states.len() != next.states.len() {
            return Err(Error::invalid("partial results of different folds do not merge"));
        }
        for ((mine, theirs), reducer) in self.states.iter_mut().zip(&next.states).zip(reducers) {
            if mine.len() != theirs.len() {
                return Err(Error::invalid("partial results of different folds do not merge"));
            }
            mine.iter_mut().zip(theirs).try_for_each(|(a, b)| a.merge(reducer, b))?;
        }
        self.units = self.units.saturating_add(next.units);
        self.skipped = self.skipped.saturating_add(next.skipped);
        Ok(None)
    }
}

/// The result of a fold.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Number of slots along each axis that is not reduced.
    pub shape: Vec<u64>,
    /// The state of each slot, row-major: a list for each reducer, of each column.
    pub states: Vec<Vec<FoldState>>,
    /// Number of units that statistics skipped.
    pub skipped: u64,
    /// Whether stored statistics were sufficient, for each slot of each column; empty if cells were read.
    pub from_statistics: Vec<bool>,
}

impl Folded {
    /// The states of the only column and reducer.
    ///
    /// # Errors
    /// `Internal` if there are several.
    pub fn single(self) -> Result<Vec<FoldState>> {
        let mut states = self.states;
        match (states.pop(), states.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => Err(Error::internal("a fold has several reducers")),
        }
    }
}

/// Merges partial results in the order of their units.
#[derive(Debug)]
pub struct Merger {
    reducers: Vec<Reducer>,
    dtypes: Vec<DType>,
    shape: Vec<u64>,
    states: Vec<Vec<Option<FoldState>>>,
    next: u64,
    skipped: u64,
}

impl Merger {
    /// A merger without results.
    ///
    /// # Errors
    /// `Limit` when the states exceed the memory limit.
    pub fn new(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Self> {
        let (numbers, selection) = fields(handle, request)?;
        let dtypes: Vec<DType> =
            numbers.iter().map(|number| handle.schema().fields[usize::from(*number)].dtype).collect();
        for dtype in &dtypes {
            for reducer in &fold.reducers {
                FoldState::new(reducer, *dtype).map_err(|e| e.in_array(&handle.schema().name))?;
            }
        }
        let shape = layout::shape(&fold.roles, &selection);
        let slots = Region::from_shape(&shape).cells().unwrap_or(u64::MAX);
        let lists = dtypes.len() * fold.reducers.len();
        let size = (lists * size_of::<FoldState>()) as u64;
        options.check_memory("the results", slots.saturating_mul(size))?;
        let count = usize::try_from(slots).map_err(|_| Error::limit("slots", slots, usize::MAX as u64))?;
        let new_list = |_| alloc::filled("states of a fold", None, count);
        let states = (0..lists).map(new_list).collect::<Result<_>>()?;
        Ok(Self { reducers: fold.reducers.clone(), dtypes, shape, states, next: 0, skipped: 0 })
    }

    /// Adds the partial result of the next units.
    ///
    /// # Errors
    /// `InvalidRequest` when they are not the next ones or have the wrong shape.
    pub fn add(&mut self, partial: Partial) -> Result<()> {
        let out_of_order = || Error::invalid("partial results must be merged in order, each once");
        let slots = Region::new(partial.slots.iter().copied());
        let inside = slots.rank() == self.shape.len() && Region::from_shape(&self.shape).contains(&slots);
        let fits = |list: &Vec<FoldState>| slots.cells() == Some(list.len() as u64);
        let whole = partial.states.len() == self.states.len() && partial.states.iter().all(fits);
        if partial.number != self.next || !inside || !whole {
            return Err(out_of_order());
        }
        self.next = self.next.saturating_add(partial.units);
        self.skipped = self.skipped.saturating_add(partial.skipped);
        if partial.skipped == partial.units {
            return Ok(());
        }
        let reducers = self.reducers.iter().cycle();
        for ((list, into), reducer) in partial.states.into_iter().zip(&mut self.states).zip(reducers) {
            for (i, state) in list.into_iter().enumerate() {
                let slot = into.get_mut(global_slot(i, &slots, &self.shape)).ok_or_else(out_of_order)?;
                match slot {
                    Some(slot) => slot.merge(reducer, &state)?,
                    None => *slot = Some(state),
                }
            }
        }
        Ok(())
    }

    /// Checks that the results of all units were added.
    ///
    /// # Errors
    /// `InvalidRequest` with the numbers of both.
    pub fn complete(&self, units: u64) -> Result<()> {
        if self.next == units {
            return Ok(());
        }
        Err(Error::invalid(format!("expected partial results of {units} units, found {}", self.next)))
    }

    /// The merged result.
    ///
    /// # Errors
    /// `Unsupported` for dtypes without arithmetic.
    pub fn finish(self) -> Result<Folded> {
        let each = self.dtypes.iter().flat_map(|dtype| self.reducers.iter().map(move |r| (r, dtype)));
        let mut states = Vec::with_capacity(self.states.len());
        for ((reducer, dtype), list) in each.zip(self.states) {
            let empty = FoldState::new(reducer, *dtype)?;
            states.push(list.into_iter().map(|state| state.unwrap_or_else(|| empty.clone())).collect());
        }
        Ok(Folded { shape: self.shape, states, skipped: self.skipped, from_statistics: Vec::new() })
    }
}
