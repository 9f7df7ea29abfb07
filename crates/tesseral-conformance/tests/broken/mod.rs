//! Formats with one deliberate flaw each, to show that the suite finds it.

use std::ops::Range;
use std::sync::Arc;

use tesseral_format::convention::Holds;
use tesseral_format::core::{Attributes, ChunkStats, Error, Finding, HistoryRow, Result, Stat, Sum};
use tesseral_format::store::{Bytes, Rounds, Store};
use tesseral_format::{
    ArraySource, ArraySpec, AuditOptions, AuditReport, Capabilities, ChunkInfo, ChunkPlan, Column,
    ColumnData, ColumnMut, ContainerSource, CreateOptions, DigestSpans, EncodedChunk, Format, OpenOptions,
    Planned, PlannedChunk, Probe, Request, Scratch, Sniff, SourceLayer, Target, Uncovered, Writer,
};

/// The flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// None.
    None,
    /// Partial plans omit their last chunk.
    DropsChunk,
    /// Every chunk declares the same layer.
    IgnoresLayers,
    /// Layers are numbered from the newest.
    ReversesLayers,
    /// The last byte of fixed-size cells is not written.
    LeavesByte,
    /// Validity is not written.
    LeavesValidity,
    /// Declares that no cell is unwritten.
    ClaimsCover,
    /// Every chunk is declared whole.
    ClaimsWhole,
    /// Exact minima are replaced by maxima.
    WrongMinimum,
    /// Exact sums are one too large.
    WrongSum,
    /// Null counts are too low for a bound.
    LowBound,
    /// Digests of other bytes.
    WrongDigest,
    /// Descriptions are off by a byte.
    WrongDescription,
    /// Parts exceed the end of the object.
    LongPart,
    /// Plans everything for any request.
    PlansEverything,
    /// Ranges begin at the chunk's first cell.
    IgnoresRun,
    /// Panics on parts of unexpected length.
    PanicsOnDamage,
    /// Panics on short files.
    PanicsOnOpen,
    /// Sniffs by name alone.
    SniffsNames,
    /// Returns a different attribute on each open.
    Wavers,
    /// Audits report damage of valid files.
    CriesWolf,
    /// Audits report no findings.
    SeesNothing,
    /// Commits with missing chunks.
    CommitsEarly,
    /// Accepts duplicate chunks.
    TakesTwice,
    /// Publishes objects before the commit.
    LeavesTrace,
}

/// A format with a flaw.
#[derive(Debug)]
pub struct Broken<F>(pub F, pub Flaw);

#[derive(Debug)]
struct BrokenContainer {
    inner: Arc<dyn ContainerSource>,
    flaw: Flaw,
    attributes: Attributes,
}

#[derive(Debug)]
struct BrokenSource {
    inner: Arc<dyn ArraySource>,
    flaw: Flaw,
}

fn wrap(inner: Arc<dyn ContainerSource>, flaw: Flaw) -> Arc<dyn ContainerSource> {
    static OPENED: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);
    let mut attributes = inner.attributes().clone();
    if flaw == Flaw::Wavers {
        let n = OPENED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        attributes.insert("opened".to_owned(), tesseral_format::core::Value::Int(n));
    }
    Arc::new(BrokenContainer { inner, flaw, attributes })
}

impl<F: Format> Format for Broken<F> {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn title(&self) -> &'static str {
        self.0.title()
    }

    fn extensions(&self) -> &'static [&'static str] {
        self.0.extensions()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn holds(&self) -> Holds {
        self.0.holds()
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        if self.1 == Flaw::SniffsNames {
            return if probe.name.contains('.') { Sniff::Content } else { Sniff::No };
        }
        self.0.sniff(probe)
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        if self.1 == Flaw::PanicsOnOpen {
            assert!(store.len("").is_ok_and(|len| len > 40), "too short");
        }
        Ok(wrap(self.0.open(store, options)?, self.1))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        if self.1 == Flaw::LeavesTrace {
            use tesseral_format::store::{Overwrite, StoreExt};
            store.put("lock", b"", Overwrite::Replace)?;
        }
        let inner = self.0.create(store, options)?;
        Ok(Box::new(BrokenWriter { inner, flaw: self.1, specs: Vec::new(), pushed: Default::default() }))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        let mut inner = self.0.audit(store, options, &mut |finding| {
            if self.1 != Flaw::SeesNothing || finding.ok {
                report(finding);
            }
        })?;
        if self.1 == Flaw::CriesWolf {
            report(Finding::failed("false alarm", "no damage"));
        }
        inner.container = inner.container.map(|container| wrap(container, self.1));
        Ok(inner)
    }
}

impl ContainerSource for BrokenContainer {
    fn format(&self) -> &'static str {
        self.inner.format()
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.inner.store()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn name(&self, index: usize) -> &str {
        self.inner.name(index)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        Ok(Arc::new(BrokenSource { inner: self.inner.array(index)?, flaw: self.flaw }))
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        self.inner.history()
    }

    fn details(&self) -> serde_json::Value {
        self.inner.details()
    }
}

impl BrokenSource {
    /// The same request for all cells.
    fn everything(&self, request: &Request) -> Request {
        let target = match (&request.target, self.inner.schema().shape()) {
            (Target::Cells(_), Some(shape)) => Target::Cells(tesseral_format::core::Selection::all(&shape)),
            _ => Target::Coordinates(vec![Vec::new(); self.inner.schema().dims.len()]),
        };
        Request { target, ..request.clone() }
    }

