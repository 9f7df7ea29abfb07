//! Groups of overlapping chunks, which can be painted independently.
//!
//! Chunks that share a cell of the array's grid form a group; groups touch disjoint cells, so they can be painted concurrently,
//! and inside a group the higher layer is painted last. Formats without overlaps have groups of one chunk.

use tesseral_core::{ChunkGrid, Coords, Error, Region, Result, Selection};
use tesseral_format::{ChunkPlan, PlannedChunk, Uncovered};

/// Groups of a plan, in row-major order of the grid. Their regions are pairwise disjoint: this type guarantees it.
#[derive(Debug)]
pub(crate) struct Groups {
    kind: Grouping,
}

#[derive(Debug)]
enum Grouping {
    /// Group `i` is chunk `i` alone, on the box it covers.
    Single,
    /// Indexes in the plan, lowest layer first, and the box of each group. `joined` if grid cells without a chunk are merged
    /// into larger boxes.
    Many { members: Vec<u32>, groups: Vec<ChunkGroup>, joined: bool },
}

#[derive(Debug)]
struct ChunkGroup {
    region: Region,
    members: std::ops::Range<u32>,
}

/// The chunks of one group, lowest layer first, and its box.
pub(crate) struct GroupView<'a> {
    /// Box of the group.
    pub region: &'a Region,
    members: MemberList<'a>,
}

enum MemberList<'a> {
    One(u32),
    List(&'a [u32]),
}

impl GroupView<'_> {
    /// Indexes in the plan, lowest layer first.
    pub(crate) fn members(&self) -> &[u32] {
        match &self.members {
            MemberList::One(position) => std::slice::from_ref(position),
            MemberList::List(list) => list,
        }
    }

    /// Members that are visible in the selected part of the group: from the newest that hides all below it up to the newest.
    /// The flag is true if the fill below them is visible too.
    pub(crate) fn visible(&self, plan: &ChunkPlan, selection: &Selection) -> (&[u32], bool) {
        let members = self.members();
        // A single chunk on its own box: nothing can hide it, and no fill is below it.
        if let MemberList::One(_) = self.members {
            return (members, false);
        }
        let Some(region) = self.region.intersect(&selection.bounds()) else { return (&[], false) };
        let covers =
            |&m: &u32| plan.chunks[m as usize].cover.region().is_some_and(|cover| cover.contains(&region));
        match members.iter().rposition(covers) {
            Some(lowest) => (&members[lowest..], false),
            None => (members, true),
        }
    }
}

/// Row-major numbers of grid cells: of all of them, or, if the grid has too many, of those around a selection.
struct Numbering {
    first: Coords,
    counts: Coords,
}

impl Numbering {
    fn new(grid: &ChunkGrid, selection: &Selection) -> Result<Self> {
        if grid.is_counted() {
            let counts = Coords::from_slice(grid.counts());
            return Ok(Self { first: Coords::from_elem(0, counts.len()), counts });
        }
        let bounds = selection.bounds();
        let cells = bounds.bounds().iter().zip(grid.chunk_shape());
        let (first, counts): (Coords, Coords) =
            cells.map(|((start, end), chunk)| (start / chunk, end.div_ceil(*chunk) - start / chunk)).unzip();
        let count = counts.iter().try_fold(1_u64, |n, c| n.checked_mul(*c));
        count.ok_or_else(|| Error::limit("the chunks of a selection", u64::MAX, u64::MAX - 1))?;
        Ok(Self { first, counts })
    }

    /// The grid cell that contains the whole box, if it has a number.
    fn home(&self, grid: &ChunkGrid, region: &Region) -> Option<u64> {
        let mut linear = 0_u64;
        for (d, &(start, end)) in region.bounds().iter().enumerate() {
            let extent = grid.chunk_shape()[d];
            let cell = start / extent;
            if end > start && (end - 1) / extent != cell {
                return None;
            }
            let cell = cell.checked_sub(self.first[d]).filter(|cell| *cell < self.counts[d])?;
            linear = linear * self.counts[d] + cell;
        }
        Some(linear)
    }

    fn linear(&self, coords: &[u64]) -> u64 {
        let cells = coords.iter().zip(&self.first).zip(&self.counts);
        cells.fold(0, |linear, ((c, first), n)| linear * n + (c - first))
    }

    fn coords(&self, mut linear: u64) -> Coords {
        let mut coords = self.first.clone();
        for d in (0..coords.len()).rev() {
            let n = self.counts[d].max(1);
            coords[d] += linear % n;
            linear /= n;
        }
        coords
    }
}

/// Maximum number of grid cells without a chunk that are separate groups, which threads share.
const EMPTY_CELLS: u64 = 16 << 10;
/// Maximum rank for which boxes without a chunk are merged.
const JOINED_RANK: usize = 64;

