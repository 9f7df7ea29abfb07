//! The mappings of a virtual dataset: which cells of other datasets are its cells.
//!
//! ```text
//! u8 version 0 or 1 │ number of mappings │ of each: u8 flags (version 1) │ file │ dataset │ selection there │ selection here │ checksum
//! selection: u32 kind │ u32 version │ kind 2, boxes at regular distances, or a list of boxes │ 1, points │ 0, none │ 3, all
//! ```
//!
//! The cells of both selections correspond in row-major order. Axes along which a selection has one position do not change that order,
//! so those with more are matched, first with first. A selection here without an end has as many positions as the one there finds, or one
//! block for each file that exists: `%b` in names is replaced by its number.

use hdf5_reader::checksum::jenkins_lookup3;
use tesseral_core::{Cursor, Error, Region, Result};

/// Kinds of serialized selections.
const POINTS: u32 = 1;
const BOXES: u32 = 2;
const ALL: u32 = 3;
/// Flags of a mapping of version 1: names that an earlier mapping has, and the file itself.
const SHARED_FILE: u8 = 1;
const SHARED_DATASET: u8 = 2;
const SAME_FILE: u8 = 4;
/// A selection of boxes at regular distances, in versions from 2 on.
const REGULAR: u8 = 1;
/// The number of blocks of a selection without an end.
const UNLIMITED: u64 = u64::MAX;
/// The maximum number of dimensions in HDF5.
const RANK: u32 = 32;

/// Positions along one axis: blocks at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisBlocks {
    start: u64,
    stride: u64,
    block: u64,
    /// Number of positions; `None` without an end.
    positions: Option<u64>,
}

impl AxisBlocks {
    /// All positions of `start..end`.
    fn range(start: u64, end: u64) -> Self {
        let len = end.saturating_sub(start);
        Self { start, stride: len.max(1), block: len.max(1), positions: Some(len) }
    }

    fn new(start: u64, stride: u64, count: u64, block: u64) -> Option<Self> {
        let positions = match (count, block) {
            (UNLIMITED, _) | (_, UNLIMITED) => None,
            _ => Some(count.checked_mul(block)?),
        };
        // A block without an end, and blocks without gaps, are one range.
        let (stride, block) = match (block, positions) {
            (UNLIMITED, _) => (1, 1),
            (0, _) => return Some(Self::range(start, start)),
            (block, Some(positions)) if stride == block || count <= 1 => (positions.max(1), positions.max(1)),
            (block, _) => (stride, block),
        };
        start.checked_add(positions.unwrap_or(0)).filter(|_| stride >= block)?;
        Some(Self { start, stride, block, positions })
    }

    /// The number of positions below an extent.
    fn below(&self, extent: u64) -> u64 {
        let Some(distance) = extent.checked_sub(self.start) else { return 0 };
        let whole = (distance / self.stride).saturating_mul(self.block);
        let found = whole.saturating_add((distance % self.stride).min(self.block));
        found.min(self.positions.unwrap_or(UNLIMITED))
    }

    /// The same blocks with as many positions as an extent has.
    fn within(self, extent: u64) -> Self {
        Self { positions: Some(self.positions.unwrap_or_else(|| self.below(extent))), ..self }
    }

    /// A position by its number.
    fn position(&self, number: u64) -> u64 {
        let blocks = (number / self.block).saturating_mul(self.stride);
        self.start.saturating_add(blocks).saturating_add(number % self.block)
    }

    /// The number of positions that follow one another from the one with this number.
    fn run(&self, number: u64) -> u64 {
        if self.stride == self.block { u64::MAX } else { self.block - number % self.block }
    }

    /// One past the last of a number of positions.
    fn end(&self, positions: u64) -> u64 {
        positions.checked_sub(1).map_or(0, |last| self.position(last).saturating_add(1))
    }
}

/// A selection of cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CellSelection {
    All,
    Blocks(Vec<AxisBlocks>),
    /// Boxes in the order of their cells.
    Boxes(Vec<Region>),
}

