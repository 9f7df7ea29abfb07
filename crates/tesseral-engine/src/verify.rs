//! Verification of a source: the format audits its metadata, the engine verifies digests and decodes chunks.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rayon::prelude::*;
use tesseral_core::dtype::Class;
use tesseral_core::{
    Cancel, ChunkStats, DType, Error, ErrorKind, Finding, Limits, Result, Scalar, Selection, Severity, Sum,
    missing,
};
use tesseral_format::{
    Access, AuditOptions, CellFault, ChunkPlan, Column, ContainerSource, CoordinateRanges, Depth, Format,
    OpenOptions, PlannedChunk, Request, Target,
};
use tesseral_store::{Store, StoreExt};

use crate::decode::bits::decode_packed;
use crate::decode::chunk::with_workspace;
use crate::decode::columns::{Cells, column_layout};
use crate::fetch::reopen::{missing_or_stale, open_listed, watched};
use crate::fetch::{self, ChunkBytes};
use crate::handle::Handle;
use crate::options::Options;
use crate::plan::expansion;
use crate::plan::subdivide::{self, CellRun};
use crate::reduce::kernel::summary::{StatSet, Summary};
use crate::write::chunk_stats;

/// Maximum number of chunks without a digest that are decoded by default.
const SAMPLE: usize = 128;
/// Number of arrays, and of their chunks, that are verified together.
const BATCH: usize = 64;
/// Size of the cells decoded at once from a chunk that is too large, in bytes.
const PIECE: u64 = 4 << 20;
/// Size of the cells decoded of a constant chunk, in bytes.
const EQUAL_CELLS: u64 = 64 << 10;

/// Result of [`verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Whether no check failed.
    pub ok: bool,
    /// Number of bytes covered by digests, all of which were verified.
    pub covered_bytes: u64,
    /// Number of bytes without a digest.
    pub uncovered_bytes: u64,
}

