//! The conformance suite of formats: functions over [`&dyn Format`](Format) without knowledge of a specific format.
//!
//! A [`Fixture`] is a source in a store. [`read_suite`] opens it, plans it, decodes it, compares the metadata of its chunks with
//! their cells, and damages copies of it; [`write_suite`] and [`sparse_write_suite`] write arrays through the format's writer,
//! correctly and incorrectly; [`executor_suite`] compares an [`Executor`] with the [oracle](crate::oracle); [`store_suite`]
//! checks a store. The suites do not panic on a fault: each returns the first [`Violation`], with the check, the location and the
//! seed.
//!
//! ```
//! use tesseral_conformance::{Fixture, read_suite};
//! use tesseral_conformance::testing::layered;
//!
//! let sample = layered::sample(7)?;
//! let mut fixture = Fixture::new(sample.store(), 7);
//! fixture.effort.damages = 8;
//! read_suite(&layered::LayeredFormat, &fixture).map_err(|v| v.to_string()).unwrap();
//! # Ok::<(), tesseral_core::Error>(())
//! ```

mod damage;
mod decode;
mod executor;
mod facts;
mod open;
mod plan;
mod store;
mod write;
mod write_sparse;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use damage::{audit_of_a_sound_source, damage_never_panics};
pub use decode::{damaged_parts_never_panic, decoders_keep_their_contract};
pub use executor::{Executor, executor_suite};
pub use facts::{declarations_are_applied, descriptions_agree, digests_match, statistics_hold};
pub use open::{expectations_hold, open_is_deterministic, sniffing};
pub use plan::{parts_lie_in_objects, plans_agree, plans_in_rounds, whole_chunks_are_whole};
pub use store::store_suite;
use tesseral_core::{ArraySchema, DType, Error, Result, Scalar, Selection, Slice};
use tesseral_store::{MemoryStore, Store, StoreExt};
pub use write::{WriteCase, write_suite};
pub use write_sparse::{SparseCase, sparse_write_suite};

use crate::oracle::{Cells, Row, Sparse};
use crate::testing::Random;
use tesseral_format::{
    ArraySource, ChunkPlan, Column, ContainerSource, CoordinateRanges, Format, OpenOptions, Request, Target,
};

/// A failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the check.
    pub check: &'static str,
    /// The array, field, chunk or kind of damage.
    pub location: String,
    /// Expected and found values.
    pub detail: String,
    /// The seed of the fixture, to reproduce it.
    pub seed: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, seed {}): {}", self.check, self.location, self.seed, self.detail)
    }
}

impl std::error::Error for Violation {}

/// The amount of testing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Selections per array.
    pub selections: usize,
    /// Chunks tested individually per column.
    pub chunks: usize,
    /// Bit flips, and truncations beyond the first and last bytes, per object.
    pub damages: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { selections: 12, chunks: 16, damages: 64 }
    }
}

/// The expected content of an array.
#[derive(Clone, Debug)]
pub enum Expected {
    /// A field of a complete dense array.
    Dense {
        /// Index of the array.
        array: usize,
        /// Index of the field.
        field: u16,
        /// Its cells, row-major, zero bytes for nulls.
        cells: Cells,
    },
    /// All fields of a complete sparse array.
    Sparse {
        /// Index of the array.
        array: usize,
        /// Its rows, sorted.
        rows: Vec<Row>,
    },
}

/// A source to check.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The store of the source.
    pub store: Arc<dyn Store>,
    /// Open options.
    pub options: OpenOptions,
    /// The random seed.
    pub seed: u64,
    /// The amount of testing.
    pub effort: Effort,
    /// Its known content.
    pub expected: Vec<Expected>,
}

impl Fixture {
    /// A source without known content.
    pub fn new(store: Arc<dyn Store>, seed: u64) -> Self {
        let options = OpenOptions::default();
        Self { store, options, seed, effort: Effort::default(), expected: Vec::new() }
    }

    fn random(&self, salt: u64) -> Random {
        Random::new(self.seed ^ salt.rotate_left(32))
    }
}

/// The context of a check: name, seed and location.
#[derive(Clone, Copy)]
struct Check<'a> {
    name: &'static str,
    seed: u64,
    location: &'a dyn fmt::Display,
}

impl<'a> Check<'a> {
    fn new(name: &'static str, seed: u64) -> Self {
        Self { name, seed, location: &"source" }
    }

