//! Dividing a selection into units, and folding them.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tesseral_core::{Error, Region, Result, Selection, Slice, alloc, dispatch_element};
use tesseral_format::{Column, Request, Target};

use super::distribute::{BlockCells, SlotDistributor};
use super::layout::{self, AxisRole, SlotPositions};
use super::merger::{Folded, Merger, Partial};
use super::pairs::Paired;
use super::state::{FoldState, Reducer};
use super::weights::Weights;
use super::{positions, rows};
use crate::handle::Handle;
use crate::merge::dense_rows::DenseCells;
use crate::options::Options;
use crate::paint::dense::{self, fixed_size};
use crate::plan::blocks::Blocks;
use crate::plan::condition::may_hold;
use crate::plan::expansion::{check_results, check_total, work_space};
use crate::plan::subdivide::{divisible, narrowable, oversized};
use crate::reduce::axes::reduce;
use crate::reduce::kernel::summary::StatSet;
use crate::reduce::summary::summarize_field;

/// Bytes of cells in a unit whose cells are distributed one by one, in one under a condition, which needs several masks, and in a
/// unit of the fast folds.
const UNIT: u64 = 16 << 20;
const MASKED_UNIT: u64 = 8 << 20;
const FAST_UNIT: u64 = 256 << 20;
/// Up to this many chunks, each is a separate unit, so that statistics can skip it.
const CHUNK_UNITS: u64 = 1 << 16;
/// Units folded concurrently.
const AT_ONCE: usize = 8;