/// Verifies a source and reports all checks. Digests are verified for every chunk; chunks without one are decoded, all chunks
/// if `deep`, otherwise the first few. `deep` also compares stored statistics with the cells.
///
/// # Errors
/// Only errors that prevent the verification: `Io`, `NotFound`, `Cancelled`. Damage is reported as a finding.
pub fn verify(
    format: &dyn Format,
    store: Arc<dyn Store>,
    open: &OpenOptions,
    deep: bool,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Verified> {
    let depth = if deep { Depth::Deep } else { Depth::Usual };
    let audit = AuditOptions { open: open.clone(), depth, canonical: false };
    verify_to(format, store, &audit, options, report)
}

/// As [`verify`], with a depth.
///
/// # Errors
/// As [`verify`].
pub fn verify_to(
    format: &dyn Format,
    store: Arc<dyn Store>,
    checks: &AuditOptions,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Verified> {
    checks.open.check(format)?;
    let store = store.canceled_by(&options.cancel).unwrap_or(store);
    // Findings on objects that were removed since are dropped.
    let store = watched(format, store);
    let fresh = || format.open(Arc::clone(&store), &checks.open);
    Arc::clone(&store).guarded(|| {
        let missing = std::cell::RefCell::new(Vec::new());
        let verified = verify_all(format, Arc::clone(&store), checks, options, &mut |finding: Finding| {
            missing.borrow_mut().extend(finding.missing.clone());
            report(finding);
        })?;
        // Objects that a new listing does not contain were removed by a vacuum and are not lost.
        for name in missing.into_inner() {
            let error = Error::missing("an object", store.describe(&name), &name);
            match missing_or_stale(error, store.location(), &|| open_listed(fresh)) {
                stale if matches!(stale.kind(), ErrorKind::Stale { .. }) => return Err(stale),
                _ => {}
            }
        }
        Ok(verified)
    })
}

fn verify_all(
    format: &dyn Format,
    store: Arc<dyn Store>,
    checks: &AuditOptions,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Verified> {
    let ok = std::cell::Cell::new(true);
    let mut tell = |finding: Finding| {
        ok.set(ok.get() && (finding.ok || finding.severity != Severity::Error));
        report(finding);
    };
    let audit = format.audit(store, checks, &mut tell)?;
    let mut verified =
        Verified { ok: ok.get(), covered_bytes: audit.covered_bytes, uncovered_bytes: audit.uncovered_bytes };
    let Some(container) = audit.container.filter(|_| checks.depth > Depth::Structure) else {
        return Ok(verified);
    };
    let depth = checks.depth;
    let sample = match depth {
        Depth::Structure | Depth::Digests => 0,
        Depth::Usual => SAMPLE,
        Depth::Deep | Depth::Full => usize::MAX,
    };
    let mut allowance = Allowance { sample, work: expansion::Work::default() };
    let limits = &checks.open.limits;
    let mut decoded = 0_u64;
    let mut skipped = 0_u64;
    let mut failures = 0_u64;
    let mut batch: Vec<ArrayChecks> = Vec::new();
    let mut next = 0;
    while next < container.len() {
        // Arrays of few chunks share the threads.
        while next < container.len() && batch.len() < BATCH {
            let mut checked = Checked::default();
            let prepared = prepare_array(
                &*container,
                next,
                depth,
                &mut allowance,
                limits,
                options,
                &mut checked,
                &mut |finding| {
                    failures += u64::from(!finding.ok);
                    tell(finding);
                },
            )?;
            next += 1;
            decoded += checked.decoded;
            skipped += checked.skipped;
            verified.covered_bytes += checked.covered_bytes;
            verified.uncovered_bytes += checked.uncovered_bytes;
            let Some(prepared) = prepared else { continue };
            let alone = !prepared.concurrent || prepared.todo.len() > BATCH;
            batch.push(prepared);
            if alone || batch.iter().map(|array| array.todo.len()).sum::<usize>() > BATCH {
                break;
            }
        }
        run_checks(&batch, depth, options, &mut |finding| {
            failures += u64::from(!finding.ok);
            tell(finding);
        })?;
        batch.clear();
    }
    if skipped > 0 {
        let detail =
            format!("{skipped} chunks without a digest were not decoded; a deep verification decodes all");
        tell(Finding::warning("chunk_decode_skipped", detail));
    }
    if failures == 0 {
        tell(Finding::passed(
            "chunk_decode",
            format!("{decoded} chunks decoded or verified by their digest"),
        ));
    }
    verified.ok = ok.get();
    Ok(verified)
}

/// Remaining number of chunks to decode.
struct Allowance {
    /// Number of skipped chunks.
    sample: usize,
    work: expansion::Work,
}

#[derive(Default)]
struct Checked {
    decoded: u64,
    skipped: u64,
    covered_bytes: u64,
    uncovered_bytes: u64,
}

/// An array and what is checked of its chunks.
struct ArrayChecks {
    name: String,
    handle: Handle,
    plan: ChunkPlan,
    /// Indexes of the chunks to check, and whether they are decoded.
    todo: Vec<(usize, bool)>,
    /// Largest memory that the check of a chunk takes, in bytes.
    largest: u64,
    /// Several threads can hold decoded chunks at once.
    concurrent: bool,
}

/// Determines what is checked of an array, in order before any thread starts; `None` if its damage was reported.
#[allow(clippy::too_many_arguments, reason = "the state of one verification")]
fn prepare_array(
    container: &dyn ContainerSource,
    index: usize,
    depth: Depth,
    allowance: &mut Allowance,
    limits: &Limits,
    options: &Options,
    checked: &mut Checked,
    report: &mut dyn FnMut(Finding),
) -> Result<Option<ArrayChecks>> {
    let name = container.name(index).to_owned();
    let deep = depth >= Depth::Deep;
    let handle = match Handle::new(container, index, true) {
        Ok(handle) => handle.with_limits(*limits),
        Err(error) => {
            report(finding_of("chunk_plan", &error)?.in_array(name));
            return Ok(None);
        }
    };
    for warning in missing::warnings(handle.schema()) {
        report(Finding::warning("missing_values", warning).in_array(name.clone()));
    }
    let plan = match plan_all(&handle) {
        Ok(plan) => plan,
        Err(error) => {
            report(finding_of("chunk_plan", &error)?.in_array(name));
            return Ok(None);
        }
    };
    let mut todo: Vec<(usize, bool)> = Vec::new();
    let mut largest = 0;
    for (number, chunk) in plan.chunks.iter().enumerate() {
        let stored = chunk.stored_bytes();
        let digest = !handle.source().digests(chunk).is_empty();
        // Checksum codecs are verified by decoding.
        let inner = handle.source().checked_bytes(chunk).min(stored);
        let covered = handle.covered_bytes(chunk).max(inner);
        checked.covered_bytes += covered;
        checked.uncovered_bytes += stored - covered;
        // What was written decodes, unless it was damaged since: a digest of all of it is sufficient.
        let sufficient = digest && covered == stored;
        let mut decode = deep || inner > 0 || (allowance.sample > 0 && !sufficient);
        // Errors that prevent the check are found again, and reported, when the chunk is checked.
        let held = |decode| subdivide::check_bytes(&handle, chunk, decode, options.memory).unwrap_or(0);
        let mut unit = held(decode);
        // A digest is as reliable as decoding, unless that was requested.
        if let (Some(memory), true, false) = (options.memory, digest, deep)
            && unit > memory
        {
            decode = false;
            unit = held(decode);
        }
        if !decode && !digest {
            checked.skipped += 1;
            continue;
        }
        allowance.sample = allowance.sample.saturating_sub(usize::from(decode));
        largest = largest.max(unit);
        todo.push((number, decode));
    }
    options.for_workers(0, largest).map_err(|e| e.in_array(&name))?;
    let cell = handle.schema().fields.iter().filter_map(|field| field.cell_size()).max().unwrap_or(8);
    let expensive = |chunk: &PlannedChunk| {
        let mut columns = chunk.parts.iter().map(|part| part.column);
        columns.any(|column| handle.source().constant(chunk, column).is_none())
    };
    let chunks = todo.iter().map(|(number, decode)| (&plan.chunks[*number], *decode));
    let decoded: Vec<&PlannedChunk> =
        chunks.filter(|(chunk, decode)| *decode && expensive(chunk)).map(|(chunk, _)| chunk).collect();
    if let Err(error) = allowance.work.add_decoded(&handle, &decoded, cell) {
        report(finding_of("chunk_decode", &error)?.in_array(name));
        return Ok(None);
    }
    checked.decoded = todo.len() as u64;
    let concurrent = expansion::concurrent(&handle, &plan.chunks, cell);
    Ok(Some(ArrayChecks { name, handle, plan, todo, largest, concurrent }))
}

/// Checks the chunks of some arrays on all threads, and reports findings in their order.
fn run_checks(
    batch: &[ArrayChecks],
    depth: Depth,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    let all = batch.iter().flat_map(|array| array.todo.iter().map(move |todo| (array, *todo)));
    let all: Vec<(&ArrayChecks, (usize, bool))> = all.collect();
    let largest = batch.iter().map(|array| array.largest).max().unwrap_or(0);
    let options = &options.for_workers(0, largest)?;
    let ticker = options.ticker(all.len() as u64);
    let verify_chunk = |&(array, (number, decode)): &(&ArrayChecks, (usize, bool))| -> Result<Vec<Finding>> {
        ticker.tick()?;
        let ArrayChecks { name, handle, plan, .. } = array;
        let chunk = &plan.chunks[number];
        let mut found = Vec::new();
        let mut faults = Vec::new();
        let checks = Checks { decode, depth, options };
        if let Err(error) = check_chunk(handle, chunk, checks, &mut faults) {
            let check = if matches!(error.kind(), ErrorKind::InvalidRequest { .. }) {
                "statistics"
            } else {
                handle.source().check_of(&error, depth)
            };
            found.push(finding_of(check, &error)?);
        }
        found.extend(faults.into_iter().map(|fault: CellFault| Finding::failed(fault.check, fault.detail)));
        if found.is_empty() {
            return Ok(found);
        }
        let info = handle.source().describe(chunk);
        let place =
            |finding: Finding| finding.in_array(name).in_chunk(&info.coords).at(info.offset, info.stored_len);
        Ok(found.into_iter().map(place).collect())
    };
    let findings: Vec<Vec<Finding>> = if batch.iter().all(|array| array.concurrent) {
        options.run(|| all.par_iter().map(verify_chunk).collect::<Result<_>>())?
    } else {
        all.iter().map(verify_chunk).collect::<Result<_>>()?
    };
    findings.into_iter().flatten().for_each(report);
    Ok(())
}

/// Converts damage into a finding; returns other errors.
fn finding_of(check: &'static str, error: &Error) -> Result<Finding> {
    match error.kind() {
        ErrorKind::Cancelled => Err(Error::cancelled()),
        ErrorKind::Io { op, object, source } => {
            Err(Error::io(op, object.clone(), std::io::Error::new(source.kind(), source.to_string())))
        }
        _ => Ok(Finding::from_error(check, error)),
    }
}

/// All chunks of an array, with every column.
pub(crate) fn plan_all(handle: &Handle) -> Result<ChunkPlan> {
    let schema = handle.schema();
    let mut columns: Vec<Column> = (0..).take(schema.fields.len()).map(Column::Field).collect();
    let target = if schema.sparse {
        columns.extend((0..).take(schema.dims.len()).map(Column::Dim));
        Target::Coordinates(vec![CoordinateRanges::new(); schema.dims.len()])
    } else {
        let shape =
            schema.shape().ok_or_else(|| Error::internal("a dense array without countable positions"))?;
        Target::Cells(Selection::all(&shape))
    };
    handle.plan(&Request { target, columns, condition: None })
}

/// Checks of one column of a chunk.
#[derive(Clone, Copy)]
struct Checks<'a> {
    /// Decode the columns.
    decode: bool,
    /// From [`Depth::Deep`] on cells are compared with stored statistics, at [`Depth::Full`] with the rules of the format.
    depth: Depth,
    options: &'a Options,
}

/// Checks one chunk: its digests, and what `checks` selects; cells that break rules of the format are added to `faults`.
/// With a memory limit the cells of a large chunk are decoded in ranges.
fn check_chunk(
    handle: &Handle,
    chunk: &PlannedChunk,
    checks: Checks<'_>,
    faults: &mut Vec<CellFault>,
) -> Result<()> {
    let Checks { decode, options, .. } = checks;
    check_implied(handle, chunk)?;
    if !decode && options.memory.is_some() {
        return handle.check_digests(chunk, None, |_, _| Ok(None));
    }
    let mut columns: Vec<Column> = chunk.parts.iter().map(|part| part.column).collect();
    columns.dedup();
    if let ([column], Some(memory)) = (columns.as_slice(), options.memory)
        && let Some(runs) = subdivide::cell_runs(handle, chunk, *column, memory)?
    {
        return check_runs(ColumnCheck::new(handle, chunk, *column, checks, faults)?, runs);
    }
    let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
    let source = ChunkBytes::Fetched(&fetched);
    for column in columns {
        // This verifies the digests.
        let parts = source.column(handle, chunk, column)?;
        if decode {
            check_column(ColumnCheck::new(handle, chunk, column, checks, faults)?, &parts)?;
        }
    }
    Ok(())
}

/// Decodes one column from all of its stored bytes: at once, or in ranges if the stored bytes do not justify that.
fn check_column(mut check: ColumnCheck<'_>, parts: &[Bytes]) -> Result<()> {
    let ColumnCheck { handle, chunk, column, .. } = check;
    // Some cells of a constant chunk are sufficient.
    if let (Some(_), Access::Coded { granule: Some(granule) }, true) =
        (handle.source().constant(chunk, column), chunk.access, check.size > 0)
    {
        let step = (EQUAL_CELLS / check.size as u64).max(1).next_multiple_of(granule.max(1));
        if step < chunk.cells {
            return check.run(parts, 0..step);
        }
    }
    let Err(large) = check.check_declared_size() else {
        check.run(parts, 0..chunk.cells)?;
        return check.finish();
    };
    let (Access::Coded { granule: Some(granule) }, true) = (chunk.access, check.size > 0) else {
        return Err(large);
    };
    let step = (PIECE / check.size as u64).max(1).next_multiple_of(granule.max(1));
    let cells_checked = check.justified(step)?;
    let mut start = 0;
    while start < cells_checked {
        check.cancel.check()?;
        let end = start.saturating_add(step).min(cells_checked);
        check.run(parts, start..end)?;
        start = end;
    }
    check.finish()
}

/// Fetches and decodes one column piece by piece.
fn check_runs(mut check: ColumnCheck<'_>, runs: impl Iterator<Item = CellRun>) -> Result<()> {
    let ColumnCheck { handle, chunk, column, .. } = check;
    // The number of pieces depends on the declared cells.
    let cells_checked = match check.check_declared_size() {
        Ok(()) => chunk.cells,
        Err(_) => check.justified(1)?,
    };
    let mut seen = 0_u64;
    for (piece, cells) in runs {
        if seen >= cells_checked {
            break;
        }
        check.cancel.check()?;
        let piece = piece?;
        let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, &piece))?;
        let parts = ChunkBytes::Fetched(&fetched).column(handle, &piece, column)?;
        let first = seen;
        seen = seen.saturating_add(cells.end.saturating_sub(cells.start));
        check.piece(&piece, &parts, cells, first)?;
    }
    check.finish()
}

