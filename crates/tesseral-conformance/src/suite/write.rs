//! Checks of writers: atomic, and independent of the order of chunks.

use std::sync::Arc;

use tesseral_core::{Coords, ErrorKind, Limits, Order, Region, Result};
use tesseral_store::test_wrappers::{FaultInjection, Wrapped};
use tesseral_store::{MemoryStore, Overwrite, Store};

use super::{Check, Effort, Expected, Fixture, Violation, objects, read_suite, store_with};
use crate::oracle::{Cells, chunk_stats, for_each_cell, position_in};
use crate::testing::{Buffers, Cell, Random, oracle_cells, random_cell};
use tesseral_format::{ArraySpec, CreateOptions, Format, OpenOptions, Scratch, Writer};

/// Arrays to write.
#[derive(Clone, Debug)]
pub struct WriteCase {
    /// The arrays. Each must have cells, and at least one several chunks.
    pub specs: Vec<ArraySpec>,
    /// Creation options; their overwrite policy is ignored.
    pub options: CreateOptions,
    /// The random seed.
    pub seed: u64,
    /// Whether chunks in canonical order give the same bytes in every run.
    pub canonical: bool,
    /// Whether uncommitted output leaves no objects. Formats that commit by a final object leave the others unreferenced instead.
    pub traceless: bool,
    /// The amount of testing of the written output.
    pub effort: Effort,
}

impl WriteCase {
    /// A case for a format whose bytes depend only on the arrays.
    pub fn new(specs: Vec<ArraySpec>, seed: u64) -> Self {
        let options = CreateOptions::default();
        Self { specs, options, seed, canonical: true, traceless: true, effort: Effort::default() }
    }
}

/// A chunk: index of the array and grid coordinates.
type ChunkKey = (usize, Coords);

/// The cells of the arrays: for each array and field, row-major.
struct Data<'a> {
    case: &'a WriteCase,
    cells: Vec<Vec<Vec<Cell>>>,
}

impl<'a> Data<'a> {
    fn new(case: &'a WriteCase, random: &mut Random) -> Self {
        let array_cells = |spec: &ArraySpec| {
            let n = Region::from_shape(&spec.schema.shape().unwrap_or_default()).cells().unwrap_or(0);
            let fields = spec.schema.fields.iter();
            fields.map(|field| (0..n).map(|_| random_cell(random, field)).collect()).collect()
        };
        Self { case, cells: case.specs.iter().map(array_cells).collect() }
    }

    /// Every chunk in canonical order.
    fn keys(&self) -> Result<Vec<ChunkKey>> {
        let mut out = Vec::new();
        for (number, spec) in self.case.specs.iter().enumerate() {
            let grid = spec.schema.grid()?;
            out.extend((0..grid.total()).map(|linear| (number, grid.coords(linear))));
        }
        Ok(out)
    }

    /// Encodes and pushes one chunk.
    fn push(&self, writer: &dyn Writer, (number, coords): &ChunkKey, scratch: &mut Scratch) -> Result<()> {
        let schema = &self.case.specs[*number].schema;
        let region = schema.grid()?.region(coords);
        let array = Region::from_shape(&schema.shape().unwrap_or_default());
        let mut buffers = Vec::new();
        let mut stats = Vec::new();
        for (field, cells) in schema.fields.iter().zip(&self.cells[*number]) {
            let mut chunk: Vec<Cell> = vec![None; region.cells().unwrap_or(0) as usize];
            let mut failed = None;
            for_each_cell(&region, |at| {
                let from = position_in(&array, Order::RowMajor, at);
                match from.and_then(|from| Ok((from, position_in(&region, schema.cell_order, at)?))) {
                    Ok((from, to)) => chunk[to as usize].clone_from(&cells[from as usize]),
                    Err(e) => failed = Some(e),
                }
            });
            if let Some(e) = failed {
                return Err(e);
            }
            if writer.wants_stats(*number) {
                stats.push(chunk_stats(field, &[], chunk.iter().map(Option::as_deref)));
            }
            buffers.push(Buffers::from_field(field, &chunk));
        }
        let columns: Vec<_> = buffers.iter().map(Buffers::data).collect();
        let encoded = writer.encode(*number, coords, &columns, stats, scratch)?;
        writer.push(*number, encoded)
    }

