//! Checking a source: the format walks its metadata, the engine checks digests and decodes chunks.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tesseral_core::{
    ChunkStats, DType, Error, ErrorKind, Finding, Limits, Result, Scalar, Selection, Severity, Sum,
};
use tesseral_format::{
    Access, AuditOptions, ChunkPlan, Column, Container, CoordinateRanges, Depth, Format, OpenOptions,
    PlannedChunk, Request, Target,
};
use tesseral_store::{Store, StoreExt};

use crate::bits::decode_packed;
use crate::cells::{Cells, column_layout};
use crate::chunk::with_workspace;
use crate::claims;
use crate::fetch::{self, Source};
use crate::handle::Handle;
use crate::kernel::summary::{Summary, Wanted};
use crate::options::Options;
use crate::reopen::{judge, open_listed, watched};
use crate::write::chunk_stats;

/// Chunks without a digest that are decoded when nobody asked for all of them.
const SAMPLE: usize = 128;
/// Bytes of cells that are decoded at once of a chunk that is too large to be held whole.
const PIECE: u64 = 4 << 20;
/// Bytes of cells that are decoded of a chunk whose cells are all equal.
const EQUAL_CELLS: u64 = 64 << 10;

/// The outcome of [`verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// No check failed.
    pub ok: bool,
    /// Bytes that some digest covers, all of which were compared.
    pub covered_bytes: u64,
    /// Bytes whose change no digest would show.
    pub uncovered_bytes: u64,
}

/// Checks a source and reports every check made. Digests are compared for every chunk; chunks without one are decoded,
/// all of them when `deep`, else the first few. `deep` also compares stored statistics with the cells.
///
/// # Errors
/// Only what keeps the source from being looked at: `Io`, `NotFound`, `Cancelled`. Damage is a finding.
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

