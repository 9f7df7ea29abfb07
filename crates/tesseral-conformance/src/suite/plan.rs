//! Checks of plans: the location of chunks, and that partial plans agree with complete ones.

use std::collections::HashSet;
use std::sync::Arc;

use tesseral_core::{Region, Result, Selection};

use super::{
    Check, Fixture, Violation, columns, for_each_array, full_request, open, random_indices, selections,
    sparse_ranges,
};
use crate::oracle::rows_of_plan;
use crate::oracle::{Decoded, Dense, Prefill, Sparse, decode_parts, fetch, for_each_cell, in_ranges, paint};
use tesseral_format::{
    ArraySource, ChunkPlan, Column, ContainerSource, Cover, Format, Planned, PlannedChunk, Request, Target,
    Uncovered, plan,
};
use tesseral_store::test_wrappers::{Distant, Wrapped};
use tesseral_store::{Rounds, Store};

/// Over a network, planning reads metadata in rounds only: it never reads the container's store itself, names something new in
/// each round, and its plans are those of a store that answers at once.
///
/// # Errors
/// The first violation.
pub fn plans_in_rounds(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("plans_in_rounds", fixture.seed);
    let near = open(&check, format, fixture)?;
    let distant = Arc::new(Distant::default());
    let store = Arc::new(Wrapped::new(Arc::clone(&fixture.store), Arc::clone(&distant)));
    let far = check.must("open", format.open(store, &fixture.options))?;
    for_each_array(&check, near.as_ref(), |check, number, source| {
        let other = check.must("array", far.array(number))?;
        for column in columns(source.schema()) {
            let request = check.must("request", full_request(source.schema(), vec![column]))?;
            let expected = check.must("plan", plan(source, near.store(), &request))?;
            let rounds = Rounds::new(Arc::clone(far.store()));
            let mut named = HashSet::new();
            let found = loop {
                let before = distant.calls();
                let planned = check.must("plan", other.plan(&request, &rounds))?;
                check.same("reads of the store while planning", &(distant.calls() - before), &0)?;
                match planned {
                    Planned::Ready(plan) => break plan,
                    Planned::Needs(needs) => {
                        let new = needs.iter().filter(|need| named.insert((*need).clone())).count();
                        check.require(new > 0, || format!("nothing new is needed: {needs:?}"))?;
                        check.must("fetch", rounds.fetch(&needs))?;
                    }
                }
            };
            check.require(found == expected, || format!("the plan of {column:?} differs over a network"))?;
            let again = check.must("plan", plan(&*other, far.store(), &request))?;
            check.require(again == found, || format!("repeated plans of {column:?} differ"))?;
        }
        Ok(())
    })
}

/// Every part lies in its object, parts are grouped as requested, and chunks declare the cells they store.
///
/// # Errors
/// The first violation.
pub fn parts_lie_in_objects(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("parts_lie_in_objects", fixture.seed);
    let container = open(&check, format, fixture)?;
    for_each_array(&check, container.as_ref(), |check, _, source| {
        let columns = columns(source.schema());
        let request = check.must("request", full_request(source.schema(), columns.clone()))?;
        let all = check.must("plan", plan(source, container.store(), &request))?;
        let mut ids = HashSet::new();
        for chunk in &all.chunks {
            let location = format!("{}, chunk {}", check.location, chunk.id);
            let check = check.at(&location);
            check.require(ids.insert(chunk.id), || "duplicate chunk ID".to_owned())?;
            check_chunk(&check, container.store().as_ref(), source, chunk)?;
            let order: Vec<Column> = chunk.parts.iter().map(|part| part.column).collect();
            let mut grouped = order.clone();
            grouped.sort_by_key(|column| columns.iter().position(|c| c == column));
            check.same("order of parts", &order, &grouped)?;
        }
        // Requested separately, a column has the same parts.
        for column in columns {
            let request = check.must("request", full_request(source.schema(), vec![column]))?;
            let alone = check.must("plan", plan(source, container.store(), &request))?;
            let parts = |plan: &ChunkPlan| -> Vec<_> {
                let chunks = plan.chunks.iter();
                chunks.map(|c| (c.id, c.column_parts(column).map(|(_, p)| *p).collect::<Vec<_>>())).collect()
            };
            check.require(parts(&alone) == parts(&all), || {
                format!("{column:?} has other parts when requested separately")
            })?;
        }
        Ok(())
    })
}

