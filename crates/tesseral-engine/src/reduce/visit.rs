//! Visiting of a selection's cells, group by group, without copies.

use smallvec::SmallVec;
use tesseral_core::{Error, Field, Result, Scalar, Selection};
use tesseral_format::{ChunkPlan, Column, PlannedChunk, Request, Uncovered};

use crate::decode::chunk::{ChunkCells, Workspace, with_workspace};
use crate::fetch::{self, Batch, ChunkBytes};
use crate::handle::Handle;
use crate::kernel::copy::Walk;
use crate::paint::dense::{self, PreparedRead, ReadContext};
use crate::paint::sink::{Strides, row_major};
use crate::plan::blocks::Blocks;
use crate::plan::groups::Groups;

/// Minimum size of the cells of a unit in bytes, so that small chunks do not need a task each.
const UNIT: u64 = 512 << 10;

/// Cells of one field over a box, with a byte stride per dimension. Validity has the same layout, one byte per cell.
pub(crate) struct StridedView<'a> {
    pub values: &'a [u8],
    pub validity: Option<&'a [u8]>,
    pub strides: Strides,
    pub extents: SmallVec<[usize; 4]>,
    pub size: usize,
}

impl<'a> StridedView<'a> {
    /// Creates a view of decoded cells after checking its bounds.
    fn new(
        values: &'a [u8],
        validity: Option<&'a [u8]>,
        start: usize,
        strides: Strides,
        part: &Selection,
        size: usize,
    ) -> Result<Self> {
        let outside = || Error::internal("a fold exceeds its chunk");
        let extents = part.shape().iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
        let view = Self {
            values: values.get(start..).ok_or_else(outside)?,
            validity: validity.map(|v| v.get(start / size..).ok_or_else(outside)).transpose()?,
            strides,
            extents,
            size,
        };
        if view.bytes_spanned().is_none_or(|bytes_spanned| bytes_spanned > view.values.len()) {
            return Err(outside());
        }
        Ok(view)
    }

    /// Size from the first to the last cell in bytes; `None` on overflow.
    fn bytes_spanned(&self) -> Option<usize> {
        let steps = self.extents.iter().zip(&self.strides);
        steps.into_iter().try_fold(self.size, |bytes_spanned, (&n, &stride)| {
            bytes_spanned.checked_add(stride.checked_mul(n.checked_sub(1)?)?)
        })
    }

    /// The cells, if they are contiguous in row-major order.
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

    /// A walk over the cells as a row-major box, in as few runs as possible.
    pub(crate) fn walk(&self) -> Result<Walk> {
        let shape: SmallVec<[u64; 4]> = self.extents.iter().map(|&n| n as u64).collect();
        Walk::new(&self.strides, &row_major(&shape, self.size), &self.extents, self.size)
    }
}

/// Kind of a group.
pub(crate) enum GroupKind<'a> {
    /// One complete chunk without overlaps: its statistics apply.
    Whole(&'a PlannedChunk),
    /// Unwritten cells.
    Fill {
        /// Number of cells.
        cells: u64,
    },
    /// Constant cells, by the metadata of their chunk.
    Constant {
        /// The value.
        cell: &'a [u8],
        /// Number of cells.
        cells: u64,
    },
}

/// Returns whether all of a chunk is selected and nothing overlaps it: its statistics apply to the part.
fn is_whole(chunk: &PlannedChunk, part: &Selection) -> bool {
    chunk.whole && part.is_box() && part.cells() == Some(chunk.cells)
}

/// The value of a constant chunk, if it is not missing.
pub(crate) fn constant(handle: &Handle, chunk: &PlannedChunk, field: u16) -> Option<Vec<u8>> {
    let declared = &handle.schema().fields[usize::from(field)];
    let cell = if declared.nullable { None } else { handle.source().constant(chunk, Column::Field(field)) };
    cell.filter(|cell| !declared.is_missing(&declared.missing_values(), cell))
}

/// Iterates over the groups of a planned read.
pub(crate) struct Visitor<'a> {
    pub handle: &'a Handle,
    pub prepared: &'a PreparedRead,
    pub field: &'a Field,
    /// Values that mean "missing".
    pub missing: Vec<Scalar>,
}