impl CellSelection {
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let (kind, version) = (cursor.u32("kind of selection")?, cursor.u32("version of a selection")?);
        let unknown = || {
            Error::unsupported(format!("selections of kind {kind} and version {version} in virtual datasets"))
        };
        let width = match (kind, version) {
            (0 | ALL, 1) => {
                cursor.take(8, "selection")?;
                return Ok(if kind == ALL { Self::All } else { Self::Boxes(Vec::new()) });
            }
            (POINTS | BOXES, 1) => {
                cursor.take(8, "selection")?;
                4
            }
            (POINTS, 2) => usize::from(cursor.u8("width")?),
            (BOXES, 2 | 3) => {
                let regular = cursor.u8("flags of a selection")? & REGULAR != 0;
                let width = match version {
                    2 => cursor.take(4, "length of a selection").map(|_| 8)?,
                    _ => usize::from(cursor.u8("width")?),
                };
                if regular {
                    return Self::regular(cursor, width);
                }
                width
            }
            _ => return Err(unknown()),
        };
        let rank = rank(cursor)?;
        let count = number(cursor, width, "number of boxes")?;
        let corners = if kind == BOXES { 2 } else { 1 };
        let mut boxes = Vec::new();
        for _ in 0..cursor.count(count, corners * rank * width, "boxes")? {
            let corner = |cursor: &mut Cursor<'_>| -> Result<Vec<u64>> {
                (0..rank).map(|_| number(cursor, width, "a position")).collect()
            };
            let first = corner(cursor)?;
            let last = if kind == BOXES { corner(cursor)? } else { first.clone() };
            let bounds = first.iter().zip(&last).map(|(start, end)| (*start, end.saturating_add(1)));
            if first.iter().zip(&last).any(|(start, end)| start > end) {
                return Err(cursor.corrupt("selection", "a box ends before it starts"));
            }
            boxes.push(Region::new(bounds));
        }
        // Older files list the boxes of regular selections.
        Ok(regular_blocks(&boxes).map_or(Self::Boxes(boxes), Self::Blocks))
    }

    fn regular(cursor: &mut Cursor<'_>, width: usize) -> Result<Self> {
        let rank = rank(cursor)?;
        let mut axes = Vec::with_capacity(rank);
        for _ in 0..rank {
            let mut next = || number(cursor, width, "blocks");
            let (start, stride, count, block) = (next()?, next()?, next()?, next()?);
            let blocks = AxisBlocks::new(start, stride, count, block);
            axes.push(blocks.ok_or_else(|| cursor.corrupt("selection", "blocks overlap or exceed 2^64"))?);
        }
        Ok(Self::Blocks(axes))
    }

    /// The axis without an end.
    fn unlimited(&self) -> Option<usize> {
        match self {
            Self::Blocks(axes) => axes.iter().position(|axis| axis.positions.is_none()),
            Self::All | Self::Boxes(_) => None,
        }
    }

    /// The parts of the selection that are blocks along every axis, in the order of their cells.
    fn parts(&self, shape: &[u64]) -> Result<Vec<Vec<AxisBlocks>>> {
        let mismatch =
            || Error::unsupported("virtual datasets with selections of another rank than their source");
        match self {
            Self::All => Ok(vec![shape.iter().map(|n| AxisBlocks::range(0, *n)).collect()]),
            Self::Blocks(axes) if axes.len() == shape.len() => {
                Ok(vec![axes.iter().zip(shape).map(|(axis, n)| axis.within(*n)).collect()])
            }
            Self::Boxes(boxes) if boxes.iter().all(|one| one.rank() == shape.len()) => {
                // The cells of boxes one after the other along the first axis are in row-major order.
                let ordered =
                    boxes.windows(2).all(|two| !shape.is_empty() && two[0].end(0) <= two[1].start(0));
                if !ordered {
                    return Err(Error::unsupported(
                        "virtual datasets with boxes beside one another in one mapping",
                    ));
                }
                let blocks = |one: &Region| {
                    one.bounds().iter().map(|(start, end)| AxisBlocks::range(*start, *end)).collect()
                };
                Ok(boxes.iter().map(blocks).collect())
            }
            Self::Blocks(_) | Self::Boxes(_) => Err(mismatch()),
        }
    }
}

