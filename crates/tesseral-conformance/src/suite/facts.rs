//! Checks of chunk statistics, digests, declarations and descriptions.

use tesseral_core::{ChunkStats, Field, Scalar, Stat, Sum};
use tesseral_store::StoreExt;
use xxhash_rust::xxh3::xxh3_64;

use super::{Check, Fixture, Violation, for_each_array, for_each_column, open, random_indices};
use crate::oracle::{ColumnLayout, Prefill, Summary, decode_parts, fetch, for_each_cell, position_in};
use tesseral_format::{ArraySource, Column, DigestSpan, Format, PlannedChunk};

/// Exact statistics equal those of the cells, bounds enclose them. Where more cells are stored than covered, even exact ones need
/// only enclose those of the covered cells.
///
/// # Errors
/// The first violation.
pub fn statistics_hold(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("statistics_hold", fixture.seed);
    let container = open(&check, format, fixture)?;
    let mut random = fixture.random(6);
    for_each_column(&check, container.as_ref(), |check, source, column, plan| {
        for i in random_indices(&mut random, plan.chunks.len(), fixture.effort.chunks) {
            let chunk = &plan.chunks[i];
            let location = format!("{}, chunk {}", check.location, chunk.id);
            let check = check.at(&location);
            let stats = source.stats(chunk, column);
            check.same("cells", &stats.cells, &chunk.cells)?;
            let field = match column {
                Column::Field(f) => source.schema().fields[usize::from(f)].clone(),
                Column::Dim(d) => Field::new("", source.schema().dims[usize::from(d)].dtype),
                _ => continue,
            };
            if check.must("layout", ColumnLayout::new(source.schema(), column))?.bits {
                continue;
            }
            let parts = check.must("fetch", fetch(container.store().as_ref(), source, chunk, column))?;
            let decoded = decode_parts(source, chunk, column, &parts, 0..chunk.cells, Prefill::default());
            let decoded = check.must("decode", decoded)?;
            let indices = counted(&check, source, chunk)?;
            let summary = Summary::without(&field, &stats.missing, indices.iter().map(|&i| decoded.get(i)));
            let stats = if chunk.tile.is_some() { stats.weaken() } else { stats };
            holds(&check, &stats, &summary)?;
        }
        Ok(())
    })
}

/// The indices of the covered cells among the stored ones.
fn counted(check: &Check<'_>, source: &dyn ArraySource, chunk: &PlannedChunk) -> Result<Vec<u64>, Violation> {
    let (Some(cover), Some(tile)) = (chunk.cover.region(), chunk.tile.as_deref()) else {
        return Ok((0..chunk.cells).collect());
    };
    let mut indices = Vec::new();
    for_each_cell(cover, |at| indices.push(position_in(tile, source.schema().cell_order, at)));
    indices.into_iter().map(|index| check.must("index", index)).collect()
}

fn holds(check: &Check<'_>, stats: &ChunkStats, cells: &Summary) -> Result<(), Violation> {
    for (what, stat, count) in [("nulls", &stats.nulls, cells.nulls), ("nans", &stats.nans, cells.nans)] {
        match stat {
            Stat::Exact(n) => check.same(what, n, &count)?,
            Stat::Bound(n) => check.require(*n >= count, || format!("{what}: bound {n} is below {count}"))?,
            Stat::Absent => {}
        }
    }
    extreme(check, "min", &stats.min, cells.min.as_ref(), std::cmp::Ordering::is_le)?;
    extreme(check, "max", &stats.max, cells.max.as_ref(), std::cmp::Ordering::is_ge)?;
    match (&stats.sum, cells.sum) {
        (Stat::Absent, _) => Ok(()),
        (Stat::Bound(_), _) => check.fail("a sum must not be a bound"),
        (Stat::Exact(_), None) => check.fail("a sum for a dtype without a sum"),
        (Stat::Exact(_), Some(_)) if cells.count == 0 => check.fail("a sum without values"),
        (Stat::Exact(got), Some(expected)) => check
            .require(same_sum(*got, expected, cells.magnitude), || {
                format!("sum: got {got:?}, expected {expected:?}")
            }),
    }
}

/// Integers exactly; floats within the rounding error of any order.
pub(super) fn same_sum(got: Sum, expected: Sum, magnitude: f64) -> bool {
    match (got, expected) {
        (Sum::Int(got), Sum::Int(expected)) => got == expected,
        (Sum::Float(got), Sum::Float(expected)) => same_float(got, expected, magnitude),
        _ => false,
    }
}

