//! Reading of dense arrays into one row-major result.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tesseral_core::{CellLen, Element, Error, Field, Region, Result, Selection, alloc};
use tesseral_format::{Access, ChunkPlan, Column, PlannedChunk, Request, Uncovered};
use tesseral_store::Buffer;

use crate::decode::chunk::{ChunkCells, Workspace, with_workspace};
use crate::fetch::ahead::{self, ReadAhead};
use crate::fetch::{self, Batch, ByteRuns, ChunkBytes, Fetched, PartBytes, Resident};
use crate::handle::Handle;
use crate::missing::validity;
use crate::options::Options;
use crate::options::WatchReads;
use crate::paint::sink::{self, OutputRegion, OutputSlice, StridedCells, Units};
use crate::paint::strips;
use crate::plan::expansion;
use crate::plan::groups::Groups;
use crate::reduce::visit::written;

/// Minimum size in bytes for parallel work.
const PARALLEL_FROM: u64 = 256 << 10;

/// Cells of one field, row-major over the selection.
#[derive(Debug)]
pub struct Dense {
    /// The field.
    pub field: Field,
    /// Extent of each dimension.
    pub shape: Vec<u64>,
    values: DenseValues,
    stored: Option<Buffer>,
    /// One byte per cell, 0 for unwritten ones; absent when all were written.
    written: Option<Vec<u8>>,
    /// The validity where it differs from the stored one, computed on first use.
    validity: OnceLock<Option<Vec<u8>>>,
}

#[derive(Debug)]
enum DenseValues {
    BorrowedRange(Bytes),
    Owned(Buffer),
}

impl Dense {
    /// The cells, contiguous.
    pub fn bytes(&self) -> &[u8] {
        match &self.values {
            DenseValues::BorrowedRange(bytes) => bytes,
            DenseValues::Owned(buffer) => buffer,
        }
    }

    /// The cells as numbers; `None` if `T` is not the element type of the field.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let native =
            tesseral_core::dispatch_element!(self.field.dtype, U => U::DTYPE == T::DTYPE, else => false);
        if !native {
            return None;
        }
        bytemuck::try_cast_slice(self.bytes()).ok()
    }

    /// One byte per cell, 1 valid, 0 missing: null, unwritten, or equal to a missing value of the field. `None` where no cell can be
    /// missing.
    pub fn validity(&self) -> Option<&[u8]> {
        if self.written.is_none() && self.field.missing_values().is_empty() {
            return self.stored.as_deref();
        }
        let compute = || {
            let found = validity(&self.field, self.bytes(), self.stored.as_deref(), self.written.as_deref());
            found.map(std::borrow::Cow::into_owned)
        };
        self.validity.get_or_init(compute).as_deref()
    }

    /// One byte per cell, 1 valid, 0 null, as stored; `None` for fields that cannot be null. Copies of cells keep this one.
    pub fn stored_validity(&self) -> Option<&[u8]> {
        self.stored.as_deref()
    }

    /// Returns whether the cells are a view of the file.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.values, DenseValues::BorrowedRange(_))
    }

    /// The cells as shared bytes, without a copy.
    pub fn into_bytes(self) -> Bytes {
        match self.values {
            DenseValues::BorrowedRange(bytes) => bytes,
            DenseValues::Owned(buffer) => Bytes::from_owner(buffer),
        }
    }
}

/// Returns a fixed-size field.
pub(crate) fn fixed_size(handle: &Handle, field: u16) -> Result<usize> {
    let schema = handle.schema();
    let field = schema.fields.get(usize::from(field)).ok_or_else(|| {
        Error::invalid(format!("field index {field} is out of bounds")).in_array(&schema.name)
    })?;
    match field.cell_size() {
        Some(size) if size > 0 => Ok(size),
        _ if field.cell == CellLen::Var => Err(Error::invalid(format!(
            "cells of {:?} are variable-length and require a variable-length read",
            field.name
        ))),
        _ => Err(Error::unsupported(format!("cells of dtype {} in a dense read", field.type_name()))),
    }
}

