//! The global order of cells of a sparse array.
//!
//! Row- and column-major: first the tiles, in tile order, by those dimensions that have an extent, then the cells, in cell order. Hilbert: by
//! their number on the curve, then by coordinates. Text compares bytewise.

use std::borrow::Cow;
use std::cmp::Ordering;

use tesseral_codec::filter::Kind;
use tesseral_core::{Error, Result};
use tesseral_format::ColumnData;

use super::tile::cell_of;
use crate::wire::cursor::le64;
use crate::wire::datatype::{Datatype, compare, float, signed};
use crate::wire::schema::{Dimension, Layout, Schema};

/// Coordinates along one dimension, as numbers that compare like them.
enum Axis<'a> {
    Numbers(Vec<u64>),
    Text { ends: Cow<'a, [u64]>, data: Cow<'a, [u8]> },
}

impl Axis<'_> {
    fn compare(&self, a: usize, other: &Axis<'_>, b: usize) -> Ordering {
        match (self, other) {
            (Self::Numbers(mine), Axis::Numbers(theirs)) => mine[a].cmp(&theirs[b]),
            (Self::Text { ends, data }, Axis::Text { ends: their_ends, data: theirs }) => {
                cell_of(ends, data, a).cmp(cell_of(their_ends, theirs, b))
            }
            // Cells of one array have coordinates of one kind.
            _ => Ordering::Equal,
        }
    }
}

/// The cells of a write, ready to be compared.
pub(crate) struct Cells<'a> {
    axes: Vec<Axis<'a>>,
    /// Numbers of tiles along dimensions that have an extent, in the order they are compared.
    tiles: Vec<Vec<u64>>,
    /// Dimensions in the order their coordinates are compared.
    order: Vec<usize>,
    /// Numbers on the curve.
    curve: Option<Vec<u64>>,
    /// How many cells.
    pub len: usize,
}

/// A number that compares as unsigned like the coordinate it stands for. Zeros of both signs are one.
fn key(datatype: Datatype, bytes: &[u8]) -> u64 {
    match datatype.word().kind {
        Kind::Signed | Kind::Time => signed(bytes).cast_unsigned() ^ 1 << 63,
        Kind::Float => {
            let bits = (float(datatype, bytes) + 0.0).to_bits();
            if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
        }
        _ => le64(bytes),
    }
}

/// The tile a coordinate lies in, counted from the domain's start, in the arithmetic of its type.
fn tile_of(dim: &Dimension, bytes: &[u8], low: &[u8], extent: &[u8]) -> u64 {
    let datatype = dim.datatype;
    match datatype.word().kind {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Kind::Float => {
            let (x, low, extent) = (float(datatype, bytes), float(datatype, low), float(datatype, extent));
            if datatype.size() == 4 {
                ((x as f32 - low as f32) / extent as f32).floor() as u64
            } else {
                ((x - low) / extent).floor() as u64
            }
        }
        _ => key(datatype, bytes).wrapping_sub(key(datatype, low)) / le64(extent).max(1),
    }
}

fn refuse(dim: &Dimension, cell: usize, what: &str) -> Error {
    Error::invalid(format!("the coordinate of cell {cell} along {:?} {what}", dim.name))
}

