//! Checks of sparse writers: cells in key order, chunks in any order, atomic.

use std::sync::Arc;

use tesseral_core::dtype::Class;
use tesseral_core::{ErrorKind, Result};
use tesseral_store::test_wrappers::{FaultInjection, Wrapped};
use tesseral_store::{MemoryStore, Store};

use super::{Check, Effort, Expected, Fixture, Violation, read_suite};
use crate::oracle::Row;
use crate::testing::{Buffers, Cell, Random};
use tesseral_format::{ArraySpec, CreateOptions, Format, OpenOptions, Scratch, Writer};

/// A sparse array to write.
#[derive(Clone, Debug)]
pub struct SparseCase {
    /// The array.
    pub spec: ArraySpec,
    /// Its cells, sorted as a read returns them; several chunks, without duplicate positions.
    pub rows: Vec<Row>,
    /// Creation options.
    pub options: CreateOptions,
    /// The random seed.
    pub seed: u64,
    /// The amount of testing of the written output.
    pub effort: Effort,
}

impl SparseCase {
    fn begin(&self, format: &dyn Format, store: Arc<dyn Store>) -> Result<Box<dyn Writer>> {
        let mut writer = format.create(store, &self.options)?;
        writer.begin(&self.spec)?;
        Ok(writer)
    }

    /// Columns of cells: dimensions, then fields.
    fn columns<'r>(&self, rows: impl Iterator<Item = &'r Row> + Clone) -> Vec<Buffers> {
        let schema = &self.spec.schema;
        let dims = schema.dims.iter().enumerate().map(|(d, dim)| {
            let cells: Vec<Cell> = rows.clone().map(|row| Some(row.coords[d].clone())).collect();
            let size = dim.dtype.size().filter(|_| dim.dtype.class() != Class::Text);
            Buffers::new(size, 1, false, &cells)
        });
        let fields = schema.fields.iter().enumerate().map(|(f, field)| {
            let cells: Vec<Cell> = rows.clone().map(|row| row.fields[f].clone()).collect();
            Buffers::from_field(field, &cells)
        });
        dims.chain(fields).collect()
    }

    /// The chunks of the cells, in order, independent of the order of the input.
    fn chunks(&self, writer: &dyn Writer, rows: &[Row]) -> Result<Vec<Vec<Buffers>>> {
        let columns = self.columns(rows.iter());
        let data: Vec<_> = columns.iter().map(Buffers::data).collect();
        let keys = writer.cell_keys(0, &data)?;
        let mut order: Vec<usize> = (0..keys.cells).collect();
        order.sort_by(|&a, &b| keys.compare(a, b));
        let cells = writer.chunk_cells(0).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let chunk = |part: &[usize]| self.columns(part.iter().map(|&row| &rows[row]));
        Ok(order.chunks(cells).map(chunk).collect())
    }

    fn push(writer: &dyn Writer, number: usize, chunk: &[Buffers], scratch: &mut Scratch) -> Result<()> {
        let data: Vec<_> = chunk.iter().map(Buffers::data).collect();
        let encoded = writer.encode(0, &[number as u64], &data, Vec::new(), scratch)?;
        writer.push(0, encoded)
    }

    /// Writes the cells in the given order, their chunks in random order, without the chunk `without`.
    fn write(
        &self,
        format: &dyn Format,
        store: Arc<dyn Store>,
        rows: &[Row],
        random: &mut Random,
        without: Option<usize>,
    ) -> Result<()> {
        let writer = self.begin(format, store)?;
        let chunks = self.chunks(writer.as_ref(), rows)?;
        let mut numbers: Vec<usize> = (0..chunks.len()).filter(|n| Some(*n) != without).collect();
        random.shuffle(&mut numbers);
        let mut scratch = Scratch::default();
        for number in numbers {
            Self::push(writer.as_ref(), number, &chunks[number], &mut scratch)?;
        }
        writer.commit()
    }
}

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new("written"))
}