/// Equal within a billionth of `scale`; NaN equals NaN, infinities equal themselves.
pub(super) fn same_float(got: f64, expected: f64, scale: f64) -> bool {
    (got.is_nan() && expected.is_nan()) || got == expected || (got - expected).abs() <= 1e-9 * scale
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
        return check.require(!exact, || format!("{what} {claimed:?} without values"));
    };
    let order = claimed.compare(found);
    let holds = order.is_some_and(|order| if exact { order.is_eq() } else { bounds(order) });
    check.require(holds && claimed.dtype() == found.dtype(), || {
        format!("{what}: {stat:?}, the cells have {found:?}")
    })
}

/// Digests cover at least the chunk's bytes and match the stored bytes.
///
/// # Errors
/// The first violation.
pub fn digests_match(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("digests_match", fixture.seed);
    let container = open(&check, format, fixture)?;
    for_each_column(&check, container.as_ref(), |check, source, _, plan| {
        for chunk in &plan.chunks {
            let spans = source.digests(chunk);
            let location = format!("{}, chunk {}", check.location, chunk.id);
            let check = check.at(&location);
            for part in &chunk.parts {
                let range = part.offset..part.offset + part.len;
                let apart = |span: &DigestSpan<'_>| {
                    span.object != part.object
                        || span.range.end <= range.start
                        || range.end <= span.range.start
                };
                let inside = spans.iter().all(|span| apart(span) || span.covers(part.object, &range));
                check.require(inside, || format!("{spans:?} do not contain {part:?}"))?;
            }
            for span in &spans {
                let object = source.object(span.object);
                for block in span.blocks(&span.range) {
                    let bytes = check.must("read", container.store().read(&object, block.range.clone()))?;
                    check.same("digest", &block.compute(&bytes), &block.expected)?;
                }
                if let Some((_, expected, digests)) = span.root() {
                    check.same("digest of digests", &xxh3_64(digests), &expected)?;
                }
            }
            for implied in source.implied_bytes(chunk) {
                let range = implied.offset..implied.offset + implied.bytes.len() as u64;
                let bytes =
                    check.must("read", container.store().read(&source.object(implied.object), range))?;
                check.same("implied bytes", &&bytes[..], &&implied.bytes[..])?;
            }
        }
        Ok(())
    })
}

/// Fields have the missing values and units of time that the attributes declare.
///
/// # Errors
/// The first violation.
pub fn declarations_are_applied(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("declarations_are_applied", fixture.seed);
    let container = open(&check, format, fixture)?;
    for_each_array(&check, container.as_ref(), |check, _, source| {
        let mut declared = source.schema().clone();
        tesseral_core::missing::declare(&mut declared);
        for (found, declared) in source.schema().fields.iter().zip(&declared.fields) {
            let location = format!("{}, field {:?}", check.location, found.name);
            let check = check.at(&location);
            check.same("units of time", &found.time, &declared.time)?;
            let applied = declared.missing.iter().all(|value| found.missing.contains(value));
            check.require(applied, || format!("{:?} lack some of {:?}", found.missing, declared.missing))?;
        }
        Ok(())
    })
}

/// The description of a chunk agrees with its parts.
///
/// # Errors
/// The first violation.
pub fn descriptions_agree(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("descriptions_agree", fixture.seed);
    let container = open(&check, format, fixture)?;
    for_each_column(&check, container.as_ref(), |check, source, column, plan| {
        let layout = check.must("layout", ColumnLayout::new(source.schema(), column))?;
        for chunk in plan.chunks.iter().filter(|chunk| !chunk.parts.is_empty()) {
            let location = format!("{}, chunk {}", check.location, chunk.id);
            let check = check.at(&location);
            let info = source.describe(chunk);
            check.same("stored bytes", &info.stored_len, &chunk.stored_bytes())?;
            check.same("offset", &info.offset, &chunk.parts[0].offset)?;
            check.require(!info.codec.is_empty(), || "empty codec name".to_owned())?;
            if layout.size.is_some() && !layout.nullable {
                check.same("decoded bytes", &Some(info.raw_len), &layout.bytes(chunk.cells))?;
            }
            if let (false, Ok(grid)) = (source.schema().sparse, source.schema().grid()) {
                check.require(grid.contains(&info.coords), || {
                    format!("{:?} is outside the grid", info.coords)
                })?;
                let tile = grid.region(&info.coords);
                let meets = chunk.cover.region().is_some_and(|cover| tile.contains(cover));
                check.require(meets, || format!("{:?} does not match the covered region", info.coords))?;
            }
        }
        Ok(())
    })
}
