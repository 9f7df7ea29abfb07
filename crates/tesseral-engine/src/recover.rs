//! Recovery of the intact part of a damaged source.

mod lost_value;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::{
    ArraySchema, Attributes, Error, ErrorKind, Field, Finding, HistoryRow, Limits, Order, Region, Result,
    Selection, alloc,
};
use tesseral_format::{
    ArraySpec, CodecSpec, Column, ContainerSource, CoordinateRanges, Format, OpenOptions, PlannedChunk,
    Request, Target, Writer,
};
use tesseral_store::Store;

use crate::decode::columns::Cells;
use crate::decode::variable_length::decode_chunk;
use crate::fetch::reopen::watched;
use crate::handle::Handle;
use crate::merge::sparse::{CellOrder, cells};
use crate::options::Options;
use crate::plan::expansion;
use crate::write::transfer::read_column;
use crate::write::{InputOrder, WriteSession, runs};

use lost_value::{LostValue, Settled};

/// Result of [`recover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Recovered {
    /// Number of chunks whose cells are in the output.
    pub chunks_saved: u64,
    /// Number of lost chunks; their cells have the fill value.
    pub chunks_lost: u64,
}

/// Copies the intact chunks of a damaged source to a new container. Cells of lost chunks are missing: null if the field is
/// nullable, else a declared missing value. Where the source declares none, the output declares a value that no intact cell has;
/// for this `create` is called a second time. Lost cells of sparse arrays are omitted. Each lost chunk is a finding.
///
/// # Errors
/// `Corrupt` if nothing can be recovered; `Unsupported`; `Io`.
pub fn recover(
    format: &dyn Format,
    store: Arc<dyn Store>,
    open: &OpenOptions,
    create: &mut dyn FnMut() -> Result<Box<dyn Writer>>,
    options: &Options,
    report: &mut dyn FnMut(Finding),
) -> Result<Recovered> {
    let store = watched(format, store);
    let origin = store.location().to_owned();
    let watch = store.watch()?;
    let salvage = format.salvage(store, open)?;
    salvage.findings.into_iter().for_each(&mut *report);
    let source =
        DamagedSource { container: salvage.container, limits: open.limits, gaps: salvage.gaps_are_losses };
    let mut values = source.lost_values();
    let mut copy = source.copy(create()?, &values, options)?;
    if source.choose_lost_values(&mut values, &mut copy.findings) {
        let findings = std::mem::take(&mut copy.findings);
        // The incomplete output is discarded first.
        drop(copy);
        copy = source.copy(create()?, &values, options)?;
        copy.findings.extend(findings.into_iter().filter(|finding| finding.check == NOT_DECLARED));
    }
    let CopiedArrays { mut session, total, findings, own } = copy;
    findings.into_iter().for_each(&mut *report);
    let container = &source.container;
    // A container that is one array has only the attributes of the array.
    if !container.attributes().is_empty() && own.iter().ne([container.attributes()]) {
        session.set_attributes(container.attributes().clone())?;
    }
    for row in container.history() {
        session.add_history(row.clone())?;
    }
    session.add_history(history_row(&origin, total))?;
    // Objects that were removed since are not lost.
    watch.check()?;
    session.commit()?;
    Ok(total)
}

/// Check of findings about lost cells that could not be declared missing.
const NOT_DECLARED: &str = "lost_cells_not_declared";

/// The intact part of a damaged source.
struct DamagedSource {
    container: Arc<dyn ContainerSource>,
    limits: Limits,
    /// Whether cells without a chunk are lost.
    gaps: bool,
}

/// The arrays of an output that is not committed yet.
struct CopiedArrays {
    session: WriteSession,
    total: Recovered,
    findings: Vec<Finding>,
    /// Attributes of the arrays.
    own: Vec<Attributes>,
}

impl DamagedSource {
    /// Values of lost cells of each field of each array.
    fn lost_values(&self) -> Vec<Vec<LostValue>> {
        let fields = |index: usize| match self.container.array(index) {
            Ok(source) => source.schema().fields.iter().map(LostValue::new).collect(),
            Err(_) => Vec::new(),
        };
        (0..self.container.len()).map(fields).collect()
    }