/// Bytes of mapped files after which an operation releases their pages, and the size of a result that makes it worthwhile:
/// smaller ones are likely to be read again.
const RELEASED: u64 = 32 << 20;
const RELEASED_FROM: u64 = 64 << 20;
/// Operations of at most so many bytes keep the pages of an array of which as much was used before, so many times.
const KEPT: u64 = 1 << 30;
const REPEATS: u64 = 4;

/// A planned execution over dense chunks.
pub(crate) struct PreparedRead {
    pub plan: ChunkPlan,
    pub groups: Groups,
    pub selection: Selection,
    pub field: u16,
    pub size: usize,
    pub bytes: u64,
    pub resident: Option<Resident>,
    /// Maximum memory of one worker: stored bytes of a unit and the decoded cells of one of its chunks.
    pub unit: u64,
    /// Approximate number of bytes read at once.
    pub merged: u64,
    /// Whether several threads can decode chunks concurrently.
    concurrent: bool,
    /// Reads that are under way before their bytes are needed.
    ahead: OnceLock<ReadAhead>,
    /// Number of bytes that they can hold.
    budget: u64,
    /// Called with the requests before the first one.
    planned_reads: Option<Arc<WatchReads>>,
    /// Bytes of resident objects that were used.
    used: AtomicU64,
}

impl PreparedRead {
    /// Plans a request. With a memory limit, chunks that are not resident and too large are divided if their encoding allows
    /// it.
    pub(crate) fn new(handle: &Handle, request: &Request, options: &Options) -> Result<Self> {
        let mut prepared = Self::planned(handle, request, options)?;
        if let (None, Some(memory)) = (&prepared.resident, options.memory) {
            prepared.divide(handle, request, memory, &|_, _| Ok(false))?;
        }
        Ok(prepared)
    }

    /// Plans a request without dividing chunks.
    pub(crate) fn planned(handle: &Handle, request: &Request, options: &Options) -> Result<Self> {
        let (Some(selection), [Column::Field(field)]) = (request.selection(), request.columns.as_slice())
        else {
            return Err(Error::invalid("a dense read requires positions of one field"));
        };
        let size = fixed_size(handle, *field)?;
        let name = &handle.schema().name;
        let bytes = selection
            .cells()
            .and_then(|n| n.checked_mul(size as u64))
            .ok_or_else(|| Error::limit("the selection", u64::MAX, isize::MAX as u64).in_array(name))?;
        let plan = handle.plan(request)?;
        let grid = handle.schema().grid()?;
        let groups = Groups::new(&grid, &plan, selection)?;
        check_cover(handle, &plan, selection)?;
        let resident = fetch::resident(handle, &plan.chunks)?;
        let concurrent = expansion::concurrent(handle, &plan.chunks, size);
        let (selection, merged) = (selection.clone(), options.read_bytes(&handle.store().profile()));
        let (ahead, budget) = (OnceLock::new(), ahead::budget(options.memory));
        let field = *field;
        Ok(Self {
            plan,
            groups,
            selection,
            field,
            size,
            bytes,
            resident,
            unit: 0,
            merged,
            concurrent,
            ahead,
            budget,
            planned_reads: options.planned_reads.clone(),
            used: AtomicU64::new(0),
        })
    }

    /// One byte per cell, 0 for uncovered cells; `None` if all are covered.
    fn written(&self) -> Result<Option<Vec<u8>>> {
        if self.plan.uncovered != Uncovered::Fill {
            return Ok(None);
        }
        for index in 0..self.groups.len(&self.plan) {
            if self.groups.get(&self.plan, index)?.visible(&self.plan, &self.selection).1 {
                return Ok(written(self.plan.chunks.iter(), &self.selection));
            }
        }
        Ok(None)
    }

