//! Folding of a selection into one summary, from statistics if they are exact, otherwise from cells.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use tesseral_core::{CellLen, Error, Result, Scalar, Selection};
use tesseral_format::{Column, PlannedChunk, Request, Target};

use crate::fetch::Batch;
use crate::handle::Handle;
use crate::kernel::copy::ElementRun;
use crate::options::{Options, Ticker};
use crate::paint::dense::{self, PreparedRead};
use crate::plan::blocks::Blocks;
use crate::plan::expansion::Work;
use crate::reduce::columns;
use crate::reduce::kernel::summary::{StatSet, Summary};
use crate::reduce::visit::{GroupKind, StridedView, Visitor, constant};

/// Approximate number of chunks planned at once.
const PLANNED_AT_ONCE: u64 = 2048;
/// Number of plans after which their work is compared with the stored bytes.
const PIECES_AT_ONCE: usize = 128;
/// Bytes that a chunk without stored bytes counts as.
const ABSENT_COST: u64 = 1024;
/// Maximum number of plans of one operation.
const PIECES: u64 = 16 << 10;

/// A summary and its origin.
#[derive(Clone, Debug)]
pub struct Summarized {
    /// The statistics.
    pub summary: Summary,
    /// Whether stored statistics were sufficient: no chunk was read.
    pub from_statistics: bool,
}