/// Compares the bytes that reads skip with their expected value.
fn check_implied(handle: &Handle, chunk: &PlannedChunk) -> Result<()> {
    for implied in handle.source().implied_bytes(chunk) {
        let object = handle.source().object(implied.object);
        let end = implied.offset.saturating_add(implied.bytes.len() as u64);
        let stored = handle.store().read(&object, implied.offset..end)?;
        if stored[..] != implied.bytes[..] {
            let detail = format!("unexpected header bytes {:02x?}", &stored[..]);
            let object = handle.store().describe(&object);
            return Err(Error::corrupt("the header of a chunk", object, implied.offset, detail));
        }
    }
    Ok(())
}

/// One column of a chunk, decoded in one or several ranges, and its stored statistics.
struct ColumnCheck<'a> {
    handle: &'a Handle,
    chunk: &'a PlannedChunk,
    column: Column,
    size: usize,
    nullable: bool,
    cells: Cells,
    statistics: Option<StatisticsCheck>,
    /// First cells that break rules of the format, one per rule, if these are checked.
    faults: Option<&'a mut Vec<CellFault>>,
    cancel: &'a Cancel,
}

/// Statistics of the decoded cells of a column.
struct StatisticsCheck {
    dtype: DType,
    /// Values that the stored statistics count as null.
    missing: Vec<Scalar>,
    /// Of numbers.
    summary: Option<Summary>,
    plain_sum: f64,
    /// Minimum and maximum text.
    texts: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether a text contains a NUL.
    zeros: bool,
    /// Whether a text violates its dtype.
    malformed: bool,
}