    /// Counts stored bytes that were used, and releases mapped pages now and then, so that those of a large operation do not add up
    /// to the size of the file.
    pub(crate) fn count_used(&self, handle: &Handle, bytes: u64) {
        let Some(resident) = self.resident.as_ref().filter(|_| self.bytes >= RELEASED_FROM) else { return };
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before / RELEASED != before.saturating_add(bytes) / RELEASED {
            let used = handle.used.fetch_add(RELEASED, Ordering::Relaxed);
            if self.bytes <= KEPT && used > REPEATS * self.bytes {
                return;
            }
            for (object, _) in resident {
                handle.store().release(&handle.source().object(*object));
            }
        }
    }

    /// The bytes of a unit of work.
    pub(crate) fn context(&self, handle: &Handle, unit: &Batch) -> Result<ReadContext<'_>> {
        match &self.resident {
            Some(resident) => Ok(ReadContext::Resident(resident)),
            None if self.is_read_by_chunk(unit) => Ok(ReadContext::Each),
            None => match self.ahead.get().and_then(|ahead| ahead.take(unit)) {
                Some(fetched) => fetched.map(ReadContext::Fetched),
                None => fetch::fetch(handle, unit).map(ReadContext::Fetched),
            },
        }
    }

    /// A unit is a run of groups merged within the limit, or one group with all its layers.
    fn is_read_by_chunk(&self, unit: &Batch) -> bool {
        unit.bytes() > self.merged && unit.groups.len() == 1 && !self.groups.apart()
    }

    /// Begins to read the bytes of units before they are needed.
    pub(crate) fn read_ahead(&self, handle: &Handle, units: &[Batch]) {
        ahead::announce(handle, units.iter(), self.budget, self.planned_reads.as_deref());
        let units = units.iter().filter(|unit| !self.is_read_by_chunk(unit));
        if let Some(ahead) = ReadAhead::start(handle, units, self.budget) {
            // The first call of an operation decides.
            let _ = self.ahead.set(ahead);
        }
    }

    /// Returns whether there is enough work for several threads. Of direct chunks only the selected cells count.
    fn limited(&self, options: &Options) -> bool {
        options.memory.is_some_and(|limit| self.bytes > limit / 8)
    }

    /// Allocates the result.
    fn buffer(&self, options: &Options) -> Result<Buffer> {
        options.check_memory("the result", self.bytes)?;
        Buffer::new(self.bytes, self.limited(options))
    }

    /// Allows concurrent decoding regardless of expansion, because chunks are decoded in small pieces.
    pub(crate) fn share(&mut self) {
        self.concurrent = true;
    }

    pub(crate) fn parallel(&self) -> bool {
        let chunks = &self.plan.chunks;
        let coded = || chunks.iter().filter(|chunk| matches!(chunk.access, Access::Coded { .. }));
        let worth = |bytes: u64| bytes >= PARALLEL_FROM;
        chunks.len() > 1
            && self.concurrent
            && (worth(self.bytes)
                || worth(coded().map(PlannedChunk::stored_bytes).fold(0, u64::saturating_add)))
    }
}

/// Checks that chunks cover the whole selection, otherwise the result would be uninitialized.
fn check_cover(handle: &Handle, plan: &ChunkPlan, selection: &Selection) -> Result<()> {
    if plan.uncovered == Uncovered::Fill {
        return Ok(());
    }
    let covered = plan.chunks.iter().try_fold(0_u64, |sum, chunk| {
        let cells = chunk.cover.region().map_or(Some(0), |cover| selection.cells_in(cover));
        cells.and_then(|n| sum.checked_add(n))
    });
    if covered != selection.cells() {
        let detail = format!("chunks cover {covered:?} of {:?} selected cells", selection.cells());
        return Err(Error::corrupt("the chunk index", handle.store().location(), None, detail)
            .in_array(&handle.schema().name));
    }
    Ok(())
}

/// Source of the bytes of a unit.
pub(crate) enum ReadContext<'a> {
    /// Memory-mapped or in memory.
    Resident(&'a Resident),
    /// Read for all chunks of the unit.
    Fetched(Fetched),
    /// Read chunk by chunk: the chunks of the unit do not fit in memory together.
    Each,
}

