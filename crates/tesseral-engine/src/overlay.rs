//! Which chunks lie over one another, and which parts of the output can be painted apart.
//!
//! Chunks that share a cell of the array's grid form a group; groups touch disjoint cells, so they can be painted at
//! once, and inside a group the higher layer is painted last. Formats whose chunks never overlap give groups of one.

use tesseral_core::{ChunkGrid, Error, Region, Result, Selection};
use tesseral_format::{ChunkPlan, PlannedChunk, Uncovered};

/// Groups of a plan, in row-major order of the grid. Their regions are pairwise disjoint: this type proves it.
#[derive(Debug)]
pub(crate) struct Groups {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Group `i` is chunk `i` alone, on the box it covers.
    Single,
    /// Positions in the plan, lowest layer first, and the box each group owns.
    Many { members: Vec<u32>, groups: Vec<Group> },
}

#[derive(Debug)]
struct Group {
    region: Region,
    members: std::ops::Range<u32>,
}

/// The chunks of one group, lowest layer first, and the box it owns.
pub(crate) struct GroupView<'a> {
    /// The box.
    pub region: &'a Region,
    members: Members<'a>,
}

enum Members<'a> {
    One(u32),
    List(&'a [u32]),
}

impl GroupView<'_> {
    /// Positions in the plan, lowest layer first.
    pub(crate) fn members(&self) -> &[u32] {
        match &self.members {
            Members::One(position) => std::slice::from_ref(position),
            Members::List(list) => list,
        }
    }

    /// The members that can be seen where the selection meets the group: from the newest that hides all below it up to
    /// the newest of all. The flag says whether the fill below them can be seen too.
    pub(crate) fn visible(&self, plan: &ChunkPlan, selection: &Selection) -> (&[u32], bool) {
        let members = self.members();
        // Alone on its own box: there is nothing that could hide it, and no fill below it.
        if let Members::One(_) = self.members {
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

/// The cell of the grid that holds the whole box, as its row-major number.
fn home(grid: &ChunkGrid, region: &Region) -> Option<u64> {
    let mut linear = 0_u64;
    for (d, &(start, end)) in region.bounds().iter().enumerate() {
        let extent = grid.chunk_shape()[d];
        let cell = start / extent;
        if end > start && (end - 1) / extent != cell {
            return None;
        }
        linear = linear * grid.counts()[d] + cell;
    }
    Some(linear)
}

fn cover(chunk: &PlannedChunk) -> Result<&Region> {
    chunk.cover.region().ok_or_else(|| Error::invalid("a plan of a dense array holds a sparse chunk"))
}

impl Groups {
    pub(crate) fn new(grid: &ChunkGrid, plan: &ChunkPlan, selection: &Selection) -> Result<Self> {
        let too_many =
            || Error::limit("the chunks of one plan", plan.chunks.len() as u64, u64::from(u32::MAX));
        let count = u32::try_from(plan.chunks.len()).map_err(|_| too_many())?;
        let mut keys = Vec::new();
        let mut single = plan.uncovered == Uncovered::Impossible;
        let mut last = None;
        for (position, chunk) in plan.chunks.iter().enumerate() {
            let Some(key) = home(grid, cover(chunk)?) else { return Ok(Self::whole(plan, selection)) };
            if single && last.is_none_or(|last| last < key) {
                last = Some(key);
                continue;
            }
            if single {
                // Out of order for the first time: what came before had rising keys, so list them all.
                single = false;
                for earlier in &plan.chunks[..position] {
                    keys.push(home(grid, cover(earlier)?).unwrap_or_default());
                }
            }
            keys.push(key);
        }
        if single {
            return Ok(Self { kind: Kind::Single });
        }
        let mut members: Vec<u32> = (0..count).collect();
        members.sort_by_key(|&m| (keys[m as usize], plan.chunks[m as usize].layer));
        let mut groups = Vec::new();
        let mut at = 0_usize;
        let mut push = |key: u64, at: &mut usize| {
            let start = *at;
            while *at < members.len() && keys[members[*at] as usize] == key {
                *at += 1;
            }
            // Both are at most `count`, a u32.
            #[allow(clippy::cast_possible_truncation)]
            let range = start as u32..*at as u32;
            groups.push(Group { region: grid.region(&grid.coords(key)), members: range });
        };
        if plan.uncovered == Uncovered::Fill {
            // Cells of the grid that no chunk covers are groups too: they are filled.
            for coords in grid.touched(selection) {
                let key = grid.linear(&coords);
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
        Ok(Self { kind: Kind::Many { members, groups } })
    }

    /// Chunks that do not keep to the grid: everything in one group.
    fn whole(plan: &ChunkPlan, selection: &Selection) -> Self {
        let mut members: Vec<u32> = (0..).take(plan.chunks.len()).collect();
        members.sort_by_key(|&m| plan.chunks[m as usize].layer);
        let all = 0..u32::try_from(members.len()).unwrap_or(u32::MAX);
        let groups = vec![Group { region: selection.bounds(), members: all }];
        Self { kind: Kind::Many { members, groups } }
    }

    /// The same groups cut into boxes of at most `extents` positions, as far as those are selected, and the chunks that `piece`
    /// makes of the visible ones there. Boxes of one group are cells of a grid over it, so they are disjoint as groups are.
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
                groups.push(Group { region, members: start..count(&chunks)? });
            }
        }
        let members = (0..count(&chunks)?).collect();
        Ok((chunks, Self { kind: Kind::Many { members, groups } }))
    }

    /// Whether no chunk lies over another and they come in row-major order of the grid, without gaps.
    pub(crate) fn apart(&self) -> bool {
        matches!(self.kind, Kind::Single)
    }

    /// Number of groups.
    pub(crate) fn len(&self, plan: &ChunkPlan) -> usize {
        match &self.kind {
            Kind::Single => plan.chunks.len(),
            Kind::Many { groups, .. } => groups.len(),
        }
    }

    /// One group.
    pub(crate) fn get<'a>(&'a self, plan: &'a ChunkPlan, index: usize) -> Result<GroupView<'a>> {
        match &self.kind {
            Kind::Single => {
                let position = u32::try_from(index).unwrap_or(u32::MAX);
                Ok(GroupView { region: cover(&plan.chunks[index])?, members: Members::One(position) })
            }
            Kind::Many { members, groups } => {
                let group = &groups[index];
                let list = &members[group.members.start as usize..group.members.end as usize];
                Ok(GroupView { region: &group.region, members: Members::List(list) })
            }
        }
    }
}