/// Boxes as blocks along every axis, if they are all combinations of those.
fn regular_blocks(boxes: &[Region]) -> Option<Vec<AxisBlocks>> {
    let rank = boxes.first()?.rank();
    let mut axes = Vec::with_capacity(rank);
    let mut combinations = 1_usize;
    for axis in 0..rank {
        let mut runs: Vec<(u64, u64)> = boxes.iter().map(|one| (one.start(axis), one.extent(axis))).collect();
        runs.sort_unstable();
        runs.dedup();
        let &[(start, block), ..] = &runs[..] else { return None };
        let stride = runs.get(1).map_or(block, |(second, _)| second - start);
        let even = runs.windows(2).all(|two| two[1].0 - two[0].0 == stride && two[1].1 == block);
        combinations = combinations.checked_mul(runs.len())?;
        axes.push(AxisBlocks::new(start, stride, runs.len() as u64, block).filter(|_| even)?);
    }
    let mut distinct: Vec<&[(u64, u64)]> = boxes.iter().map(Region::bounds).collect();
    distinct.sort_unstable();
    distinct.dedup();
    (distinct.len() == combinations && distinct.len() == boxes.len()).then_some(axes)
}

fn rank(cursor: &mut Cursor<'_>) -> Result<usize> {
    match cursor.u32("rank")? {
        rank @ 1..=RANK => Ok(rank as usize),
        rank => Err(cursor.corrupt("selection", format!("rank {rank}"))),
    }
}