impl<'a> ColumnCheck<'a> {
    fn new(
        handle: &'a Handle,
        chunk: &'a PlannedChunk,
        column: Column,
        checks: Checks<'a>,
        faults: &'a mut Vec<CellFault>,
    ) -> Result<Self> {
        let (size, nullable) =
            if is_packed(handle, column) { (0, false) } else { column_layout(handle.schema(), column)? };
        let statistics = match checks.depth {
            Depth::Deep | Depth::Full => StatisticsCheck::for_chunk(handle, chunk, column),
            Depth::Structure | Depth::Digests | Depth::Usual => None,
        };
        let faults = (checks.depth == Depth::Full).then_some(faults);
        let (cells, cancel) = (Cells::new(size, nullable), &checks.options.cancel);
        Ok(Self { handle, chunk, column, size, nullable, cells, statistics, faults, cancel })
    }

    /// Rejects decoding all cells of the chunk at once if its stored bytes do not justify it.
    fn check_declared_size(&self) -> Result<()> {
        if is_packed(self.handle, self.column) {
            return Ok(());
        }
        let count = usize::try_from(self.chunk.cells)
            .map_err(|_| Error::limit("a chunk's cells", self.chunk.cells, usize::MAX as u64))?;
        expansion::check_chunk(self.handle, self.chunk, count.saturating_mul(self.size.max(1)))
    }