/// A fold over the cells of a selection. Which of them count is the condition of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fold {
    /// The states kept for each slot.
    pub reducers: Vec<Reducer>,
    /// The role of each axis.
    pub roles: Vec<AxisRole>,
    /// Selected positions along each axis; all where there is no mask.
    pub masks: Vec<Option<Vec<bool>>>,
    /// Weights of [`Reducer::Weighted`] and [`Reducer::WeightedValues`].
    pub weights: Option<Weights>,
    /// The second variable of [`Reducer::Pairs`].
    pub paired: Option<Paired>,
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
    pub(super) fn cells(&self) -> u64 {
        self.place.iter().fold(1, |n, (start, end)| n.saturating_mul(end - start))
    }

    /// A result without states.
    pub(super) fn partial(&self, slots: &Region) -> Partial {
        let slots = slots.bounds().to_vec();
        Partial { number: self.number, units: 1, slots, states: Vec::new(), skipped: 0 }
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

impl Fold {
    /// A fold of all positions, for a selection with these roles of axes.
    pub fn new(reducers: Vec<Reducer>, roles: Vec<AxisRole>) -> Self {
        let masks = vec![None; roles.len()];
        Self { reducers, roles, masks, weights: None, paired: None }
    }

    /// Empty states for a region of slots: a list for each reducer, of each field.
    pub(super) fn states(
        &self,
        handle: &Handle,
        fields: &[u16],
        slots: &Region,
        options: &Options,
    ) -> Result<Vec<Vec<FoldState>>> {
        let cells = slots.cells().and_then(|n| usize::try_from(n).ok());
        let cells = cells.ok_or_else(|| Error::limit("slots", u64::MAX, usize::MAX as u64))?;
        let size = (fields.len() * self.reducers.len() * size_of::<FoldState>()) as u64;
        options.check_memory("the results", (cells as u64).saturating_mul(size))?;
        let dtypes = fields.iter().map(|field| handle.schema().fields[usize::from(*field)].dtype);
        let each = dtypes.flat_map(|dtype| self.reducers.iter().map(move |reducer| (reducer, dtype)));
        each.map(|(reducer, dtype)| alloc::filled("the results", FoldState::new(reducer, dtype)?, cells))
            .collect()
    }

    /// Size of the cells at one position in bytes: of the fields and of a second variable.
    fn row_size(&self, handle: &Handle, fields: &[u16]) -> Result<u64> {
        let paired = self.paired.as_ref().map_or(0, |_| 2 * size_of::<f64>() as u64);
        Ok(row_size(handle, fields)?.saturating_add(paired))
    }

    /// Checks that the fold fits a selection: jobs come from other processes. Takes no time by the number of cells.
    fn check(&self, selection: &Selection) -> Result<()> {
        let extents = selection.shape();
        if self.roles.len() != extents.len() || self.masks.len() != extents.len() {
            return Err(Error::invalid("a fold requires a role for each axis"));
        }
        let axes = self.roles.iter().zip(&self.masks).zip(&extents);
        for ((role, mask), extent) in axes {
            if !role.fits(*extent) || mask.as_ref().is_some_and(|mask| mask.len() as u64 != *extent) {
                return Err(Error::invalid("the fold belongs to another selection"));
            }
        }
        match &self.weights {
            Some(weights) => weights.check_shape(&extents),
            None if self.reducers.iter().any(Reducer::weighted) => {
                Err(Error::invalid("weighted statistics require weights"))
            }
            None => Ok(()),
        }
    }

    /// Rejects statistics of two variables without a second one, or with one that does not fit.
    pub(super) fn check_paired(&self, handle: &Handle) -> Result<()> {
        match &self.paired {
            Some(paired) => paired.check(handle),
            None if self.reducers.contains(&Reducer::Pairs) => {
                Err(Error::invalid("covariances and correlations require a second variable"))
            }
            None => Ok(()),
        }
        .map_err(|e| e.in_array(&handle.schema().name))
    }

    /// The statistics to request of the fast folds, which know no conditions, if they give the same result.
    pub(super) fn fast_statistics(&self, request: &Request) -> Option<StatSet> {
        let [Reducer::Summary(wanted)] = self.reducers.as_slice() else { return None };
        let plain = self.roles.iter().all(|role| matches!(role, AxisRole::Keep | AxisRole::Reduce));
        let whole = request.condition.is_none() && self.masks.iter().all(Option::is_none);
        let scalar = self.roles.iter().all(|role| *role == AxisRole::Reduce);
        // Infinities of positions are known where there are sums.
        let counted = !wanted.has(StatSet::INFINITIES) || wanted.has(StatSet::SUM);
        (plain && whole && (scalar || counted)).then_some(*wanted)
    }
}

/// The fields and the positions of a request.
pub(super) fn fields(handle: &Handle, request: &Request) -> Result<(Vec<u16>, Selection)> {
    let invalid = || Error::invalid("a fold requires positions of fields");
    let selection = request.selection().ok_or_else(invalid)?;
    let mut numbers = Vec::with_capacity(request.columns.len());
    for column in &request.columns {
        let Column::Field(number) = column else { return Err(invalid()) };
        fixed_size(handle, *number)?;
        numbers.push(*number);
    }
    if numbers.is_empty() { Err(invalid()) } else { Ok((numbers, selection.clone())) }
}

/// Size of the cells of all fields at one position.
pub(super) fn row_size(handle: &Handle, fields: &[u16]) -> Result<u64> {
    fields.iter().map(|field| fixed_size(handle, *field).map(|size| size as u64)).sum()
}

/// Divides a selection into units, depending only on the plan and the memory limit; of at most about `most` bytes of cells each, but
/// of no less than what is decoded together.
///
/// # Errors
/// `InvalidRequest` when the roles do not match the selection, or the field's cells are not fixed-size.
pub fn units(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    most: Option<u64>,
    options: &Options,
) -> Result<Vec<Unit>> {
    handle.operate(options, |handle| cut_units(handle, request, fold, most, options))
}

fn cut_units(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    most: Option<u64>,
    options: &Options,
) -> Result<Vec<Unit>> {
    let (numbers, selection) = fields(handle, request)?;
    fold.check_paired(handle)?;
    if fold.reducers.contains(&Reducer::WeightedValues)
        && fold.weights.as_ref().is_none_or(Weights::any_negative)
    {
        let detail = "quantiles require weights that are not negative";
        return Err(Error::invalid(detail).in_array(&handle.schema().name));
    }
    fold.check(&selection).map_err(|e| e.in_array(&handle.schema().name))?;
    if handle.schema().sparse {
        // The work is that of the stored cells, however many positions there are.
        return Ok(
            Unit::all(&selection, rows::parts(handle, &request.columns, &selection, options)?).collect()
        );
    }
    // Each job checks its own request.
    if most.is_none() {
        check_total(handle, request)?;
    }
    let bytes = match fold.fast_statistics(request) {
        Some(_) => FAST_UNIT,
        None if request.condition.is_some() => MASKED_UNIT,
        None => UNIT,
    };
    // A small limit is shared by the concurrent units; other limits do not change how sums round.
    let bytes = options.memory.map_or(bytes, |memory| bytes.min((memory / 16).max(1)));
    let bytes = most.map_or(bytes, |most| bytes.min(most));
    let row = fold.row_size(handle, &numbers)?;
    let cells = (bytes / row).max(1);
    let chunk = handle.schema().chunk_shape.clone().unwrap_or_default();
    // A large chunk is divided where its parts decode independently; otherwise it would be decoded once per part. A small chunk is
    // a unit where a condition may skip it.
    let large = chunk.iter().fold(1_u64, |n, extent| n.saturating_mul(*extent)) > cells;
    let first = Request { columns: vec![Column::Field(numbers[0])], ..request.clone() };
    // Under a memory limit a chunk too large for it is divided where its parts are fetched separately, too.
    let chunk_bytes = chunk.iter().fold(row, |n, extent| n.saturating_mul(*extent));
    let pieces = options.memory.is_some_and(|memory| oversized(chunk_bytes, memory));
    let apart = if large {
        !(divisible(handle, &first)? || pieces && narrowable(handle, &first)?)
    } else {
        request.condition.is_some()
    };
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
    handle.operate(options, |handle| match handle.schema().sparse {
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
    let (numbers, selection, part) = share(handle, request, fold, unit)?;
    fold.check_paired(handle)?;
    let extents = selection.shape();
    let lists: Vec<SlotPositions<'_>> = (0..extents.len())
        .map(|d| {
            let (start, end) = unit.place[d];
            SlotPositions::new(&fold.roles[d], fold.masks[d].as_deref(), start, end, extents[d])
        })
        .collect();
    let slots = layout::slot_box(&fold.roles, &lists);
    let mut partial = unit.partial(&slots);
    if let Some(wanted) = fold.fast_statistics(request) {
        for number in numbers {
            let request = Request::cells(part.clone(), number);
            partial.states.push(fast_states(handle, &request, fold, wanted, options)?);
        }
        return Ok(partial);
    }
    partial.states = fold.states(handle, &numbers, &slots, options)?;
    if !may_hold(handle, request, &part) {
        partial.skipped = 1;
        return Ok(partial);
    }
    let whole = layout::shape(&fold.roles, &selection);
    let paired = fold.paired.as_ref().map(|paired| paired.read(handle, &part, options)).transpose()?;
    let mut distribute = |column: usize, bytes: &[u8], validity: Option<&[u8]>, mask: Option<&[u8]>| {
        let dtype = handle.schema().fields[usize::from(numbers[column])].dtype;
        let first = column * fold.reducers.len();
        let states = &mut partial.states[first..first + fold.reducers.len()];
        dispatch_element!(dtype, T => {
            let copied: Vec<T>;
            let values: &[T] = match bytemuck::try_cast_slice(bytes) {
                Ok(values) => values,
                Err(_) => {
                    copied = bytemuck::pod_collect_to_vec(bytes);
                    &copied
                }
            };
            let cells = BlockCells::new(fold, values, validity, mask).with_paired(paired.as_deref());
            let distributor = SlotDistributor::<T>::new(fold, dtype, cells, &extents, &unit.place, &lists);
            distributor.distribute(&slots, &whole, states)
        }, else => Err(Error::unsupported(format!("folds of {dtype}"))))
    };
    if request.condition.is_none() {
        for (column, number) in numbers.iter().enumerate() {
            let request = Request::cells(part.clone(), *number);
            dense::read_with(handle, &request, options, |block| {
                distribute(column, block.bytes(), block.validity(), None)
            })?;
        }
        return Ok(partial);
    }
    // The columns of the condition are read once, for all fields.
    let request = Request { target: Target::Cells(part.clone()), ..request.clone() };
    let (columns, mask) = DenseCells::new(handle, &request, options)?.read_masked(&part)?;
    for (column, cells) in columns.iter().enumerate() {
        distribute(column, cells.data(), cells.validity(), mask.as_deref())?;
    }
    Ok(partial)
}

/// The fields of a unit, the full selection, and the unit's part of it.
pub(super) fn share(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    unit: &Unit,
) -> Result<(Vec<u16>, Selection, Selection)> {
    let (numbers, selection) = fields(handle, request)?;
    fold.check(&selection).map_err(|e| e.in_array(&handle.schema().name))?;
    let shape = handle
        .schema()
        .shape()
        .ok_or_else(|| Error::invalid("the array has dimensions without countable positions"))?;
    let slices = unit.slices.iter().map(|&(start, end, step)| Slice { start, end, step });
    let part = Selection::new(slices, &shape).map_err(|e| e.in_array(&handle.schema().name))?;
    // The cells that are read have to be those of the place, or a number would be that of other cells.
    let mut axes = unit.place.iter().zip(selection.slices()).zip(part.slices());
    let fits = |((place, whole), own): ((&(u64, u64), &Slice), &Slice)| {
        let start = place.0.checked_mul(whole.step).and_then(|skip| whole.start.checked_add(skip));
        place.1 <= whole.count()
            && place.1.checked_sub(place.0) == Some(own.count())
            && (own.count() == 0 || start == Some(own.start))
            && (own.count() < 2 || own.step == whole.step)
    };
    if unit.place.len() != selection.rank() || part.rank() != selection.rank() || !axes.all(fits) {
        return Err(Error::invalid("the unit belongs to another selection").in_array(&handle.schema().name));
    }
    Ok((numbers, selection, part))
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
        return Ok(vec![FoldState::Summary(summarize_field(handle, request, wanted, options)?.summary)]);
    }
    let result = reduce(handle, request, &axes, wanted, options)?;
    let states = result.collect(|fold, i| fold.summary(i).map(FoldState::Summary));
    states.into_iter().collect::<Option<_>>().ok_or_else(|| Error::internal("missing summary of a fold"))
}

/// Folds a selection of one or more fields: cells that meet the condition of the request.
///
/// # Errors
/// As [`fold_unit`]; `Limit` when the states exceed the memory limit.
pub fn fold(handle: &Handle, request: &Request, fold: &Fold, options: &Options) -> Result<Folded> {
    if let Some(folded) = positions::fold_known(handle, request, fold, options)? {
        return Ok(folded);
    }
    let (numbers, selection) = fields(handle, request)?;
    let row = fold.row_size(handle, &numbers)?;
    if fold.reducers.iter().any(Reducer::keeps_values) && !handle.schema().sparse {
        // Values are collected by unit, merged and sorted.
        let cells = selection.cells().unwrap_or(u64::MAX);
        check_results(handle, request, cells.saturating_mul(2 * row))?;
    }
    let units = units(handle, request, fold, None, options)?;
    let mut merger = Merger::new(handle, request, fold, options)?;
    let fast = fold.fast_statistics(request).is_some();
    let alone = fast || handle.schema().sparse;
    // Fast folds and reads of rows run in parallel and report their own progress.
    let quiet = if alone { options.clone() } else { options.clone().without_progress() };
    let ticker = options.ticker(units.len() as u64);
    let fold_and_tick = |unit: &Unit| {
        let partial = fold_unit(handle, request, fold, unit, &quiet)?;
        if alone {
            options.cancel.check()?
        } else {
            ticker.tick()?
        }
        Ok(partial)
    };
    // Undivided chunks may be large.
    let largest = units.iter().map(Unit::cells).max().unwrap_or(0);
    let unit_bytes = largest.saturating_mul(2 * row).max(1);
    let at_once =
        options.memory.map_or(AT_ONCE as u64, |memory| (memory / unit_bytes).clamp(1, AT_ONCE as u64));
    // Units of cells that the stored bytes do not justify are folded one after another.
    let at_once = if alone {
        1
    } else {
        let allowed = work_space(handle, request, unit_bytes.saturating_mul(at_once))?;
        at_once.min((allowed / unit_bytes).max(1))
    };
    for batch in units.chunks(usize::try_from(at_once).unwrap_or(AT_ONCE)) {
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