/// A number of some bytes, the largest of which means that there is no end.
fn number(cursor: &mut Cursor<'_>, width: usize, what: &str) -> Result<u64> {
    if !matches!(width, 2 | 4 | 8) {
        return Err(cursor.corrupt(what, format!("numbers of {width} bytes")));
    }
    let bytes = cursor.take(width, what)?;
    if bytes.iter().all(|byte| *byte == u8::MAX) {
        return Ok(UNLIMITED);
    }
    Ok(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

/// Cells of a dataset that are cells of a virtual one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Name of the file; `.` is the file of the virtual dataset.
    file: String,
    dataset: String,
    pub(crate) source: CellSelection,
    pub(crate) target: CellSelection,
}

impl Mapping {
    /// Parses the mappings of a virtual dataset; numbers have `width` bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub(crate) fn parse_all(object: &str, bytes: &[u8], width: usize) -> Result<Vec<Self>> {
        let mut cursor = Cursor::new(object, bytes);
        let sum = bytes.len().checked_sub(4).and_then(|at| bytes.split_at_checked(at));
        if sum.is_none_or(|(covered, sum)| jenkins_lookup3(covered).to_le_bytes() != *sum) {
            return Err(cursor.corrupt("the mappings of a virtual dataset", "the checksum differs"));
        }
        let version = cursor.u8("version")?;
        if version > 1 {
            return Err(Error::unsupported(format!("virtual datasets of HDF5 of version {version}")));
        }
        let count = number(&mut cursor, width, "number of mappings")?;
        let count = cursor.count(count, 16, "mappings")?;
        let mut all: Vec<Self> = Vec::new();
        for _ in 0..count {
            let flags = if version > 0 { cursor.u8("flags")? } else { 0 };
            if flags & !(SHARED_FILE | SHARED_DATASET | SAME_FILE) != 0 {
                return Err(Error::unsupported(format!(
                    "flags {flags:#x} of a mapping of a virtual dataset"
                )));
            }
            let file = match flags {
                flags if flags & SAME_FILE != 0 => ".".to_owned(),
                flags if flags & SHARED_FILE != 0 => earlier(&mut cursor, width, &all)?.file.clone(),
                _ => text(&mut cursor)?,
            };
            let dataset = match flags & SHARED_DATASET {
                0 => text(&mut cursor)?,
                _ => earlier(&mut cursor, width, &all)?.dataset.clone(),
            };
            let (source, target) = (CellSelection::parse(&mut cursor)?, CellSelection::parse(&mut cursor)?);
            all.push(Self { file, dataset, source, target });
        }
        cursor.take(4, "checksum")?;
        cursor.finish("the mappings of a virtual dataset")?;
        Ok(all)
    }

    /// Names of file and dataset; of one block, if there is one for each file.
    pub(crate) fn names(&self, block: u64) -> (String, String) {
        let name = |pattern: &str| {
            let parts: Vec<String> =
                pattern.split("%%").map(|part| part.replace("%b", &block.to_string())).collect();
            parts.join("%")
        };
        (name(&self.file), name(&self.dataset))
    }

    /// The axis of the virtual dataset whose extent follows from the sources.
    pub(crate) fn grows(&self) -> Option<usize> {
        self.target.unlimited()
    }

    /// Whether the selection here can have cells in a window.
    pub(crate) fn touches(&self, window: &Region) -> bool {
        let inside = |axis: &AxisBlocks, (start, end): &(u64, u64)| axis.below(*end) > axis.below(*start);
        // Windows have axes of elements too.
        match &self.target {
            CellSelection::All => true,
            CellSelection::Blocks(axes) => {
                axes.iter().zip(window.bounds()).all(|(axis, bounds)| inside(axis, bounds))
            }
            CellSelection::Boxes(boxes) => boxes.iter().any(|one| {
                let mut axes = one.bounds().iter().zip(window.bounds());
                axes.all(|((start, end), (from, to))| start < to && from < end)
            }),
        }
    }

    /// Whether each block of the selection here is in a file, or dataset, of its own.
    pub(crate) fn is_numbered(&self) -> bool {
        let pattern = |name: &str| name.replace("%%", "").contains("%b");
        self.grows().is_some()
            && self.source.unlimited().is_none()
            && (pattern(&self.file) || pattern(&self.dataset))
    }

    /// A numbered mapping for one block.
    pub(crate) fn numbered(&self, block: u64) -> Option<Self> {
        let (axis, CellSelection::Blocks(mut axes)) = (self.grows()?, self.target.clone()) else {
            return None;
        };
        let own = axes.get_mut(axis)?;
        let start = block.checked_mul(own.stride)?.checked_add(own.start)?;
        *own = AxisBlocks::range(start, start.checked_add(own.block)?);
        let (file, dataset) = self.names(block);
        // Names are expanded again.
        let (file, dataset) = (file.replace('%', "%%"), dataset.replace('%', "%%"));
        Some(Self { file, dataset, source: self.source.clone(), target: CellSelection::Blocks(axes) })
    }

    /// One past the last position along an axis of the virtual dataset; of an axis that grows, with a source of this shape.
    pub(crate) fn end(&self, axis: usize, source: Option<&[u64]>) -> Option<u64> {
        match &self.target {
            CellSelection::All => None,
            CellSelection::Boxes(boxes) => boxes.iter().map(|one| one.end(axis)).max(),
            CellSelection::Blocks(axes) => {
                let own = axes.get(axis)?;
                let positions = match own.positions {
                    Some(positions) => positions,
                    None => match &self.source {
                        CellSelection::Blocks(there) => {
                            let at = self.source.unlimited()?;
                            there.get(at)?.below(*source?.get(at)?)
                        }
                        CellSelection::All | CellSelection::Boxes(_) => return None,
                    },
                };
                Some(own.end(positions))
            }
        }
    }

    /// The correspondence of cells with a source of one shape and a virtual dataset of another.
    ///
    /// # Errors
    /// `Unsupported` for selections that do not have the same extents.
    pub(crate) fn boxes(&self, source: &[u64], target: &[u64]) -> Result<Vec<BoxMap>> {
        let grows = self.grows().zip(self.source.unlimited());
        let (source, mut target) = (self.source.parts(source)?, self.target.parts(target)?);
        if let (Some((here, there)), [theirs], [own]) = (grows, &source[..], &mut target[..]) {
            // As many positions as there are.
            own[here].positions = theirs[there].positions;
        }
        if source.len() != target.len() {
            return Err(unequal());
        }
        source.into_iter().zip(target).map(|(source, target)| BoxMap::new(source, target, grows)).collect()
    }
}

fn unequal() -> Error {
    Error::unsupported("virtual datasets with selections of another shape than in their source")
}

fn earlier<'a>(cursor: &mut Cursor<'_>, width: usize, all: &'a [Mapping]) -> Result<&'a Mapping> {
    let at = number(cursor, width, "number of a mapping")?;
    let found = usize::try_from(at).ok().and_then(|at| all.get(at));
    found.ok_or_else(|| {
        cursor.corrupt("a mapping of a virtual dataset", format!("mapping {at} is not an earlier one"))
    })
}

