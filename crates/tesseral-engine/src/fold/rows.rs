//! Folding cells that come row by row with their coordinates: those of sparse arrays, and those that meet a condition.

use tesseral_core::condition::Condition;
use tesseral_core::{Error, Region, Result, Selection, Slice, dispatch_element};
use tesseral_format::{Column, PlannedChunk, Request, Target};

use super::layout::{self, Role};
use super::run::{Fold, Folded, Gathered, Judge, Merger, Partial, Unit, global_slot, share};
use super::state::State;
use crate::handle::Handle;
use crate::options::Options;
use crate::sparse::{CellBatch, CellOrder, bounds, cells};
use crate::spread::{number_in, origin, positions, ranges};

/// Cells of a sparse array in a unit, about.
const CELLS: u64 = 4 << 20;

/// Folds a selection of one field, of the cells there are and that meet a condition.
///
/// # Errors
/// As [`fold`](super::fold); `Unsupported` where positions along a dimension cannot be counted.
pub fn fold_rows(
    handle: &Handle,
    field: u16,
    selection: &Selection,
    condition: Option<&Condition>,
    fold: &Fold,
    options: &Options,
) -> Result<Folded> {
    let request = Request { condition: condition.cloned(), ..Request::cells(selection.clone(), field) };
    let mut merger = Merger::new(handle, &request, fold, options)?;
    let parts = if handle.schema().sparse {
        parts(handle, field, selection, options)?
    } else {
        vec![selection.clone()]
    };
    for unit in Unit::all(selection, parts) {
        merger.add(fold_unit(handle, &request, fold, &unit, options)?)?;
    }
    merger.finish()
}