    fn broken_plan(&self, mut plan: ChunkPlan, partial: bool) -> ChunkPlan {
        match self.flaw {
            Flaw::DropsChunk if partial => {
                plan.chunks.pop();
            }
            Flaw::IgnoresLayers => plan.chunks.iter_mut().for_each(|chunk| chunk.layer = 0),
            Flaw::ReversesLayers => plan.chunks.iter_mut().for_each(|chunk| chunk.layer = 99 - chunk.layer),
            Flaw::ClaimsCover => plan.uncovered = Uncovered::Impossible,
            Flaw::ClaimsWhole => plan.chunks.iter_mut().for_each(|chunk| chunk.whole = true),
            Flaw::LongPart => {
                plan.chunks
                    .iter_mut()
                    .flat_map(|chunk| &mut chunk.parts)
                    .for_each(|part| part.len += 1 << 20);
            }
            _ => {}
        }
        plan
    }
}

impl SourceLayer for BrokenSource {
    fn inner(&self) -> &dyn ArraySource {
        &*self.inner
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        let everything = self.everything(request);
        let planned = match self.flaw {
            Flaw::PlansEverything => self.inner.plan(&everything, rounds)?,
            _ => self.inner.plan(request, rounds)?,
        };
        planned.and_then(|plan| Ok(self.broken_plan(plan, everything != *request)))
    }
    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        let mut stats = self.inner.stats(chunk, column);
        match self.flaw {
            Flaw::WrongMinimum if matches!(stats.min, Stat::Exact(_)) => stats.min = stats.max.clone(),
            Flaw::WrongSum => {
                stats.sum = match stats.sum {
                    Stat::Exact(Sum::Int(sum)) => Stat::Exact(Sum::Int(sum + 1)),
                    other => other,
                }
            }
            Flaw::LowBound => stats.nulls = Stat::Bound(0),
            _ => {}
        }
        stats
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let mut info = self.inner.describe(chunk);
        if self.flaw == Flaw::WrongDescription {
            info.stored_len += 1;
        }
        info
    }

    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        let mut spans = self.inner.digests(chunk);
        if self.flaw == Flaw::WrongDigest {
            spans.iter_mut().for_each(|span| span.range.start -= 1);
        }
        spans
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let run = match self.flaw {
            Flaw::IgnoresRun => 0..cells.end - cells.start,
            _ => cells,
        };
        if self.flaw == Flaw::PanicsOnDamage {
            let planned = chunk.column_parts(column).map(|(_, part)| part.len);
            assert!(planned.eq(parts.iter().map(|part| part.len() as u64)), "unexpected length of a part");
        }
        match out {
            ColumnMut::Fixed { values, validity } if self.flaw == Flaw::LeavesByte => {
                let mut whole = values.to_vec();
                let last = values.len().saturating_sub(1);
                let inner = ColumnMut::Fixed { values: &mut whole, validity };
                self.inner.decode(chunk, column, parts, run, inner, scratch)?;
                values[..last].copy_from_slice(&whole[..last]);
                Ok(())
            }
            ColumnMut::Fixed { values, validity: Some(validity) } if self.flaw == Flaw::LeavesValidity => {
                let mut unseen = validity.to_vec();
                let inner = ColumnMut::Fixed { values, validity: Some(&mut unseen) };
                self.inner.decode(chunk, column, parts, run, inner, scratch)
            }
            out => self.inner.decode(chunk, column, parts, run, out, scratch),
        }
    }
}

#[derive(Debug)]
struct BrokenWriter {
    inner: Box<dyn Writer>,
    flaw: Flaw,
    specs: Vec<ArraySpec>,
    pushed: std::sync::Mutex<std::collections::BTreeSet<(usize, u64)>>,
}

impl BrokenWriter {
    /// A chunk of zeros, for writers that fill in missing chunks.
    fn zeros(&self, array: usize, linear: u64) -> Result<()> {
        let schema = &self.specs[array].schema;
        let grid = schema.grid()?;
        let coords = grid.coords(linear);
        let cells = grid.region(&coords).cells().unwrap_or(0) as usize;
        let values: Vec<_> =
            schema.fields.iter().map(|f| vec![0; f.cell_size().unwrap_or(0) * cells]).collect();
        let (ones, ends) = (vec![1; cells], vec![0; cells]);
        let columns = schema.fields.iter().zip(&values);
        let columns: Vec<_> = columns
            .map(|(field, values)| {
                let validity = field.nullable.then_some(&ones[..]);
                match field.cell_size() {
                    Some(_) => ColumnData::Fixed { values, validity },
                    None => ColumnData::Var { offsets: &ends, data: &[], validity },
                }
            })
            .collect();
        let chunk = self.inner.encode(array, &coords, &columns, Vec::new(), &mut Scratch::default())?;
        self.inner.push(array, chunk)
    }
}

impl Writer for BrokenWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        self.specs.push(spec.clone());
        self.inner.begin(spec)
    }

    fn wants_stats(&self, array: usize) -> bool {
        self.inner.wants_stats(array)
    }

    fn excludes_missing(&self, array: usize) -> bool {
        self.inner.excludes_missing(array)
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        self.inner.encode(array, coords, columns, stats, scratch)
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let linear = self.specs[array].schema.grid()?.linear(&chunk.coords);
        let first = self.pushed.lock().map_err(|_| Error::cancelled())?.insert((array, linear));
        if self.flaw == Flaw::TakesTwice && !first {
            return Ok(());
        }
        self.inner.push(array, chunk)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.inner.set_attributes(attributes)
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.inner.add_history(row)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        if self.flaw == Flaw::CommitsEarly {
            for (array, spec) in self.specs.iter().enumerate() {
                for linear in 0..spec.schema.grid()?.total() {
                    let there =
                        self.pushed.lock().map_err(|_| Error::cancelled())?.contains(&(array, linear));
                    if !there {
                        self.zeros(array, linear)?;
                    }
                }
            }
        }
        self.inner.commit()
    }
}
