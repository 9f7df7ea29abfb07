//! Writers: all of it or nothing, in any order.

use std::sync::Arc;

use tesseral_core::{Coords, ErrorKind, Limits, Order, Region, Result};
use tesseral_store::wrap::{Fault, Wrapped};
use tesseral_store::{MemoryStore, Overwrite, Store};

use super::{Check, Effort, Expected, Fixture, Violation, objects, read_suite, store_of};
use crate::oracle::{Cells, chunk_stats, for_each_cell, position_in};
use crate::testing::{Buffers, Cell, Random, random_cell, truth_cells};
use crate::{ArraySpec, CreateOptions, Format, OpenOptions, Scratch, Writer};

/// Arrays to be written.
#[derive(Clone, Debug)]
pub struct WriteCase {
    /// The arrays. Each must have cells, and one at least several chunks.
    pub specs: Vec<ArraySpec>,
    /// How to create; what it says of replacing is not looked at.
    pub options: CreateOptions,
    /// What random choices begin with.
    pub seed: u64,
    /// Chunks in canonical order give the same bytes at every run.
    pub canonical: bool,
    /// What is not committed leaves no object. Formats that commit by a last object leave the others unseen instead.
    pub traceless: bool,
    /// How much to try on what was written.
    pub effort: Effort,
}

impl WriteCase {
    /// Arrays of a format whose bytes depend on nothing but the arrays.
    pub fn new(specs: Vec<ArraySpec>, seed: u64) -> Self {
        let options = CreateOptions::default();
        Self { specs, options, seed, canonical: true, traceless: true, effort: Effort::default() }
    }
}

/// One chunk of one array.
type Place = (usize, Coords);

/// The arrays' cells: for each array and field, row-major.
struct Data<'a> {
    case: &'a WriteCase,
    cells: Vec<Vec<Vec<Cell>>>,
}

impl<'a> Data<'a> {
    fn new(case: &'a WriteCase, random: &mut Random) -> Self {
        let of_array = |spec: &ArraySpec| {
            let n = Region::from_shape(&spec.schema.shape().unwrap_or_default()).cells().unwrap_or(0);
            let fields = spec.schema.fields.iter();
            fields.map(|field| (0..n).map(|_| random_cell(random, field)).collect()).collect()
        };
        Self { case, cells: case.specs.iter().map(of_array).collect() }
    }

    /// Every chunk in canonical order.
    fn places(&self) -> Result<Vec<Place>> {
        let mut out = Vec::new();
        for (number, spec) in self.case.specs.iter().enumerate() {
            let grid = spec.schema.grid()?;
            out.extend((0..grid.total()).map(|linear| (number, grid.coords(linear))));
        }
        Ok(out)
    }

    /// Encodes and pushes one chunk.
    fn push(&self, writer: &dyn Writer, (number, coords): &Place, scratch: &mut Scratch) -> Result<()> {
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
                stats.push(chunk_stats(field, chunk.iter().map(Option::as_deref)));
            }
            buffers.push(Buffers::of_field(field, &chunk));
        }
        let columns: Vec<_> = buffers.iter().map(Buffers::data).collect();
        let encoded = writer.encode(*number, coords, &columns, stats, scratch)?;
        writer.push(*number, encoded)
    }

    /// Begins a container with every array declared.
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

    /// Writes all of it in the order given, on one thread.
    fn write(
        &self,
        format: &dyn Format,
        store: Arc<dyn Store>,
        overwrite: Overwrite,
        places: &[Place],
    ) -> Result<()> {
        let writer = self.begin(format, store, overwrite)?;
        let mut scratch = Scratch::default();
        for place in places {
            self.push(writer.as_ref(), place, &mut scratch)?;
        }
        writer.commit()
    }

    fn expected(&self) -> Vec<Expected> {
        let mut out = Vec::new();
        for (array, (spec, fields)) in self.case.specs.iter().zip(&self.cells).enumerate() {
            for (i, (field, cells)) in spec.schema.fields.iter().zip(fields).enumerate() {
                let cells: Cells = truth_cells(field, cells.clone());
                out.push(Expected::Dense { array, field: i as u16, cells });
            }
        }
        out
    }
}