    /// Creates a container and declares every array.
    fn begin(
        &self,
        format: &dyn Format,
        store: Arc<dyn Store>,
        overwrite: Overwrite,
    ) -> Result<Box<dyn Writer>> {
        let options = CreateOptions { overwrite, ..self.case.options.clone() };
        let mut writer = format.create(store, &options)?;
        for spec in &self.case.specs {
            writer.begin(spec)?;
        }
        Ok(writer)
    }

    /// Writes all chunks in the given order, on one thread.
    fn write(
        &self,
        format: &dyn Format,
        store: Arc<dyn Store>,
        overwrite: Overwrite,
        keys: &[ChunkKey],
    ) -> Result<()> {
        let writer = self.begin(format, store, overwrite)?;
        let mut scratch = Scratch::default();
        for key in keys {
            self.push(writer.as_ref(), key, &mut scratch)?;
        }
        writer.commit()
    }

    fn expected(&self) -> Vec<Expected> {
        let mut out = Vec::new();
        for (array, (spec, fields)) in self.case.specs.iter().zip(&self.cells).enumerate() {
            for (i, (field, cells)) in spec.schema.fields.iter().zip(fields).enumerate() {
                let cells: Cells = oracle_cells(field, cells.clone());
                out.push(Expected::Dense { array, field: i as u16, cells });
            }
        }
        out
    }
}

/// All checks of writing.
///
/// # Errors
/// The first violation.
pub fn write_suite(format: &dyn Format, case: &WriteCase) -> Result<(), Violation> {
    let check = Check::new("write_suite", case.seed);
    let mut random = Random::new(case.seed);
    let data = Data::new(case, &mut random);
    let keys = check.must("grid", data.keys())?;
    let bytes = any_order(&check, format, &data, &keys, &mut random)?;
    rejections(&check, format, &data, &keys)?;
    replacing(&check, format, &data, &keys, &bytes)?;
    faults(&check, format, &data, &keys)
}

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new("written"))
}

fn reads_back(
    check: &Check<'_>,
    format: &dyn Format,
    store: Arc<dyn Store>,
    data: &Data<'_>,
) -> Result<(), Violation> {
    let mut fixture = Fixture::new(store, data.case.seed);
    fixture.effort = data.case.effort;
    fixture.expected = data.expected();
    read_suite(format, &fixture).or_else(|v| check.fail(v))
}

/// Canonical, shuffled and threaded pushes write the same cells. Returns the canonical objects.
fn any_order(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    keys: &[ChunkKey],
    random: &mut Random,
) -> Result<Vec<(String, Vec<u8>)>, Violation> {
    let check = check.at(&"any order of chunks");
    let written = memory();
    let before: Arc<dyn Store> = written.clone();
    check.must("write", data.write(format, before, Overwrite::Refuse, keys))?;
    reads_back(&check, format, written.clone(), data)?;
    let bytes = check.must("list", objects(written.as_ref()))?;
    let again = memory();
    check.must("write", data.write(format, again.clone(), Overwrite::Refuse, keys))?;
    let same = check.must("list", objects(again.as_ref()))? == bytes;
    check.require(same || !data.case.canonical, || "bytes differ in canonical order".to_owned())?;

    let mut shuffled = keys.to_vec();
    random.shuffle(&mut shuffled);
    let store = memory();
    check.must("write", data.write(format, store.clone(), Overwrite::Refuse, &shuffled))?;
    reads_back(&check, format, store, data)?;

    let store = memory();
    let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Refuse))?;
    let push = |part: usize| {
        let mut scratch = Scratch::default();
        let share = shuffled.iter().skip(part).step_by(3);
        share.map(|key| data.push(writer.as_ref(), key, &mut scratch)).collect::<Result<Vec<_>>>()
    };
    let push = &push;
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|part| scope.spawn(move || push(part))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for outcome in outcomes {
        let outcome = outcome.or_else(|_| check.fail("a thread panicked"))?;
        check.must("push", outcome)?;
    }
    check.must("commit", writer.commit())?;
    reads_back(&check, format, store, data)?;
    Ok(bytes)
}