    /// Number of cells to decode of a chunk that declares more than its stored bytes justify at once: all, unless the stored
    /// bytes do not justify that work either. For constant chunks, `some` cells are sufficient; they are not compared with
    /// stored statistics.
    fn justified(&mut self, some: u64) -> Result<u64> {
        let cells = match self.handle.source().constant(self.chunk, self.column) {
            Some(_) => {
                self.statistics = None;
                self.chunk.cells.min(some)
            }
            None => self.chunk.cells,
        };
        let bytes = cells.saturating_mul(self.size.max(1) as u64);
        self.handle.limits().check_total("the cells of a chunk", bytes, self.chunk.stored_bytes())?;
        Ok(cells)
    }

    /// Decodes cells of the chunk from all of its stored bytes.
    fn run(&mut self, parts: &[Bytes], cells: Range<u64>) -> Result<()> {
        let first = cells.start;
        self.piece(self.chunk, parts, cells, first)
    }

    /// Decodes cells from the stored bytes of a piece; the first one is cell `first` of the chunk.
    fn piece(&mut self, piece: &PlannedChunk, parts: &[Bytes], cells: Range<u64>, first: u64) -> Result<()> {
        let Self { handle, column, .. } = *self;
        if is_packed(handle, column) {
            return decode_packed(handle, piece, column, parts).map(drop);
        }
        let count = usize::try_from(cells.end.saturating_sub(cells.start))
            .map_err(|_| Error::limit("a chunk's cells", piece.cells, usize::MAX as u64))?;
        let mut decoded = std::mem::replace(&mut self.cells, Cells::new(self.size, self.nullable));
        match (piece.access, parts) {
            // A piece of a direct chunk is its cells; nothing is decoded.
            (Access::Direct { .. }, [bytes]) if piece.cells < self.chunk.cells => {
                decoded = Cells::from_fixed(self.size, native(piece.access, self.word(), bytes), None);
            }
            _ => decoded.decode_with(count, |out| {
                with_workspace(|w| handle.source().decode(piece, column, parts, cells, out, &mut w.scratch))
            })?,
        }
        if let Some(statistics) = &mut self.statistics {
            statistics.fold(&decoded)?;
        }
        if let Some(faults) = &mut self.faults {
            let cells = first..first.saturating_add(count as u64);
            for fault in handle.source().cell_faults(column, parts, &cells, decoded.data())? {
                if faults.iter().all(|known| known.check != fault.check) {
                    faults.push(fault);
                }
            }
        }
        self.cells = decoded;
        Ok(())
    }