fn check_chunk(
    check: &Check<'_>,
    store: &dyn Store,
    source: &dyn ArraySource,
    chunk: &PlannedChunk,
) -> Result<(), Violation> {
    for part in &chunk.parts {
        let object = source.object(part.object);
        let len = check.must("length of the object", store.len(&object))?;
        let end = part.offset.checked_add(part.len);
        check.require(end.is_some_and(|end| end <= len), || {
            format!("{part:?} exceeds {object:?} of {len} bytes")
        })?;
    }
    let schema = source.schema();
    match &chunk.cover {
        Cover::Exact(cover) => {
            let array_region = Region::from_shape(&schema.shape().unwrap_or_default());
            let tile = chunk.tile_region().unwrap_or(cover);
            check.require(!schema.sparse, || "region cover in a sparse array".to_owned())?;
            check.require(!cover.is_empty() && array_region.contains(cover), || {
                format!("covers {cover:?} of {array_region:?}")
            })?;
            check.require(tile.contains(cover), || format!("covers {cover:?} and stores {tile:?}"))?;
            check.require(chunk.tile.as_deref() != Some(cover), || "tile equal to the cover".to_owned())?;
            check.same("cells", &Some(chunk.cells), &tile.cells())
        }
        Cover::Bounds(bounds) => {
            check.require(schema.sparse && chunk.cells > 0, || {
                "listed cells in a dense array, or an empty chunk".to_owned()
            })?;
            check.same("bounded dimensions", &bounds.len(), &schema.dims.len())
        }
    }
}

/// A partial plan gives the same cells as the complete plan, and contains no unnecessary chunks.
///
/// # Errors
/// The first violation.
pub fn plans_agree(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("plans_agree", fixture.seed);
    let container = open(&check, format, fixture)?;
    let mut random = fixture.random(2);
    for_each_array(&check, container.as_ref(), |check, number, source| {
        if source.schema().sparse {
            let sparse = check.must("read", Sparse::load(container.as_ref(), number))?;
            for ranges in sparse_ranges(&mut random, &sparse, fixture.effort.selections) {
                let location = format!("{}, {ranges:?}", check.location);
                sparse_plan(&check.at(&location), container.as_ref(), source, &sparse, ranges.clone())?;
            }
            return Ok(());
        }
        let shape = source.schema().shape().unwrap_or_default();
        let selections =
            check.must("selection", selections(&mut random, &shape, fixture.effort.selections))?;
        for field in 0..source.schema().fields.len() as u16 {
            let dense = check.must("read", Dense::load(container.as_ref(), number, field))?;
            for selection in &selections {
                let location = format!("{}, field {field}, {:?}", check.location, selection.slices());
                dense_plan(&check.at(&location), container.as_ref(), source, &dense, field, selection)?;
            }
        }
        Ok(())
    })
}

fn dense_plan(
    check: &Check<'_>,
    container: &dyn ContainerSource,
    source: &dyn ArraySource,
    dense: &Dense,
    field: u16,
    selection: &Selection,
) -> Result<(), Violation> {
    let plan =
        check.must("plan", plan(source, container.store(), &Request::cells(selection.clone(), field)))?;
    for chunk in &plan.chunks {
        let needed = chunk.cover.region().is_some_and(|cover| selection.clip(cover).is_some());
        check.require(needed, || format!("chunk {} holds no selected cell", chunk.id))?;
    }
    let painted = check.must("read", paint(container, source, &plan, field, selection))?;
    check.require(!painted.tied, || "two chunks of the same layer cover the same cell".to_owned())?;
    if plan.uncovered == Uncovered::Impossible {
        let once = painted.covers.iter().all(|n| *n == 1);
        check.require(once, || "declared to cover each cell once, but does not".to_owned())?;
    }
    let indices = check.must("indices", dense.indices(selection))?;
    let whole = dense.painted();
    for (i, index) in indices.iter().enumerate() {
        let covered = (painted.covers[i] > 0, whole.covers[*index as usize] > 0);
        check.require(covered.0 == covered.1, || {
            format!("coverage of cell {i} differs (partial, complete): {covered:?}")
        })?;
    }
    let expected = check.must("select", dense.select(selection))?;
    check.same("cells", &painted.cells(), &expected)
}

fn sparse_plan(
    check: &Check<'_>,
    container: &dyn ContainerSource,
    source: &dyn ArraySource,
    sparse: &Sparse,
    ranges: Vec<tesseral_format::CoordinateRanges>,
) -> Result<(), Violation> {
    let schema = source.schema();
    let request =
        Request { target: Target::Coordinates(ranges.clone()), columns: columns(schema), condition: None };
    let plan = check.must("plan", plan(source, container.store(), &request))?;
    for chunk in &plan.chunks {
        let Cover::Bounds(bounds) = &chunk.cover else { return check.fail("region cover in a sparse array") };
        let outside = bounds.iter().zip(&ranges).any(|((low, high), ranges)| {
            !ranges.is_empty()
                && ranges.iter().all(|(from, to)| {
                    to.compare(low).is_some_and(|o| o.is_lt())
                        || from.compare(high).is_some_and(|o| o.is_gt())
                })
        });
        check.require(!outside, || format!("chunk {} cannot hold a selected cell", chunk.id))?;
    }
    let rows = check.must("read", rows_of_plan(container, source, &plan, &ranges))?;
    let fields: Vec<u16> = (0..schema.fields.len() as u16).collect();
    let expected = check.must("select", sparse.select(&fields, &ranges))?;
    check.require(rows == expected, || {
        let differs = rows.iter().zip(&expected).find(|(a, b)| a != b);
        format!("{} rows, expected {}; first difference {differs:?}", rows.len(), expected.len())
    })
}