/// An uncommitted container is not visible.
fn not_visible(
    check: &Check<'_>,
    format: &dyn Format,
    case: &WriteCase,
    store: &Arc<MemoryStore>,
) -> Result<(), Violation> {
    let left = objects(store.as_ref()).unwrap_or_default();
    let names: Vec<_> = left.iter().map(|(name, _)| name).collect();
    check.require(left.is_empty() || !case.traceless, || format!("left objects {names:?}"))?;
    let opened =
        format.open(store.clone(), &OpenOptions { limits: Limits::default(), ..OpenOptions::default() });
    check.require(opened.is_err(), || "uncommitted output can be opened".to_owned())
}

/// Duplicate chunks, chunks outside the grid, commits with missing chunks, dropped writers.
fn rejections(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    keys: &[ChunkKey],
) -> Result<(), Violation> {
    let invalid = |result: &Result<()>| {
        result.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::InvalidRequest { .. }))
    };
    let mut scratch = Scratch::default();
    let store = memory();
    {
        let check = check.at(&"duplicate chunk");
        let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Refuse))?;
        for key in keys {
            check.must("push", data.push(writer.as_ref(), key, &mut scratch))?;
        }
        for key in keys {
            let twice = data.push(writer.as_ref(), key, &mut scratch);
            check.require(invalid(&twice), || format!("{key:?}: {twice:?}"))?;
        }
        drop(writer);
        not_visible(&check.at(&"writer dropped with every chunk"), format, data.case, &store)?;
    }
    for (i, key) in keys.iter().enumerate().filter(|(i, _)| *i < 8 || i + 1 == keys.len()) {
        let location = format!("commit without chunk {key:?}");
        let check = check.at(&location);
        let mut fewer = keys.to_vec();
        fewer.remove(i);
        let outcome = data.write(format, store.clone(), Overwrite::Refuse, &fewer);
        check.require(invalid(&outcome), || format!("{outcome:?}"))?;
        not_visible(&check, format, data.case, &store)?;
    }
    let check = check.at(&"chunk outside the grid");
    let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Refuse))?;
    for (number, spec) in data.case.specs.iter().enumerate() {
        let grid = check.must("grid", spec.schema.grid())?;
        for d in 0..grid.rank() {
            let mut coords = grid.coords(0);
            coords[d] = grid.counts()[d];
            let outside = check.guarded("push", || {
                data.push(writer.as_ref(), &(number, coords.clone()), &mut Scratch::default())
            })?;
            check.require(outside.is_err(), || format!("{coords:?} was accepted"))?;
        }
    }
    drop(writer);
    not_visible(&check, format, data.case, &store)
}

/// Existing output remains until the new output is complete, and is replaced only where allowed.
fn replacing(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    keys: &[ChunkKey],
    bytes: &[(String, Vec<u8>)],
) -> Result<(), Violation> {
    let check = check.at(&"existing output");
    let store = store_with("written", bytes);
    let rejected = data.write(format, store.clone(), Overwrite::Refuse, keys);
    check.require(rejected.is_err(), || "was replaced without permission".to_owned())?;
    let unchanged = |when: &str| {
        let now = check.must("list", objects(store.as_ref()))?;
        check.require(now == bytes, || format!("changed {when}"))
    };
    unchanged("by a rejected writer")?;
    let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Replace))?;
    let mut scratch = Scratch::default();
    for key in keys {
        check.must("push", data.push(writer.as_ref(), key, &mut scratch))?;
    }
    if data.case.traceless {
        unchanged("before the commit")?;
    }
    check.must("commit", writer.commit())?;
    reads_back(&check, format, store.clone(), data)
}

/// Whichever store call fails: the container is either complete or not visible.
fn faults(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    keys: &[ChunkKey],
) -> Result<(), Violation> {
    for call in 0.. {
        let location = format!("store call {call} fails");
        let check = check.at(&location);
        let inner = memory();
        let fault = Arc::new(FaultInjection::at(call));
        let store: Arc<dyn Store> = Arc::new(Wrapped::new(inner.clone(), Arc::clone(&fault)));
        let outcome = check.guarded("write", || data.write(format, store, Overwrite::Refuse, keys))?;
        let reached = fault.calls() > call;
        match outcome {
            Ok(()) if !reached => return Ok(()),
            Ok(()) => return check.fail("the failure was not reported"),
            Err(e) if !reached => return check.fail(format!("failed without a fault: {e}")),
            Err(_) => not_visible(&check, format, data.case, &inner)?,
        }
    }
    Ok(())
}
