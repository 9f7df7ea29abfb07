//! Folding a selection into one summary, from statistics where they are exact, else from cells where they lie.

use rayon::prelude::*;
use tesseral_core::{Error, Field, Result, Scalar, Selection};
use tesseral_format::{ChunkPlan, Column, PlannedChunk, Request};

use crate::chunk::{ChunkCells, Decoded, Workspace, with_workspace};
use crate::dense::{self, Context, Prepared};
use crate::fetch::{self, Batch};
use crate::handle::Handle;
use crate::kernel::copy::Walk;
use crate::kernel::summary::{Summary, Wanted};
use crate::options::Options;
use crate::sink::row_major;

/// A summary and where it came from.
#[derive(Clone, Debug)]
pub struct Summarized {
    /// The numbers.
    pub summary: Summary,
    /// Statistics answered alone: no chunk was read.
    pub from_statistics: bool,
}

/// A unit of work is at least this many bytes of cells, so that small chunks do not cost a task each.
const UNIT: u64 = 512 << 10;

/// Folds a selection of one field.
///
/// The result does not depend on the number of threads: units of work are cut by the plan alone and merged in its order.
///
/// # Errors
/// What the plan, the store and the decoders meet; `Unsupported` for dtypes that cannot be folded.
pub fn summarize(handle: &Handle, request: &Request, wanted: Wanted, options: &Options) -> Result<Summarized> {
    let prepared = Prepared::new(handle, request)?;
    let field = &handle.schema().fields[usize::from(prepared.field)];
    let empty = Summary::new(field.dtype, wanted).map_err(|e| e.in_array(&handle.schema().name))?;
    let units = units(handle, &prepared)?;
    let ticker = options.ticker(prepared.groups.len(&prepared.plan) as u64);
    let fold = Fold { handle, prepared: &prepared, field };
    let one = |unit: &Batch| -> Result<(Summary, bool)> {
        let context = match &prepared.resident {
            Some(resident) => Context::Resident(resident),
            None => Context::Fetched(fetch::fetch(handle, unit)?),
        };
        let mut summary = empty.clone();
        let mut touched = false;
        for index in unit.groups.clone() {
            touched |= fold.group(index, &context, &mut summary)?;
            ticker.tick()?;
        }
        Ok((summary, touched))
    };
    let parts: Vec<(Summary, bool)> = options.run(|| {
        if prepared.parallel() && units.len() > 1 {
            units.par_iter().map(one).collect::<Result<_>>()
        } else {
            units.iter().map(one).collect::<Result<_>>()
        }
    })?;
    let mut summary = empty;
    let mut from_statistics = !parts.is_empty();
    for (part, touched) in &parts {
        summary.merge(part)?;
        from_statistics &= !touched;
    }
    Ok(Summarized { summary, from_statistics })
}

/// Runs of groups, by the plan alone.
fn units(handle: &Handle, prepared: &Prepared) -> Result<Vec<Batch>> {
    let Prepared { plan, groups, selection, .. } = prepared;
    if prepared.resident.is_none() {
        return fetch::batches(handle, plan, groups, selection);
    }
    let count = groups.len(plan);
    let mean = prepared.bytes / (count as u64).max(1);
    let run = usize::try_from(UNIT / mean.max(1)).unwrap_or(usize::MAX).clamp(1, 4096);
    let cut = (0..count).step_by(run).map(|start| start..(start + run).min(count));
    Ok(cut.map(|groups| Batch { groups, reads: fetch::Reads::new() }).collect())
}

struct Fold<'a> {
    handle: &'a Handle,
    prepared: &'a Prepared,
    field: &'a Field,
}