impl ReadContext<'_> {
    /// Runs with the bytes of one chunk of the unit.
    pub(crate) fn with_source<T>(
        &self,
        handle: &Handle,
        chunk: &PlannedChunk,
        work: impl FnOnce(&ChunkBytes<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Resident(resident) => work(&ChunkBytes::Resident(resident)),
            Self::Fetched(fetched) => work(&ChunkBytes::Fetched(fetched)),
            Self::Each => {
                let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
                work(&ChunkBytes::Fetched(&fetched))
            }
        }
    }
}

/// Value of an uncovered cell.
pub(crate) fn fill_cell(field: &Field, size: usize) -> Vec<u8> {
    match &field.fill {
        Some(fill) if fill.bytes().len() == size => fill.bytes().to_vec(),
        // One element, repeated for a cell of several.
        Some(fill) if !fill.bytes().is_empty() && size.is_multiple_of(fill.bytes().len()) => {
            fill.bytes().repeat(size / fill.bytes().len())
        }
        _ => vec![0; size],
    }
}

/// Reads a selection of one field. The result is a view of the file if its layout allows it.
///
/// # Errors
/// Errors of the plan, the store and the decoders; `Limit` if the result exceeds the memory limit.
pub fn read(handle: &Handle, request: &Request, options: &Options) -> Result<Dense> {
    handle.operate(options, |handle| read_through(handle, request, options, Some(lasting)))
}

/// As [`read`], but never a view: later changes of the file do not affect the result.
///
/// # Errors
/// As [`read`].
pub fn read_owned(handle: &Handle, request: &Request, options: &Options) -> Result<Dense> {
    handle.operate(options, |handle| read_through(handle, request, options, None))
}

/// Reads a selection of one field and passes it to `visit`, without a copy if the layout of the file allows it. This is one
/// operation: if the file is truncated meanwhile, the result of `visit` is dropped.
///
/// # Errors
/// As [`read`]; errors of `visit`.
pub fn read_with<T>(
    handle: &Handle,
    request: &Request,
    options: &Options,
    visit: impl FnOnce(&Dense) -> Result<T>,
) -> Result<T> {
    // The result is passed once, so the operation cannot restart afterwards.
    let mut visit = Some(visit);
    handle.operate(options, |handle| {
        let dense = read_through(handle, request, options, Some(passing))?;
        visit
            .take()
            .map_or_else(|| Err(Error::internal("the result was already passed on")), |visit| visit(&dense))
    })
}

/// How a resident result is borrowed.
type Borrow = fn(&Handle, BorrowedRange) -> Result<Bytes>;

fn read_through(handle: &Handle, request: &Request, options: &Options, how: Option<Borrow>) -> Result<Dense> {
    let prepared = PreparedRead::new(handle, request, options)?;
    let field = handle.schema().fields[usize::from(prepared.field)].clone();
    let shape = prepared.selection.shape().to_vec();
    if let Some(how) = how
        && let Some(borrowed) = borrow(handle, &prepared)?
    {
        let bytes = how(handle, borrowed)?;
        return Ok(Dense {
            field,
            shape,
            values: DenseValues::BorrowedRange(bytes),
            stored: None,
            written: None,
            validity: OnceLock::new(),
        });
    }
    let mut values = prepared.buffer(options)?;
    let mut validity = if field.nullable {
        Some(Buffer::new(prepared.bytes / prepared.size as u64, prepared.limited(options))?)
    } else {
        None
    };
    execute(handle, &prepared, &mut values, validity.as_deref_mut(), options)?;
    let written = prepared.written()?;
    Ok(Dense {
        field,
        shape,
        values: DenseValues::Owned(values),
        stored: validity,
        written,
        validity: OnceLock::new(),
    })
}

/// Reads a selection of one field that is not nullable into memory of the engine, never a view. The caller can modify it, and
/// memory of dropped results is reused.
///
/// # Errors
/// As [`read`]; `InvalidRequest` for nullable fields.
pub fn read_buffer(handle: &Handle, request: &Request, options: &Options) -> Result<Buffer> {
    handle.operate(options, |handle| read_into_buffer(handle, request, options))
}