    /// Chooses values that the output must declare; returns whether there are any.
    fn choose_lost_values(&self, values: &mut [Vec<LostValue>], findings: &mut Vec<Finding>) -> bool {
        let mut again = false;
        for (index, fields) in values.iter_mut().enumerate() {
            for value in fields {
                match value.choose() {
                    Some(settled) => again |= settled == Settled::Declare,
                    None => {
                        value.give_up();
                        let detail =
                            "lost cells are not declared as missing: every value of the dtype is in use";
                        let name = self.container.name(index);
                        findings.push(Finding::failed(NOT_DECLARED, detail).in_array(name));
                    }
                }
            }
        }
        again
    }

    fn copy(
        &self,
        target: Box<dyn Writer>,
        values: &[Vec<LostValue>],
        options: &Options,
    ) -> Result<CopiedArrays> {
        let mut session = WriteSession::new(target, options.clone());
        let (mut arrays, mut work) = (Vec::new(), expansion::Work::default());
        let (mut findings, mut own) = (Vec::new(), Vec::new());
        for (index, values) in values.iter().enumerate() {
            // An array without a readable schema cannot be written; the others can.
            match open_array(&*self.container, index, &self.limits, &mut session, &mut work, values) {
                Ok((handle, array)) => arrays.push((handle, array, values)),
                Err(error) if is_loss(&error) || matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                    findings
                        .push(Finding::from_error("array_lost", &error).in_array(self.container.name(index)));
                }
                Err(error) => return Err(error),
            }
        }
        let mut total = Recovered::default();
        for (handle, array, values) in &arrays {
            let (chunks, lost) = if handle.schema().sparse {
                copy_cells(handle, &session, *array, options)?
            } else {
                session.limit_workers(|options| options.for_workers(0, copied_bytes(handle.schema())))?;
                let lost = copy_whole_chunks(handle, &session, *array, options, self.gaps, values)?;
                (handle.schema().grid()?.counted()?.total(), lost)
            };
            total.chunks_saved += chunks - lost.len() as u64;
            total.chunks_lost += lost.len() as u64;
            findings.extend(lost.into_iter().flatten());
            own.push(handle.schema().attributes.clone());
        }
        Ok(CopiedArrays { session, total, findings, own })
    }
}

fn history_row(origin: &str, total: Recovered) -> HistoryRow {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let params = [("chunks_saved", total.chunks_saved), ("chunks_lost", total.chunks_lost)];
    HistoryRow {
        op: "recover".to_owned(),
        source: origin.to_owned(),
        at: at.to_string(),
        params: params.into_iter().map(|(name, n)| (name.to_owned(), n.to_string())).collect(),
        ..HistoryRow::default()
    }
}

fn open_array(
    container: &dyn ContainerSource,
    index: usize,
    limits: &Limits,
    session: &mut WriteSession,
    work: &mut expansion::Work,
    values: &[LostValue],
) -> Result<(Handle, usize)> {
    let handle = Handle::new(container, index, true)?.with_limits(*limits);
    if !handle.schema().sparse {
        let grid = handle.schema().grid()?;
        let chunk: Vec<u64> = grid.chunk_shape().iter().zip(grid.shape()).map(|(c, n)| *c.min(n)).collect();
        let request = every_field(&handle)?;
        match expansion::check_held(&handle, &request, &chunk).and_then(|()| work.add(&handle, &request)) {
            Err(error) if matches!(error.kind(), ErrorKind::Limit { .. }) => return Err(error),
            // Other damage is detected chunk by chunk.
            _ => {}
        }
    }
    let mut spec = spec_like(handle.schema())?;
    for (field, value) in spec.schema.fields.iter_mut().zip(values) {
        field.missing.extend(value.to_declare().cloned());
    }
    let array = session.add(&spec)?;
    Ok((handle, array))
}

/// Requests of every cell of every field of a dense array.
fn every_field(handle: &Handle) -> Result<Request> {
    let schema = handle.schema();
    let shape = schema.shape().ok_or_else(|| Error::internal("a dense array without countable positions"))?;
    let columns = (0..).take(schema.fields.len()).map(Column::Field).collect();
    Ok(Request { target: Target::Cells(Selection::all(&shape)), columns, condition: None })
}

/// Spec to write an array as it was stored.
pub(crate) fn spec_like(schema: &ArraySchema) -> Result<ArraySpec> {
    let codecs = schema.fields.iter().map(|field| {
        let named = field.codecs.iter().filter(|name| *name != "raw");
        named.map(|name| name.parse::<CodecSpec>()).collect::<Result<Vec<_>>>()
    });
    Ok(ArraySpec { codecs: codecs.collect::<Result<_>>()?, schema: schema.clone(), text: None })
}

