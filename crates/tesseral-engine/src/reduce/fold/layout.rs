//! The roles of axes, and the assignment of the cells of a block to slots.

use serde::{Deserialize, Serialize};
use tesseral_core::{Region, Selection};

use super::weights::Weights;

/// The role of an axis of the selection. Positions are those of the selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AxisRole {
    /// One slot per position.
    Keep,
    /// All positions are folded into one slot.
    Reduce,
    /// Positions are grouped: each has an assigned slot.
    Groups {
        /// The slot of each position; positions of no group have one beyond the last.
        slots: Vec<u64>,
        /// Number of slots.
        count: u64,
    },
    /// Slot `w` covers `size` positions from `w · step − before` on, clipped to the axis.
    Windows {
        /// Positions per window.
        size: u64,
        /// Distance between windows.
        step: u64,
        /// Number of positions that the first window begins before the axis.
        before: u64,
        /// Number of windows.
        count: u64,
    },
}

impl AxisRole {
    /// Slots along the axis; `None` where it is reduced.
    pub fn slots(&self, extent: u64) -> Option<u64> {
        match self {
            Self::Keep => Some(extent),
            Self::Reduce => None,
            Self::Groups { count, .. } | Self::Windows { count, .. } => Some(*count),
        }
    }

    /// Whether the role fits an axis of `extent`: roles can come from another process.
    pub(super) fn fits(&self, extent: u64) -> bool {
        match self {
            Self::Keep | Self::Reduce => true,
            Self::Groups { slots, count } => slots.len() as u64 == extent && *count <= extent,
            Self::Windows { size, step, count, .. } => *size > 0 && *step > 0 && *count <= extent,
        }
    }

    /// Positions per slot along the axis, including padding: the extent that fiber positions count by.
    pub(super) fn fiber_extent(&self, extent: u64) -> u64 {
        match self {
            Self::Reduce => extent,
            Self::Windows { size, .. } => *size,
            Self::Keep | Self::Groups { .. } => 1,
        }
    }

    /// The existing positions of a window, on an axis of `extent`.
    pub fn window(&self, slot: u64, extent: u64) -> std::ops::Range<u64> {
        match self {
            Self::Windows { size, step, before, .. } => {
                let start = slot.saturating_mul(*step);
                let first = start.saturating_sub(*before).min(extent);
                first..start.saturating_add(*size).saturating_sub(*before).clamp(first, extent)
            }
            Self::Keep => slot..slot + 1,
            Self::Reduce | Self::Groups { .. } => 0..extent,
        }
    }

    /// Neighbors that belong to one slot among positions `start..end` of an axis of `extent`: relative to the first, and the slot.
    pub(super) fn runs(&self, start: u64, end: u64, extent: u64) -> Vec<(std::ops::Range<usize>, usize)> {
        if let Self::Groups { slots, count } = self {
            let slots = slots.get(index(start)..index(end)).unwrap_or_default();
            let mut at = 0;
            let runs = slots.chunk_by(|a, b| a == b).map(|run| {
                at += run.len();
                (at - run.len()..at, run[0])
            });
            return runs.filter(|(_, slot)| slot < count).map(|(run, slot)| (run, index(slot))).collect();
        }
        let (first, last) = self.reached(start, end);
        let run = |slot: u64| {
            let window = self.window(slot, extent);
            let (from, to) = (window.start.max(start), window.end.min(end));
            (from < to).then(|| (index(from - start)..index(to - start), index(slot)))
        };
        (first..last).filter_map(run).collect()
    }

    /// The slots that positions `start..end` belong to, as an enclosing range.
    pub(super) fn reached(&self, start: u64, end: u64) -> (u64, u64) {
        match self {
            Self::Keep => (start, end),
            Self::Reduce => (0, 1),
            Self::Groups { count, .. } => (0, *count),
            Self::Windows { size, step, before, count } => {
                let step = (*step).max(1);
                let first =
                    start.saturating_add(*before).saturating_add(1).saturating_sub(*size).div_ceil(step);
                let last = end.saturating_sub(1).saturating_add(*before) / step + 1;
                (first.min(*count), last.min(*count))
            }
        }
    }
}

/// The slots that a block covers along an axis, each with its positions in the block and their fiber positions. Slots of neighboring
/// positions are computed when they are needed, so that an axis takes no memory by its extent.
pub(super) struct SlotPositions<'a> {
    /// First slot.
    pub first: u64,
    count: usize,
    role: &'a AxisRole,
    block: std::ops::Range<u64>,
    extent: u64,
    listed: Option<Listed>,
}

/// Positions of slots that are not neighbors: groups, or what a mask leaves.
struct Listed {
    /// The start of each slot's positions, and the end of the last.
    starts: Vec<usize>,
    positions: Vec<usize>,
}

/// The positions of a slot in a block.
#[derive(Clone)]
pub(super) enum Positions<'a> {
    /// Neighbors.
    Range(std::ops::Range<usize>),
    /// Some, in order.
    Listed(&'a [usize]),
}