fn read_into_buffer(handle: &Handle, request: &Request, options: &Options) -> Result<Buffer> {
    let prepared = PreparedRead::new(handle, request, options)?;
    let field = &handle.schema().fields[usize::from(prepared.field)];
    if field.nullable {
        return Err(Error::invalid(format!("{:?} is nullable: validity is required", field.name)));
    }
    let mut values = prepared.buffer(options)?;
    execute(handle, &prepared, &mut values, None, options)?;
    Ok(values)
}

/// Returns a selection of one field as a slice of the file after verifying digests; `None` if the layout does not allow it.
///
/// # Errors
/// Errors of the plan and the store; `Corrupt` on a digest mismatch.
pub fn view(handle: &Handle, request: &Request) -> Result<Option<Bytes>> {
    handle.restartable(|handle| {
        let borrowed = borrow(handle, &PreparedRead::new(handle, request, &Options::default())?)?;
        borrowed.map(|borrowed| lasting(handle, borrowed)).transpose()
    })
}

/// Reads a selection of one field into memory of the caller: `values` row-major, and for nullable fields `validity`, one byte
/// per cell.
///
/// # Errors
/// As [`read`]; `InvalidRequest` if the length of a slice does not match the selection.
pub fn read_into(
    handle: &Handle,
    request: &Request,
    values: &mut [u8],
    validity: Option<&mut [u8]>,
    options: &Options,
) -> Result<()> {
    let mut validity = validity;
    handle.operate(options, |handle| {
        let prepared = PreparedRead::new(handle, request, options)?;
        execute(handle, &prepared, values, validity.as_deref_mut(), options)
    })
}

fn execute(
    handle: &Handle,
    prepared: &PreparedRead,
    values: &mut [u8],
    validity: Option<&mut [u8]>,
    options: &Options,
) -> Result<()> {
    let PreparedRead { plan, groups, selection, field, size, .. } = prepared;
    let (field, size) = (*field, *size);
    if !options.sequential && strips::paint(handle, prepared, values, options)? {
        return Ok(());
    }
    let options = &options.for_workers(prepared.bytes, prepared.unit)?;
    let schema_field = &handle.schema().fields[usize::from(field)];
    let fill = fill_cell(schema_field, size);
    let ticker = options.ticker(groups.len(plan) as u64);
    let mut outputs: Vec<OutputSlice<'_>> = vec![OutputSlice { bytes: values, size }];
    if schema_field.nullable {
        outputs.extend(validity.map(|bytes| OutputSlice { bytes, size: 1 }));
    }
    // With a single chunk, the other threads help to decode it.
    let shared = plan.chunks.len() == 1 && !options.sequential;
    let paint_group =
        |context: &ReadContext<'_>, index: usize, targets: &mut [OutputRegion<'_>], _: &Selection| {
            paint_group(handle, prepared, &fill, context, index, targets, shared)?;
            ticker.tick()
        };
    let parallel = prepared.parallel() && !options.sequential;
    options.run(|| match &prepared.resident {
        Some(resident) => sink::paint(
            &mut outputs,
            selection,
            plan,
            groups,
            &Units::Groups,
            parallel,
            |_| Ok(ReadContext::Resident(resident)),
            paint_group,
        ),
        None => {
            let merged = prepared.merged;
            let batches = fetch::batches(handle, plan, groups, selection, merged, &|_| Ok(false))?;
            prepared.read_ahead(handle, &batches);
            sink::paint(
                &mut outputs,
                selection,
                plan,
                groups,
                &Units::Batches(&batches),
                parallel,
                |batch| match batch {
                    Some(batch) => prepared.context(handle, batch),
                    None => Err(Error::internal("expected a batch")),
                },
                paint_group,
            )
        }
    })
}

