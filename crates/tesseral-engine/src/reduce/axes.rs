//! Folding of a selection along some axes: one result for each position of the others.
//!
//! Groups over the same positions of the kept axes are folded into one state; if there are few such stacks, each thread folds some
//! of their groups into a state of its own, and these are merged. Sums are exact, so the result does not depend on which groups.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use smallvec::SmallVec;
use tesseral_core::{Coords, Error, Region, Result, Scalar, Sum};
use tesseral_format::Request;

use crate::handle::Handle;
use crate::options::Options;
use crate::paint::dense::PreparedRead;
use crate::plan::expansion::{check_results, check_total};
use crate::reduce::kernel::axis::{self, AxisFold};
use crate::reduce::kernel::summary::StatSet;
use crate::reduce::visit::Visitor;

/// Minimum number of stacks for parallelism without several states of a stack.
const STACKS: usize = 32;
/// Minimum size of the cells for each state in bytes.
const SEGMENT: u64 = 1 << 20;
/// Minimum number of results for parallel work, and the number that a thread computes at once.
const PARALLEL_FROM: usize = 16 << 10;
const PARALLEL_RUN: usize = 4 << 10;
/// Maximum memory of a kept position while it is folded, in bytes.
const STATE: u64 = 128;

/// Results along some axes.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Extent of each kept axis.
    pub shape: Vec<u64>,
    blocks: Vec<(Region, AxisFold)>,
}

impl Reduced {
    /// One value per kept position, row-major.
    pub fn collect<T: Clone + Default + Send + Sync>(
        &self,
        of: impl Fn(&AxisFold, usize) -> T + Sync,
    ) -> Vec<T> {
        // The states of all positions were in memory, so their number fits.
        self.collect_runs(|fold, first, out| {
            (first..).zip(out).for_each(|(i, to)| *to = of(fold, i));
        })
    }

    /// One value per kept position, row-major; `fill` computes those of adjacent positions of a fold, from one on.
    pub fn collect_runs<T: Clone + Default + Send + Sync>(
        &self,
        fill: impl Fn(&AxisFold, usize, &mut [T]) + Sync,
    ) -> Vec<T> {
        let cells =
            Region::from_shape(&self.shape).cells().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let collect_slots = |fold: &AxisFold, out: &mut [T]| {
            if cells < PARALLEL_FROM {
                return fill(fold, 0, out);
            }
            let runs = out.par_chunks_mut(PARALLEL_RUN).enumerate();
            runs.for_each(|(i, out)| fill(fold, i * PARALLEL_RUN, out));
        };
        let mut out = vec![T::default(); cells];
        if let [(_, fold)] = self.blocks.as_slice()
            && fold.len() == cells
        {
            collect_slots(fold, &mut out);
            return out;
        }
        let collect_block = |(_, fold): &(Region, AxisFold)| {
            let mut part = vec![T::default(); fold.len()];
            collect_slots(fold, &mut part);
            part
        };
        let parts: Vec<Vec<T>> = if cells < PARALLEL_FROM {
            self.blocks.iter().map(collect_block).collect()
        } else {
            self.blocks.par_iter().map(collect_block).collect()
        };
        for ((region, _), part) in self.blocks.iter().zip(parts) {
            // Row by row: positions along the last kept axis are adjacent in both.
            let last = self.shape.len().saturating_sub(1);
            let run = region.bounds().last().map_or(1, |b| usize::try_from(b.1 - b.0).unwrap_or(usize::MAX));
            let mut at: SmallVec<[u64; 4]> = region.bounds().iter().map(|b| b.0).collect();
            for row in part.chunks(run.max(1)) {
                let flat = at.iter().zip(&self.shape).fold(0, |flat, (p, n)| flat * n + p);
                let to = usize::try_from(flat).ok().and_then(|flat| out.get_mut(flat..flat + row.len()));
                if let Some(to) = to {
                    to.clone_from_slice(row);
                }
                for d in (0..last).rev() {
                    at[d] += 1;
                    if at[d] < region.end(d) {
                        break;
                    }
                    at[d] = region.start(d);
                }
            }
        }
        out
    }

    /// Means; `None` without valid cells.
    pub fn mean(&self) -> Vec<Option<f64>> {
        self.collect(AxisFold::mean)
    }

    /// Sums; `None` if sums were not requested.
    pub fn sum(&self) -> Vec<Option<Sum>> {
        self.collect(AxisFold::sum)
    }

    /// Minima; `None` without valid cells.
    pub fn min(&self) -> Vec<Option<Scalar>> {
        self.collect(AxisFold::min)
    }

    /// Maxima; `None` without valid cells.
    pub fn max(&self) -> Vec<Option<Scalar>> {
        self.collect(AxisFold::max)
    }