/// Groups of a mostly empty grid: one per grid cell with chunks, and between them boxes without any, at most twice the rank per
/// chunk. The work is proportional to the number of chunks, not of grid cells.
fn join_gaps(
    grid: &ChunkGrid,
    numbering: &Numbering,
    selection: &Selection,
    members: &[u32],
    keys: &[u64],
) -> Result<Vec<ChunkGroup>> {
    if grid.rank() > JOINED_RANK {
        return Err(Error::limit(
            "the dimensions of a mostly empty array",
            grid.rank() as u64,
            JOINED_RANK as u64,
        ));
    }
    let bounds = selection.bounds();
    let cells = bounds.bounds().iter().zip(grid.chunk_shape());
    let mut cells: Vec<(u64, u64)> = cells.map(|(b, chunk)| (b.0 / chunk, b.1.div_ceil(*chunk))).collect();
    if cells.iter().any(|(start, end)| start >= end) {
        return Ok(Vec::new());
    }
    let mut held: Vec<(Coords, std::ops::Range<u32>)> = Vec::new();
    for (at, &member) in (0_u32..).zip(members) {
        let coords = numbering.coords(keys[member as usize]);
        match held.last_mut() {
            Some((last, range)) if *last == coords => range.end = at + 1,
            _ => held.push((coords, at..at + 1)),
        }
    }
    held.retain(|(coords, _)| coords.iter().zip(&cells).all(|(c, (start, end))| (start..end).contains(&c)));
    let mut groups = Vec::new();
    join_box(grid, &mut cells, 0, &held, &mut groups);
    Ok(groups)
}

/// Divides a box of grid cells, from dimension `d` on, along the cells with chunks.
fn join_box(
    grid: &ChunkGrid,
    cells: &mut [(u64, u64)],
    d: usize,
    held: &[(Coords, std::ops::Range<u32>)],
    groups: &mut Vec<ChunkGroup>,
) {
    let whole =
        |cells: &[(u64, u64)]| {
            Region::new(cells.iter().zip(grid.chunk_shape()).zip(grid.shape()).map(|((c, &chunk), &n)| {
                (c.0.saturating_mul(chunk).min(n), c.1.saturating_mul(chunk).min(n))
            }))
        };
    let Some((first, range)) = held.first() else {
        groups.push(ChunkGroup { region: whole(cells), members: 0..0 });
        return;
    };
    if d == cells.len() {
        groups.push(ChunkGroup { region: whole(cells), members: range.clone() });
        return;
    }
    let (start, end) = cells[d];
    let mut at = start;
    let (mut next, mut rest) = (first[d], held);
    loop {
        if at < next {
            cells[d] = (at, next);
            groups.push(ChunkGroup { region: whole(cells), members: 0..0 });
        }
        let own = rest.partition_point(|(coords, _)| coords[d] <= next);
        cells[d] = (next, next + 1);
        join_box(grid, cells, d + 1, &rest[..own], groups);
        at = next + 1;
        rest = &rest[own..];
        let Some((coords, _)) = rest.first() else { break };
        next = coords[d];
    }
    if at < end {
        cells[d] = (at, end);
        groups.push(ChunkGroup { region: whole(cells), members: 0..0 });
    }
    cells[d] = (start, end);
}

fn cover(chunk: &PlannedChunk) -> Result<&Region> {
    chunk.cover.region().ok_or_else(|| Error::internal("a plan of a dense array contains a sparse chunk"))
}

impl Groups {
    pub(crate) fn new(grid: &ChunkGrid, plan: &ChunkPlan, selection: &Selection) -> Result<Self> {
        let too_many =
            || Error::limit("the chunks of one plan", plan.chunks.len() as u64, u64::from(u32::MAX));
        let count = u32::try_from(plan.chunks.len()).map_err(|_| too_many())?;
        let numbering = Numbering::new(grid, selection)?;
        let mut keys = Vec::new();
        let mut single = plan.uncovered == Uncovered::Impossible;
        let mut last = None;
        for (position, chunk) in plan.chunks.iter().enumerate() {
            let Some(key) = numbering.home(grid, cover(chunk)?) else {
                return Ok(Self::whole(plan, selection));
            };
            if single && last.is_none_or(|last| last < key) {
                last = Some(key);
                continue;
            }
            if single {
                // First chunk out of order: previous ones had ascending keys, so list them all.
                single = false;
                for earlier in &plan.chunks[..position] {
                    keys.push(numbering.home(grid, cover(earlier)?).unwrap_or_default());
                }
            }
            keys.push(key);
        }
        if single {
            return Ok(Self { kind: Grouping::Single });
        }
        let mut members: Vec<u32> = (0..count).collect();
        members.sort_by_key(|&m| (keys[m as usize], plan.chunks[m as usize].layer));
        if plan.uncovered == Uncovered::Fill {
            let cells = grid.touched(selection).remaining();
            if cells > EMPTY_CELLS.saturating_add(4 * u64::from(count)) {
                let groups = join_gaps(grid, &numbering, selection, &members, &keys)?;
                return Ok(Self { kind: Grouping::Many { members, groups, joined: true } });
            }
        }
        let mut groups = Vec::new();
        let mut at = 0_usize;
        let mut push = |key: u64, at: &mut usize| {
            let start = *at;
            while *at < members.len() && keys[members[*at] as usize] == key {
                *at += 1;
            }
            // Both are at most `count`, a u32.
            let range = start as u32..*at as u32;
            groups.push(ChunkGroup { region: grid.region(&numbering.coords(key)), members: range });
        };
        if plan.uncovered == Uncovered::Fill {
            // Grid cells that no chunk covers are groups too: they are filled.
            for coords in grid.touched(selection) {
                let key = numbering.linear(&coords);
                while at < members.len() && keys[members[at] as usize] < key {
                    at += 1;
                }
                push(key, &mut at);
            }
        } else {
            while at < members.len() {
                push(keys[members[at] as usize], &mut at);
            }
        }
        Ok(Self { kind: Grouping::Many { members, groups, joined: false } })
    }