    /// Size of one number in bytes.
    fn word(&self) -> usize {
        match self.column {
            Column::Field(f) => self.handle.schema().fields[usize::from(f)].dtype.word(),
            _ => self.size,
        }
    }

    /// Compares the computed with the stored statistics.
    fn finish(self) -> Result<()> {
        let Some(found) = self.statistics else { return Ok(()) };
        found.compare(&self.handle.source().stats(self.chunk, self.column))
    }
}

/// Stored cells as native numbers.
fn native(access: Access, word: usize, bytes: &[u8]) -> Vec<u8> {
    let mut values = bytes.to_vec();
    if matches!(access, Access::Direct { swapped: true }) && word > 1 {
        values.chunks_exact_mut(word).for_each(<[u8]>::reverse);
    }
    values
}

/// Returns whether cells of a column share bytes.
fn is_packed(handle: &Handle, column: Column) -> bool {
    matches!(column, Column::Field(f) if handle.schema().fields[usize::from(f)].dtype == DType::Bitmask)
}

impl StatisticsCheck {
    /// Initial state; `None` for columns without comparable statistics.
    fn for_chunk(handle: &Handle, chunk: &PlannedChunk, column: Column) -> Option<Self> {
        let schema = handle.schema();
        let dtype = match column {
            Column::Field(f) => {
                let field = &schema.fields[usize::from(f)];
                let text = field.dtype.class() == Class::Text;
                if (field.cell != tesseral_core::CellLen::One && !text) || chunk.tile.is_some() {
                    return None;
                }
                field.dtype
            }
            Column::Dim(d) => schema.dims[usize::from(d)].dtype,
            Column::Timestamp | Column::DeletedBy => return None,
        };
        // The values that the format excludes from its statistics, not those that the field declares.
        let missing = handle.source().stats(chunk, column).missing;
        let summary = Summary::new(dtype, StatSet::ALL).ok();
        Some(Self { dtype, missing, summary, plain_sum: 0.0, texts: None, zeros: false, malformed: false })
    }