/// Chunks declared as whole have only current cells, and listed cells lie in the bounds of their chunk.
///
/// # Errors
/// The first violation.
pub fn whole_chunks_are_whole(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("whole_chunks_are_whole", fixture.seed);
    let container = open(&check, format, fixture)?;
    let mut random = fixture.random(3);
    for_each_array(&check, container.as_ref(), |check, number, source| {
        let schema = source.schema();
        let request = check.must("request", full_request(schema, columns(schema)))?;
        let plan = check.must("plan", plan(source, container.store(), &request))?;
        let whole = plan.chunks.iter().any(|chunk| chunk.whole);
        check.require(!whole || plan.deletes.is_empty(), || "whole chunks with deletes".to_owned())?;
        if schema.sparse {
            let sparse = check.must("read", Sparse::load(container.as_ref(), number))?;
            let shown: HashSet<_> = sparse.rows().iter().map(|row| (&row.coords, &row.fields)).collect();
            for i in random_indices(&mut random, plan.chunks.len(), fixture.effort.chunks) {
                let chunk = &plan.chunks[i];
                let location = format!("{}, chunk {}", check.location, chunk.id);
                let check = check.at(&location);
                let rows = check.must("read", rows_of_chunk(container.as_ref(), source, chunk))?;
                for row in &rows {
                    check.require(inside(source, chunk, &row.0), || format!("{row:?} is out of bounds"))?;
                    let visible = !chunk.whole || shown.contains(&(&row.0, &row.1));
                    check.require(visible, || format!("declared whole, but {row:?} is not in the result"))?;
                }
            }
            return Ok(());
        }
        let dense = check.must("read", Dense::load(container.as_ref(), number, 0))?;
        let shape = schema.shape().unwrap_or_default();
        let array = Region::from_shape(&shape);
        for chunk in plan.chunks.iter().filter(|chunk| chunk.whole) {
            let location = format!("{}, chunk {}", check.location, chunk.id);
            let check = check.at(&location);
            check.require(chunk.tile.is_none(), || "declared whole, but is clipped".to_owned())?;
            let Some(cover) = chunk.cover.region() else { continue };
            let mut shadowed = false;
            for_each_cell(cover, |at| {
                let index = at.iter().zip(array.shape()).fold(0, |linear, (p, n)| linear * n + p);
                shadowed |= dense.painted().layers[index as usize] != Some(chunk.layer);
            });
            check.require(!shadowed, || "declared whole, but is overlaid by another".to_owned())?;
        }
        Ok(())
    })
}

type Listed = (Vec<Vec<u8>>, Vec<Option<Vec<u8>>>);

fn rows_of_chunk(
    container: &dyn ContainerSource,
    source: &dyn ArraySource,
    chunk: &PlannedChunk,
) -> Result<Vec<Listed>> {
    let column = |column: Column| -> Result<Decoded> {
        let parts = fetch(container.store().as_ref(), source, chunk, column)?;
        decode_parts(source, chunk, column, &parts, 0..chunk.cells, Prefill::default())
    };
    let schema = source.schema();
    let dims = (0..schema.dims.len() as u16).map(|d| column(Column::Dim(d))).collect::<Result<Vec<_>>>()?;
    let fields =
        (0..schema.fields.len() as u16).map(|f| column(Column::Field(f))).collect::<Result<Vec<_>>>()?;
    let row = |i| {
        let coords = dims.iter().map(|dim| dim.raw(i).to_vec()).collect();
        (coords, fields.iter().map(|field| field.get(i).map(<[u8]>::to_vec)).collect())
    };
    Ok((0..chunk.cells).map(row).collect())
}

fn inside(source: &dyn ArraySource, chunk: &PlannedChunk, coords: &[Vec<u8>]) -> bool {
    let Cover::Bounds(bounds) = &chunk.cover else { return false };
    let ranges: Vec<_> = bounds.iter().map(|bound| vec![bound.clone()]).collect();
    in_ranges(source.schema(), coords, &ranges).unwrap_or(false)
}