impl<'a> Visitor<'a> {
    pub(crate) fn new(handle: &'a Handle, prepared: &'a PreparedRead) -> Self {
        let field = &handle.schema().fields[usize::from(prepared.field)];
        Self { handle, prepared, field, missing: field.missing_values() }
    }

    /// Runs of groups, divided by the plan and by `known` only. Whole chunks with a `known` result are not fetched: it must be
    /// returned in [`group`](Self::group) too.
    pub(crate) fn units(&self, known: &dyn Fn(&PlannedChunk) -> Result<bool>) -> Result<Vec<Batch>> {
        let PreparedRead { plan, groups, selection, .. } = self.prepared;
        if self.prepared.resident.is_none() {
            let known = |index| self.whole(index)?.map_or(Ok(false), known);
            let merged = self.prepared.merged;
            let units = fetch::batches(self.handle, plan, groups, selection, merged, &known)?;
            self.prepared.read_ahead(self.handle, &units);
            return Ok(units);
        }
        let count = groups.len(plan);
        let mean = self.prepared.bytes / (count as u64).max(1);
        let run = usize::try_from(UNIT / mean.max(1)).unwrap_or(usize::MAX).clamp(1, 4096);
        let cut = (0..count).step_by(run).map(|start| start..(start + run).min(count));
        Ok(cut.map(|groups| Batch { groups, reads: fetch::Reads::new() }).collect())
    }