    fn fold(&mut self, cells: &Cells) -> Result<()> {
        match &mut self.summary {
            Some(summary) => {
                summary.fold(cells.data(), cells.validity(), &self.missing)?;
                self.plain_sum = plain_sum(self.dtype, cells, self.plain_sum);
            }
            None => {
                let mut texts = (0..cells.len()).filter(|i| cells.is_valid(*i)).map(|i| cells.get(i));
                for text in texts.by_ref() {
                    self.zeros |= text.contains(&0);
                    self.malformed |= self.dtype == DType::Utf8 && std::str::from_utf8(text).is_err();
                    match &mut self.texts {
                        None => self.texts = Some((text.to_vec(), text.to_vec())),
                        Some((least, _)) if text < &least[..] => *least = text.to_vec(),
                        Some((_, greatest)) if text > &greatest[..] => *greatest = text.to_vec(),
                        Some(_) => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Compares with exact stored statistics. A difference is an `InvalidRequest`: the cells themselves are intact.
    fn compare(self, stored: &ChunkStats) -> Result<()> {
        let Some(summary) = self.summary else {
            if self.malformed {
                return Err(Error::invalid("a text is not UTF-8"));
            }
            return check_texts(stored, self.texts, self.zeros);
        };
        let found = chunk_stats(&summary);
        let differs = |what: &str, stored: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
            Err(Error::invalid(format!("{what} mismatch: stored {stored:?}, computed {found:?}")))
        };
        if let (Some(stored), Some(found)) = (stored.min.exact(), found.min.exact())
            && stored.compare(found) != Some(std::cmp::Ordering::Equal)
        {
            return differs("minimum", stored, found);
        }
        if let (Some(stored), Some(found)) = (stored.max.exact(), found.max.exact())
            && stored.compare(found) != Some(std::cmp::Ordering::Equal)
        {
            return differs("maximum", stored, found);
        }
        if let (Some(stored), Some(found)) = (stored.nulls.exact(), found.nulls.exact())
            && stored != found
        {
            return differs("null count", stored, found);
        }
        if let (Some(sum), Some(found_sum)) = (&stored.partial_sum, &found.partial_sum) {
            if sum != found_sum {
                return differs("exact sum", sum, found_sum);
            }
            if stored.nans != found.nans {
                return differs("NaN count", &stored.nans, &found.nans);
            }
        }
        match (stored.sum.exact(), summary.sum()) {
            (Some(Sum::Int(stored)), Some(Sum::Int(found))) if *stored != found => {
                differs("sum", stored, &found)
            }
            // Sums of floats depend on the order of additions: sequential, or compensated.
            (Some(Sum::Float(stored)), Some(Sum::Float(found)))
                if *stored != found && *stored != self.plain_sum =>
            {
                differs("sum", stored, &found)
            }
            _ => Ok(()),
        }
    }
}

/// Compares stored bounds of texts with the cells: exact ones are reached, none is passed.
fn check_texts(stored: &ChunkStats, found: Option<(Vec<u8>, Vec<u8>)>, zeros: bool) -> Result<()> {
    let (Some(min), Some(max)) = (stored.min.bound(), stored.max.bound()) else { return Ok(()) };
    let exact = stored.min.exact().is_some() && stored.max.exact().is_some();
    let fits = |least: &[u8], greatest: &[u8]| match exact {
        true => (least, greatest) == (min.bytes(), max.bytes()),
        // Writers that compare up to the first NUL order such texts in another way.
        false => zeros || (least >= min.bytes() && greatest <= max.bytes()),
    };
    match found {
        Some((least, greatest)) if !fits(&least, &greatest) => Err(Error::invalid(format!(
            "bounds mismatch: stored {min} and {max}, computed {:?} and {:?}",
            String::from_utf8_lossy(&least),
            String::from_utf8_lossy(&greatest)
        ))),
        _ => Ok(()),
    }
}

/// Continues a sequential sum of floats.
fn plain_sum(dtype: DType, cells: &Cells, start: f64) -> f64 {
    let valid = |i: &usize| cells.is_valid(*i);
    let value = |i: usize| Scalar::from_le_bytes(dtype, cells.get(i)).ok().and_then(|v| v.as_f64());
    (0..cells.len()).filter(valid).filter_map(value).fold(start, |sum, value| sum + value)
}