    fn at(self, location: &'a dyn fmt::Display) -> Self {
        Self { location, ..self }
    }

    fn fail<T>(&self, detail: impl fmt::Display) -> Result<T, Violation> {
        let (location, detail) = (self.location.to_string(), detail.to_string());
        Err(Violation { check: self.name, location, detail, seed: self.seed })
    }

    fn require(&self, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
        if holds { Ok(()) } else { self.fail(detail()) }
    }

    fn same<T: PartialEq + fmt::Debug>(&self, what: &str, got: &T, expected: &T) -> Result<(), Violation> {
        self.require(got == expected, || format!("{what}: got {got:?}, expected {expected:?}"))
    }

    /// Equality of text forms, in which NaN equals NaN.
    fn same_text<T: fmt::Debug>(&self, what: &str, got: &T, expected: &T) -> Result<(), Violation> {
        let (got, expected) = (format!("{got:?}"), format!("{expected:?}"));
        self.require(got == expected, || format!("{what}: got {got}, expected {expected}"))
    }

    /// An operation that must succeed.
    fn must<T>(&self, what: &str, result: Result<T>) -> Result<T, Violation> {
        result.or_else(|e| self.fail(format!("{what}: {e}")))
    }

    /// An operation that may fail but must not panic.
    fn guarded<T>(&self, what: &str, f: impl FnOnce() -> T) -> Result<T, Violation> {
        catch_unwind(AssertUnwindSafe(f)).or_else(|payload| {
            let message = payload.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("");
            self.fail(format!("{what} panicked: {message}"))
        })
    }
}

/// All checks of reading, auditing and damage.
///
/// # Errors
/// The first violation.
pub fn read_suite(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    sniffing(format, fixture)?;
    open_is_deterministic(format, fixture)?;
    expectations_hold(format, fixture)?;
    parts_lie_in_objects(format, fixture)?;
    plans_agree(format, fixture)?;
    whole_chunks_are_whole(format, fixture)?;
    plans_in_rounds(format, fixture)?;
    decoders_keep_their_contract(format, fixture)?;
    damaged_parts_never_panic(format, fixture)?;
    statistics_hold(format, fixture)?;
    digests_match(format, fixture)?;
    declarations_are_applied(format, fixture)?;
    descriptions_agree(format, fixture)?;
    audit_of_a_sound_source(format, fixture)?;
    damage_never_panics(format, fixture)
}

fn open(
    check: &Check<'_>,
    format: &dyn Format,
    fixture: &Fixture,
) -> Result<Arc<dyn ContainerSource>, Violation> {
    check.must("open", format.open(Arc::clone(&fixture.store), &fixture.options))
}

/// A request for all cells of some columns.
fn full_request(schema: &ArraySchema, columns: Vec<Column>) -> Result<Request> {
    let target = if schema.sparse {
        Target::Coordinates(vec![Vec::new(); schema.dims.len()])
    } else {
        let shape = schema.shape().ok_or_else(|| Error::invalid("dense array without positions"))?;
        Target::Cells(Selection::all(&shape))
    };
    Ok(Request { target, columns, condition: None })
}

/// Every column that chunks of an array may have.
fn columns(schema: &ArraySchema) -> Vec<Column> {
    let fields = (0..schema.fields.len() as u16).map(Column::Field);
    if !schema.sparse {
        return fields.collect();
    }
    let dims = (0..schema.dims.len() as u16).map(Column::Dim);
    dims.chain(fields).chain([Column::Timestamp]).collect()
}

