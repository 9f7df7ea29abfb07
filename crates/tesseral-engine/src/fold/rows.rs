//! Folding cells that come row by row with their coordinates: those of sparse arrays, and those that meet a condition.

use tesseral_core::condition::Condition;
use tesseral_core::{Error, Result, Selection, Slice, dispatch_element};
use tesseral_format::{Column, Request, Target};

use super::layout::{self, Role};
use super::run::{Fold, Folded, Gathered, Judge, Merger};
use crate::handle::Handle;
use crate::options::Options;
use crate::sparse::{CellBatch, CellOrder, cells};
use crate::spread::{number_in, positions, ranges};

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
    let schema = handle.schema();
    let mut merger = Merger::new(handle, &Request::cells(selection.clone(), field), fold, options)?;
    if fold.roles.len() != selection.rank() || fold.masks.len() != selection.rank() {
        return Err(Error::invalid("a fold has a role for each axis").in_array(&schema.name));
    }
    let target = match schema.sparse {
        true => Target::Coordinates(ranges(&schema.dims, selection).map_err(|e| e.in_array(&schema.name))?),
        false => Target::Cells(selection.clone()),
    };
    let dims = (0..).take(schema.dims.len()).map(Column::Dim);
    let request = Request {
        target,
        columns: dims.chain([Column::Field(field)]).collect(),
        condition: condition.cloned(),
    };
    let axes = Axes::new(fold, selection);
    for batch in cells(handle, &request, CellOrder::Stored, options)? {
        axes.deal(handle, field, &batch?, &mut merger).map_err(|e| e.in_array(&schema.name))?;
    }
    merger.finish()
}

/// Which slots a cell goes to, by its position along each axis.
struct Axes<'a> {
    fold: &'a Fold,
    slices: &'a [Slice],
    /// What a slot along each axis adds to the number of a slot.
    strides: Vec<u64>,
    fibres: Vec<u64>,
}

/// A slot, a row that goes there, and its place in the fibre.
type Dealt = (usize, usize, u64);

impl<'a> Axes<'a> {
    fn new(fold: &'a Fold, selection: &'a Selection) -> Self {
        let extents = selection.shape();
        let mut strides = vec![0; extents.len()];
        let mut stride = 1_u64;
        for (d, (role, extent)) in fold.roles.iter().zip(&extents).enumerate().rev() {
            if let Some(slots) = role.slots(*extent) {
                strides[d] = stride;
                stride = stride.saturating_mul(slots);
            }
        }
        Self { fold, slices: selection.slices(), strides, fibres: layout::fibres(&fold.roles, &extents) }
    }

    /// Folds the rows of a batch.
    fn deal(&self, handle: &Handle, field: u16, batch: &CellBatch, merger: &mut Merger) -> Result<()> {
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
                gathered.fold_into(merger.state(slot)?, &self.fold.reducer, slot)?;
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
            let next = (slot + along * self.strides[d], place + in_fibre * self.fibres[d]);
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