/// Folds columns of a sparse array, or fields of a dense array without a condition.
///
/// The result does not depend on the number of threads: units of work depend only on the plan and are merged in order.
///
/// # Errors
/// Errors of the plan, the store and the decoders; `Unsupported` for dtypes that cannot be folded.
pub(crate) fn summarize_columns(
    handle: &Handle,
    request: &Request,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<Summarized>> {
    handle.operate(options, |handle| {
        check_cells(handle, request)?;
        if handle.schema().sparse {
            return summarize_sparse(handle, request, wanted, options);
        }
        let column = |column: &Column| {
            let request = Request { columns: vec![*column], ..request.clone() };
            summarize_field(handle, &request, wanted, options)
        };
        request.columns.iter().map(column).collect()
    })
}

/// Folds a field of a dense array.
pub(super) fn summarize_field(
    handle: &Handle,
    request: &Request,
    wanted: StatSet,
    options: &Options,
) -> Result<Summarized> {
    let pieces = pieces(handle, request)?;
    let ticker = options.ticker(pieces.iter().map(|piece| piece.chunks).sum());
    let planned = PlannedWork::default();
    let summarize_part = |piece: &SubRequest| {
        let portion = handle.portion(&piece.request)?;
        let handle = portion.as_ref().unwrap_or(handle);
        summarize_piece(handle, &piece.request, wanted, &ticker, &planned, options)
    };
    let mut whole: Option<Summarized> = None;
    // Batches are the same for any number of threads, so that it is the same whether they are rejected.
    for batch in pieces.chunks(PIECES_AT_ONCE) {
        let parts: Vec<Summarized> = options.run(|| {
            // With a memory limit the chunks of one piece at a time are shared by as many threads as fit.
            if batch.len() > 1 && options.memory.is_none() {
                batch.par_iter().map(summarize_part).collect::<Result<_>>()
            } else {
                batch.iter().map(summarize_part).collect::<Result<_>>()
            }
        })?;
        planned.check(handle)?;
        for part in parts {
            match &mut whole {
                Some(whole) => whole.merge(&part)?,
                None => whole = Some(part),
            }
        }
    }
    whole.ok_or_else(|| Error::internal("a selection without pieces"))
}

/// Folds columns of a sparse array, part by part if it has very many chunks.
fn summarize_sparse(
    handle: &Handle,
    request: &Request,
    wanted: StatSet,
    options: &Options,
) -> Result<Vec<Summarized>> {
    let mut whole: Option<Vec<Summarized>> = None;
    for part in handle.source().divide(request)? {
        let portion = handle.portion(&part)?;
        let found = columns::summarize(portion.as_ref().unwrap_or(handle), &part, wanted, options)?;
        match &mut whole {
            None => whole = Some(found),
            Some(whole) => {
                whole.iter_mut().zip(&found).try_for_each(|(whole, part)| whole.merge(part))?;
            }
        }
    }
    // No part is left of ranges that contain nothing.
    whole.map_or_else(|| columns::summarize(handle, request, wanted, options), Ok)
}

impl Summarized {
    /// Adds the cells of another part of the same request.
    fn merge(&mut self, part: &Self) -> Result<()> {
        self.from_statistics &= part.from_statistics;
        self.summary.merge(&part.summary)
    }
}

/// Rejects cells of several elements: they have no order and no sum.
fn check_cells(handle: &Handle, request: &Request) -> Result<()> {
    let schema = handle.schema();
    for column in &request.columns {
        if let Column::Field(f) = column
            && let Some(field) = schema.fields.get(usize::from(*f))
            && field.cell != CellLen::One
        {
            let feature = format!("statistics of {} cells of {:?}", field.type_name(), field.name);
            return Err(Error::unsupported(feature).in_array(&schema.name));
        }
    }
    Ok(())
}

/// Chunks that were planned so far, piece by piece: unwritten ones take time as well.
#[derive(Debug, Default)]
struct PlannedWork {
    absent: AtomicU64,
    stored: AtomicU64,
}

impl PlannedWork {
    fn add(&self, chunks: &[PlannedChunk]) {
        let absent = chunks.iter().filter(|chunk| chunk.parts.is_empty()).count() as u64;
        let stored = chunks.iter().map(PlannedChunk::stored_bytes).fold(0, u64::saturating_add);
        self.absent.fetch_add(absent, Ordering::Relaxed);
        self.stored.fetch_add(stored, Ordering::Relaxed);
    }

    /// Rejects more chunks without stored bytes than the bytes of the others justify.
    fn check(&self, handle: &Handle) -> Result<()> {
        let (absent, stored) = (self.absent.load(Ordering::Relaxed), self.stored.load(Ordering::Relaxed));
        let cost = absent.saturating_mul(ABSENT_COST);
        let checked = handle.limits().check_total("unwritten chunks", cost, stored);
        checked.map_err(|e| e.in_array(&handle.schema().name))
    }
}

/// A part of a request that is planned separately.
struct SubRequest {
    request: Request,
    chunks: u64,
}

/// Divides a request over very many chunks, so that plans are computed in parallel and stay in the caches.
fn pieces(handle: &Handle, request: &Request) -> Result<Vec<SubRequest>> {
    let whole = |chunks: u64| Ok(vec![SubRequest { request: request.clone(), chunks }]);
    let (Some(selection), Ok(grid)) = (request.selection(), handle.schema().grid()) else { return whole(1) };
    let chunks = if selection.rank() == grid.rank() { grid.touched(selection).remaining() } else { 1 };
    let (Some(cells), Some((&first, _))) = (selection.cells(), grid.chunk_shape().split_first()) else {
        return whole(chunks);
    };
    let (shape, row) = (selection.shape(), first.min(grid.shape()[0]));
    // Exceeds the limit of most plans: planning fails immediately, or finds nearly all of the grid empty.
    if chunks <= PLANNED_AT_ONCE || chunks > PLANNED_AT_ONCE * PIECES || cells == 0 {
        return whole(chunks);
    }
    // At least one row of chunks: a piece must not divide chunks.
    let least = cells / shape[0] * row;
    let wanted = u128::from(cells) * u128::from(PLANNED_AT_ONCE) / u128::from(chunks);
    let cells = u64::try_from(wanted).unwrap_or(u64::MAX).max(least);
    let piece = |part: Selection| SubRequest {
        chunks: grid.touched(&part).remaining(),
        request: Request { target: Target::Cells(part), ..request.clone() },
    };
    Ok(Blocks::new(selection, grid.chunk_shape(), cells).map(piece).collect())
}

fn summarize_piece(
    handle: &Handle,
    request: &Request,
    wanted: StatSet,
    ticker: &Ticker<'_>,
    planned: &PlannedWork,
    options: &Options,
) -> Result<Summarized> {
    let number = match request.columns.as_slice() {
        [Column::Field(number)] => *number,
        _ => return Err(Error::invalid("a dense read requires positions of one field")),
    };
    dense::fixed_size(handle, number)?;
    let dtype = handle.schema().fields[usize::from(number)].dtype;
    let empty = Summary::new(dtype, wanted).map_err(|e| e.in_array(&handle.schema().name))?;
    let known = |chunk: &PlannedChunk, all: bool| {
        let stats = || empty.clone().merge_stats(&handle.stats(chunk, Column::Field(number)));
        Ok((all && stats()?) || constant(handle, chunk, number).is_some())
    };
    let prepared = PreparedRead::divided(handle, request, options, &known)?;
    planned.add(&prepared.plan.chunks);
    handle.load_stats(&prepared.plan.chunks, &request.columns)?;
    let visitor = Visitor::new(handle, &prepared);
    if prepared.bytes > handle.limits().total_expansion {
        let mut decoded = Vec::new();
        for chunk in &prepared.plan.chunks {
            let constant = handle.source().constant(chunk, Column::Field(prepared.field)).is_some();
            let known = || from_known(&visitor, GroupKind::Whole(chunk), &mut empty.clone());
            if !(constant || chunk.whole && known()?) {
                decoded.push(chunk);
            }
        }
        Work::default().add_decoded(handle, &decoded, prepared.size)?;
    }
    let units = visitor.units(&|chunk| from_known(&visitor, GroupKind::Whole(chunk), &mut empty.clone()))?;
    let summarize_batch = |unit: &Batch| -> Result<(Summary, bool)> {
        let context = visitor.context(unit)?;
        // Both closures below add to it, one at a time.
        let summary = std::cell::RefCell::new(empty.clone());
        let mut touched = false;
        for index in unit.groups.clone() {
            touched |= visitor.group(
                index,
                &context,
                &mut |seen| from_known(&visitor, seen, &mut summary.borrow_mut()),
                &mut |view| fold_view(view, &visitor.missing, &mut summary.borrow_mut()),
            )?;
            ticker.tick()?;
        }
        Ok((summary.into_inner(), touched))
    };
    let inner = options.for_workers(0, prepared.unit)?;
    let parallel = prepared.parallel() && units.len() > 1;
    let fold_units = || -> Result<Vec<(Summary, bool)>> {
        if parallel {
            units.par_iter().map(summarize_batch).collect()
        } else {
            units.iter().map(summarize_batch).collect()
        }
    };
    let parts = if inner.memory.is_some() { inner.run(fold_units)? } else { fold_units()? };
    let mut summary = empty;
    let mut from_statistics = !parts.is_empty();
    for (part, touched) in &parts {
        summary.merge(part)?;
        from_statistics &= !touched;
    }
    Ok(Summarized { summary, from_statistics })
}

/// Adds groups that need no cells.
fn from_known(visitor: &Visitor<'_>, seen: GroupKind<'_>, summary: &mut Summary) -> Result<bool> {
    let field = visitor.field;
    match seen {
        GroupKind::Whole(chunk) => {
            let stats = visitor.handle.stats(chunk, Column::Field(visitor.prepared.field));
            summary.merge_stats(&stats)
        }
        GroupKind::Constant { cell, cells } => {
            summary.fold_value_repeated(&Scalar::from_le_bytes(field.dtype, cell)?, cells).map(|()| true)
        }
        GroupKind::Fill { cells } => summary.fold_nulls(cells).map(|()| true),
    }
}

/// Folds cells run by run; many short runs at equal distances are folded in one call.
fn fold_view(view: &StridedView<'_>, missing: &[Scalar], summary: &mut Summary) -> Result<()> {
    let size = view.size;
    if let Some(cells) = view.contiguous() {
        return summary.fold(cells, view.validity.map(|v| &v[..cells.len() / size]), missing);
    }
    let walk = view.walk()?;
    if let Some((run, stride, runs)) = walk.even_runs() {
        return summary.fold_runs(view.values, run / size, stride / size, runs, view.validity, missing);
    }
    let mut outcome = Ok(());
    walk.for_each_run(|run| {
        if outcome.is_err() {
            return;
        }
        outcome = match run.contiguous() {
            Some(len) => {
                let valid = view.validity.map(|v| &v[run.src / size..(run.src + len) / size]);
                summary.fold(&view.values[run.src..run.src + len], valid, missing)
            }
            None => fold_strided(summary, view, run, missing),
        };
    });
    outcome
}

/// Gathers distant cells and folds them in pieces.
fn fold_strided(
    summary: &mut Summary,
    view: &StridedView<'_>,
    run: ElementRun,
    missing: &[Scalar],
) -> Result<()> {
    const PIECE: usize = 1024;
    let size = view.size;
    let mut cells = Vec::with_capacity(PIECE.min(run.count) * size);
    let mut valid = Vec::new();
    let cell = |i: usize| run.src + i * run.src_stride;
    for first in (0..run.count).step_by(PIECE) {
        let piece = first..(first + PIECE).min(run.count);
        cells.clear();
        piece.clone().for_each(|i| cells.extend_from_slice(&view.values[cell(i)..cell(i) + size]));
        if let Some(validity) = view.validity {
            valid.clear();
            valid.extend(piece.map(|i| validity[cell(i) / size]));
        }
        summary.fold(&cells, view.validity.map(|_| &valid[..]), missing)?;
    }
    Ok(())
}
