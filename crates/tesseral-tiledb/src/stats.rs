//! Statistics of tiles, with the exactness that stored values allow.
//!
//! Stored minima, maxima and sums exclude null cells, independent of the values that the array declares as missing. One condition
//! must hold before they are used:
//!
//! - A NaN cell replaces the running minimum and maximum, and the next cell replaces the NaN. Only a sum that is not NaN and
//!   did not saturate proves that there was none.

use std::cmp::Ordering;
use std::collections::HashSet;

use tesseral_codec::filter::Filter;
use tesseral_core::dtype::Class;
use tesseral_core::{ChunkStats, DType, Result, Scalar, Stat, Sum};
use tesseral_format::{Column, Cover, PlannedChunk};

use crate::array::TileDbArray;
use crate::fragment::Fragment;
use crate::metadata_loader::MetadataLoader;
use crate::wire::datatype::Datatype;
use crate::wire::footer::FooterList;
use crate::wire::pipeline::FilterPipeline;

/// Returns the statistics of a column of a tile. Unreadable ones are ignored.
pub(crate) fn stats(array: &TileDbArray, chunk: &PlannedChunk, column: Column) -> ChunkStats {
    let unknown = ChunkStats::unknown(chunk.cells);
    let Ok((fragment, tile)) = array.locate(chunk.id) else { return unknown };
    if fragment.scattered.is_some() || array.padded_tile(fragment, tile).is_some() {
        return unknown;
    }
    let field = match column {
        Column::Field(field) => field,
        Column::Dim(d) => return coordinates(array, fragment, chunk, usize::from(d), tile),
        Column::Timestamp | Column::DeletedBy => return unknown,
    };
    let Ok(Some(slot)) = array.slot(fragment, field) else { return unknown };
    let stored = read(array, fragment, slot, tile, chunk.cells).unwrap_or(unknown);
    // Stored counts exclude the padding of tiles that extend past the fragment.
    if chunk.tile.is_some() { stored.weaken() } else { stored }
}

/// Reads the lists of the fragments of these chunks, as far as they are not loaded. Lists that cannot be read, or wait for a round,
/// are left out.
pub(crate) fn load(
    array: &TileDbArray,
    reader: &MetadataLoader,
    chunks: &[PlannedChunk],
    columns: &[Column],
) {
    let mut loaded = HashSet::new();
    for chunk in chunks {
        let Ok((fragment, _)) = array.locate(chunk.id) else { continue };
        if fragment.footer.version < 11 || !loaded.insert(std::ptr::from_ref(fragment)) {
            continue;
        }
        for column in columns {
            let numbers = |list, slot| drop(fragment.list(reader, list, slot));
            match *column {
                Column::Field(field) => {
                    let Ok(Some(slot)) = array.slot(fragment, field) else { continue };
                    let attribute = &fragment.schema.wire.attributes[slot];
                    if attribute.nullable {
                        numbers(FooterList::NullCounts, slot);
                    }
                    if attribute.datatype.dtype().class() != Class::Text {
                        numbers(FooterList::Sums, slot);
                    }
                    for list in [FooterList::Mins, FooterList::Maxs] {
                        drop(fragment.extrema(reader, list, slot));
                    }
                }
                Column::Dim(dim) => numbers(FooterList::Sums, fragment.dim_slot(usize::from(dim))),
                Column::Timestamp | Column::DeletedBy => {}
            }
        }
    }
}

/// Statistics of a coordinate column of a sparse tile: its box, and the stored sum.
fn coordinates(
    array: &TileDbArray,
    fragment: &Fragment,
    chunk: &PlannedChunk,
    dim: usize,
    tile: u64,
) -> ChunkStats {
    let unknown = ChunkStats::unknown(chunk.cells);
    let Cover::Bounds(bounds) = &chunk.cover else { return unknown };
    let wire = &fragment.schema.wire;
    let own = wire.dims.get(dim).map(|d| &d.pipeline).filter(|own| !own.filters.is_empty());
    if rounds(own.unwrap_or(&wire.coords)) {
        return unknown;
    }
    let Some((low, high)) = bounds.get(dim).filter(|(low, high)| low.compare(high).is_some()) else {
        return unknown;
    };
    let sum = match fragment.footer.version >= 11 {
        true => fragment.list(&array.reader, FooterList::Sums, fragment.dim_slot(dim)).ok(),
        false => None,
    };
    let sum = sum.and_then(|sums| sums.get(usize::try_from(tile).ok()?).copied());
    ChunkStats {
        cells: chunk.cells,
        nulls: Stat::Exact(0),
        nans: Stat::Exact(0),
        min: Stat::Exact(low.clone()),
        max: Stat::Exact(high.clone()),
        sum: sum.and_then(|bits| total((low, high), chunk.cells, bits)).map_or(Stat::Absent, Stat::Exact),
        partial_sum: None,
        missing: Vec::new(),
    }
}

/// Returns whether a filter rounds cells. Statistics are computed before filtering, so they are neither exact nor bounds.
fn rounds(pipeline: &FilterPipeline) -> bool {
    pipeline
        .filters
        .iter()
        .any(|f| matches!(f, Filter::FloatScale { .. } | Filter::WebP { lossless: false, .. }))
}