    /// The chunk of a group that is one whole chunk.
    fn whole(&self, index: usize) -> Result<Option<&'a PlannedChunk>> {
        let PreparedRead { plan, groups, selection, .. } = self.prepared;
        let group = groups.get(plan, index)?;
        let ([member], false) = group.visible(plan, selection) else { return Ok(None) };
        let chunk = &plan.chunks[*member as usize];
        let part = selection.clip(group.region);
        Ok(part.is_some_and(|(part, _)| is_whole(chunk, &part)).then_some(chunk))
    }

    /// Source of the bytes of a unit.
    pub(crate) fn context(&self, unit: &Batch) -> Result<ReadContext<'a>> {
        self.prepared.context(self.handle, unit)
    }

    /// Source of the bytes of one group.
    pub(crate) fn group_context(&self, index: usize) -> Result<ReadContext<'a>> {
        let PreparedRead { plan, groups, selection, resident, .. } = self.prepared;
        match resident {
            Some(resident) => Ok(ReadContext::Resident(resident)),
            None => {
                let unit = fetch::group_batch(self.handle, plan, groups, selection, index)?;
                self.prepared.context(self.handle, &unit)
            }
        }
    }

    /// Visits one group. `known` is called first and can handle it without cells; otherwise `fold` gets them. Returns whether
    /// it did.
    pub(crate) fn group(
        &self,
        index: usize,
        context: &ReadContext<'_>,
        known: &mut dyn FnMut(GroupKind<'_>) -> Result<bool>,
        fold: &mut dyn FnMut(&StridedView<'_>) -> Result<()>,
    ) -> Result<bool> {
        let PreparedRead { plan, groups, selection, .. } = self.prepared;
        let group = groups.get(plan, index)?;
        let Some((part, _)) = selection.clip(group.region) else { return Ok(false) };
        let (members, fill_seen) = group.visible(plan, selection);
        match members {
            [] if fill_seen => {
                let cells = part.cells().unwrap_or(u64::MAX);
                if known(GroupKind::Fill { cells })? {
                    return Ok(false);
                }
                let cell = dense::fill_cell(self.field, self.prepared.size);
                let still = Strides::from_elem(0, part.rank());
                fold(&StridedView::new(&cell, Some(&[0]), 0, still, &part, self.prepared.size)?)?;
                Ok(false)
            }
            [member] if !fill_seen => {
                let chunk = &plan.chunks[*member as usize];
                if is_whole(chunk, &part) && known(GroupKind::Whole(chunk))? {
                    return Ok(false);
                }
                if let Some(cell) = constant(self.handle, chunk, self.prepared.field) {
                    // The digest covers the metadata of the value.
                    let column = Column::Field(self.prepared.field);
                    let read = |source: &ChunkBytes<'_>| source.column(self.handle, chunk, column).map(drop);
                    let read = context.with_source(self.handle, chunk, read);
                    read.map_err(|e| self.handle.locate(chunk, e))?;
                    let cells = part.cells().unwrap_or(u64::MAX);
                    if known(GroupKind::Constant { cell: &cell, cells })? {
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
        context: &ReadContext<'_>,
        fold: &mut dyn FnMut(&StridedView<'_>) -> Result<()>,
    ) -> Result<()> {
        context
            .with_source(self.handle, chunk, |source| self.chunk_from(chunk, part, context, source, fold))?;
        self.prepared.count_used(self.handle, chunk.stored_bytes());
        Ok(())
    }

    fn chunk_from(
        &self,
        chunk: &PlannedChunk,
        part: &Selection,
        context: &ReadContext<'_>,
        source: &ChunkBytes<'_>,
        fold: &mut dyn FnMut(&StridedView<'_>) -> Result<()>,
    ) -> Result<()> {
        let size = self.prepared.size;
        let cells = ChunkCells::new(self.handle, chunk, self.prepared.field, size)?;
        if let Some(plain) = source.plain(self.handle, chunk, cells.column, || cells.touched(part))? {
            let direct = cells.direct(plain, part)?;
            if !direct.swapped {
                let placement = direct.placement;
                return fold(&StridedView::new(
                    direct.values,
                    None,
                    placement.start,
                    placement.strides,
                    part,
                    size,
                )?);
            }
            // Numbers in the other byte order are swapped by painting.
            return self.painted(vec![chunk.clone()], part, context, fold);
        }
        let needed = cells.needed(part);
        let parts = source.column_within(self.handle, chunk, cells.column, needed.as_ref())?;
        with_workspace(|workspace: &mut Workspace| {
            let decoded = cells.decode(&parts, part, workspace)?;
            let placement = decoded.placement;
            fold(&StridedView::new(
                decoded.values,
                decoded.validity,
                placement.start,
                placement.strides,
                part,
                size,
            )?)
        })
    }

    /// Overlapping chunks, or those that must be byte-swapped, are painted first.
    fn painted(
        &self,
        chunks: Vec<PlannedChunk>,
        part: &Selection,
        context: &ReadContext<'_>,
        fold: &mut dyn FnMut(&StridedView<'_>) -> Result<()>,
    ) -> Result<()> {
        let gaps = self.prepared.plan.uncovered == Uncovered::Fill;
        let written = gaps.then(|| written(chunks.iter(), part)).flatten();
        let plan = ChunkPlan { chunks, uncovered: self.prepared.plan.uncovered, deletes: Vec::new() };
        let (values, validity) = dense::paint_part(self.handle, self.prepared, plan, part, context)?;
        let validity = match (validity, written) {
            (Some(mut validity), Some(written)) => {
                validity.iter_mut().zip(written).for_each(|(valid, written)| *valid &= written);
                Some(validity)
            }
            (validity, written) => validity.or(written),
        };
        let strides = row_major(&part.shape(), self.prepared.size);
        fold(&StridedView::new(&values, validity.as_deref(), 0, strides, part, self.prepared.size)?)
    }
}

/// One byte per cell of a dense request, 0 for unwritten cells; `None` if all are written.
///
/// # Errors
/// Errors of the plan.
pub fn gaps(handle: &Handle, request: &Request) -> Result<Option<Vec<u8>>> {
    let plan = handle.restartable(|handle| handle.plan(request))?;
    let open = request.selection().filter(|_| plan.uncovered == Uncovered::Fill);
    Ok(open.and_then(|selection| written(plan.chunks.iter(), selection)))
}

/// Returns whether a dense request contains unwritten cells. Uses little memory for any request.
///
/// # Errors
/// Errors of the plan.
pub fn has_gaps(handle: &Handle, request: &Request) -> Result<bool> {
    let plan = handle.restartable(|handle| handle.plan(request))?;
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

/// One byte per cell of a part, 0 for uncovered cells; `None` if all are covered.
pub(crate) fn written<'a>(
    chunks: impl Iterator<Item = &'a PlannedChunk>,
    part: &Selection,
) -> Option<Vec<u8>> {
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