fn text(cursor: &mut Cursor<'_>) -> Result<String> {
    let rest = cursor.rest();
    let len = rest.iter().position(|byte| *byte == 0);
    let len = len.ok_or_else(|| cursor.corrupt("a name", "the name has no end"))?;
    let name = cursor.take(len + 1, "a name")?;
    let name = std::str::from_utf8(&name[..len]).map(str::to_owned);
    name.map_err(|_| cursor.corrupt("a name", "not UTF-8"))
}

/// A correspondence of positions along each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoxMap {
    source: Vec<AxisBlocks>,
    target: Vec<AxisBlocks>,
    /// Axes of source and target with the same positions. Along the others, a selection has one position.
    pairs: Vec<(usize, usize)>,
}

/// A box of the source and the same cells in the virtual dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoxPair {
    pub(crate) source: Region,
    pub(crate) target: Region,
}

impl BoxMap {
    fn new(source: Vec<AxisBlocks>, target: Vec<AxisBlocks>, grows: Option<(usize, usize)>) -> Result<Self> {
        let several = |axes: &[AxisBlocks], growing: Option<usize>| -> Vec<usize> {
            let axis = |(at, axis): (usize, &AxisBlocks)| {
                (axis.positions != Some(1) || Some(at) == growing).then_some(at)
            };
            axes.iter().enumerate().filter_map(axis).collect()
        };
        let theirs = several(&source, grows.map(|(_, there)| there));
        let own = several(&target, grows.map(|(here, _)| here));
        let pairs: Vec<(usize, usize)> = theirs.iter().copied().zip(own.iter().copied()).collect();
        let equal = pairs.iter().all(|(there, here)| source[*there].positions == target[*here].positions);
        if theirs.len() != own.len() || !equal {
            return Err(unequal());
        }
        Ok(Self { source, target, pairs })
    }

    /// The same correspondence for cells that are arrays: further axes, complete in both.
    pub(crate) fn with_elements(mut self, dims: &[u64]) -> Self {
        for n in dims {
            self.pairs.push((self.source.len(), self.target.len()));
            self.source.push(AxisBlocks::range(0, *n));
            self.target.push(AxisBlocks::range(0, *n));
        }
        self
    }

    /// Axis of the virtual dataset for each axis of the source.
    pub(crate) fn axes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.pairs.iter().copied()
    }

    /// A part of a box of the source, as a box of the virtual dataset.
    pub(crate) fn outward(&self, pair: &BoxPair, part: &Region) -> Region {
        let mut out = pair.target.clone();
        for (there, here) in &self.pairs {
            let shift = |at: u64| {
                at.saturating_sub(pair.source.start(*there)).saturating_add(pair.target.start(*here))
            };
            out.set_bounds(*here, shift(part.start(*there)), shift(part.end(*there)));
        }
        out
    }

    /// The boxes that touch a window of the virtual dataset, for a source of these extents; `admit` limits their number.
    ///
    /// # Errors
    /// Errors of `admit`.
    pub(crate) fn touching(
        &self,
        window: &Region,
        extents: &[u64],
        admit: impl Fn(u64) -> Result<()>,
    ) -> Result<Vec<BoxPair>> {
        let single = |axes: &[AxisBlocks]| {
            Region::new(axes.iter().map(|axis| (axis.start, axis.start.saturating_add(1))))
        };
        let (source, target) = (single(&self.source), single(&self.target));
        let paired_here = |here: usize| self.pairs.iter().any(|(_, other)| *other == here);
        let paired_there = |there: usize| self.pairs.iter().any(|(other, _)| *other == there);
        let outside = (0..target.rank())
            .any(|d| !paired_here(d) && !(window.start(d)..window.end(d)).contains(&target.start(d)))
            || (0..source.rank())
                .any(|d| !paired_there(d) && source.start(d) >= extents.get(d).copied().unwrap_or(0));
        if outside {
            return Ok(Vec::new());
        }
        let mut boxes = vec![BoxPair { source, target }];
        for (there, here) in &self.pairs {
            let (theirs, own) = (&self.source[*there], &self.target[*here]);
            let first = own.below(window.start(*here));
            let end =
                own.below(window.end(*here)).min(theirs.below(extents.get(*there).copied().unwrap_or(0)));
            let mut runs = Vec::new();
            let mut at = first;
            while at < end {
                let run = theirs.run(at).min(own.run(at)).min(end - at);
                runs.push((theirs.position(at), own.position(at), run));
                admit((runs.len() as u64).saturating_mul(boxes.len() as u64))?;
                at += run;
            }
            let mut next = Vec::with_capacity(boxes.len().saturating_mul(runs.len()));
            for pair in &boxes {
                for (from, to, run) in &runs {
                    let mut pair = pair.clone();
                    pair.source.set_bounds(*there, *from, from.saturating_add(*run));
                    pair.target.set_bounds(*here, *to, to.saturating_add(*run));
                    next.push(pair);
                }
            }
            boxes = next;
        }
        Ok(boxes)
    }
}