impl Iterator for Positions<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        match self {
            Self::Range(range) => range.next(),
            Self::Listed(positions) => {
                let (first, rest) = positions.split_first()?;
                *positions = rest;
                Some(*first)
            }
        }
    }
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl<'a> SlotPositions<'a> {
    /// The slots along an axis of `extent`, for a block of its positions `start..end`; `mask` excludes positions.
    pub(super) fn new(role: &'a AxisRole, mask: Option<&[bool]>, start: u64, end: u64, extent: u64) -> Self {
        let (first, last) = role.reached(start, end);
        let count = index(last.saturating_sub(first));
        let mut slots = Self { first, count, role, block: start..end, extent, listed: None };
        let kept = |p: u64| mask.is_none_or(|mask| mask.get(index(p)).copied().unwrap_or(false));
        let mut groups: Vec<Vec<u64>> = Vec::new();
        if let AxisRole::Groups { slots, count } = role {
            groups = vec![Vec::new(); index(*count)];
            for p in start..end {
                if let Some(group) = slots.get(index(p)).and_then(|slot| groups.get_mut(index(*slot))) {
                    group.push(p);
                }
            }
        } else if mask.is_none() {
            return slots;
        }
        let mut listed = Listed { starts: vec![0], positions: Vec::new() };
        for slot in 0..count {
            let put = |p: u64| listed.positions.push(index(p - start));
            match role {
                AxisRole::Groups { .. } => {
                    groups.get(slot).into_iter().flatten().copied().filter(|&p| kept(p)).for_each(put);
                }
                _ => slots.range(slot).filter(|&p| kept(p)).for_each(put),
            }
            listed.starts.push(listed.positions.len());
        }
        slots.listed = Some(listed);
        slots
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The positions of a slot along the axis, as far as the block has them.
    fn range(&self, slot: usize) -> std::ops::Range<u64> {
        let range = self.role.window(self.first + slot as u64, self.extent);
        let start = range.start.max(self.block.start);
        start..range.end.min(self.block.end).max(start)
    }

    /// The positions of a slot in the block, relative to its first.
    pub(super) fn slot(&self, slot: usize) -> Positions<'_> {
        match &self.listed {
            Some(Listed { starts, positions }) => {
                Positions::Listed(&positions[starts[slot]..starts[slot + 1]])
            }
            None => {
                let range = self.range(slot);
                Positions::Range(index(range.start - self.block.start)..index(range.end - self.block.start))
            }
        }
    }

    /// The fiber position of a position of a slot in the block.
    pub(super) fn fiber_position(&self, slot: usize, position: usize) -> u64 {
        let origin = match self.role {
            AxisRole::Keep | AxisRole::Groups { .. } => return 0,
            AxisRole::Reduce => 0,
            // Counts from the window's start, which may lie before the axis.
            AxisRole::Windows { step, before, .. } => {
                i128::from(self.first + slot as u64) * i128::from(*step) - i128::from(*before)
            }
        };
        let position = i128::from(self.block.start) + position as i128;
        u64::try_from(position - origin).unwrap_or(0)
    }
}

/// The fiber position stride of each axis.
fn fiber_strides(roles: &[AxisRole], extents: &[u64]) -> Vec<u64> {
    let mut fiber_strides = vec![0; roles.len()];
    let mut stride = 1_u64;
    for (d, (role, extent)) in roles.iter().zip(extents).enumerate().rev() {
        fiber_strides[d] = stride;
        stride = stride.saturating_mul(role.fiber_extent(*extent));
    }
    fiber_strides
}

/// Distances of neighbors along an axis: in a block of cells, in the fiber, in the selection and among weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OffsetStrides {
    pub offset: usize,
    pub fiber: u64,
    pub order: u64,
    pub weight: u64,
}

/// The position of a cell in the same terms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CellOffsets {
    pub offset: usize,
    pub fiber: u64,
    pub order: u64,
    pub weight: u64,
}

/// The strides of each axis of a selection, without offsets.
pub(super) fn offset_strides(
    roles: &[AxisRole],
    extents: &[u64],
    weights: Option<&Weights>,
) -> Vec<OffsetStrides> {
    let fibers = fiber_strides(roles, extents);
    let weights = weights.map_or_else(|| vec![0; extents.len()], |weights| weights.strides(extents));
    let mut order = 1_u64;
    let mut strides: Vec<OffsetStrides> = Vec::with_capacity(extents.len());
    for d in (0..extents.len()).rev() {
        strides.push(OffsetStrides { offset: 0, fiber: fibers[d], order, weight: weights[d] });
        order = order.saturating_mul(extents[d]);
    }
    strides.reverse();
    strides
}

/// The slots of all axes that a part of a selection covers: a region of the result.
pub(super) fn slot_box(roles: &[AxisRole], lists: &[SlotPositions<'_>]) -> Region {
    let kept = roles.iter().zip(lists).filter(|(role, _)| **role != AxisRole::Reduce);
    Region::new(kept.map(|(_, lists)| (lists.first, lists.first + lists.len() as u64)))
}

/// The same, for position bounds along each axis.
pub(super) fn reached(roles: &[AxisRole], bounds: &[(u64, u64)]) -> Region {
    let kept = roles.iter().zip(bounds).filter(|(role, _)| **role != AxisRole::Reduce);
    Region::new(kept.map(|(role, &(start, end))| role.reached(start, end)))
}

/// The shape of the result.
pub(super) fn shape(roles: &[AxisRole], selection: &Selection) -> Vec<u64> {
    let extents = selection.shape();
    roles.iter().zip(&extents).filter_map(|(role, &n)| role.slots(n)).collect()
}
