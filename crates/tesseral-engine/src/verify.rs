//! Checking a source: the format walks its metadata, the engine checks digests and decodes chunks.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rayon::prelude::*;
use tesseral_core::{ChunkStats, DType, Error, ErrorKind, Finding, Result, Scalar, Selection, Severity, Sum};
use tesseral_format::{
    Access, AuditOptions, ChunkPlan, Column, Container, CoordinateRanges, Depth, Format, OpenOptions,
    PlannedChunk, Request, Target,
};
use tesseral_store::{Store, StoreExt};

use crate::bits::decode_packed;
use crate::cells::{Cells, column_layout};
use crate::chunk::with_workspace;
use crate::divide;
use crate::fetch::{self, Source};
use crate::handle::Handle;
use crate::kernel::summary::{Summary, Wanted};
use crate::options::Options;
use crate::write::chunk_stats;

/// Chunks without a digest that are decoded when nobody asked for all of them.
const SAMPLE: usize = 128;

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
    Arc::clone(&store).guarded(|| verify_all(format, store, checks, options, report))
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
    let mut sample = match depth {
        Depth::Structure | Depth::Digests => 0,
        Depth::Usual => SAMPLE,
        Depth::Deep | Depth::Full => usize::MAX,
    };
    let deep = depth >= Depth::Deep;
    let mut decoded = 0_u64;
    let mut skipped = 0_u64;
    let mut failures = 0_u64;
    for index in 0..container.len() {
        let checked = verify_array(&*container, index, deep, &mut sample, options, &mut |finding| {
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
    sample: &mut usize,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Checked> {
    let name = container.name(index).to_owned();
    let mut checked = Checked::default();
    let handle = match Handle::new(container, index, true) {
        Ok(handle) => handle,
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
    let mut largest = 0;
    for chunk in &plan.chunks {
        let stored = chunk.stored_bytes();
        let digest = handle.source().digest(chunk).is_some();
        // Checksums among the codecs are compared by decoding.
        let inner = handle.source().checked_bytes(chunk).min(stored);
        let covered = if digest { stored } else { inner };
        checked.covered_bytes += covered;
        checked.uncovered_bytes += stored - covered;
        let mut decode = deep || *sample > 0 || inner > 0;
        let mut unit = divide::check_bytes(&handle, chunk, decode, options.memory)?;
        // A digest shows as much as decoding does, unless that was asked for.
        if let (Some(memory), true, false) = (options.memory, digest, deep)
            && unit > memory
        {
            decode = false;
            unit = divide::check_bytes(&handle, chunk, decode, options.memory)?;
        }
        if !decode && !digest {
            checked.skipped += 1;
            continue;
        }
        *sample = sample.saturating_sub(1);
        largest = largest.max(unit);
        todo.push((chunk, decode));
    }
    let options = &options.for_workers(0, largest).map_err(|e| e.in_array(&name))?;
    checked.decoded = todo.len() as u64;
    let ticker = options.ticker(todo.len() as u64);
    let one = |&(chunk, decode): &(&PlannedChunk, bool)| -> Result<Option<Finding>> {
        ticker.tick()?;
        let Err(error) = check_chunk(&handle, chunk, decode, deep, options.memory) else { return Ok(None) };
        let info = handle.source().describe(chunk);
        let check = if matches!(error.kind(), ErrorKind::InvalidRequest { .. }) {
            "statistics"
        } else {
            handle.source().check_of(&error)
        };
        let finding = finding_of(check, &error)?.in_array(&name).in_chunk(&info.coords);
        Ok(Some(finding.at(info.offset, info.stored_len)))
    };
    let findings: Vec<Option<Finding>> = options.run(|| todo.par_iter().map(one).collect::<Result<_>>())?;
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

/// Checks one chunk: its digest, with `decode` that its columns decode, with `statistics` that they hold what is stored of them.
/// Under a memory limit the cells of a large chunk are looked at a run after the other.
fn check_chunk(
    handle: &Handle,
    chunk: &PlannedChunk,
    decode: bool,
    statistics: bool,
    memory: Option<u64>,
) -> Result<()> {
    if let (false, Some(_), Some(span)) = (decode, memory, handle.pending_digest(chunk)) {
        return handle.check_digest_streaming(chunk, &span);
    }
    let mut columns: Vec<Column> = chunk.parts.iter().map(|part| part.column).collect();
    columns.dedup();
    let runs = match (columns.as_slice(), memory) {
        ([column], Some(memory)) => divide::cell_runs(handle, chunk, *column, memory)?,
        _ => None,
    };
    let Some(runs) = runs else {
        let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?;
        let source = Source::Fetched(&fetched);
        for column in columns {
            // This compares the digest.
            let parts = source.column(handle, chunk, column)?;
            if decode {
                let mut check = ColumnCheck::new(handle, chunk, column, statistics)?;
                check.run(&parts, 0..chunk.cells)?;
                check.finish()?;
            }
        }
        return Ok(());
    };
    let mut check: Option<ColumnCheck<'_>> = None;
    for (piece, cells) in runs {
        let piece = piece?;
        let fetched = fetch::fetch(handle, &fetch::chunk_batch(handle, &piece))?;
        for &column in &columns {
            let parts = Source::Fetched(&fetched).column(handle, &piece, column)?;
            let check = match &mut check {
                Some(check) => check,
                None => check.insert(ColumnCheck::new(handle, chunk, column, statistics)?),
            };
            check.piece(&piece, &parts, cells.clone())?;
        }
    }
    check.map_or(Ok(()), ColumnCheck::finish)
}

/// One column of a chunk, decoded in one run or several, beside what is stored of it.
struct ColumnCheck<'a> {
    handle: &'a Handle,
    chunk: &'a PlannedChunk,
    column: Column,
    size: usize,
    nullable: bool,
    cells: Cells,
    statistics: Option<Statistics>,
}

/// What the cells of a column give.
struct Statistics {
    dtype: DType,
    fill: Option<Scalar>,
    /// Of numbers.
    summary: Option<Summary>,
    plain_sum: f64,
    /// Least and greatest text.
    texts: Option<(Vec<u8>, Vec<u8>)>,
}

impl<'a> ColumnCheck<'a> {
    fn new(handle: &'a Handle, chunk: &'a PlannedChunk, column: Column, statistics: bool) -> Result<Self> {
        let (size, nullable) =
            if is_packed(handle, column) { (0, false) } else { column_layout(handle.schema(), column)? };
        let statistics = if statistics { Statistics::of(handle, chunk, column) } else { None };
        Ok(Self { handle, chunk, column, size, nullable, cells: Cells::new(size, nullable), statistics })
    }

    /// Decodes cells of the chunk from all of its stored bytes.
    fn run(&mut self, parts: &[Bytes], cells: Range<u64>) -> Result<()> {
        self.piece(self.chunk, parts, cells)
    }

    /// Decodes cells from the stored bytes of a piece.
    fn piece(&mut self, piece: &PlannedChunk, parts: &[Bytes], cells: Range<u64>) -> Result<()> {
        let Self { handle, column, .. } = *self;
        if is_packed(handle, column) {
            return decode_packed(handle, piece, column, parts).map(drop);
        }
        let count = usize::try_from(cells.end.saturating_sub(cells.start))
            .map_err(|_| Error::limit("a chunk's cells", piece.cells, usize::MAX as u64))?;
        let mut decoded = std::mem::replace(&mut self.cells, Cells::new(self.size, self.nullable));
        match (piece.access, parts) {
            // A piece of such a chunk is its cells; there is nothing to decode.
            (Access::Direct { .. }, [bytes]) if !piece.whole && self.chunk.whole => {
                decoded = Cells::from_fixed(self.size, native(piece.access, self.word(), bytes), None);
            }
            _ => decoded.decode_with(count, |out| {
                with_workspace(|w| handle.source().decode(piece, column, parts, cells, out, &mut w.scratch))
            })?,
        }
        if let Some(statistics) = &mut self.statistics {
            statistics.fold(&decoded)?;
        }
        self.cells = decoded;
        Ok(())
    }

    /// Bytes of one number.
    fn word(&self) -> usize {
        match self.column {
            Column::Field(f) => self.handle.schema().fields[usize::from(f)].dtype.word(),
            _ => self.size,
        }
    }

    /// Compares what the cells gave with what is stored.
    fn finish(self) -> Result<()> {
        let Some(found) = self.statistics else { return Ok(()) };
        found.compare(&self.handle.source().stats(self.chunk, self.column))
    }
}

/// Stored cells as numbers of this machine.
fn native(access: Access, word: usize, bytes: &[u8]) -> Vec<u8> {
    let mut values = bytes.to_vec();
    if matches!(access, Access::Direct { swapped: true }) && word > 1 {
        values.chunks_exact_mut(word).for_each(<[u8]>::reverse);
    }
    values
}

/// Whether cells of a column share bytes.
fn is_packed(handle: &Handle, column: Column) -> bool {
    matches!(column, Column::Field(f) if handle.schema().fields[usize::from(f)].dtype == DType::Bitmask)
}

impl Statistics {
    /// Nothing folded yet; `None` for columns of which nothing comparable is stored.
    fn of(handle: &Handle, chunk: &PlannedChunk, column: Column) -> Option<Self> {
        let schema = handle.schema();
        let (dtype, fill) = match column {
            Column::Field(f) => {
                let field = &schema.fields[usize::from(f)];
                if field.cell != tesseral_core::CellLen::One || chunk.tile.is_some() {
                    return None;
                }
                (field.dtype, field.missing().cloned())
            }
            Column::Dim(d) => (schema.dims[usize::from(d)].dtype, None),
            Column::Timestamp | Column::DeletedBy => return None,
        };
        let summary = Summary::new(dtype, Wanted::ALL).ok();
        Some(Self { dtype, fill, summary, plain_sum: 0.0, texts: None })
    }

    fn fold(&mut self, cells: &Cells) -> Result<()> {
        match &mut self.summary {
            Some(summary) => {
                summary.fold(cells.data(), cells.validity(), self.fill.as_ref())?;
                self.plain_sum = plain_sum(self.dtype, cells, self.plain_sum);
            }
            None => {
                let mut texts = (0..cells.len()).filter(|i| cells.is_valid(*i)).map(|i| cells.get(i));
                for text in texts.by_ref() {
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

    /// Compares with exact stored statistics. A difference is an `InvalidRequest`: the cells themselves are sound.
    fn compare(self, stored: &ChunkStats) -> Result<()> {
        let Some(summary) = self.summary else { return check_texts(stored, self.texts) };
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
            (Some(Sum::Int(stored)), Some(Sum::Int(found))) if *stored != found => {
                differs("sum", stored, &found)
            }
            // Sums of floats depend on how they were added: one after the other, or without loss.
            (Some(Sum::Float(stored)), Some(Sum::Float(found)))
                if *stored != found && *stored != self.plain_sum =>
            {
                differs("sum", stored, &found)
            }
            _ => Ok(()),
        }
    }
}

/// Compares exact stored bounds of texts with the cells.
fn check_texts(stored: &ChunkStats, found: Option<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    let (Some(min), Some(max)) = (stored.min.exact(), stored.max.exact()) else { return Ok(()) };
    match found {
        Some((least, greatest)) if (&least[..], &greatest[..]) != (min.bytes(), max.bytes()) => {
            Err(Error::invalid(format!(
                "the stored bounds are {min} and {max}, the cells reach from {:?} to {:?}",
                String::from_utf8_lossy(&least),
                String::from_utf8_lossy(&greatest)
            )))
        }
        _ => Ok(()),
    }
}

/// A sum of floats added one after the other, continued.
fn plain_sum(dtype: DType, cells: &Cells, start: f64) -> f64 {
    let valid = |i: &usize| cells.is_valid(*i);
    let value = |i: usize| Scalar::from_le_bytes(dtype, cells.get(i)).ok().and_then(|v| v.as_f64());
    (0..cells.len()).filter(valid).filter_map(value).fold(start, |sum, value| sum + value)
}