    /// Population standard deviations; `None` without valid cells.
    pub fn std(&self) -> Vec<Option<f64>> {
        self.collect(AxisFold::std)
    }
}

/// An axis whose positions are reduced by groups or windows.
#[derive(Clone, Copy)]
pub(crate) struct PositionGroups<'a> {
    pub axis: usize,
    /// Number of groups.
    pub count: u64,
    /// Neighbors of one group among the positions from one to another: relative to the first, and the group.
    pub runs: &'a (dyn Fn(u64, u64) -> Vec<(Range<usize>, usize)> + Sync),
}

/// The bytes that the states of positions take at most.
pub(crate) fn state_bytes(positions: u64) -> u64 {
    positions.saturating_mul(STATE)
}

/// Groups over the same kept positions.
struct Stack {
    kept: Region,
    groups: Vec<u32>,
    bytes: u64,
}

/// Folds a selection of one field along `axes`.
///
/// # Errors
/// Errors of the plan, the store and the decoders; `InvalidRequest` for an unknown or duplicate axis; `Limit` if the states of
/// the kept positions exceed the memory limit.
pub fn reduce(
    handle: &Handle,
    request: &Request,
    axes: &[usize],
    wanted: StatSet,
    options: &Options,
) -> Result<Reduced> {
    handle.operate(options, |handle| reduce_along(handle, request, axes, None, wanted, options))
}

/// Folds a selection of one field along `axes`, and along another one by groups of its positions.
///
/// # Errors
/// As [`reduce`].
pub(crate) fn reduce_groups(
    handle: &Handle,
    request: &Request,
    axes: &[usize],
    groups: PositionGroups<'_>,
    wanted: StatSet,
    options: &Options,
) -> Result<Reduced> {
    handle.operate(options, |handle| reduce_along(handle, request, axes, Some(groups), wanted, options))
}