/// The cells of a window that are in none of the boxes, as disjoint boxes; `admit` limits the work.
///
/// # Errors
/// Errors of `admit`.
pub(crate) fn uncovered(
    window: &Region,
    boxes: &[Region],
    admit: &impl Fn(u64) -> Result<()>,
) -> Result<Vec<Region>> {
    let mut out = Vec::new();
    let mut steps = 0;
    let touching: Vec<&Region> = boxes.iter().filter(|one| one.intersect(window).is_some()).collect();
    complement(window.clone(), &touching, 0, &mut steps, admit, &mut out)?;
    Ok(out)
}

/// Divides a window along an axis where boxes begin and end, and each slab along the next.
fn complement(
    window: Region,
    boxes: &[&Region],
    axis: usize,
    steps: &mut u64,
    admit: &impl Fn(u64) -> Result<()>,
    out: &mut Vec<Region>,
) -> Result<()> {
    if window.is_empty() {
        return Ok(());
    }
    if boxes.is_empty() {
        out.push(window);
        return Ok(());
    }
    if axis == window.rank() || boxes.iter().any(|one| one.contains(&window)) {
        return Ok(());
    }
    let inside = |at: &u64| (window.start(axis)..=window.end(axis)).contains(at);
    let mut cuts: Vec<u64> =
        boxes.iter().flat_map(|one| [one.start(axis), one.end(axis)]).filter(inside).collect();
    cuts.extend([window.start(axis), window.end(axis)]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut sorted: Vec<&Region> = boxes.to_vec();
    sorted.sort_by_key(|one| one.start(axis));
    // Boxes that reach into the slab: those that began, without those that ended.
    let (mut active, mut next): (Vec<&Region>, usize) = (Vec::new(), 0);
    for slab in cuts.windows(2) {
        while let Some(one) = sorted.get(next).filter(|one| one.start(axis) <= slab[0]) {
            active.push(one);
            next += 1;
        }
        active.retain(|one| one.end(axis) > slab[0]);
        *steps = steps.saturating_add(active.len() as u64 + 1);
        admit(*steps)?;
        let mut inner = window.clone();
        inner.set_bounds(axis, slab[0], slab[1]);
        complement(inner, &active, axis + 1, steps, admit, out)?;
    }
    Ok(())
}

/// Finds the boxes of all mappings of a virtual dataset of one extent over sources of another, and what they leave, for fuzzing. The
/// checksum is added.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Limit`.
pub fn virtual_boxes(bytes: &[u8], source: &[u64], target: &[u64]) -> Result<usize> {
    let whole = [bytes, &jenkins_lookup3(bytes).to_le_bytes()].concat();
    let (window, mut boxes) = (Region::from_shape(target), Vec::new());
    let admit = |n: u64| if n > 1 << 16 { Err(Error::limit("boxes", n, 1 << 16)) } else { Ok(()) };
    for mapping in Mapping::parse_all("fuzz", &whole, 8)? {
        let third = mapping.is_numbered().then(|| mapping.numbered(3)).flatten();
        for map in third.unwrap_or(mapping).boxes(source, target)? {
            let pairs = map.touching(&window, source, admit)?;
            boxes.extend(pairs.into_iter().map(|pair| map.outward(&pair, &pair.source)));
            admit(boxes.len() as u64)?;
        }
    }
    Ok(uncovered(&window, &boxes, &admit)?.len())
}

#[cfg(test)]
mod tests;
