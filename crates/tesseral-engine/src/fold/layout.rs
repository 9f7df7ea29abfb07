//! The roles of axes, and the assignment of the cells of a block to slots.

use serde::{Deserialize, Serialize};
use tesseral_core::{Region, Selection};

/// The role of an axis of the selection. Positions are those of the selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// One slot per position.
    Keep,
    /// All positions are folded into one slot.
    Reduce,
    /// Positions are grouped: each has an assigned slot.
    Groups {
        /// The slot of each position.
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

impl Role {
    /// Slots along the axis; `None` where it is reduced.
    pub fn slots(&self, extent: u64) -> Option<u64> {
        match self {
            Self::Keep => Some(extent),
            Self::Reduce => None,
            Self::Groups { count, .. } | Self::Windows { count, .. } => Some(*count),
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

    /// The slots that positions `start..end` belong to, as an enclosing range.
    pub(super) fn reached(&self, start: u64, end: u64) -> (u64, u64) {
        match self {
            Self::Keep => (start, end),
            Self::Reduce => (0, 1),
            Self::Groups { count, .. } => (0, *count),
            Self::Windows { size, step, before, count } => {
                let step = (*step).max(1);
                let first = (start + before + 1).saturating_sub(*size).div_ceil(step);
                let last = (end - 1 + before) / step + 1;
                (first.min(*count), last.min(*count))
            }
        }
    }
}

/// The slots that a block covers along an axis, each with its positions in the block and their fiber positions.
pub(super) struct SlotPositions {
    /// First slot.
    pub first: u64,
    /// The start of each slot's positions, and the end of the last.
    starts: Vec<usize>,
    positions: Vec<usize>,
    fiber_positions: Vec<u64>,
}

impl SlotPositions {
    /// The slots along an axis of `extent`, for a block of its positions `start..end`; `mask` excludes positions.
    pub(super) fn new(role: &Role, mask: Option<&[bool]>, start: u64, end: u64, extent: u64) -> Self {
        let (first, last) = role.reached(start, end);
        let mut lists = Self { first, starts: vec![0], positions: Vec::new(), fiber_positions: Vec::new() };
        let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let kept = |p: u64| mask.is_none_or(|mask| mask.get(index(p)).copied().unwrap_or(false));
        let mut groups: Vec<Vec<u64>> = Vec::new();
        if let Role::Groups { slots, count } = role {
            groups = vec![Vec::new(); index(*count)];
            for p in start..end {
                if let Some(group) = slots.get(index(p)).and_then(|slot| groups.get_mut(index(*slot))) {
                    group.push(p);
                }
            }
        }
        for slot in first..last {
            let (range, origin) = match role {
                Role::Windows { step, before, .. } => {
                    // A fiber position counts from the window's start, which may lie before the axis.
                    (role.window(slot, extent), i128::from(slot * step) - i128::from(*before))
                }
                _ => (role.window(slot, extent), 0),
            };
            let mut put = |p: u64| {
                lists.positions.push(index(p - start));
                let fiber_position = match role {
                    Role::Keep | Role::Groups { .. } => 0,
                    _ => i128::from(p) - origin,
                };
                lists.fiber_positions.push(u64::try_from(fiber_position).unwrap_or(0));
            };
            match role {
                Role::Groups { .. } => {
                    groups[index(slot)].iter().copied().filter(|&p| kept(p)).for_each(&mut put);
                }
                _ => (range.start.max(start)..range.end.min(end)).filter(|&p| kept(p)).for_each(&mut put),
            }
            lists.starts.push(lists.positions.len());
        }
        lists
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The positions of a slot in the block, relative to its first, and their fiber positions.
    pub(super) fn slot(&self, slot: usize) -> (&[usize], &[u64]) {
        let range = self.starts[slot]..self.starts[slot + 1];
        (&self.positions[range.clone()], &self.fiber_positions[range])
    }
}

/// The fiber position stride of each axis.
pub(super) fn fiber_strides(roles: &[Role], extents: &[u64]) -> Vec<u64> {
    let mut fiber_strides = vec![0; roles.len()];
    let mut stride = 1_u64;
    for (d, (role, extent)) in roles.iter().zip(extents).enumerate().rev() {
        fiber_strides[d] = stride;
        stride = stride.saturating_mul(role.fiber_extent(*extent));
    }
    fiber_strides
}

/// The slots of all axes that a part of a selection covers: a region of the result.
pub(super) fn slot_box(roles: &[Role], lists: &[SlotPositions]) -> Region {
    let kept = roles.iter().zip(lists).filter(|(role, _)| **role != Role::Reduce);
    Region::new(kept.map(|(_, lists)| (lists.first, lists.first + lists.len() as u64)))
}

/// The same, for position bounds along each axis.
pub(super) fn reached(roles: &[Role], bounds: &[(u64, u64)]) -> Region {
    let kept = roles.iter().zip(bounds).filter(|(role, _)| **role != Role::Reduce);
    Region::new(kept.map(|(role, &(start, end))| role.reached(start, end)))
}

/// The shape of the result.
pub(super) fn shape(roles: &[Role], selection: &Selection) -> Vec<u64> {
    let extents = selection.shape();
    roles.iter().zip(&extents).filter_map(|(role, &n)| role.slots(n)).collect()
}
