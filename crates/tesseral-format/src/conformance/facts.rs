//! What is claimed of chunks: statistics, digests, descriptions.

use tesseral_core::{ChunkStats, Field, Scalar, Stat, Sum};
use tesseral_store::StoreExt;
use xxhash_rust::xxh3::xxh3_64;

use super::{Check, Fixture, Violation, for_each_column, open, some_of};
use crate::oracle::{ColumnLayout, Prefill, Summary, decode_parts, fetch, for_each_cell, position_in};
use crate::{ArraySource, Column, Digest, Format, PlannedChunk};

/// Exact statistics equal those of the cells, bounds bound them. Where more cells are stored than count, even exact ones are
/// held only to bound those that count.
///
/// # Errors
/// The first violation.
pub fn statistics_hold(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("statistics_hold", fixture.seed);
    let container = open(&check, format, fixture)?;
    let mut random = fixture.random(6);
    for_each_column(&check, container.as_ref(), |check, source, column, plan| {
        for i in some_of(&mut random, plan.chunks.len(), fixture.effort.chunks) {
            let chunk = &plan.chunks[i];
            let place = format!("{}, chunk {}", check.place, chunk.id);
            let check = check.at(&place);
            let stats = source.stats(chunk, column);
            check.same("cells", &stats.cells, &chunk.cells)?;
            let field = match column {
                Column::Field(f) => source.schema().fields[usize::from(f)].clone(),
                Column::Dim(d) => Field::new("", source.schema().dims[usize::from(d)].dtype),
                _ => continue,
            };
            if check.must("layout", ColumnLayout::of(source.schema(), column))?.bits {
                continue;
            }
            let parts = check.must("fetch", fetch(container.store().as_ref(), source, chunk, column))?;
            let decoded = decode_parts(source, chunk, column, &parts, 0..chunk.cells, Prefill::default());
            let decoded = check.must("decode", decoded)?;
            let places = counted(&check, source, chunk)?;
            let summary = Summary::of(&field, places.iter().map(|&i| decoded.get(i)));
            let stats = if chunk.tile.is_some() { stats.weaken() } else { stats };
            holds(&check, &stats, &summary)?;
        }
        Ok(())
    })
}

/// The places among the stored cells of those that count.
fn counted(check: &Check<'_>, source: &dyn ArraySource, chunk: &PlannedChunk) -> Result<Vec<u64>, Violation> {
    let (Some(cover), Some(tile)) = (chunk.cover.region(), chunk.tile.as_ref()) else {
        return Ok((0..chunk.cells).collect());
    };
    let mut places = Vec::new();
    for_each_cell(cover, |at| places.push(position_in(tile, source.schema().cell_order, at)));
    places.into_iter().map(|place| check.must("place", place)).collect()
}

fn holds(check: &Check<'_>, stats: &ChunkStats, cells: &Summary) -> Result<(), Violation> {
    for (what, stat, count) in [("nulls", &stats.nulls, cells.nulls), ("nans", &stats.nans, cells.nans)] {
        match stat {
            Stat::Exact(n) => check.same(what, n, &count)?,
            Stat::Bound(n) => check.require(*n >= count, || format!("{what}: {n} bounds {count}"))?,
            Stat::Absent => {}
        }
    }
    extreme(check, "min", &stats.min, cells.min.as_ref(), std::cmp::Ordering::is_le)?;
    extreme(check, "max", &stats.max, cells.max.as_ref(), std::cmp::Ordering::is_ge)?;
    match (&stats.sum, cells.sum) {
        (Stat::Absent, _) => Ok(()),
        (Stat::Bound(_), _) => check.fail("a sum cannot be a bound"),
        (Stat::Exact(_), None) => check.fail("a sum of what does not add up"),
        (Stat::Exact(_), Some(_)) if cells.count == 0 => check.fail("a sum of no values"),
        (Stat::Exact(got), Some(want)) => check
            .require(same_sum(*got, want, cells.magnitude), || format!("sum: got {got:?}, want {want:?}")),
    }
}