/// As [`verify`], to a depth.
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
    // Damage that was found in what is gone is not the file's.
    let store = watched(format, store);
    let fresh = || format.open(Arc::clone(&store), &checks.open);
    Arc::clone(&store).guarded(|| {
        let missing = std::cell::RefCell::new(Vec::new());
        let verified = verify_all(format, Arc::clone(&store), checks, options, &mut |finding: Finding| {
            missing.borrow_mut().extend(finding.missing.clone());
            report(finding);
        })?;
        // What a fresh listing does not name any more was removed by a vacuum and is not lost.
        for name in missing.into_inner() {
            let error = Error::missing("an object", store.describe(&name), &name);
            match judge(error, store.location(), &|| open_listed(fresh)) {
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
    let depth = if audit.decoded { Depth::Digests } else { checks.depth };
    let sample = match depth {
        Depth::Structure | Depth::Digests => 0,
        Depth::Usual => SAMPLE,
        Depth::Deep | Depth::Full => usize::MAX,
    };
    let mut allowance = Allowance { sample, work: claims::Work::default() };
    let deep = depth >= Depth::Deep;
    let limits = &checks.open.limits;
    let mut decoded = 0_u64;
    let mut skipped = 0_u64;
    let mut failures = 0_u64;
    for index in 0..container.len() {
        let checked =
            verify_array(&*container, index, deep, &mut allowance, limits, options, &mut |finding| {
                failures += u64::from(!finding.ok);
                tell(finding);
            })?;
        decoded += checked.decoded;
        skipped += checked.skipped;
        verified.covered_bytes += checked.covered_bytes;
        verified.uncovered_bytes += checked.uncovered_bytes;
    }
    if skipped > 0 && !audit.decoded {
        let detail = format!("{skipped} chunks without a digest were not decoded; --deep decodes all");
        tell(Finding::warning("chunk_decode_skipped", detail));
    }
    if failures == 0 {
        tell(Finding::passed(
            "chunk_decode",
            format!("{decoded} chunks decoded or compared with their digest"),
        ));
    }
    verified.ok = ok.get();
    Ok(verified)
}

/// What may still be decoded.
struct Allowance {
    /// Chunks that need not be.
    sample: usize,
    work: claims::Work,
}

#[derive(Default)]
struct Checked {
    decoded: u64,
    skipped: u64,
    covered_bytes: u64,
    uncovered_bytes: u64,
}

fn verify_array(
    container: &dyn Container,
    index: usize,
    deep: bool,
    allowance: &mut Allowance,
    limits: &Limits,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Checked> {
    let name = container.name(index).to_owned();
    let mut checked = Checked::default();
    let handle = match Handle::new(container, index, true) {
        Ok(handle) => handle.with_limits(*limits),
        Err(error) => {
            report(finding_of("chunk_plan", &error)?.in_array(name));
            return Ok(checked);
        }
    };
    let plan = match plan_all(&handle) {
        Ok(plan) => plan,
        Err(error) => {
            report(finding_of("chunk_plan", &error)?.in_array(name));
            return Ok(checked);
        }
    };
    // What to do with each chunk, in order, before any thread starts.
    let mut todo: Vec<(&PlannedChunk, bool)> = Vec::new();
    for chunk in &plan.chunks {
        let stored = chunk.stored_bytes();
        let digest = !handle.source().digests(chunk).is_empty();
        // Checksums among the codecs are compared by decoding.
        let inner = handle.source().checked_bytes(chunk).min(stored);
        let covered = handle.covered_bytes(chunk).max(inner);
        checked.covered_bytes += covered;
        checked.uncovered_bytes += stored - covered;
        let decode = deep || allowance.sample > 0 || inner > 0;
        if !decode && !digest {
            checked.skipped += 1;
            continue;
        }
        allowance.sample = allowance.sample.saturating_sub(1);
        todo.push((chunk, decode));
    }
    let largest = handle.schema().fields.iter().filter_map(|field| field.cell_size()).max().unwrap_or(8);
    let expensive = |chunk: &PlannedChunk| {
        let mut columns = chunk.parts.iter().map(|part| part.column);
        columns.any(|column| handle.source().constant(chunk, column).is_none())
    };
    let decoded: Vec<&PlannedChunk> =
        todo.iter().filter(|(chunk, decode)| *decode && expensive(chunk)).map(|(chunk, _)| *chunk).collect();
    if let Err(error) = allowance.work.add_decoded(&handle, &decoded, largest) {
        report(finding_of("chunk_decode", &error)?.in_array(name));
        return Ok(checked);
    }
    checked.decoded = todo.len() as u64;
    let ticker = options.ticker(todo.len() as u64);
    let one = |&(chunk, decode): &(&PlannedChunk, bool)| -> Result<Option<Finding>> {
        ticker.tick()?;
        let Err(error) = check_chunk(&handle, chunk, decode, deep, options) else { return Ok(None) };
        let info = handle.source().describe(chunk);
        let check = if matches!(error.kind(), ErrorKind::InvalidRequest { .. }) {
            "statistics"
        } else {
            handle.source().check_of(&error)
        };
        let finding = finding_of(check, &error)?.in_array(&name).in_chunk(&info.coords);
        Ok(Some(finding.at(info.offset, info.stored_len)))
    };
    let findings: Vec<Option<Finding>> = if claims::concurrent(&handle, &plan.chunks, largest) {
        options.run(|| todo.par_iter().map(one).collect::<Result<_>>())?
    } else {
        todo.iter().map(one).collect::<Result<_>>()?
    };
    findings.into_iter().flatten().for_each(report);
    Ok(checked)
}

/// Damage as a finding; what kept us from looking, as the error it is.
fn finding_of(check: &'static str, error: &Error) -> Result<Finding> {
    match error.kind() {
        ErrorKind::Cancelled => Err(Error::cancelled()),
        ErrorKind::Io { op, object, source } => {
            Err(Error::io(op, object.clone(), std::io::Error::new(source.kind(), source.to_string())))
        }
        _ => Ok(Finding::from_error(check, error)),
    }
}

/// Every chunk of an array, with every column.
pub(crate) fn plan_all(handle: &Handle) -> Result<ChunkPlan> {
    let schema = handle.schema();
    let mut columns: Vec<Column> = (0..).take(schema.fields.len()).map(Column::Field).collect();
    let target = if schema.sparse {
        columns.extend((0..).take(schema.dims.len()).map(Column::Dim));
        Target::Coordinates(vec![CoordinateRanges::new(); schema.dims.len()])
    } else {
        let shape = schema
            .shape()
            .ok_or_else(|| Error::invalid("a dense array whose positions cannot be counted"))?;
        Target::Cells(Selection::all(&shape))
    };
    handle.source().plan(&Request { target, columns, condition: None }).map_err(|e| e.in_array(&schema.name))
}

fn check_chunk(
    handle: &Handle,
    chunk: &PlannedChunk,
    decode: bool,
    statistics: bool,
    options: &Options,
) -> Result<()> {
    let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
    let source = Source::Fetched(&fetched);
    check_implied(handle, chunk)?;
    let mut columns: Vec<Column> = chunk.parts.iter().map(|part| part.column).collect();
    columns.dedup();
    for column in columns {
        // This compares the digest.
        let parts = source.column(handle, chunk, column)?;
        if !decode {
            continue;
        }
        if matches!(column, Column::Field(f) if handle.schema().fields[usize::from(f)].dtype == DType::Bitmask)
        {
            decode_packed(handle, chunk, column, &parts)?;
            continue;
        }
        let (size, nullable) = column_layout(handle.schema(), column)?;
        let count = usize::try_from(chunk.cells)
            .map_err(|_| Error::limit("a chunk's cells", chunk.cells, usize::MAX as u64))?;
        let mut cells = Cells::new(size, nullable);
        let decode = |cells: &mut Cells, run: Range<u64>| {
            cells.decode_with(usize::try_from(run.end - run.start).unwrap_or(usize::MAX), |out| {
                with_workspace(|w| handle.source().decode(chunk, column, &parts, run, out, &mut w.scratch))
            })
        };
        // Of equal cells some tell as much as all.
        if let (Some(_), Access::Coded { granule: Some(granule) }, true) =
            (handle.source().constant(chunk, column), chunk.access, size > 0)
        {
            let step = (EQUAL_CELLS / size as u64).max(1).next_multiple_of(granule.max(1));
            if step < chunk.cells {
                decode(&mut cells, 0..step)?;
                continue;
            }
        }
        if let Err(large) = claims::check_chunk(handle, chunk, count.saturating_mul(size.max(1))) {
            // More than the stored bytes justify at once; runs that decode by themselves can still be checked one by one.
            let (Access::Coded { granule: Some(granule) }, true) = (chunk.access, size > 0) else {
                return Err(large);
            };
            let step = (PIECE / size as u64).max(1).next_multiple_of(granule.max(1));
            let bytes = chunk.cells.saturating_mul(size as u64);
            handle.limits().check_total("the cells of a chunk", bytes, chunk.stored_bytes())?;
            let mut start = 0;
            while start < chunk.cells {
                options.cancel.check()?;
                let end = start.saturating_add(step).min(chunk.cells);
                decode(&mut cells, start..end)?;
                start = end;
            }
            continue;
        }
        decode(&mut cells, 0..chunk.cells)?;
        if statistics {
            check_statistics(handle, chunk, column, &cells)?;
        }
    }
    Ok(())
}

/// Compares the bytes that reads skip with the only value they can have.
fn check_implied(handle: &Handle, chunk: &PlannedChunk) -> Result<()> {
    for implied in handle.source().implied_bytes(chunk) {
        let object = handle.source().object(implied.object);
        let end = implied.offset.saturating_add(implied.bytes.len() as u64);
        let stored = handle.store().read(object, implied.offset..end)?;
        if stored[..] != implied.bytes[..] {
            let detail = format!("the bytes in front of its cells are {:02x?}", &stored[..]);
            let object = handle.store().describe(object);
            return Err(Error::corrupt("the header of a chunk", object, implied.offset, detail));
        }
    }
    Ok(())
}

/// Compares exact stored statistics with the cells. A difference is an `InvalidRequest`: the cells themselves are sound.
fn check_statistics(handle: &Handle, chunk: &PlannedChunk, column: Column, cells: &Cells) -> Result<()> {
    let schema = handle.schema();
    let (dtype, fill) = match column {
        Column::Field(f) => {
            let field = &schema.fields[usize::from(f)];
            if field.cell != tesseral_core::CellLen::One || chunk.tile.is_some() {
                return Ok(());
            }
            (field.dtype, field.missing())
        }
        Column::Dim(d) => (schema.dims[usize::from(d)].dtype, None),
        Column::Timestamp | Column::DeletedBy => return Ok(()),
    };
    let stored = handle.source().stats(chunk, column);
    let Ok(mut summary) = Summary::new(dtype, Wanted::ALL) else { return check_texts(&stored, cells) };
    summary.fold(cells.data(), cells.validity(), fill)?;
    let found = chunk_stats(&summary);
    let differs = |what: &str, stored: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
        Err(Error::invalid(format!("the stored {what} is {stored:?}, the cells give {found:?}")))
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
    match (stored.sum.exact(), summary.sum()) {
        (Some(Sum::Int(stored)), Some(Sum::Int(found))) if *stored != found => differs("sum", stored, &found),
        // Sums of floats depend on how they were added: one after the other, or without loss.
        (Some(Sum::Float(stored)), Some(Sum::Float(found)))
            if *stored != found && *stored != plain_sum(dtype, cells) =>
        {
            differs("sum", stored, &found)
        }
        _ => Ok(()),
    }
}

/// Compares exact stored bounds of texts with the cells.
fn check_texts(stored: &ChunkStats, cells: &Cells) -> Result<()> {
    let (Some(min), Some(max)) = (stored.min.exact(), stored.max.exact()) else { return Ok(()) };
    let texts = || (0..cells.len()).filter(|i| cells.is_valid(*i)).map(|i| cells.get(i));
    match texts().min().zip(texts().max()) {
        Some(found) if found != (min.bytes(), max.bytes()) => Err(Error::invalid(format!(
            "the stored bounds are {min} and {max}, the cells reach from {:?} to {:?}",
            String::from_utf8_lossy(found.0),
            String::from_utf8_lossy(found.1)
        ))),
        _ => Ok(()),
    }
}

/// The sum of floats added one after the other.
fn plain_sum(dtype: DType, cells: &Cells) -> f64 {
    let valid = |i: &usize| cells.is_valid(*i);
    let value = |i: usize| Scalar::from_le_bytes(dtype, cells.get(i)).ok().and_then(|v| v.as_f64());
    (0..cells.len()).filter(valid).filter_map(value).fold(0.0, |sum, value| sum + value)
}