/// All checks of writing a sparse array.
///
/// # Errors
/// The first violation.
pub fn sparse_write_suite(format: &dyn Format, case: &SparseCase) -> Result<(), Violation> {
    let check = Check::new("sparse_write_suite", case.seed);
    let mut random = Random::new(case.seed);
    let mut rows = case.rows.clone();
    for _ in 0..3 {
        random.shuffle(&mut rows);
        let store = memory();
        check.must("write", case.write(format, store.clone(), &rows, &mut random, None))?;
        reads_back(&check, format, case, store)?;
    }
    rejections(&check, format, case, &mut random)?;
    faults(&check, format, case, &mut random)
}

fn reads_back(
    check: &Check<'_>,
    format: &dyn Format,
    case: &SparseCase,
    store: Arc<dyn Store>,
) -> Result<(), Violation> {
    let mut fixture = Fixture::new(store, case.seed);
    fixture.effort = case.effort;
    fixture.expected = vec![Expected::Sparse { array: 0, rows: case.rows.clone() }];
    read_suite(format, &fixture).or_else(|v| check.fail(v))
}

/// Duplicate chunks, commits with missing chunks, missing columns, dropped writers.
fn rejections(
    check: &Check<'_>,
    format: &dyn Format,
    case: &SparseCase,
    random: &mut Random,
) -> Result<(), Violation> {
    let invalid = |result: &Result<()>| {
        result.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::InvalidRequest { .. }))
    };
    let store = memory();
    let writer = check.must("begin", case.begin(format, store.clone()))?;
    let chunks = check.must("keys", case.chunks(writer.as_ref(), &case.rows))?;
    check.require(chunks.len() > 1, || "the cells form one chunk".to_owned())?;
    let mut scratch = Scratch::default();
    check.must("push", SparseCase::push(writer.as_ref(), 0, &chunks[0], &mut scratch))?;
    let twice = SparseCase::push(writer.as_ref(), 0, &chunks[0], &mut scratch);
    check.at(&"duplicate chunk").require(invalid(&twice), || format!("{twice:?}"))?;
    let data: Vec<_> = chunks[0].iter().skip(1).map(Buffers::data).collect();
    let fewer = check.guarded("keys", || writer.cell_keys(0, &data).map(|_| ()))?;
    check.at(&"missing column").require(invalid(&fewer), || format!("{fewer:?}"))?;
    drop(writer);
    not_visible(&check.at(&"dropped writer"), format, &store)?;
    for without in 0..chunks.len() - 1 {
        let store = memory();
        let outcome = case.write(format, store.clone(), &case.rows, random, Some(without));
        check.at(&"commit without a chunk").require(invalid(&outcome), || format!("{outcome:?}"))?;
        not_visible(&check.at(&"commit without a chunk"), format, &store)?;
    }
    Ok(())
}

fn not_visible(check: &Check<'_>, format: &dyn Format, store: &Arc<MemoryStore>) -> Result<(), Violation> {
    let opened = format.open(store.clone(), &OpenOptions::default());
    check.require(opened.is_err(), || "uncommitted output can be opened".to_owned())
}

/// Whichever store call fails: the array is either complete or not visible.
fn faults(
    check: &Check<'_>,
    format: &dyn Format,
    case: &SparseCase,
    random: &mut Random,
) -> Result<(), Violation> {
    for call in 0.. {
        let location = format!("store call {call} fails");
        let check = check.at(&location);
        let inner = memory();
        let fault = Arc::new(FaultInjection::at(call));
        let store: Arc<dyn Store> = Arc::new(Wrapped::new(inner.clone(), Arc::clone(&fault)));
        let outcome = check.guarded("write", || case.write(format, store, &case.rows, random, None))?;
        let reached = fault.calls() > call;
        match outcome {
            Ok(()) if !reached => return Ok(()),
            Ok(()) => return check.fail("the failure was not reported"),
            Err(_) if format.open(inner.clone(), &OpenOptions::default()).is_ok() => {
                reads_back(&check, format, case, inner)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}