impl<'a> Cells<'a> {
    /// Takes the columns of the dimensions. Coordinates outside the domain in use are refused.
    pub(crate) fn new(schema: &Schema, columns: &[ColumnData<'a>]) -> Result<Self> {
        let mut axes = Vec::new();
        let mut tiles: Vec<Option<Vec<u64>>> = Vec::new();
        let mut len = None;
        for (d, dim) in schema.dims.iter().enumerate() {
            let used = schema.current_domain.as_ref().map(|ranges| &ranges[d]).or(dim.domain.as_ref());
            let (axis, cells) = match columns.get(d) {
                Some(ColumnData::Var { offsets, data, .. }) if dim.var => {
                    if let Some((low, high)) = used.filter(|(low, high)| !(low.is_empty() && high.is_empty()))
                    {
                        let outside = (0..offsets.len()).find(|&i| {
                            let text = cell_of(offsets, data, i);
                            text < &low[..] || (!high.is_empty() && text > &high[..])
                        });
                        if let Some(cell) = outside {
                            return Err(refuse(dim, cell, "lies outside the domain"));
                        }
                    }
                    tiles.push(None);
                    (Axis::Text { ends: Cow::Borrowed(offsets), data: Cow::Borrowed(data) }, offsets.len())
                }
                Some(ColumnData::Fixed { values, .. }) if !dim.var => {
                    let (keys, of_tiles) = numbers(dim, values, used)?;
                    let count = keys.len();
                    tiles.push(of_tiles);
                    (Axis::Numbers(keys), count)
                }
                _ => return Err(Error::invalid(format!("no column of coordinates along {:?}", dim.name))),
            };
            if *len.get_or_insert(cells) != cells {
                return Err(Error::invalid("columns of coordinates differ in length"));
            }
            axes.push(axis);
        }
        let rank = axes.len();
        let turned = |layout: Layout| -> Vec<usize> {
            if layout == Layout::ColMajor { (0..rank).rev().collect() } else { (0..rank).collect() }
        };
        let mut out = Self {
            tiles: Vec::new(),
            order: turned(schema.cell_order),
            curve: None,
            len: len.unwrap_or(0),
            axes,
        };
        if schema.cell_order == Layout::Hilbert {
            out.curve = Some(curve(schema, columns, out.len));
        } else {
            out.tiles = turned(schema.tile_order).into_iter().filter_map(|d| tiles[d].take()).collect();
        }
        Ok(out)
    }

    /// Order of two cells.
    pub(crate) fn compare(&self, a: usize, b: usize) -> Ordering {
        self.compare_with(a, self, b)
    }

    /// Order of a cell and one of another run of cells of the same array.
    pub(crate) fn compare_with(&self, a: usize, other: &Cells<'_>, b: usize) -> Ordering {
        let first = match (&self.curve, &other.curve) {
            (Some(mine), Some(theirs)) => mine[a].cmp(&theirs[b]),
            _ => {
                let mut tiles = self.tiles.iter().zip(&other.tiles).map(|(t, u)| t[a].cmp(&u[b]));
                tiles.find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
            }
        };
        first.then_with(|| {
            let mut each = self.order.iter().map(|&d| self.axes[d].compare(a, &other.axes[d], b));
            each.find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        })
    }

    /// The same, borrowing nothing.
    pub(crate) fn into_owned(self) -> Cells<'static> {
        let owned = |axis: Axis<'_>| match axis {
            Axis::Numbers(keys) => Axis::Numbers(keys),
            Axis::Text { ends, data } => {
                Axis::Text { ends: Cow::Owned(ends.into_owned()), data: Cow::Owned(data.into_owned()) }
            }
        };
        Cells {
            axes: self.axes.into_iter().map(owned).collect(),
            tiles: self.tiles,
            order: self.order,
            curve: self.curve,
            len: self.len,
        }
    }

    /// The cells in global order. Where a position may hold one cell only, the last of several is taken with `dedup`, else they
    /// are refused.
    pub(crate) fn sorted(&self, duplicates: bool, dedup: bool) -> Result<Vec<usize>> {
        let mut cells: Vec<usize> = (0..self.len).collect();
        cells.sort_by(|&a, &b| self.compare(a, b));
        if duplicates {
            return Ok(cells);
        }
        let twice = |pair: &[usize]| self.compare(pair[0], pair[1]).is_eq();
        if !dedup {
            return match cells.windows(2).find(|pair| twice(pair)) {
                None => Ok(cells),
                Some(pair) => {
                    let detail = format!("cells {} and {} have the same coordinates", pair[0], pair[1]);
                    Err(Error::invalid(detail)
                        .hint("ask for duplicates to be dropped, or allow them in the schema"))
                }
            };
        }
        let last = |i: usize| cells.get(i + 1).is_none_or(|&next| self.compare(cells[i], next).is_ne());
        Ok((0..cells.len()).filter(|&i| last(i)).map(|i| cells[i]).collect())
    }

    /// Refuses cells that are not in global order, or twice at a position that holds one.
    pub(crate) fn check(&self, duplicates: bool) -> Result<()> {
        for i in 1..self.len {
            match self.compare(i - 1, i) {
                Ordering::Less => {}
                Ordering::Equal if duplicates => {}
                Ordering::Equal => {
                    return Err(Error::invalid(format!("cells {} and {i} have the same coordinates", i - 1)));
                }
                Ordering::Greater => {
                    return Err(Error::invalid(format!(
                        "cell {i} comes before cell {} in global order",
                        i - 1
                    )));
                }
            }
        }
        Ok(())
    }
}

type Numbers = (Vec<u64>, Option<Vec<u64>>);

fn numbers(dim: &Dimension, values: &[u8], used: Option<&(Vec<u8>, Vec<u8>)>) -> Result<Numbers> {
    let size = dim.datatype.size();
    let cells = || values.chunks_exact(size);
    if let Some((low, high)) = used {
        for (i, cell) in cells().enumerate() {
            let nan = dim.datatype.word().kind == Kind::Float && float(dim.datatype, cell).is_nan();
            if nan || compare(dim.datatype, cell, low).is_lt() || compare(dim.datatype, cell, high).is_gt() {
                return Err(refuse(dim, i, "lies outside the domain"));
            }
        }
    }
    let keys = cells().map(|cell| key(dim.datatype, cell)).collect();
    let tiles = match (&dim.domain, &dim.extent) {
        (Some((low, _)), Some(extent)) => Some(cells().map(|cell| tile_of(dim, cell, low, extent)).collect()),
        _ => None,
    };
    Ok((keys, tiles))
}

/// Numbers of cells on the Hilbert curve through the domain.
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
            // On one axis the curve is the axis itself; its last step needs one bit more than the others.
            if rank == 1 { at[0] } else { hilbert(&mut at, bits) }
        })
        .collect()
}

/// Where a coordinate lies in its domain, in steps.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn bucket(dim: &Dimension, bytes: &[u8], most: u64) -> u64 {
    let Some((low, high)) = &dim.domain else { return 0 };
    let datatype = dim.datatype;
    let (x, range) = match datatype.word().kind {
        Kind::Float => {
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

/// Skilling's transform: axes to the number on the curve, the first axis in the most significant bit of every group.
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
    fn the_curve_visits_neighbours() {
        // Every step along the curve goes to a cell that shares an edge.
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