/// Bounds of strings. They were compared as NUL-terminated strings, which equals bytewise order if the stored bounds contain no
/// zero byte.
fn texts(
    array: &TileDbArray,
    fragment: &Fragment,
    slot: usize,
    at: usize,
    cells: u64,
    nulls: u64,
) -> Result<ChunkStats> {
    let attribute = &fragment.schema.wire.attributes[slot];
    let unknown = ChunkStats::unknown(cells);
    let compared = matches!(attribute.datatype, Datatype::CHAR | Datatype::ASCII);
    if !compared || !array.schema.sparse {
        return Ok(unknown);
    }
    let end = |list: FooterList| -> Result<Option<Scalar>> {
        let values = fragment.extrema(&array.reader, list, slot)?;
        let bytes =
            if attribute.var() { values.var(at) } else { values.fixed(at, attribute.values as usize) };
        let bytes = bytes.filter(|bytes| !bytes.contains(&0));
        bytes.map(|bytes| Scalar::from_le_bytes(attribute.datatype.dtype(), bytes)).transpose()
    };
    let (Some(min), Some(max)) = (end(FooterList::Mins)?, end(FooterList::Maxs)?) else { return Ok(unknown) };
    if nulls == cells || !min.compare(&max).is_some_and(Ordering::is_le) {
        return Ok(unknown);
    }
    let nulls = if nulls == 0 { Stat::Exact(0) } else { Stat::Bound(nulls) };
    let (min, max) = (Stat::Bound(min), Stat::Bound(max));
    Ok(ChunkStats { nulls, nans: Stat::Exact(0), min, max, ..unknown })
}

fn read(array: &TileDbArray, fragment: &Fragment, slot: usize, tile: u64, cells: u64) -> Result<ChunkStats> {
    let unknown = ChunkStats::unknown(cells);
    let attribute = &fragment.schema.wire.attributes[slot];
    let dtype = attribute.datatype.dtype();
    let text = dtype.class() == Class::Text;
    if fragment.footer.version < 11 || (attribute.values != 1 && !text) || rounds(&attribute.pipeline) {
        return Ok(unknown);
    }
    let reader = &array.reader;
    let at = usize::try_from(tile).unwrap_or(usize::MAX);
    let nulls = match attribute.nullable {
        false => 0,
        true => match fragment.list(reader, FooterList::NullCounts, slot)?.get(at) {
            Some(nulls) if *nulls <= cells => *nulls,
            _ => return Ok(unknown),
        },
    };
    if text {
        return texts(array, fragment, slot, at, cells, nulls);
    }
    if nulls == cells {
        return Ok(ChunkStats { nulls: Stat::Exact(nulls), nans: Stat::Exact(0), ..unknown });
    }
    let size = attribute.datatype.size();
    let min = fragment.extrema(reader, FooterList::Mins, slot)?.fixed(at, size);
    let max = fragment.extrema(reader, FooterList::Maxs, slot)?.fixed(at, size);
    let sum = fragment.list(reader, FooterList::Sums, slot)?.get(at).copied();
    let (Some(min), Some(max), Some(sum)) = (min, max, sum) else { return Ok(unknown) };
    let (min, max) = (Scalar::from_le_bytes(dtype, min)?, Scalar::from_le_bytes(dtype, max)?);
    let float = dtype.class() == Class::Float;
    // A saturated sum hides a later NaN, and infinite cells are reported as finite.
    if float && (f64::from_bits(sum).is_nan() || f64::from_bits(sum).abs() >= f64::MAX) {
        return Ok(unknown);
    }
    if !min.compare(&max).is_some_and(Ordering::is_le) {
        return Ok(unknown);
    }
    Ok(ChunkStats {
        cells,
        nulls: Stat::Exact(nulls),
        nans: Stat::Exact(0),
        sum: total((&min, &max), cells.saturating_sub(nulls), sum).map_or(Stat::Absent, Stat::Exact),
        min: Stat::Exact(min),
        max: Stat::Exact(max),
        partial_sum: None,
        missing: Vec::new(),
    })
}

/// Returns the stored sum of `count` cells in a range; `None` if it may have saturated.
fn total((min, max): (&Scalar, &Scalar), cells: u64, bits: u64) -> Option<Sum> {
    match min.dtype().class() {
        Class::Float => {
            let most = min.as_f64()?.abs().max(max.as_f64()?.abs()) * cells as f64;
            (most < f64::MAX).then(|| Sum::Float(f64::from_bits(bits)))
        }
        Class::UInt | Class::Bool => (bits != u64::MAX).then(|| Sum::Int(bits.into())),
        // Moments cannot be added.
        Class::Time if matches!(min.dtype(), DType::DateTime(_)) => None,
        Class::Int | Class::Time => {
            let largest = min.as_i128()?.unsigned_abs().max(max.as_i128()?.unsigned_abs());
            let most = largest.saturating_mul(cells.into());
            (most <= i64::MAX.unsigned_abs().into()).then(|| Sum::Int(bits.cast_signed().into()))
        }
        _ => None,
    }
}