    /// Returns whether grid cells without a chunk are merged, so that groups over the same positions can differ in extent.
    pub(crate) fn joined(&self) -> bool {
        matches!(self.kind, Grouping::Many { joined: true, .. })
    }

    /// Chunks that are not aligned to the grid: everything in one group.
    fn whole(plan: &ChunkPlan, selection: &Selection) -> Self {
        let mut members: Vec<u32> = (0..).take(plan.chunks.len()).collect();
        members.sort_by_key(|&m| plan.chunks[m as usize].layer);
        let all = 0..u32::try_from(members.len()).unwrap_or(u32::MAX);
        let groups = vec![ChunkGroup { region: selection.bounds(), members: all }];
        Self { kind: Grouping::Many { members, groups, joined: false } }
    }

    /// Divides groups into boxes of at most `extents` positions, as far as they are selected, and the chunks that `piece`
    /// creates from the visible ones. Boxes of one group are cells of a grid over it, so they are disjoint like groups.
    pub(crate) fn refined(
        &self,
        plan: &ChunkPlan,
        selection: &Selection,
        extents: &[u64],
        piece: impl Fn(&PlannedChunk, &Region) -> Result<Option<PlannedChunk>>,
    ) -> Result<(Vec<PlannedChunk>, Self)> {
        let (mut chunks, mut groups) = (Vec::new(), Vec::new());
        let count = |chunks: &[PlannedChunk]| {
            let most = u64::from(u32::MAX);
            u32::try_from(chunks.len())
                .map_err(|_| Error::limit("pieces of chunks", chunks.len() as u64, most))
        };
        for index in 0..self.len(plan) {
            let group = self.get(plan, index)?;
            let Some((part, _)) = selection.clip(group.region) else { continue };
            let (members, _) = group.visible(plan, selection);
            // A box of many grid cells without a chunk has no bytes to divide.
            if members.is_empty() && self.joined() {
                let end = count(&chunks)?;
                groups.push(ChunkGroup { region: group.region.clone(), members: end..end });
                continue;
            }
            let boxes = ChunkGrid::new(&group.region.shape(), extents)?;
            // Positions inside the group.
            let inside = Region::new(
                part.bounds().bounds().iter().zip(group.region.bounds()).map(|(p, g)| (p.0 - g.0, p.1 - g.0)),
            );
            for coords in boxes.touched(&Selection::from_region(&inside)) {
                let cell = boxes.region(&coords);
                let region = Region::new(
                    cell.bounds().iter().zip(group.region.bounds()).map(|(c, g)| (g.0 + c.0, g.0 + c.1)),
                );
                if selection.clip(&region).is_none() {
                    continue;
                }
                let start = count(&chunks)?;
                for &member in members {
                    chunks.extend(piece(&plan.chunks[member as usize], &region)?);
                }
                groups.push(ChunkGroup { region, members: start..count(&chunks)? });
            }
        }
        let members = (0..count(&chunks)?).collect();
        Ok((chunks, Self { kind: Grouping::Many { members, groups, joined: self.joined() } }))
    }

    /// Returns whether chunks do not overlap and are in row-major order of the grid, without gaps.
    pub(crate) fn apart(&self) -> bool {
        matches!(self.kind, Grouping::Single)
    }

    /// Number of groups.
    pub(crate) fn len(&self, plan: &ChunkPlan) -> usize {
        match &self.kind {
            Grouping::Single => plan.chunks.len(),
            Grouping::Many { groups, .. } => groups.len(),
        }
    }