/// Finding on a lost chunk, if it was detected only now.
type Lost = Vec<Finding>;

/// Returns whether an error means damaged bytes, not that they are unavailable.
fn is_loss(error: &Error) -> bool {
    error.is_damage() || matches!(error.kind(), ErrorKind::Limit { .. })
}

fn finding(handle: &Handle, error: &Error) -> Finding {
    Finding::from_error("chunk_lost", error).in_array(&handle.schema().name)
}

/// Memory of a worker for a dense array: decoded and re-encoded cells of a chunk.
fn copied_bytes(schema: &ArraySchema) -> u64 {
    let cell: u64 = schema.fields.iter().map(|field| field.cell_size().unwrap_or(24) as u64 + 1).sum();
    let chunk = schema.chunk_shape.iter().flatten().zip(&schema.dims);
    let cells =
        chunk.fold(1_u64, |n, (extent, dim)| n.saturating_mul((*extent).min(dim.extent.unwrap_or(*extent))));
    cells.saturating_mul(cell).saturating_mul(3)
}

/// Copies chunk by chunk. Returns an entry for each chunk with losses.
fn copy_whole_chunks(
    handle: &Handle,
    session: &WriteSession,
    array: usize,
    options: &Options,
    gaps_are_losses: bool,
    values: &[LostValue],
) -> Result<Vec<Lost>> {
    let grid = handle.schema().grid()?.counted()?;
    let single = options.clone().sequential().without_progress();
    let lost = Mutex::new(Vec::new());
    // The engine's own loop provides order and threads; each read is of one chunk.
    session.fill_columns(array, |region: &Region, columns: &mut [Cells]| {
        let mut found: Option<Lost> = None;
        for ((number, column), value) in (0..).zip(columns).zip(values) {
            let part = FieldRegion { handle, region, number, value };
            if let Some(more) = part.copy(column, &single, gaps_are_losses)? {
                found.get_or_insert_default().extend(more);
            }
        }
        if let Some(found) = found {
            let start: Vec<u64> = region.bounds().iter().map(|b| b.0).collect();
            let coords = grid.chunk_of(&start);
            let found: Lost = found.into_iter().map(|f| f.in_chunk(&coords)).collect();
            lost.lock().unwrap_or_else(PoisonError::into_inner).push((grid.linear(&coords), found));
        }
        Ok(())
    })?;
    let mut lost = lost.into_inner().unwrap_or_else(PoisonError::into_inner);
    lost.sort_by_key(|(number, _)| *number);
    Ok(lost.into_iter().map(|(_, found)| found).collect())
}

/// One field of one chunk.
struct FieldRegion<'a> {
    handle: &'a Handle,
    region: &'a Region,
    number: u16,
    value: &'a LostValue,
}

