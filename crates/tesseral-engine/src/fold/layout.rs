//! What becomes of each axis, and which cells of a block belong to which slot.

use serde::{Deserialize, Serialize};
use tesseral_core::{Region, Selection};

/// What becomes of an axis of the selection. Positions are those of the selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A slot for each position.
    Keep,
    /// Every position goes to the one slot.
    Reduce,
    /// The slot of each position.
    Groups {
        /// One per position.
        slots: Vec<u64>,
        /// How many slots there are.
        count: u64,
    },
    /// Slot `w` takes the positions from `w · step − before`, `size` of them as far as they exist.
    Windows {
        /// Positions of a window.
        size: u64,
        /// Distance between windows.
        step: u64,
        /// By how much the first window begins before the axis.
        before: u64,
        /// How many windows there are.
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

    /// Positions that one slot folds along the axis, padding included: what places in a fibre count by.
    pub(super) fn fibre(&self, extent: u64) -> u64 {
        match self {
            Self::Reduce => extent,
            Self::Windows { size, .. } => *size,
            Self::Keep | Self::Groups { .. } => 1,
        }
    }

    /// Positions of a window that exist, of an axis of `extent`.
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

    /// Slots that positions `start..end` go to, as a range that holds them all.
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

/// The slots that a block reaches along one axis, each with its positions in the block and their places in the fibre.
pub(super) struct Lists {
    /// First slot.
    pub first: u64,
    /// Where the positions of each slot begin, and where the last end.
    starts: Vec<usize>,
    positions: Vec<usize>,
    places: Vec<u64>,
}

impl Lists {
    /// Along an axis of `extent`, for a block that holds its positions `start..end`; `mask` leaves positions out.
    pub(super) fn new(role: &Role, mask: Option<&[bool]>, start: u64, end: u64, extent: u64) -> Self {
        let (first, last) = role.reached(start, end);
        let mut lists = Self { first, starts: vec![0], positions: Vec::new(), places: Vec::new() };
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
                    // A place counts from the window's own start, which may lie before the axis.
                    (role.window(slot, extent), i128::from(slot * step) - i128::from(*before))
                }
                _ => (role.window(slot, extent), 0),
            };
            let mut put = |p: u64| {
                lists.positions.push(index(p - start));
                let place = match role {
                    Role::Keep | Role::Groups { .. } => 0,
                    _ => i128::from(p) - origin,
                };
                lists.places.push(u64::try_from(place).unwrap_or(0));
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

    /// Positions in the block of a slot, counted from the first, and their places in the fibre.
    pub(super) fn slot(&self, slot: usize) -> (&[usize], &[u64]) {
        let range = self.starts[slot]..self.starts[slot + 1];
        (&self.positions[range.clone()], &self.places[range])
    }
}

/// What a step along each axis adds to a place in the fibre of a slot.
pub(super) fn fibres(roles: &[Role], extents: &[u64]) -> Vec<u64> {
    let mut fibres = vec![0; roles.len()];
    let mut fibre = 1_u64;
    for (d, (role, extent)) in roles.iter().zip(extents).enumerate().rev() {
        fibres[d] = fibre;
        fibre = fibre.saturating_mul(role.fibre(*extent));
    }
    fibres
}

/// The slots of all axes that a part of a selection reaches: a box of the result.
pub(super) fn slot_box(roles: &[Role], lists: &[Lists]) -> Region {
    let kept = roles.iter().zip(lists).filter(|(role, _)| **role != Role::Reduce);
    Region::new(kept.map(|(_, lists)| (lists.first, lists.first + lists.len() as u64)))
}

/// The same, of positions from where to where along each axis.
pub(super) fn reached(roles: &[Role], place: &[(u64, u64)]) -> Region {
    let kept = roles.iter().zip(place).filter(|(role, _)| **role != Role::Reduce);
    Region::new(kept.map(|(role, &(start, end))| role.reached(start, end)))
}

/// The shape of the result.
pub(super) fn shape(roles: &[Role], selection: &Selection) -> Vec<u64> {
    let extents = selection.shape();
    roles.iter().zip(&extents).filter_map(|(role, &n)| role.slots(n)).collect()
}
