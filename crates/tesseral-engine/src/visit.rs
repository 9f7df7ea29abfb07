//! The cells of a selection, group by group, where they lie: what folds walk over.

use smallvec::SmallVec;
use tesseral_core::{Error, Field, Result, Selection};
use tesseral_format::{ChunkPlan, Column, PlannedChunk, Request, Uncovered};

use crate::budget::Blocks;
use crate::chunk::{ChunkCells, Workspace, with_workspace};
use crate::dense::{self, Context, Prepared};
use crate::fetch::{self, Batch, Source};
use crate::handle::Handle;
use crate::kernel::copy::Walk;
use crate::overlay::Groups;
use crate::sink::{Strides, row_major};

/// A unit of work is at least this many bytes of cells, so that small chunks do not cost a task each.
const UNIT: u64 = 512 << 10;

/// Cells of one field over a box, with a byte stride per dimension. Validity lies like the values, one byte per cell.
pub(crate) struct View<'a> {
    pub values: &'a [u8],
    pub validity: Option<&'a [u8]>,
    pub strides: Strides,
    pub extents: SmallVec<[usize; 4]>,
    pub size: usize,
}

impl<'a> View<'a> {
    /// Cuts a view out of decoded cells, checked to lie inside them.
    fn new(
        values: &'a [u8],
        validity: Option<&'a [u8]>,
        start: usize,
        strides: Strides,
        part: &Selection,
        size: usize,
    ) -> Result<Self> {
        let outside = || Error::invalid("a fold leaves its chunk");
        let extents = part.shape().iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
        let view = Self {
            values: values.get(start..).ok_or_else(outside)?,
            validity: validity.map(|v| v.get(start / size..).ok_or_else(outside)).transpose()?,
            strides,
            extents,
            size,
        };
        if view.reach().is_none_or(|reach| reach > view.values.len()) {
            return Err(outside());
        }
        Ok(view)
    }

    /// Bytes from the first cell to the end of the last; `None` beyond memory's addresses.
    fn reach(&self) -> Option<usize> {
        let steps = self.extents.iter().zip(&self.strides);
        steps.into_iter().try_fold(self.size, |reach, (&n, &stride)| {
            reach.checked_add(stride.checked_mul(n.checked_sub(1)?)?)
        })
    }

    /// The cells, where they lie side by side in row-major order.
    pub(crate) fn contiguous(&self) -> Option<&'a [u8]> {
        let mut run = self.size;
        for (&n, &stride) in self.extents.iter().zip(&self.strides).rev() {
            if n != 1 && stride != run {
                return None;
            }
            run *= n;
        }
        self.values.get(..run)
    }

    /// A walk over the cells as a row-major box, in as few runs as their layout allows.
    pub(crate) fn walk(&self) -> Result<Walk> {
        let shape: SmallVec<[u64; 4]> = self.extents.iter().map(|&n| n as u64).collect();
        Walk::new(&self.strides, &row_major(&shape, self.size), &self.extents, self.size)
    }
}

/// What a group turned out to be.
pub(crate) enum Seen<'a> {
    /// One chunk, all of it wanted and nothing over it: its statistics hold.
    Whole(&'a PlannedChunk),
    /// Cells that nobody wrote.
    Fill {
        /// How many.
        cells: u64,
    },
    /// Cells that all equal one, by the metadata of their chunk.
    Constant {
        /// The cell.
        cell: &'a [u8],
        /// How many.
        cells: u64,
    },
}

/// Whether all of a chunk is wanted and nothing lies over it: its statistics are those of the part.
fn is_whole(chunk: &PlannedChunk, part: &Selection) -> bool {
    chunk.whole && part.is_box() && part.cells() == Some(chunk.cells)
}

/// The cell that all cells of a chunk equal, where it is a value whatever the field declares missing.
pub(crate) fn constant(handle: &Handle, chunk: &PlannedChunk, field: u16) -> Option<Vec<u8>> {
    let declared = &handle.schema().fields[usize::from(field)];
    let plain = !declared.nullable && declared.missing().is_none();
    if plain { handle.source().constant(chunk, Column::Field(field)) } else { None }
}

/// Goes over the groups of a prepared read.
pub(crate) struct Visitor<'a> {
    pub handle: &'a Handle,
    pub prepared: &'a Prepared,
    pub field: &'a Field,
}

impl<'a> Visitor<'a> {
    pub(crate) fn new(handle: &'a Handle, prepared: &'a Prepared) -> Self {
        Self { handle, prepared, field: &handle.schema().fields[usize::from(prepared.field)] }
    }