impl FieldRegion<'_> {
    fn field(&self) -> &Field {
        &self.handle.schema().fields[usize::from(self.number)]
    }

    /// Reads the cells. Returns findings if a part of them is lost.
    fn copy(&self, column: &mut Cells, single: &Options, gaps_are_losses: bool) -> Result<Option<Lost>> {
        let (handle, number) = (self.handle, self.number);
        let request = Request::cells(Selection::from_region(self.region), number);
        let everything = [Layer { cover: self.region.clone(), lost: true }];
        let plan = match handle.plan(&request) {
            Err(error) if is_loss(&error) => {
                self.blot(&everything, column)?;
                return Ok(Some(vec![finding(handle, &error)]));
            }
            plan => plan?,
        };
        // Missing chunks were reported by the format's recovery; damaged ones are detected only now.
        if plan.chunks.is_empty() && gaps_are_losses {
            self.blot(&everything, column)?;
            return Ok(Some(Vec::new()));
        }
        match read_column(handle, &request, column, single) {
            Err(error) if is_loss(&error) => {}
            read => {
                read?;
                self.value.note_used(self.field(), column, |_| true);
                return Ok(None);
            }
        }
        let mut found = Lost::new();
        let mut gone = HashSet::new();
        for chunk in &plan.chunks {
            match decode_chunk(handle, chunk, Column::Field(number), None) {
                Err(error) if is_loss(&error) => {
                    gone.insert(chunk.id);
                    found.push(finding(handle, &error));
                }
                decoded => drop(decoded?),
            }
        }
        let layers = layers(plan.chunks, &gone);
        match read_column(&handle.without(gone), &request, column, single) {
            Ok(()) => self.blot(&layers, column)?,
            Err(error) if is_loss(&error) => {
                found.push(finding(handle, &error));
                self.blot(&everything, column)?;
            }
            Err(error) => return Err(error),
        }
        Ok(Some(found))
    }

    /// Marks cells whose highest layer is lost: an older cell must not replace a newer one. They become null, or get the value of
    /// lost cells.
    fn blot(&self, layers: &[Layer], column: &mut Cells) -> Result<()> {
        let (field, region) = (self.field(), self.region);
        let count = region.cells().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let mut lost = alloc::filled("lost cells", false, count)?;
        for layer in layers {
            let Some(part) = layer.cover.intersect(region) else { continue };
            for (at, len) in runs(region, &part, Order::RowMajor) {
                lost[at..at + len].fill(layer.lost);
            }
        }
        if lost.contains(&true) {
            self.value.lose();
        }
        self.value.note_used(field, column, |i| lost.get(i) == Some(&false));
        let cell = self.value.cell(column.size());
        if column.size() == 0 {
            let cells = std::mem::replace(column, Cells::for_field(field));
            for (i, lost) in lost.into_iter().enumerate() {
                // A region that is lost completely cannot be read.
                let there = !lost && i < cells.len();
                column.push(if there { cells.get(i) } else { &cell }, there && cells.is_valid(i));
            }
            return Ok(());
        }
        let (values, validity) = column.parts_mut();
        let each = values.chunks_exact_mut(cell.len().max(1)).zip(&lost);
        each.filter(|(_, lost)| **lost).for_each(|(value, _)| value.copy_from_slice(&cell));
        if let Some(validity) = validity {
            validity.iter_mut().zip(&lost).filter(|(_, lost)| **lost).for_each(|(valid, _)| *valid = 0);
        }
        Ok(())
    }
}

/// Box of cells of an intact or lost chunk.
struct Layer {
    cover: Region,
    lost: bool,
}

/// Boxes of chunks, lowest layer first.
fn layers(mut chunks: Vec<PlannedChunk>, gone: &HashSet<u64>) -> Vec<Layer> {
    chunks.sort_by_key(|chunk| chunk.layer);
    let layer = |chunk: &PlannedChunk| {
        Some(Layer { lost: gone.contains(&chunk.id), cover: chunk.cover.region()?.clone() })
    };
    chunks.iter().filter_map(layer).collect()
}

/// Copies the cells of a sparse array in intact chunks. Returns the number of chunks, and an entry for each lost one.
fn copy_cells(
    handle: &Handle,
    session: &WriteSession,
    array: usize,
    options: &Options,
) -> Result<(u64, Vec<Lost>)> {
    let schema = handle.schema();
    let dims = (0..).take(schema.dims.len()).map(Column::Dim);
    let columns: Vec<Column> = dims.chain((0..).take(schema.fields.len()).map(Column::Field)).collect();
    let target = Target::Coordinates(vec![CoordinateRanges::default(); schema.dims.len()]);
    let request = Request { target, columns, condition: None };
    let mut stored = request.clone();
    stored.columns.extend([Column::Timestamp, Column::DeletedBy]);
    let plan = handle.plan(&stored)?;
    let mut lost = Vec::new();
    let mut gone = HashSet::new();
    for chunk in &plan.chunks {
        options.cancel.check()?;
        let mut held = stored.columns.iter().filter(|&&c| chunk.column_parts(c).next().is_some());
        let decode = |&column: &Column| decode_chunk(handle, chunk, column, None).map(drop);
        match held.try_for_each(decode) {
            Err(error) if is_loss(&error) => {
                let coords = handle.source().describe(chunk).coords;
                lost.push(vec![finding(handle, &error).in_chunk(&coords)]);
                gone.insert(chunk.id);
            }
            decoded => decoded?,
        }
    }
    let chunks = plan.chunks.len() as u64;
    for batch in cells(&handle.without(gone), &request, CellOrder::Stored, options)? {
        let batch = batch?;
        let columns: Vec<_> = batch.columns.iter().map(|(_, cells)| cells.as_data()).collect();
        session.write_cells(array, &columns, InputOrder::Runs)?;
    }
    Ok((chunks, lost))
}