/// Paints the visible part of a group: fill first if it is visible, then chunks from the lowest layer up.
fn paint_group(
    handle: &Handle,
    prepared: &PreparedRead,
    fill: &[u8],
    context: &ReadContext<'_>,
    index: usize,
    targets: &mut [OutputRegion<'_>],
    shared: bool,
) -> Result<()> {
    let PreparedRead { plan, groups, selection, field, size, .. } = prepared;
    let group = groups.get(plan, index)?;
    let (members, fill_seen) = group.visible(plan, selection);
    if fill_seen && let Some((_, region)) = selection.clip(group.region) {
        targets[0].fill(&region, fill)?;
        if let Some(validity) = targets.get_mut(1) {
            validity.fill(&region, &[u8::from(handle.schema().fields[usize::from(*field)].fill_valid)])?;
        }
    }
    for &member in members {
        let chunk = &plan.chunks[member as usize];
        let paint = |source: &ChunkBytes<'_>| {
            let cells = ChunkCells::new(handle, chunk, *field, *size)?.shared(shared);
            with_workspace(|workspace| paint_chunk(&cells, source, selection, targets, workspace))
        };
        context.with_source(handle, chunk, paint).map_err(|e| handle.locate(chunk, e))?;
        prepared.count_used(handle, chunk.stored_bytes());
    }
    Ok(())
}

/// Cells and validity of a part of a planned read, painted on this thread from fetched bytes.
pub(crate) fn paint_part(
    handle: &Handle,
    whole: &PreparedRead,
    plan: ChunkPlan,
    part: &Selection,
    context: &ReadContext<'_>,
) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let groups = Groups::new(&handle.schema().grid()?, &plan, part)?;
    let cells = part.cells().and_then(|n| usize::try_from(n).ok());
    let bytes = cells.and_then(|n| n.checked_mul(whole.size));
    let (Some(cells), Some(bytes)) = (cells, bytes) else {
        return Err(Error::limit("a group of chunks", u64::MAX, usize::MAX as u64));
    };
    let schema_field = &handle.schema().fields[usize::from(whole.field)];
    let fill = fill_cell(schema_field, whole.size);
    let prepared = PreparedRead {
        plan,
        groups,
        selection: part.clone(),
        field: whole.field,
        size: whole.size,
        bytes: bytes as u64,
        resident: None,
        unit: 0,
        merged: whole.merged,
        concurrent: whole.concurrent,
        ahead: OnceLock::new(),
        budget: 0,
        planned_reads: None,
        used: AtomicU64::new(0),
    };
    let mut values = alloc::zeroed("a group of chunks", bytes)?;
    let mut validity =
        schema_field.nullable.then(|| alloc::zeroed("a group of chunks", cells)).transpose()?;
    let mut outputs = vec![OutputSlice { bytes: &mut values, size: whole.size }];
    outputs.extend(validity.as_mut().map(|bytes| OutputSlice { bytes, size: 1 }));
    sink::paint(
        &mut outputs,
        part,
        &prepared.plan,
        &prepared.groups,
        &Units::Groups,
        false,
        |_| Ok(()),
        |&(), index, targets, _| paint_group(handle, &prepared, &fill, context, index, targets, false),
    )?;
    Ok((values, validity))
}