fn reduce_along(
    handle: &Handle,
    request: &Request,
    axes: &[usize],
    grouped: Option<PositionGroups<'_>>,
    wanted: StatSet,
    options: &Options,
) -> Result<Reduced> {
    let prepared = PreparedRead::divided(handle, request, options, &|_, _| Ok(false))?;
    let rank = prepared.selection.rank();
    let mut reduced = vec![false; rank];
    for &axis in axes {
        if axis >= rank || std::mem::replace(&mut reduced[axis], true) {
            let detail = format!("axis {axis} is a duplicate or out of bounds for {rank} axes");
            return Err(Error::invalid(detail).in_array(&handle.schema().name));
        }
    }
    // The axis of groups among the kept ones.
    let place = grouped.map(|groups| {
        reduced[groups.axis] = true;
        reduced[..groups.axis].iter().filter(|reduced| !**reduced).count()
    });
    let with_groups = |region: Region| match (grouped, place) {
        (Some(groups), Some(place)) => {
            let mut bounds = region.bounds().to_vec();
            bounds.insert(place, (0, groups.count));
            Region::new(bounds)
        }
        _ => region,
    };
    let whole = Region::from_shape(&prepared.selection.shape());
    let shape = with_groups(kept(&whole, &reduced)).shape();
    let positions = Region::from_shape(&shape).cells().unwrap_or(u64::MAX);
    let states = state_bytes(positions);
    options.check_memory("the results", states)?;
    check_results(handle, request, states)?;
    if prepared.groups.joined() {
        // Kept positions require groups of the same extent.
        check_total(handle, request)?;
        let cells = handle.schema().grid()?.touched(&prepared.selection).remaining();
        return Err(Error::limit(
            "the mostly empty grid of the selection",
            cells,
            prepared.plan.chunks.len() as u64,
        )
        .hint("select a written part of the array"));
    }
    // Every thread has its own states of a stack, which are merged afterwards.
    let threads = if options.sequential { 1 } else { options.threads() as u64 };
    let most = options.memory.map_or(threads, |memory| (memory / states.max(1) / 4).clamp(1, threads));
    let workers = options.for_workers(states.saturating_mul(most), prepared.unit)?;
    let stacks = stacks(&prepared, &reduced)?;
    let visitor = Visitor::new(handle, &prepared);
    AxisFold::new(visitor.field.dtype, wanted, &[]).map_err(|e| e.in_array(&handle.schema().name))?;
    let ticker = options.ticker(prepared.groups.len(&prepared.plan) as u64);

    // Folds groups of a stack until there are none left; `None` if there was none.
    let fold_next = |stack: &Stack, next: &AtomicUsize| -> Result<Option<AxisFold>> {
        let extents = with_groups(stack.kept.clone()).shape();
        let extents: SmallVec<[usize; 4]> =
            extents.iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
        let origin: SmallVec<[usize; 4]> = extents.iter().map(|_| 0).collect();
        let mut fold = None;
        while let Some(&index) = stack.groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fold = match &mut fold {
                Some(fold) => fold,
                none => none.insert(AxisFold::new(visitor.field.dtype, wanted, &extents)?),
            };
            let context = visitor.group_context(index as usize)?;
            visitor.group(index as usize, &context, &mut |_| Ok(false), &mut |view| {
                let strides: SmallVec<[usize; 4]> = view.strides.iter().map(|s| s / view.size).collect();
                let cells = axis::AxisCells {
                    cells: view.values,
                    validity: view.validity,
                    shape: &view.extents,
                    strides: &strides,
                };
                let (Some(groups), Some(place)) = (grouped, place) else {
                    return fold.fold(&cells, &reduced, &origin, &visitor.missing);
                };
                // The cells of each run of one group are those of one position of an additional axis.
                let along = groups.axis;
                let group = prepared.groups.get(&prepared.plan, index as usize)?;
                let target = prepared.selection.clip(group.region).map(|(_, target)| target);
                let (start, end) = target.map_or((0, 0), |target| target.bounds()[along]);
                let mut reduced: SmallVec<[bool; 6]> = SmallVec::from_slice(&reduced);
                let mut strides: SmallVec<[usize; 6]> = SmallVec::from_slice(&strides);
                reduced.insert(along, false);
                strides.insert(along, 0);
                for (run, group) in (groups.runs)(start, end) {
                    let mut shape: SmallVec<[usize; 6]> = SmallVec::from_slice(&view.extents);
                    shape[along] = run.len();
                    shape.insert(along, 1);
                    let mut origin = origin.clone();
                    origin[place] = group;
                    let first = run.start * strides[along + 1];
                    let outside = || Error::internal("a group exceeds its chunk");
                    let cells = axis::AxisCells {
                        cells: view.values.get(first * view.size..).ok_or_else(outside)?,
                        validity: view.validity.map(|v| v.get(first..).ok_or_else(outside)).transpose()?,
                        shape: &shape,
                        strides: &strides,
                    };
                    fold.fold(&cells, &reduced, &origin, &visitor.missing)?;
                }
                Ok(())
            })?;
            ticker.tick()?;
        }
        Ok(fold)
    };
    let fold_stack = |stack: &Stack| -> Result<(Region, AxisFold)> {
        let states = if stacks.len() < STACKS { stack.bytes.div_ceil(SEGMENT).clamp(1, most) } else { 1 };
        let states = usize::try_from(states).unwrap_or(1).min(stack.groups.len());
        let next = AtomicUsize::new(0);
        let parts: Vec<Option<AxisFold>> = if states > 1 {
            (0..states).into_par_iter().map(|_| fold_next(stack, &next)).collect::<Result<_>>()?
        } else {
            vec![fold_next(stack, &next)?]
        };
        let mut parts = parts.into_iter().flatten();
        let mut fold = parts.next().ok_or_else(|| Error::internal("a stack without groups"))?;
        for part in parts {
            fold.merge(&part)?;
        }
        Ok((with_groups(stack.kept.clone()), fold))
    };
    let blocks: Vec<(Region, AxisFold)> = workers.run(|| {
        if prepared.parallel() {
            stacks.par_iter().map(fold_stack).collect::<Result<_>>()
        } else {
            stacks.iter().map(fold_stack).collect::<Result<_>>()
        }
    })?;
    Ok(Reduced { shape: shape.to_vec(), blocks })
}

/// The box without its reduced axes.
fn kept(region: &Region, reduced: &[bool]) -> Region {
    Region::new(
        region.bounds().iter().zip(reduced).filter(|(_, reduced)| !**reduced).map(|(bound, _)| *bound),
    )
}

/// Groups by their box of kept positions, in plan order.
fn stacks(prepared: &PreparedRead, reduced: &[bool]) -> Result<Vec<Stack>> {
    let PreparedRead { plan, groups, selection, size, .. } = prepared;
    let mut stacks: Vec<Stack> = Vec::new();
    let mut by_start: HashMap<Coords, usize> = HashMap::new();
    for index in 0..groups.len(plan) {
        let group = groups.get(plan, index)?;
        let Some((part, target)) = selection.clip(group.region) else { continue };
        let region = kept(&target, reduced);
        let start: Coords = region.bounds().iter().map(|b| b.0).collect();
        let number = *by_start.entry(start).or_insert_with(|| {
            stacks.push(Stack { kept: region, groups: Vec::new(), bytes: 0 });
            stacks.len() - 1
        });
        stacks[number].groups.push(u32::try_from(index).unwrap_or(u32::MAX));
        stacks[number].bytes += part.cells().unwrap_or(0).saturating_mul(*size as u64);
    }
    Ok(stacks)
}