    /// Runs of groups, cut by the plan and by what is known alone. Whole chunks for which `known` answers are not fetched:
    /// it must then answer in [`group`](Self::group) too.
    pub(crate) fn units(&self, known: &dyn Fn(&PlannedChunk) -> Result<bool>) -> Result<Vec<Batch>> {
        let Prepared { plan, groups, selection, .. } = self.prepared;
        if self.prepared.resident.is_none() {
            let known = |index| self.whole(index)?.map_or(Ok(false), known);
            let merged = self.prepared.merged;
            return fetch::batches(self.handle, plan, groups, selection, merged, &known);
        }
        let count = groups.len(plan);
        let mean = self.prepared.bytes / (count as u64).max(1);
        let run = usize::try_from(UNIT / mean.max(1)).unwrap_or(usize::MAX).clamp(1, 4096);
        let cut = (0..count).step_by(run).map(|start| start..(start + run).min(count));
        Ok(cut.map(|groups| Batch { groups, reads: fetch::Reads::new() }).collect())
    }

    /// The chunk of a group that is one whole chunk.
    fn whole(&self, index: usize) -> Result<Option<&'a PlannedChunk>> {
        let Prepared { plan, groups, selection, .. } = self.prepared;
        let group = groups.get(plan, index)?;
        let ([member], false) = group.visible(plan, selection) else { return Ok(None) };
        let chunk = &plan.chunks[*member as usize];
        let part = selection.clip(group.region);
        Ok(part.is_some_and(|(part, _)| is_whole(chunk, &part)).then_some(chunk))
    }

    /// Where the bytes of a unit come from.
    pub(crate) fn context(&self, unit: &Batch) -> Result<Context<'a>> {
        self.prepared.context(self.handle, unit)
    }

    /// Where the bytes of one group come from.
    pub(crate) fn group_context(&self, index: usize) -> Result<Context<'a>> {
        let Prepared { plan, groups, selection, resident, .. } = self.prepared;
        match resident {
            Some(resident) => Ok(Context::Resident(resident)),
            None => {
                let unit = fetch::group_batch(self.handle, plan, groups, selection, index)?;
                self.prepared.context(self.handle, &unit)
            }
        }
    }

    /// Shows one group. `known` is asked first and may answer without cells; else `fold` gets them. Says whether it did.
    pub(crate) fn group(
        &self,
        index: usize,
        context: &Context<'_>,
        known: &mut dyn FnMut(Seen<'_>) -> Result<bool>,
        fold: &mut dyn FnMut(&View<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Prepared { plan, groups, selection, .. } = self.prepared;
        let group = groups.get(plan, index)?;
        let Some((part, _)) = selection.clip(group.region) else { return Ok(false) };
        let (members, fill_seen) = group.visible(plan, selection);
        match members {
            [] if fill_seen => {
                let cells = part.cells().unwrap_or(u64::MAX);
                if known(Seen::Fill { cells })? {
                    return Ok(false);
                }
                let cell = dense::fill_cell(self.field, self.prepared.size);
                let filled = [u8::from(self.field.fill_valid)];
                let valid = (self.field.nullable || self.field.default_fill).then_some(&filled[..]);
                let still = Strides::from_elem(0, part.rank());
                fold(&View::new(&cell, valid, 0, still, &part, self.prepared.size)?)?;
                Ok(false)
            }
            [member] if !fill_seen => {
                let chunk = &plan.chunks[*member as usize];
                if is_whole(chunk, &part) && known(Seen::Whole(chunk))? {
                    return Ok(false);
                }
                if let Some(cell) = constant(self.handle, chunk, self.prepared.field) {
                    // The digest covers what the cell comes from.
                    let column = Column::Field(self.prepared.field);
                    let read = |source: &Source<'_>| source.column(self.handle, chunk, column).map(drop);
                    let read = context.with_source(self.handle, chunk, read);
                    read.map_err(|e| self.handle.locate(chunk, e))?;
                    let cells = part.cells().unwrap_or(u64::MAX);
                    if known(Seen::Constant { cell: &cell, cells })? {
                        return Ok(true);
                    }
                }
                self.chunk(chunk, &part, context, fold).map_err(|e| self.handle.locate(chunk, e))?;
                Ok(true)
            }
            _ => {
                let chunks = members.iter().map(|&m| plan.chunks[m as usize].clone()).collect();
                self.painted(chunks, &part, context, fold)?;
                Ok(true)
            }
        }
    }

    fn chunk(
        &self,
        chunk: &PlannedChunk,
        part: &Selection,
        context: &Context<'_>,
        fold: &mut dyn FnMut(&View<'_>) -> Result<()>,
    ) -> Result<()> {
        context.with_source(self.handle, chunk, |source| self.chunk_from(chunk, part, context, source, fold))
    }

    fn chunk_from(
        &self,
        chunk: &PlannedChunk,
        part: &Selection,
        context: &Context<'_>,
        source: &Source<'_>,
        fold: &mut dyn FnMut(&View<'_>) -> Result<()>,
    ) -> Result<()> {
        let size = self.prepared.size;
        let cells = ChunkCells::new(self.handle, chunk, self.prepared.field, size)?;
        if let Some(plain) = source.plain(self.handle, chunk, cells.column, || cells.touched(part))? {
            let direct = cells.direct(plain, part)?;
            if !direct.swapped {
                let placement = direct.placement;
                return fold(&View::new(
                    direct.values,
                    None,
                    placement.start,
                    placement.strides,
                    part,
                    size,
                )?);
            }
            // Numbers in the other byte order: let the painter turn them.
            return self.painted(vec![chunk.clone()], part, context, fold);
        }
        let needed = cells.needed(part);
        let parts = source.column_within(self.handle, chunk, cells.column, needed.as_ref())?;
        with_workspace(|workspace: &mut Workspace| {
            let decoded = cells.decode(&parts, part, workspace)?;
            let placement = decoded.placement;
            fold(&View::new(
                decoded.values,
                decoded.validity,
                placement.start,
                placement.strides,
                part,
                size,
            )?)
        })
    }

    /// Chunks that lie over one another, or whose numbers have to be turned: painted first.
    fn painted(
        &self,
        chunks: Vec<PlannedChunk>,
        part: &Selection,
        context: &Context<'_>,
        fold: &mut dyn FnMut(&View<'_>) -> Result<()>,
    ) -> Result<()> {
        let gaps = self.field.default_fill && !self.field.nullable;
        let written = gaps.then(|| written(chunks.iter(), part)).flatten();
        let plan = ChunkPlan { chunks, uncovered: self.prepared.plan.uncovered, deletes: Vec::new() };
        let (values, validity) = dense::paint_part(self.handle, self.prepared, plan, part, context)?;
        let validity = validity.or(written);
        let strides = row_major(&part.shape(), self.prepared.size);
        fold(&View::new(&values, validity.as_deref(), 0, strides, part, self.prepared.size)?)
    }
}

/// One byte per cell of a request to a dense array, 0 where nobody wrote it; `None` where all were written.
///
/// # Errors
/// What the plan meets.
pub fn gaps(handle: &Handle, request: &Request) -> Result<Option<Vec<u8>>> {
    let plan = handle.restartable(|handle| handle.source().plan(request))?;
    let open = request.selection().filter(|_| plan.uncovered == Uncovered::Fill);
    Ok(open.and_then(|selection| written(plan.chunks.iter(), selection)))
}

/// Whether a request to a dense array asks for a cell that nobody wrote. Takes no memory to speak of, however much is asked for.
///
/// # Errors
/// What the plan meets.
pub fn has_gaps(handle: &Handle, request: &Request) -> Result<bool> {
    let plan = handle.restartable(|handle| handle.source().plan(request))?;
    let Some(selection) = request.selection().filter(|_| plan.uncovered == Uncovered::Fill) else {
        return Ok(false);
    };
    let grid = handle.schema().grid()?;
    let groups = Groups::new(&grid, &plan, selection)?;
    for index in 0..groups.len(&plan) {
        let group = groups.get(&plan, index)?;
        let (Some((part, _)), (members, true)) =
            (selection.clip(group.region), group.visible(&plan, selection))
        else {
            continue;
        };
        let chunks = || members.iter().map(|&m| &plan.chunks[m as usize]);
        if Blocks::new(&part, grid.chunk_shape(), UNIT).any(|block| written(chunks(), &block).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One byte per cell of a part, 0 where no chunk has it; `None` where all have.
fn written<'a>(chunks: impl Iterator<Item = &'a PlannedChunk>, part: &Selection) -> Option<Vec<u8>> {
    let shape = part.shape();
    let mut out = vec![0_u8; usize::try_from(part.cells()?).ok()?];
    for target in chunks.filter_map(|chunk| Some(part.clip(chunk.cover.region()?)?.1)) {
        let (Some(run), rows) = (target.bounds().last(), target.rank().saturating_sub(1)) else {
            return None;
        };
        let mut at: SmallVec<[u64; 4]> = target.bounds().iter().map(|bound| bound.0).collect();
        loop {
            let first = at.iter().zip(&shape).fold(0, |flat, (p, n)| flat * n + p);
            let first = usize::try_from(first).ok()?;
            out.get_mut(first..first + usize::try_from(run.1 - run.0).ok()?)?.fill(1);
            let Some(d) = (0..rows).rev().find(|&d| at[d] + 1 < target.end(d)) else { break };
            at[d] += 1;
            (d + 1..rows).for_each(|later| at[later] = target.start(later));
        }
    }
    out.contains(&0).then_some(out)
}
