//! Writers of sparse arrays: cells in the order of their keys, chunks in any order, all of it or nothing.

use std::sync::Arc;

use tesseral_core::dtype::Class;
use tesseral_core::{ErrorKind, Result};
use tesseral_store::wrap::{Fault, Wrapped};
use tesseral_store::{MemoryStore, Store};

use super::{Check, Effort, Expected, Fixture, Violation, read_suite};
use crate::oracle::Row;
use crate::testing::{Buffers, Cell, Random};
use crate::{ArraySpec, CreateOptions, Format, OpenOptions, Scratch, Writer};

/// A sparse array to be written.
#[derive(Clone, Debug)]
pub struct SparseCase {
    /// What it is.
    pub spec: ArraySpec,
    /// Its cells, sorted as a read gives them; several chunks of them, no two at one position.
    pub rows: Vec<Row>,
    /// How to create.
    pub options: CreateOptions,
    /// What random choices begin with.
    pub seed: u64,
    /// How much to try on what was written.
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
            Buffers::of_field(field, &cells)
        });
        dims.chain(fields).collect()
    }

    /// The chunks that the cells make up, in order, whatever order they come in.
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

    /// Writes the cells in the order given, their chunks in a random one; leaves out the chunk `without`.
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

/// Every check of writing a sparse array.
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
    refusals(&check, format, case, &mut random)?;
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

/// Chunks twice, commits without all chunks, columns that are missing, writers that are dropped.
fn refusals(
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
    check.require(chunks.len() > 1, || "the cells make one chunk".to_owned())?;
    let mut scratch = Scratch::default();
    check.must("push", SparseCase::push(writer.as_ref(), 0, &chunks[0], &mut scratch))?;
    let twice = SparseCase::push(writer.as_ref(), 0, &chunks[0], &mut scratch);
    check.at(&"a chunk twice").require(invalid(&twice), || format!("{twice:?}"))?;
    let data: Vec<_> = chunks[0].iter().skip(1).map(Buffers::data).collect();
    let fewer = check.guarded("keys", || writer.cell_keys(0, &data).map(|_| ()))?;
    check.at(&"a column less").require(invalid(&fewer), || format!("{fewer:?}"))?;
    drop(writer);
    unread(&check.at(&"a writer that was dropped"), format, &store)?;
    for without in 0..chunks.len() - 1 {
        let store = memory();
        let outcome = case.write(format, store.clone(), &case.rows, random, Some(without));
        check.at(&"a commit without a chunk").require(invalid(&outcome), || format!("{outcome:?}"))?;
        unread(&check.at(&"a commit without a chunk"), format, &store)?;
    }
    Ok(())
}

fn unread(check: &Check<'_>, format: &dyn Format, store: &Arc<MemoryStore>) -> Result<(), Violation> {
    let opened = format.open(store.clone(), &OpenOptions::default());
    check.require(opened.is_err(), || "what was never committed can be opened".to_owned())
}

/// Whichever call to the store fails: the array is whole, or it is not there.
fn faults(
    check: &Check<'_>,
    format: &dyn Format,
    case: &SparseCase,
    random: &mut Random,
) -> Result<(), Violation> {
    for call in 0.. {
        let place = format!("call {call} to the store fails");
        let check = check.at(&place);
        let inner = memory();
        let fault = Arc::new(Fault::at(call));
        let store: Arc<dyn Store> = Arc::new(Wrapped::new(inner.clone(), Arc::clone(&fault)));
        let outcome = check.guarded("write", || case.write(format, store, &case.rows, random, None))?;
        let reached = fault.calls() > call;
        match outcome {
            Ok(()) if !reached => return Ok(()),
            Ok(()) => return check.fail("the failure went unnoticed"),
            Err(_) if format.open(inner.clone(), &OpenOptions::default()).is_ok() => {
                reads_back(&check, format, case, inner)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}