/// Every check of writing.
///
/// # Errors
/// The first violation.
pub fn write_suite(format: &dyn Format, case: &WriteCase) -> Result<(), Violation> {
    let check = Check::new("write_suite", case.seed);
    let mut random = Random::new(case.seed);
    let data = Data::new(case, &mut random);
    let places = check.must("grid", data.places())?;
    let bytes = any_order(&check, format, &data, &places, &mut random)?;
    refusals(&check, format, &data, &places)?;
    replacing(&check, format, &data, &places, &bytes)?;
    faults(&check, format, &data, &places)
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

/// Canonical, shuffled and threaded pushes write the same cells. Gives the canonical objects.
fn any_order(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    places: &[Place],
    random: &mut Random,
) -> Result<Vec<(String, Vec<u8>)>, Violation> {
    let check = check.at(&"any order of chunks");
    let written = memory();
    let before: Arc<dyn Store> = written.clone();
    check.must("write", data.write(format, before, Overwrite::Refuse, places))?;
    reads_back(&check, format, written.clone(), data)?;
    let bytes = check.must("list", objects(written.as_ref()))?;
    let again = memory();
    check.must("write", data.write(format, again.clone(), Overwrite::Refuse, places))?;
    let same = check.must("list", objects(again.as_ref()))? == bytes;
    check.require(same || !data.case.canonical, || "canonical order gave other bytes".to_owned())?;

    let mut shuffled = places.to_vec();
    random.shuffle(&mut shuffled);
    let store = memory();
    check.must("write", data.write(format, store.clone(), Overwrite::Refuse, &shuffled))?;
    reads_back(&check, format, store, data)?;

    let store = memory();
    let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Refuse))?;
    let push = |part: usize| {
        let mut scratch = Scratch::default();
        let mine = shuffled.iter().skip(part).step_by(3);
        mine.map(|place| data.push(writer.as_ref(), place, &mut scratch)).collect::<Result<Vec<_>>>()
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

/// Nothing of an unfinished container shows.
fn nothing(
    check: &Check<'_>,
    format: &dyn Format,
    case: &WriteCase,
    store: &Arc<MemoryStore>,
) -> Result<(), Violation> {
    let left = objects(store.as_ref()).unwrap_or_default();
    let names: Vec<_> = left.iter().map(|(name, _)| name).collect();
    check.require(left.is_empty() || !case.traceless, || format!("left {names:?} behind"))?;
    let opened =
        format.open(store.clone(), &OpenOptions { limits: Limits::default(), ..OpenOptions::default() });
    check.require(opened.is_err(), || "what was never committed can be opened".to_owned())
}

/// Chunks twice, chunks that are not, commits without all chunks, writers that are dropped.
fn refusals(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    places: &[Place],
) -> Result<(), Violation> {
    let invalid = |result: &Result<()>| {
        result.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::InvalidRequest { .. }))
    };
    let mut scratch = Scratch::default();
    let store = memory();
    {
        let check = check.at(&"a chunk twice");
        let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Refuse))?;
        for place in places {
            check.must("push", data.push(writer.as_ref(), place, &mut scratch))?;
        }
        for place in places {
            let twice = data.push(writer.as_ref(), place, &mut scratch);
            check.require(invalid(&twice), || format!("{place:?}: {twice:?}"))?;
        }
        drop(writer);
        nothing(&check.at(&"a writer dropped with every chunk"), format, data.case, &store)?;
    }
    for (i, place) in places.iter().enumerate().filter(|(i, _)| *i < 8 || i + 1 == places.len()) {
        let place = format!("commit without chunk {place:?}");
        let check = check.at(&place);
        let mut fewer = places.to_vec();
        fewer.remove(i);
        let outcome = data.write(format, store.clone(), Overwrite::Refuse, &fewer);
        check.require(invalid(&outcome), || format!("{outcome:?}"))?;
        nothing(&check, format, data.case, &store)?;
    }
    let check = check.at(&"a chunk outside the grid");
    let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Refuse))?;
    for (number, spec) in data.case.specs.iter().enumerate() {
        let grid = check.must("grid", spec.schema.grid())?;
        for d in 0..grid.rank() {
            let mut coords = grid.coords(0);
            coords[d] = grid.counts()[d];
            let outside = check.guarded("push", || {
                data.push(writer.as_ref(), &(number, coords.clone()), &mut Scratch::default())
            })?;
            check.require(outside.is_err(), || format!("{coords:?} was taken"))?;
        }
    }
    drop(writer);
    nothing(&check, format, data.case, &store)
}

/// What is there stays until the new one is whole, and gives way only where that is allowed.
fn replacing(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    places: &[Place],
    bytes: &[(String, Vec<u8>)],
) -> Result<(), Violation> {
    let check = check.at(&"an existing output");
    let store = store_of("written", bytes);
    let refused = data.write(format, store.clone(), Overwrite::Refuse, places);
    check.require(refused.is_err(), || "was replaced without leave".to_owned())?;
    let unchanged = |when: &str| {
        let now = check.must("list", objects(store.as_ref()))?;
        check.require(now == bytes, || format!("changed {when}"))
    };
    unchanged("by a refused writer")?;
    let writer = check.must("begin", data.begin(format, store.clone(), Overwrite::Replace))?;
    let mut scratch = Scratch::default();
    for place in places {
        check.must("push", data.push(writer.as_ref(), place, &mut scratch))?;
    }
    if data.case.traceless {
        unchanged("before the commit")?;
    }
    check.must("commit", writer.commit())?;
    reads_back(&check, format, store.clone(), data)
}

/// Whichever call to the store fails: either the container is whole, or nothing of it shows.
fn faults(
    check: &Check<'_>,
    format: &dyn Format,
    data: &Data<'_>,
    places: &[Place],
) -> Result<(), Violation> {
    for call in 0.. {
        let place = format!("call {call} to the store fails");
        let check = check.at(&place);
        let inner = memory();
        let fault = Arc::new(Fault::at(call));
        let store: Arc<dyn Store> = Arc::new(Wrapped::new(inner.clone(), Arc::clone(&fault)));
        let outcome = check.guarded("write", || data.write(format, store, Overwrite::Refuse, places))?;
        let reached = fault.calls() > call;
        match outcome {
            Ok(()) if !reached => return Ok(()),
            Ok(()) => return check.fail("the failure went unnoticed"),
            Err(e) if !reached => return check.fail(format!("fails without a fault: {e}")),
            Err(_) => nothing(&check, format, data.case, &inner)?,
        }
    }
    Ok(())
}
