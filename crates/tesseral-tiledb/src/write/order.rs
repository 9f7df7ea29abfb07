//! The global order of cells of a sparse array.
//!
//! Row- and column-major: by tile, in tile order, for dimensions with an extent, then by cell, in cell order. Hilbert: by index
//! on the curve, then by coordinates. Text compares bytewise.

use std::borrow::Cow;

use tesseral_codec::filter::ElementKind;
use tesseral_core::{Element, Error, Result, dispatch_element};
use tesseral_format::{CellKey, ColumnData};

use super::tile::cell_of;
use crate::wire::datatype::{Datatype, float, signed};
use crate::wire::primitive::le64;
use crate::wire::schema::{CellLayout, Schema, StoredDimension};

/// Maps a coordinate to an unsigned number with the same order. Zeros of both signs are equal.
fn key(datatype: Datatype, bytes: &[u8]) -> u64 {
    match datatype.word().kind {
        ElementKind::Signed | ElementKind::Time => signed(bytes).cast_unsigned() ^ 1 << 63,
        ElementKind::Float => float_key(float(datatype, bytes)),
        _ => le64(bytes),
    }
}

/// NaN is less or greater than all numbers, and so is outside every domain.
fn float_key(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Index of the tile of a float, relative to the domain's start, in the arithmetic of its type.
fn float_tile(datatype: Datatype, bytes: &[u8], low: &[u8], extent: &[u8]) -> u64 {
    let (x, low, extent) = (float(datatype, bytes), float(datatype, low), float(datatype, extent));
    if datatype.size() == 4 {
        ((x as f32 - low as f32) / extent as f32).floor() as u64
    } else {
        ((x - low) / extent).floor() as u64
    }
}

fn refuse(dim: &StoredDimension, cell: usize, what: &str) -> Error {
    Error::invalid(format!("the coordinate of cell {cell} along {:?} {what}", dim.name))
}

/// Returns the sort keys of cells, and the number of cells. `columns` are those of the dimensions; rejects coordinates outside
/// the current domain.
pub(crate) fn keys<'a>(schema: &Schema, columns: &[ColumnData<'a>]) -> Result<(Vec<CellKey<'a>>, usize)> {
    let mut axes = Vec::new();
    let mut tiles = Vec::new();
    let mut len = None;
    for (d, dim) in schema.dims.iter().enumerate() {
        let used = schema.current_domain.as_ref().map(|ranges| &ranges[d]).or(dim.domain.as_ref());
        let (axis, of_tiles, cells) = match columns.get(d) {
            Some(ColumnData::Var { offsets, data, .. }) if dim.var => {
                check_text(dim, offsets, data, used)?;
                let key = CellKey::Text { ends: Cow::Borrowed(*offsets), data: Cow::Borrowed(*data) };
                (key, None, offsets.len())
            }
            Some(ColumnData::Fixed { values, .. }) if !dim.var => {
                let tiled = schema.cell_order != CellLayout::Hilbert;
                let (keys, of_tiles) = numbers(dim, values, used, tiled)?;
                let cells = keys.len();
                (CellKey::Numbers(keys), of_tiles, cells)
            }
            _ => {
                return Err(Error::invalid(format!("missing coordinate column of dimension {:?}", dim.name)));
            }
        };
        if *len.get_or_insert(cells) != cells {
            return Err(Error::invalid("coordinate columns differ in length"));
        }
        axes.push(Some(axis));
        tiles.push(of_tiles);
    }
    let (rank, len) = (axes.len(), len.unwrap_or(0));
    let turned = |layout: CellLayout| -> Vec<usize> {
        if layout == CellLayout::ColMajor { (0..rank).rev().collect() } else { (0..rank).collect() }
    };
    let mut keys = Vec::new();
    if schema.cell_order == CellLayout::Hilbert {
        keys.push(CellKey::Numbers(curve(schema, columns, len)));
    } else {
        let tiles = turned(schema.tile_order).into_iter().filter_map(|d| tiles[d].take());
        keys.extend(tiles.map(CellKey::Numbers));
    }
    keys.extend(turned(schema.cell_order).into_iter().filter_map(|d| axes[d].take()));
    Ok((keys, len))
}

fn check_text(
    dim: &StoredDimension,
    ends: &[u64],
    data: &[u8],
    used: Option<&(Vec<u8>, Vec<u8>)>,
) -> Result<()> {
    let Some((low, high)) = used.filter(|(low, high)| !(low.is_empty() && high.is_empty())) else {
        return Ok(());
    };
    let outside = (0..ends.len()).find(|&i| {
        let text = cell_of(ends, data, i);
        text < &low[..] || (!high.is_empty() && text > &high[..])
    });
    outside.map_or(Ok(()), |cell| Err(refuse(dim, cell, "is outside the domain")))
}

type Numbers = (Vec<u64>, Option<Vec<u64>>);

/// Coordinates along one dimension; where tiles precede them, the indexes of the tiles, and of integers the positions in them, which
/// take fewer bits.
fn numbers(
    dim: &StoredDimension,
    values: &[u8],
    used: Option<&(Vec<u8>, Vec<u8>)>,
    tiled: bool,
) -> Result<Numbers> {
    let mut keys: Vec<u64> = dispatch_element!(dim.datatype.dtype(), T => keys_of::<T>(values),
        else => return Err(Error::unsupported(format!("coordinates of {}", dim.datatype.name()))));
    if let Some((low, high)) = used {
        let inside = key(dim.datatype, low)..=key(dim.datatype, high);
        if let Some(cell) = keys.iter().position(|key| !inside.contains(key)) {
            return Err(refuse(dim, cell, "is outside the domain"));
        }
    }
    let (Some((low, _)), Some(extent), true) = (&dim.domain, &dim.extent, tiled) else {
        return Ok((keys, None));
    };
    let tiles = match dim.datatype.word().kind {
        ElementKind::Float => values
            .chunks_exact(dim.datatype.size())
            .map(|cell| float_tile(dim.datatype, cell, low, extent))
            .collect(),
        _ => {
            let (low, extent) = (key(dim.datatype, low), le64(extent).max(1));
            let divide = |key: &mut u64| {
                let from_start = key.wrapping_sub(low);
                *key = from_start % extent;
                from_start / extent
            };
            keys.iter_mut().map(divide).collect()
        }
    };
    Ok((keys, Some(tiles)))
}