    /// One group.
    pub(crate) fn get<'a>(&'a self, plan: &'a ChunkPlan, index: usize) -> Result<GroupView<'a>> {
        match &self.kind {
            Grouping::Single => {
                let position = u32::try_from(index).unwrap_or(u32::MAX);
                Ok(GroupView { region: cover(&plan.chunks[index])?, members: MemberList::One(position) })
            }
            Grouping::Many { members, groups, .. } => {
                let group = &groups[index];
                let list = &members[group.members.start as usize..group.members.end as usize];
                Ok(GroupView { region: &group.region, members: MemberList::List(list) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::Slice;
    use tesseral_format::{Access, Cover};

    fn plan(grid: &ChunkGrid, cells: &[&[u64]]) -> ChunkPlan {
        let chunk = |(layer, coords): (u32, &&[u64])| PlannedChunk {
            id: u64::from(layer),
            cover: Cover::Exact(grid.region(coords)),
            tile: None,
            layer,
            cells: 1,
            parts: Default::default(),
            access: Access::Coded { granule: None },
            whole: true,
        };
        let chunks = (0..).zip(cells).map(chunk).collect();
        ChunkPlan { chunks, uncovered: Uncovered::Fill, deletes: Vec::new() }
    }

    /// The groups of a grid of 10^18 cells are as few as its chunks, disjoint, and cover the selection.
    #[test]
    fn work_on_empty_grids_is_proportional_to_their_chunks() {
        let n = 1_000_000_000;
        let grid = ChunkGrid::new(&[n, n], &[1, 1]).unwrap();
        let cells: [&[u64]; 5] = [&[7, 5], &[7, 9], &[7, 5], &[0, n - 1], &[n - 1, 0]];
        let plan = plan(&grid, &cells);
        let slices = [Slice::new(0, n), Slice { start: 0, end: n, step: 3 }];
        for selection in [Selection::all(&[n, n]), Selection::new(slices, &[n, n]).unwrap()] {
            let groups = Groups::new(&grid, &plan, &selection).unwrap();
            assert!(groups.joined());
            let count = groups.len(&plan);
            assert!((5..=20).contains(&count), "{count}");
            let views: Vec<GroupView<'_>> = (0..count).map(|i| groups.get(&plan, i).unwrap()).collect();
            let mut held = 0;
            for (i, view) in views.iter().enumerate() {
                held += view.members().len();
                let cover = |m: &u32| plan.chunks[*m as usize].cover.region() == Some(view.region);
                assert!(view.members().iter().all(cover));
                assert!(view.members().is_sorted_by_key(|m| plan.chunks[*m as usize].layer));
                assert!(views[..i].iter().all(|other| other.region.intersect(view.region).is_none()));
            }
            assert_eq!(held, 5);
            let covered: u64 = views.iter().map(|view| view.region.cells().unwrap()).sum();
            // A strided selection ends with its last position.
            assert_eq!(covered, selection.bounds().cells().unwrap());
        }
    }

    /// Boxes without a chunk are not divided: there would be as many pieces as declared cells.
    #[test]
    fn empty_boxes_are_not_divided() {
        let n = 1_000_000_000;
        let grid = ChunkGrid::new(&[n, n], &[4, 4]).unwrap();
        let plan = plan(&grid, &[&[7, 5], &[9, 9]]);
        let selection = Selection::all(&[n, n]);
        let groups = Groups::new(&grid, &plan, &selection).unwrap();
        let piece = |chunk: &PlannedChunk, part: &Region| {
            Ok(Some(PlannedChunk { cover: Cover::Exact(part.clone()), ..chunk.clone() }))
        };
        let (chunks, refined) = groups.refined(&plan, &selection, &[1, 4], piece).unwrap();
        let cut = ChunkPlan { chunks, ..plan };
        assert!(refined.joined() && cut.chunks.len() == 8);
        let views = (0..refined.len(&cut)).map(|i| refined.get(&cut, i).unwrap());
        let (held, empty): (Vec<_>, Vec<_>) = views.partition(|view| !view.members().is_empty());
        assert_eq!((held.len(), empty.len()), (8, groups.len(&cut) - 2));
        let covered: u64 = held.iter().chain(&empty).map(|view| view.region.cells().unwrap()).sum();
        assert_eq!(covered, n * n);
    }

    /// A box of a few grid cells keeps one group for each.
    #[test]
    fn small_grids_keep_a_group_for_each_cell() {
        let grid = ChunkGrid::new(&[4, 4], &[2, 2]).unwrap();
        let plan = plan(&grid, &[&[1, 1]]);
        let groups = Groups::new(&grid, &plan, &Selection::all(&[4, 4])).unwrap();
        assert!(!groups.joined());
        assert_eq!(groups.len(&plan), 4);
    }
}