/// Calls `f` with every array.
fn for_each_array(
    check: &Check<'_>,
    container: &dyn ContainerSource,
    mut f: impl FnMut(&Check<'_>, usize, &dyn ArraySource) -> Result<(), Violation>,
) -> Result<(), Violation> {
    for number in 0..container.len() {
        let location = format!("array {:?}", container.name(number));
        let check = check.at(&location);
        let source = check.must("array", container.array(number))?;
        f(&check, number, source.as_ref())?;
    }
    Ok(())
}

/// Calls `f` with every column of every array and its complete plan.
fn for_each_column(
    check: &Check<'_>,
    container: &dyn ContainerSource,
    mut f: impl FnMut(&Check<'_>, &dyn ArraySource, Column, &ChunkPlan) -> Result<(), Violation>,
) -> Result<(), Violation> {
    for_each_array(check, container, |check, _, source| {
        for column in columns(source.schema()) {
            let location = format!("{}, {column:?}", check.location);
            let check = check.at(&location);
            let request = check.must("request", full_request(source.schema(), vec![column]))?;
            let plan = check.must("plan", tesseral_format::plan(source, container.store(), &request))?;
            f(&check, source, column, &plan)?;
        }
        Ok(())
    })
}

/// Up to `n` random indices below `of`, in order.
fn random_indices(random: &mut Random, of: usize, n: usize) -> Vec<usize> {
    if of <= n {
        return (0..of).collect();
    }
    let mut taken: Vec<usize> = (0..n).map(|_| random.index(of)).collect();
    taken.sort_unstable();
    taken.dedup();
    taken
}

/// Selections of all kinds: everything, nothing, single cells, regions, steps.
fn selections(random: &mut Random, shape: &[u64], n: usize) -> Result<Vec<Selection>> {
    let mut out = vec![Selection::all(shape)];
    for i in 0..n {
        let slice = |&extent: &u64| {
            let (a, b) = (random.below(extent + 1), random.below(extent + 1));
            let (start, end) = (a.min(b), a.max(b));
            match (i % 4, random.below(4)) {
                // A single cell, if there is one.
                (0, _) => Slice::new(a.min(extent.saturating_sub(1)), (a + 1).min(extent)),
                (1, _) => Slice { start, end, step: random.within(1, extent.max(1)) },
                // Occasionally empty along one dimension.
                (2, 0) => Slice::new(a, a),
                (3, _) => Slice { start, end: extent, step: random.within(1, 3) },
                _ => Slice { start, end, step: 1 },
            }
        };
        out.push(Selection::new(shape.iter().map(slice).collect::<Vec<_>>(), shape)?);
    }
    Ok(out)
}

/// Every object of a store, by name.
fn objects(store: &dyn Store) -> Result<Vec<(String, Vec<u8>)>> {
    fn walk(store: &dyn Store, folder: &str, depth: usize, out: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        for entry in store.list(folder)? {
            let name =
                if folder.is_empty() { entry.name.clone() } else { format!("{folder}/{}", entry.name) };
            if !entry.is_folder() {
                out.push((name.clone(), store.read_all(&name, 1 << 30)?.to_vec()));
            } else if depth < 16 {
                walk(store, &name, depth + 1, out)?;
            }
        }
        Ok(())
    }
    // A single file is the object with the empty name; a folder has none.
    if let Ok(bytes) = store.read_all("", 1 << 30) {
        return Ok(vec![(String::new(), bytes.to_vec())]);
    }
    let mut out = Vec::new();
    walk(store, "", 0, &mut out)?;
    Ok(out)
}

/// A store with these objects.
fn store_with(location: &str, objects: &[(String, Vec<u8>)]) -> Arc<MemoryStore> {
    let store = MemoryStore::new(location);
    for (name, bytes) in objects {
        store.insert(name, bytes.clone());
    }
    Arc::new(store)
}

/// Ranges of all kinds around existing coordinates: everything, one position, intervals, two that may overlap.
fn sparse_ranges(random: &mut Random, sparse: &Sparse, n: usize) -> Vec<Vec<CoordinateRanges>> {
    let schema = sparse.schema();
    let mut out = vec![vec![CoordinateRanges::new(); schema.dims.len()]];
    if sparse.rows().is_empty() {
        return out;
    }
    for i in 0..n {
        let mut ranges = Vec::new();
        for (d, dim) in schema.dims.iter().enumerate() {
            let mut range = || {
                let mut any = || coordinate(dim.dtype, &random.pick(sparse.rows()).coords[d]);
                let (a, b) = (any()?, any()?);
                match i % 3 {
                    0 => Some((a.clone(), a)),
                    _ if a.compare(&b).is_some_and(std::cmp::Ordering::is_le) => Some((a, b)),
                    _ => Some((b, a)),
                }
            };
            let some: Vec<_> = [range(), range()].into_iter().flatten().collect();
            let keep = random.index(3);
            ranges.push(some.into_iter().take(keep).collect());
        }
        out.push(ranges);
    }
    out
}

fn coordinate(dtype: DType, native: &[u8]) -> Option<Scalar> {
    let mut bytes = native.to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
    }
    Scalar::from_le_bytes(dtype, &bytes).ok()
}