/// Copies the selected cells of one chunk to their destination.
fn paint_chunk(
    cells: &ChunkCells<'_>,
    source: &ChunkBytes<'_>,
    selection: &Selection,
    targets: &mut [OutputRegion<'_>],
    workspace: &mut Workspace,
) -> Result<()> {
    let ChunkCells { handle, chunk, column, size, .. } = *cells;
    let Some((part, region)) = chunk.cover.region().and_then(|cover| selection.clip(cover)) else {
        return Ok(());
    };
    if let Some(plain) = source.plain(handle, chunk, column, || cells.touched(&part))? {
        let direct = cells.direct(plain, &part)?;
        let from = StridedCells {
            bytes: direct.values,
            start: direct.placement.start,
            strides: direct.placement.strides,
        };
        targets[0].copy(&region, &from)?;
        if direct.swapped {
            targets[0].swap(&region, cells.word)?;
        }
        return match targets.get_mut(1) {
            Some(validity) => validity.fill(&region, &[1]),
            None => Ok(()),
        };
    }
    let parts = source.column_within(handle, chunk, column, cells.needed(&part).as_ref())?;
    if decode_in_place(cells, &parts, &part, &region, targets, workspace)? {
        return Ok(());
    }
    let decoded = cells.decode(&parts, &part, workspace)?;
    let (start, strides) = (decoded.placement.start, decoded.placement.strides);
    if let (Some(target), Some(validity)) = (targets.get_mut(1), decoded.validity) {
        let strides = strides.iter().map(|s| s / size).collect();
        target.copy(&region, &StridedCells { bytes: validity, start: start / size, strides })?;
    }
    targets[0].copy(&region, &StridedCells { bytes: decoded.values, start, strides })
}

/// A whole tile that is one run of the output is decoded directly into it.
fn decode_in_place(
    cells: &ChunkCells<'_>,
    parts: &PartBytes,
    part: &Selection,
    region: &Region,
    targets: &mut [OutputRegion<'_>],
    workspace: &mut Workspace,
) -> Result<bool> {
    if !cells.is_whole(part) || (cells.nullable && targets.len() < 2) {
        return Ok(false);
    }
    let (first, rest) = targets.split_at_mut(1);
    let Some(values) = first[0].contiguous(region)? else { return Ok(false) };
    let validity = match rest.first_mut() {
        Some(target) => target.contiguous(region)?,
        None => None,
    };
    cells.decode_whole(parts, values, validity, &mut workspace.scratch)?;
    Ok(true)
}

/// Byte range of a result in a resident object.
struct BorrowedRange {
    object: u32,
    range: std::ops::Range<u64>,
    bytes: Bytes,
}

/// Bytes that outlive the operation.
fn lasting(handle: &Handle, borrowed: BorrowedRange) -> Result<Bytes> {
    handle.store().view(&handle.source().object(borrowed.object), borrowed.range)
}

/// Bytes that are valid for the operation only.
fn passing(_: &Handle, borrowed: BorrowedRange) -> Result<Bytes> {
    Ok(borrowed.bytes)
}

/// The result as a slice of the file, if the stored layout equals that of the result.
fn borrow(handle: &Handle, prepared: &PreparedRead) -> Result<Option<BorrowedRange>> {
    let PreparedRead { plan, selection, field, size, resident, .. } = prepared;
    let (Some(resident), false) = (resident, plan.uncovered == Uncovered::Fill) else { return Ok(None) };
    let Some(first) = plan.chunks.first().and_then(|c| c.parts.first()) else { return Ok(None) };
    if selection.shape().contains(&0) || !selection.is_box() {
        return Ok(None);
    }
    let shape = selection.shape();
    let mut span: Option<(u64, u64)> = None;
    for chunk in &plan.chunks {
        let [part] = chunk.parts.as_slice() else { return Ok(None) };
        let direct = matches!(chunk.access, Access::Direct { swapped } if !swapped || *size == 1);
        if !direct || part.object != first.object {
            return Ok(None);
        }
        let Some((selected, target)) = chunk.cover.region().and_then(|c| selection.clip(c)) else { continue };
        let cells = ChunkCells::new(handle, chunk, *field, *size)?;
        if part.len != cells.tile_cells.saturating_mul(*size as u64) {
            return Ok(None);
        }
        let bounds = selected.bounds();
        let row_major = cells.order == tesseral_core::Order::RowMajor || bounds.rank() < 2;
        if !row_major || !is_run(&bounds, &cells.tile.shape()) || !is_run(&target, &shape) {
            return Ok(None);
        }
        let placement = crate::decode::chunk::locate_selection(cells.tile, cells.order, *size, &selected);
        let start = part.offset + placement.start as u64;
        let len = selected.cells().unwrap_or(0) * *size as u64;
        // Chunks are in row-major order of the grid; adjacent runs must be adjacent in the file too.
        span = match span {
            None if is_start(&target) => Some((start, start + len)),
            Some((from, to)) if to == start => Some((from, start + len)),
            _ => return Ok(None),
        };
    }
    let Some((from, to)) = span.filter(|(from, to)| to - from == prepared.bytes) else { return Ok(None) };
    let Some((_, bytes)) = resident.iter().find(|(o, _)| *o == first.object) else { return Ok(None) };
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let Some(view) = range.and_then(|(from, to)| bytes.get(from..to).map(|_| bytes.slice(from..to))) else {
        return Ok(None);
    };
    let word = handle.schema().fields[usize::from(*field)].dtype.word();
    if !(view.as_ptr() as usize).is_multiple_of(word) {
        return Ok(None);
    }
    check_digests(handle, prepared, resident, &(from..to))?;
    Ok(Some(BorrowedRange { object: first.object, range: from..to, bytes: view }))
}

/// A view is returned only after its bytes are verified.
fn check_digests(
    handle: &Handle,
    prepared: &PreparedRead,
    resident: &Resident,
    range: &std::ops::Range<u64>,
) -> Result<()> {
    use rayon::prelude::*;
    let source = ChunkBytes::Resident(resident);
    let range = ByteRuns::from(range.clone());
    let check = |chunk: &PlannedChunk| -> Result<()> {
        source.check(handle, chunk, Some(&range)).map_err(|e| handle.locate(chunk, e))
    };
    let chunks = &prepared.plan.chunks;
    if !chunks.iter().any(|chunk| !handle.pending_digests(chunk).is_empty()) {
        return Ok(());
    }
    if prepared.parallel() {
        chunks.par_iter().try_for_each(check)
    } else {
        chunks.iter().try_for_each(check)
    }
}

/// Returns whether a box of a row-major array of `shape` is one run.
fn is_run(part: &Region, shape: &[u64]) -> bool {
    let extents = part.shape();
    let first = extents.iter().position(|&n| n != 1).unwrap_or(extents.len());
    (first + 1..extents.len()).all(|d| extents[d] == shape[d])
}

fn is_start(target: &Region) -> bool {
    target.bounds().iter().all(|b| b.0 == 0)
}

/// I/O of a read, computed without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// Number of touched chunks.
    pub chunks: u64,
    /// Number of stored byte ranges.
    pub spans: u64,
    /// Number of requests after merging nearby ranges.
    pub requests: u64,
    /// Size of those requests in bytes.
    pub bytes: u64,
}

impl std::fmt::Display for Explained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = |n: u64| if n == 1 { "" } else { "s" };
        let Self { spans, requests, bytes, .. } = *self;
        write!(f, "{spans} span{}, {requests} request{}, ", s(spans), s(requests))?;
        if bytes < 10 << 10 { write!(f, "{bytes} B") } else { write!(f, "{} KiB", bytes >> 10) }
    }
}

/// Computes what [`read`] would fetch from a store without resident objects.
///
/// # Errors
/// Errors of the plan.
pub fn explain(handle: &Handle, request: &Request) -> Result<Explained> {
    let prepared = handle.restartable(|handle| PreparedRead::new(handle, request, &Options::default()))?;
    let handle = &handle.latest();
    let PreparedRead { plan, groups, selection, .. } = &prepared;
    let batches = fetch::batches(handle, plan, groups, selection, prepared.merged, &|_| Ok(false))?;
    let ranges = batches.iter().flat_map(|b| &b.reads);
    let mut spans = 0;
    for index in 0..prepared.groups.len(&prepared.plan) {
        let group = prepared.groups.get(&prepared.plan, index)?;
        let (members, _) = group.visible(&prepared.plan, &prepared.selection);
        spans += members.iter().map(|&m| prepared.plan.chunks[m as usize].parts.len() as u64).sum::<u64>();
    }
    Ok(Explained {
        chunks: prepared.plan.chunks.len() as u64,
        spans,
        requests: ranges.clone().count() as u64,
        bytes: ranges.map(|(_, r)| r.end - r.start).fold(0, u64::saturating_add),
    })
}