/// Integers exactly; floats up to what rounding in any order may do.
pub(super) fn same_sum(got: Sum, want: Sum, magnitude: f64) -> bool {
    match (got, want) {
        (Sum::Int(got), Sum::Int(want)) => got == want,
        (Sum::Float(got), Sum::Float(want)) => same_float(got, want, magnitude),
        _ => false,
    }
}

/// The same up to a billionth of `scale`; NaN is NaN, an infinity itself.
pub(super) fn same_float(got: f64, want: f64, scale: f64) -> bool {
    (got.is_nan() && want.is_nan()) || got == want || (got - want).abs() <= 1e-9 * scale
}

fn extreme(
    check: &Check<'_>,
    what: &str,
    stat: &Stat<Scalar>,
    found: Option<&Scalar>,
    bounds: impl Fn(std::cmp::Ordering) -> bool,
) -> Result<(), Violation> {
    let (claimed, exact) = match stat {
        Stat::Exact(value) => (value, true),
        Stat::Bound(value) => (value, false),
        Stat::Absent => return Ok(()),
    };
    let Some(found) = found else {
        return check.require(!exact, || format!("{what} {claimed:?} of no values"));
    };
    let order = claimed.compare(found);
    let holds = order.is_some_and(|order| if exact { order.is_eq() } else { bounds(order) });
    check.require(holds && claimed.dtype() == found.dtype(), || {
        format!("{what}: {stat:?}, the cells have {found:?}")
    })
}

/// Digests are over at least the chunk's bytes and match what is stored.
///
/// # Errors
/// The first violation.
pub fn digests_match(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("digests_match", fixture.seed);
    let container = open(&check, format, fixture)?;
    for_each_column(&check, container.as_ref(), |check, source, _, plan| {
        for chunk in &plan.chunks {
            let Some(span) = source.digest(chunk) else { continue };
            let place = format!("{}, chunk {}", check.place, chunk.id);
            let check = check.at(&place);
            for part in chunk.parts.iter().filter(|part| part.object == span.object) {
                let inside = span.range.start <= part.offset && part.offset + part.len <= span.range.end;
                check.require(inside, || format!("{:?} does not hold {part:?}", span.range))?;
            }
            let object = source.object(span.object);
            let bytes = check.must("read", container.store().read(object, span.range.clone()))?;
            let Digest::Xxh3(want) = span.digest;
            check.same("digest", &xxh3_64(&bytes), &want)?;
        }
        Ok(())
    })
}

/// What a chunk is described as agrees with its parts.
///
/// # Errors
/// The first violation.
pub fn descriptions_agree(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("descriptions_agree", fixture.seed);
    let container = open(&check, format, fixture)?;
    for_each_column(&check, container.as_ref(), |check, source, column, plan| {
        let layout = check.must("layout", ColumnLayout::of(source.schema(), column))?;
        for chunk in plan.chunks.iter().filter(|chunk| !chunk.parts.is_empty()) {
            let place = format!("{}, chunk {}", check.place, chunk.id);
            let check = check.at(&place);
            let info = source.describe(chunk);
            check.same("stored bytes", &info.stored_len, &chunk.stored_bytes())?;
            check.same("offset", &info.offset, &chunk.parts[0].offset)?;
            check.require(!info.codec.is_empty(), || "a codec without a name".to_owned())?;
            if layout.size.is_some() && !layout.nullable {
                check.same("decoded bytes", &Some(info.raw_len), &layout.bytes(chunk.cells))?;
            }
            if let (false, Ok(grid)) = (source.schema().sparse, source.schema().grid()) {
                check
                    .require(grid.contains(&info.coords), || format!("{:?} is off the grid", info.coords))?;
                let tile = grid.region(&info.coords);
                let meets = chunk.cover.region().is_some_and(|cover| tile.contains(cover));
                check.require(meets, || format!("{:?} is not where it covers", info.coords))?;
            }
        }
        Ok(())
    })
}