impl Fold<'_> {
    /// Folds one group; says whether bytes were touched for it.
    fn group(&self, index: usize, context: &Context<'_>, summary: &mut Summary) -> Result<bool> {
        let Prepared { plan, groups, selection, .. } = self.prepared;
        let group = groups.get(plan, index)?;
        let Some((part, _)) = selection.clip(group.region) else { return Ok(false) };
        let (members, fill_seen) = group.visible(plan, selection);
        match members {
            [] if fill_seen => {
                let cell = dense::fill_cell(self.field, self.prepared.size);
                let cell = Scalar::from_le_bytes(self.field.dtype, &cell)?;
                let cells = part.cells().unwrap_or(u64::MAX);
                // A cell nobody wrote is null in a nullable field, and equals the declared fill in any other.
                if self.field.nullable || self.field.fill.is_some() {
                    summary.fold_nulls(cells)?;
                } else {
                    summary.fold_value_repeated(&cell, cells)?;
                }
                Ok(false)
            }
            [member] if !fill_seen => {
                let chunk = &plan.chunks[*member as usize];
                self.chunk(chunk, &part, context, summary).map_err(|e| self.handle.locate(chunk, e))
            }
            _ => {
                let chunks = members.iter().map(|&m| plan.chunks[m as usize].clone()).collect();
                self.painted(chunks, &part, context, summary).map(|()| true)
            }
        }
    }

    fn chunk(
        &self,
        chunk: &PlannedChunk,
        part: &Selection,
        context: &Context<'_>,
        summary: &mut Summary,
    ) -> Result<bool> {
        let column = Column::Field(self.prepared.field);
        if chunk.whole && part.is_box() && part.cells() == Some(chunk.cells) {
            let stats = self.handle.source().stats(chunk, column);
            if summary.merge_stats(&stats)? {
                return Ok(false);
            }
        }
        let parts = context.source().column(self.handle, chunk, column)?;
        let cells = ChunkCells::new(self.handle, chunk, self.prepared.field, self.prepared.size)?;
        if let Some(direct) = cells.direct(&parts, part)?
            && !direct.swapped
        {
            self.cells(&direct, part, summary)?;
            return Ok(true);
        }
        if matches!(chunk.access, tesseral_format::Access::Direct { .. }) {
            // Numbers in the other byte order: let the painter turn them.
            return self.painted(vec![chunk.clone()], part, context, summary).map(|()| true);
        }
        with_workspace(|workspace: &mut Workspace| {
            let decoded = cells.decode(&parts, part, workspace)?;
            self.cells(&decoded, part, summary)
        })?;
        Ok(true)
    }

    /// Folds decoded cells run by run.
    fn cells(&self, decoded: &Decoded<'_>, part: &Selection, summary: &mut Summary) -> Result<()> {
        let size = self.prepared.size;
        let shape = part.shape();
        let extents: Vec<usize> = shape.iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
        let walk = Walk::new(&decoded.placement.strides, &row_major(&shape, size), &extents, size)?;
        let start = decoded.placement.start;
        let values = decoded.values.get(start..).filter(|v| v.len() >= walk.src_len());
        let values = values.ok_or_else(|| Error::invalid("a fold leaves its chunk"))?;
        let validity = decoded.validity.map(|v| &v[start / size..]);
        let fill = self.field.fill.as_ref();
        let mut outcome = Ok(());
        walk.for_each_run(|run| {
            if outcome.is_err() {
                return;
            }
            outcome = match run.contiguous() {
                Some(len) => {
                    let valid = validity.map(|v| &v[run.src / size..(run.src + len) / size]);
                    summary.fold(&values[run.src..run.src + len], valid, fill)
                }
                None => fold_strided(summary, values, validity, run, size, fill),
            };
        });
        outcome
    }

    /// Folds chunks that lie over one another, or whose numbers have to be turned: painted first.
    fn painted(
        &self,
        chunks: Vec<PlannedChunk>,
        part: &Selection,
        context: &Context<'_>,
        summary: &mut Summary,
    ) -> Result<()> {
        let plan = ChunkPlan { chunks, uncovered: self.prepared.plan.uncovered, deletes: Vec::new() };
        let (values, validity) = dense::paint_part(self.handle, self.prepared, plan, part, context)?;
        summary.fold(&values, validity.as_deref(), self.field.fill.as_ref())
    }
}

/// Gathers cells that lie apart and folds them in pieces.
fn fold_strided(
    summary: &mut Summary,
    values: &[u8],
    validity: Option<&[u8]>,
    run: crate::kernel::copy::Run,
    size: usize,
    fill: Option<&Scalar>,
) -> Result<()> {
    const PIECE: usize = 1024;
    let mut cells = Vec::with_capacity(PIECE.min(run.count) * size);
    let mut valid = Vec::new();
    let cell = |i: usize| run.src + i * run.src_stride;
    for first in (0..run.count).step_by(PIECE) {
        let piece = first..(first + PIECE).min(run.count);
        cells.clear();
        piece.clone().for_each(|i| cells.extend_from_slice(&values[cell(i)..cell(i) + size]));
        if let Some(validity) = validity {
            valid.clear();
            valid.extend(piece.map(|i| validity[cell(i) / size]));
        }
        summary.fold(&cells, validity.map(|_| &valid[..]), fill)?;
    }
    Ok(())
}