/// Cuts a selection of a sparse array along its first dimension, where chunks begin, so that the parts hold equally many cells, about.
pub(super) fn parts(
    handle: &Handle,
    field: u16,
    selection: &Selection,
    options: &Options,
) -> Result<Vec<Selection>> {
    let schema = handle.schema();
    let request = Request {
        target: Target::Coordinates(ranges(&schema.dims, selection).map_err(|e| e.in_array(&schema.name))?),
        columns: vec![Column::Field(field)],
        condition: None,
    };
    let chunks = handle.source().plan(&request).map_err(|e| e.in_array(&schema.name))?.chunks;
    let (Some(dim), Some(&slice)) = (schema.dims.first(), selection.slices().first()) else {
        return Ok(vec![selection.clone()]);
    };
    // The number in the slice at which a chunk begins.
    let begins = |chunk: &PlannedChunk| {
        let low = bounds(chunk).first()?.0.as_i128()?;
        let from_start = u64::try_from(low - origin(dim)? - i128::from(slice.start)).unwrap_or(0);
        Some((from_start.div_ceil(slice.step.max(1)).min(slice.count()), chunk.cells))
    };
    let mut begins: Vec<(u64, u64)> = chunks.iter().filter_map(begins).collect();
    begins.sort_unstable();
    let most = options.memory.map_or(CELLS, |memory| CELLS.min(memory / 128));
    let (mut cuts, mut held) = (vec![0], 0_u64);
    for (number, cells) in begins {
        if held >= most && cuts.last().is_some_and(|last| *last < number) && number < slice.count() {
            cuts.push(number);
            held = 0;
        }
        held = held.saturating_add(cells);
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

/// Folds the rows of one unit of a selection.
pub(super) fn fold_unit(
    handle: &Handle,
    request: &Request,
    fold: &Fold,
    unit: &Unit,
    options: &Options,
) -> Result<Partial> {
    let schema = handle.schema();
    let (field, whole, part) = share(handle, request, unit)?;
    let target = match schema.sparse {
        true => Target::Coordinates(ranges(&schema.dims, &part).map_err(|e| e.in_array(&schema.name))?),
        false => Target::Cells(part),
    };
    let dims = (0..).take(schema.dims.len()).map(Column::Dim);
    let columns = dims.chain([Column::Field(field)]).collect();
    let request = Request { target, columns, condition: request.condition.clone() };
    let slots = layout::reached(&fold.roles, &unit.place);
    let mut states = fold.states(handle, field, &slots, options)?;
    let axes = Axes::new(fold, &whole, &slots);
    for batch in cells(handle, &request, CellOrder::Stored, options)? {
        axes.deal(handle, field, &batch?, &mut states).map_err(|e| e.in_array(&schema.name))?;
    }
    Ok(Partial { number: unit.number, slots: slots.bounds().to_vec(), states, skipped: false })
}

/// Which slots a cell goes to, by its position along each axis.
struct Axes<'a> {
    fold: &'a Fold,
    slices: &'a [Slice],
    /// The slots there are.
    slots: &'a Region,
    /// Slots along each axis of the whole selection.
    whole: Vec<u64>,
    /// The first slot along each axis, and what a slot adds to the number of one.
    steps: Vec<(u64, u64)>,
    fibres: Vec<u64>,
}

/// A slot, a row that goes there, and its place in the fibre.
type Dealt = (usize, usize, u64);

impl<'a> Axes<'a> {
    fn new(fold: &'a Fold, selection: &'a Selection, slots: &'a Region) -> Self {
        let mut steps = vec![(0, 0); fold.roles.len()];
        let (mut stride, mut kept) = (1_u64, slots.rank());
        for (d, _) in fold.roles.iter().enumerate().rev().filter(|(_, role)| **role != Role::Reduce) {
            kept -= 1;
            steps[d] = (slots.start(kept), stride);
            stride = stride.saturating_mul(slots.extent(kept));
        }
        let whole = layout::shape(&fold.roles, selection);
        let fibres = layout::fibres(&fold.roles, &selection.shape());
        Self { fold, slices: selection.slices(), slots, whole, steps, fibres }
    }

    /// Folds the rows of a batch.
    fn deal(&self, handle: &Handle, field: u16, batch: &CellBatch, states: &mut [State]) -> Result<()> {
        let schema = handle.schema();
        let Some(((_, cells), coordinates)) = batch.columns.split_last() else { return Ok(()) };
        let outside = || Error::invalid("a coordinate outside the domain");
        let axes = schema.dims.iter().zip(coordinates);
        let axes = axes.map(|(dim, (_, cells))| positions(dim, cells).ok_or_else(outside));
        let axes = axes.collect::<Result<Vec<_>>>()?;
        let mut dealt: Vec<Dealt> = Vec::with_capacity(batch.rows);
        for row in 0..batch.rows {
            self.place(0, &axes, row, (0, 0), &mut dealt);
        }
        // Rows of a slot stay in the order they came in.
        dealt.sort_by_key(|dealt| dealt.0);
        let field = &schema.fields[usize::from(field)];
        dispatch_element!(field.dtype, T => {
            let values: Vec<T> = bytemuck::pod_collect_to_vec(cells.data());
            let judge = Judge::new(self.fold, field, &values, cells.validity());
            let mut gathered = Gathered::default();
            for rows in dealt.chunk_by(|a, b| a.0 == b.0) {
                gathered.clear();
                rows.iter().for_each(|&(_, row, place)| judge.take(row, place, &mut gathered));
                let slot = rows[0].0;
                let state = states.get_mut(slot).ok_or_else(outside)?;
                gathered.fold_into(state, &self.fold.reducer, global_slot(slot, self.slots, &self.whole))?;
            }
            Ok(())
        }, else => Err(Error::unsupported(format!("folds of {}", field.dtype))))
    }

    /// Adds every slot that a row goes to, axis by axis.
    fn place(
        &self,
        d: usize,
        axes: &[Vec<u64>],
        row: usize,
        (slot, place): (u64, u64),
        out: &mut Vec<Dealt>,
    ) {
        let Some(axis) = axes.get(d) else {
            out.push((usize::try_from(slot).unwrap_or(usize::MAX), row, place));
            return;
        };
        let Some(n) = number_in(&self.slices[d], axis[row]) else { return };
        let index = usize::try_from(n).unwrap_or(usize::MAX);
        let masked =
            self.fold.masks[d].as_ref().is_some_and(|mask| !mask.get(index).copied().unwrap_or(false));
        if masked {
            return;
        }
        let mut go = |along: u64, in_fibre: u64| {
            let (first, stride) = self.steps[d];
            let next = (slot + (along - first) * stride, place + in_fibre * self.fibres[d]);
            self.place(d + 1, axes, row, next, out);
        };
        match &self.fold.roles[d] {
            Role::Keep => go(n, 0),
            Role::Reduce => go(0, n),
            Role::Groups { slots, .. } => slots.get(index).into_iter().for_each(|&group| go(group, 0)),
            role @ Role::Windows { step, before, .. } => {
                let (first, last) = role.reached(n, n + 1);
                (first..last).for_each(|window| go(window, (n + before).saturating_sub(window * step)));
            }
        }
    }
}