fn keys_of<T: Element>(values: &[u8]) -> Vec<u64> {
    let each = values.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
    if T::IS_FLOAT {
        return each.map(|value| float_key(value.to_f64())).collect();
    }
    // Integers of up to 64 bits: signed ones compare as unsigned with the sign bit flipped.
    let signed = T::DTYPE.class() == tesseral_core::dtype::Class::Int;
    let number = |value: T| (value.to_i128() as i64).cast_unsigned();
    if signed { each.map(|v| number(v) ^ 1 << 63).collect() } else { each.map(number).collect() }
}

/// Indexes of cells on the Hilbert curve through the domain.
fn curve(schema: &Schema, columns: &[ColumnData<'_>], len: usize) -> Vec<u64> {
    let rank = schema.dims.len();
    let bits = u32::try_from(63 / rank.max(1)).unwrap_or(1).max(1);
    let most = (1_u64 << bits) - 1;
    let mut at = vec![0; rank];
    (0..len)
        .map(|cell| {
            for (d, (dim, column)) in schema.dims.iter().zip(columns).enumerate() {
                at[d] = match column {
                    ColumnData::Var { offsets, data, .. } => {
                        let mut first = [0; 8];
                        let text = cell_of(offsets, data, cell);
                        let n = text.len().min(8);
                        first[..n].copy_from_slice(&text[..n]);
                        u64::from_be_bytes(first) >> (64 - bits)
                    }
                    ColumnData::Fixed { values, .. } => {
                        let size = dim.datatype.size();
                        bucket(dim, &values[cell * size..(cell + 1) * size], most)
                    }
                };
            }
            // With one axis the curve is the axis itself; its last step needs one more bit.
            if rank == 1 { at[0] } else { hilbert(&mut at, bits) }
        })
        .collect()
}

/// Maps a coordinate to a step of its domain.
fn bucket(dim: &StoredDimension, bytes: &[u8], most: u64) -> u64 {
    let Some((low, high)) = &dim.domain else { return 0 };
    let datatype = dim.datatype;
    let (x, range) = match datatype.word().kind {
        ElementKind::Float => {
            let low = float(datatype, low);
            (float(datatype, bytes) - low, float(datatype, high) - low)
        }
        _ => {
            let low = key(datatype, low);
            let steps = |bytes: &[u8]| key(datatype, bytes).wrapping_sub(low) as f64;
            (steps(bytes), steps(high))
        }
    };
    if range == 0.0 { 0 } else { (x / range * most as f64) as u64 }
}

/// Skilling's transform: axes to the index on the curve, the first axis in the most significant bit of every group.
fn hilbert(x: &mut [u64], bits: u32) -> u64 {
    let n = x.len();
    let top = 1_u64 << (bits - 1);
    let mut q = top;
    while q > 1 {
        let p = q - 1;
        for i in 0..n {
            if x[i] & q != 0 {
                x[0] ^= p;
            } else {
                let t = (x[0] ^ x[i]) & p;
                x[0] ^= t;
                x[i] ^= t;
            }
        }
        q >>= 1;
    }
    for i in 1..n {
        x[i] ^= x[i - 1];
    }
    let mut t = 0;
    let mut q = top;
    while q > 1 {
        if x[n - 1] & q != 0 {
            t ^= q - 1;
        }
        q >>= 1;
    }
    x.iter_mut().for_each(|v| *v ^= t);
    let mut out = 0;
    for bit in (0..bits).rev() {
        for v in x.iter() {
            out = out << 1 | v >> bit & 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_cells_of_the_curve_are_adjacent() {
        // Consecutive cells of the curve share an edge.
        let bits = 4;
        let mut cells: Vec<(u64, [u64; 2])> = (0..16)
            .flat_map(|x| (0..16).map(move |y| [x, y]))
            .map(|p| (hilbert(&mut p.clone(), bits), p))
            .collect();
        cells.sort_unstable();
        assert!(cells.iter().map(|c| c.0).eq(0..256));
        for pair in cells.windows(2) {
            let far = |d: usize| pair[0].1[d].abs_diff(pair[1].1[d]);
            assert_eq!(far(0) + far(1), 1, "{pair:?}");
        }
    }

    #[test]
    fn keys_compare_like_numbers() {
        let datatype = Datatype::new(3).unwrap();
        let values = [f64::NEG_INFINITY, -2.5, -1e-300, 0.0, 1e-300, 3.0, f64::INFINITY];
        let keys: Vec<u64> = values.iter().map(|v| key(datatype, &v.to_le_bytes())).collect();
        assert!(keys.is_sorted());
        assert_eq!(key(datatype, &(-0.0_f64).to_le_bytes()), key(datatype, &0.0_f64.to_le_bytes()));
        let small = Datatype::new(7).unwrap();
        assert!(key(small, &(-1_i16).to_le_bytes()) < key(small, &0_i16.to_le_bytes()));
    }
}
