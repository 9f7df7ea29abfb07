//! Statistics of a tile's cells as stored by the format.
//!
//! Minimum and maximum exclude nulls and NaN. The sum excludes nulls only, so that a NaN is visible in it. A tile whose floats
//! are all NaN has NaN as both extrema.

use tesseral_codec::filter::ElementKind;
use tesseral_core::{ChunkStats, DType, Element, Result, Scalar, Stat, Sum, dispatch_element};

use super::tile::cell_of;
use crate::wire::datatype::{Datatype, VAR, float};

/// Statistics to compute of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptStats {
    /// Minimum and maximum.
    pub extrema: bool,
    /// The sum.
    pub sum: bool,
}

impl KeptStats {
    /// Statistics of an attribute.
    pub(crate) fn of_attribute(datatype: Datatype, values: u32) -> Self {
        let text = datatype == Datatype::CHAR || datatype == Datatype::ASCII;
        let number = datatype.word().kind != ElementKind::Text;
        Self {
            extrema: text || (values == 1 && number),
            sum: values == 1 && (number || datatype == Datatype::CHAR),
        }
    }

    /// Statistics of a dimension of a sparse array.
    pub(crate) fn of_dim(datatype: Datatype, var: bool) -> Self {
        Self { extrema: false, sum: !var && datatype.word().kind != ElementKind::Text }
    }
}

/// Computes statistics of fixed-size cells.
pub(crate) fn fixed(
    datatype: Datatype,
    values: u32,
    kept: KeptStats,
    cells: &[u8],
    validity: Option<&[u8]>,
) -> Result<ChunkStats> {
    let size = datatype.size() * values as usize;
    let count = cells.len() / size.max(1);
    let nulls = validity.map_or(0, |v| v.iter().filter(|b| **b == 0).count());
    let mut stats = ChunkStats { nulls: Stat::Exact(nulls as u64), ..ChunkStats::unknown(count as u64) };
    if !kept.extrema && !kept.sum {
        return Ok(stats);
    }
    let folded = match datatype.dtype() {
        // A single character is a number too.
        DType::Char if values == 1 => numbers::<i8>(cells, validity),
        dtype => dispatch_element!(dtype, T => numbers::<T>(cells, validity),
            else => text(counted(cells.chunks_exact(size), validity))),
    };
    fill_in(&mut stats, datatype, kept, folded)?;
    Ok(stats)
}

/// Number of cells that are not null.
fn counted<T>(cells: impl Iterator<Item = T>, validity: Option<&[u8]>) -> impl Iterator<Item = T> {
    let valid = move |i: usize| validity.is_none_or(|v| v.get(i).is_some_and(|b| *b != 0));
    cells.enumerate().filter(move |(i, _)| valid(*i)).map(|(_, cell)| cell)
}

/// Computes statistics of variable-length cells.
pub(crate) fn var(
    datatype: Datatype,
    ends: &[u64],
    data: &[u8],
    validity: Option<&[u8]>,
) -> Result<ChunkStats> {
    let nulls = validity.map_or(0, |v| v.iter().filter(|b| **b == 0).count());
    let mut stats = ChunkStats { nulls: Stat::Exact(nulls as u64), ..ChunkStats::unknown(ends.len() as u64) };
    let kept = KeptStats::of_attribute(datatype, VAR);
    if kept.extrema {
        let cells = (0..ends.len()).map(|i| cell_of(ends, data, i));
        let cells = counted(cells, validity);
        fill_in(&mut stats, datatype, kept, text(cells))?;
    }
    Ok(stats)
}

/// Minimum, maximum and sum of the included cells.
#[derive(Default)]
struct TileStats {
    min: Option<Vec<u8>>,
    max: Option<Vec<u8>>,
    sum: Option<Sum>,
}

fn fill_in(stats: &mut ChunkStats, datatype: Datatype, kept: KeptStats, folded: TileStats) -> Result<()> {
    let scalar = |bytes: Option<Vec<u8>>| match bytes {
        Some(bytes) if kept.extrema => Scalar::from_le_bytes(datatype.dtype(), &bytes).map(Stat::Exact),
        _ => Ok(Stat::Absent),
    };
    stats.min = scalar(folded.min)?;
    stats.max = scalar(folded.max)?;
    stats.sum = folded.sum.filter(|_| kept.sum).map_or(Stat::Absent, Stat::Exact);
    Ok(())
}

fn numbers<T: Element>(cells: &[u8], validity: Option<&[u8]>) -> TileStats {
    if T::DTYPE == DType::Float32
        && validity.is_none()
        && let Some(folded) = any_order(cells)
    {
        return folded;
    }
    let each = cells.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
    // The loop without nulls is the most frequent one and reads only the cells.
    match (T::IS_FLOAT, validity) {
        (true, None) => floats(each),
        (true, _) => floats(counted(each, validity)),
        (false, None) => integers(each),
        (false, _) => integers(counted(each, validity)),
    }
}

fn integers<T: Element>(mut values: impl Iterator<Item = T>) -> TileStats {
    let Some(first) = values.next() else {
        return TileStats { sum: Some(Sum::Int(0)), ..TileStats::default() };
    };
    let (mut min, mut max) = (first, first);
    // The lower and the upper halves of words are added apart, in words: 2^31 of either fit.
    let (mut low, mut high, mut count, mut sum) = (0_u64, 0_i64, 0_u32, first.to_i128());
    for value in values {
        min = if value < min { value } else { min };
        max = if value > max { value } else { max };
        let wide = value.to_i128();
        low += wide as u64 & 0xffff_ffff;
        high += (wide >> 32) as i64;
        count += 1;
        if count == 1 << 30 {
            sum += i128::from(low) + (i128::from(high) << 32);
            (low, high, count) = (0, 0, 0);
        }
    }
    sum += i128::from(low) + (i128::from(high) << 32);
    let bytes = |n: T| Some(bytemuck::bytes_of(&n).to_vec());
    TileStats { min: bytes(min), max: bytes(max), sum: Some(Sum::Int(sum)) }
}

/// Cells are added sequentially, as other readers do: another order can change the last bit. A comparison with a NaN is false,
/// so that it changes neither extremum.
fn floats<T: Element>(mut values: impl Iterator<Item = T>) -> TileStats {
    let mut sum = 0.0_f64;
    let mut nan = None;
    let first = values.by_ref().find(|value| {
        sum += value.to_f64();
        if value.is_nan() {
            nan.get_or_insert(*value);
        }
        !value.is_nan()
    });
    let (mut min, mut max) = (first, first);
    if let (Some(min), Some(max)) = (&mut min, &mut max) {
        for value in values {
            sum += value.to_f64();
            *min = if value < *min { value } else { *min };
            *max = if value > *max { value } else { *max };
        }
    }
    // A sum that overflows to infinity saturates at the limit of its type.
    let infinite = [min, max].into_iter().flatten().any(Element::is_infinite);
    let sum = if sum.is_infinite() && !infinite { f64::MAX.copysign(sum) } else { sum };
    let bytes = |end: Option<T>| end.or(nan).map(|n| bytemuck::bytes_of(&n).to_vec());
    TileStats { min: bytes(min), max: bytes(max), sum: Some(Sum::Float(sum)) }
}

/// Number of cells processed in parallel.
const LANES: usize = 16;

#[inline(always)]
fn add(cells: &[[u8; 4]], mins: &mut [f32; LANES], maxs: &mut [f32; LANES], sums: &mut [f64; LANES]) {
    for (lane, cell) in cells.iter().enumerate() {
        let value = f32::from_le_bytes(*cell);
        sums[lane] += f64::from(value);
        mins[lane] = if value < mins[lane] { value } else { mins[lane] };
        maxs[lane] = if value > maxs[lane] { value } else { maxs[lane] };
    }
}

/// Statistics of `f32` cells whose sum does not depend on the order of additions, so that sixteen lanes can be added in
/// parallel. `None` if an order of additions can round, or a cell is not finite.
///
/// Every cell is a multiple of the last digit of the one nearest to zero. If `n` times the largest is at most 2⁵³ of these
/// digits, all partial sums are exact in an `f64`.
fn any_order(cells: &[u8]) -> Option<TileStats> {
    let (cells, _) = cells.as_chunks::<4>();
    let (blocks, rest) = cells.as_chunks::<LANES>();
    let (mut mins, mut maxs, mut sums) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES], [0.0; LANES]);
    for block in blocks {
        add(block, &mut mins, &mut maxs, &mut sums);
    }
    add(rest, &mut mins, &mut maxs, &mut sums);
    let mut min = mins.into_iter().reduce(|a, b| if b < a { b } else { a })?;
    let mut max = maxs.into_iter().reduce(|a, b| if b > a { b } else { a })?;
    // NaN and infinity are visible in it.
    let sum = sums.into_iter().sum::<f64>();
    if !sum.is_finite() || min > max {
        return None;
    }
    let each = || cells.iter().map(|cell| f32::from_le_bytes(*cell));
    let nearest = if min > 0.0 || max < 0.0 {
        min.abs().min(max.abs())
    } else {
        // No cell is nearer to zero than the nearest nonzero one; if all cells are zero, so is the sum.
        each()
            .map(|v| if v == 0.0 { f32::INFINITY } else { v.abs() })
            .fold(f32::INFINITY, |a, b| if b < a { b } else { a })
    };
    let furthest = min.abs().max(max.abs());
    let exponent = |value: f32| (value.to_bits() >> 23).max(1);
    // The last of 24 digits is 2^-23 of the first, and the largest is less than twice its first.
    let digits = 24
        + u64::from(exponent(furthest).saturating_sub(exponent(nearest)))
        + u64::from(cells.len().ilog2())
        + 1;
    if digits > 53 {
        return None;
    }
    // The first of several zeros is kept, regardless of its sign.
    let zero = || each().find(|value| *value == 0.0);
    if min == 0.0 {
        min = zero()?;
    }
    if max == 0.0 {
        max = zero()?;
    }
    let bytes = |end: f32| Some(end.to_le_bytes().to_vec());
    Some(TileStats { min: bytes(min), max: bytes(max), sum: Some(Sum::Float(sum)) })
}

fn text<'a>(cells: impl Iterator<Item = &'a [u8]>) -> TileStats {
    let ends = cells.fold(None, |ends: Option<(&[u8], &[u8])>, cell| {
        let (min, max) = ends.unwrap_or((cell, cell));
        Some((min.min(cell), max.max(cell)))
    });
    TileStats { min: ends.map(|e| e.0.to_vec()), max: ends.map(|e| e.1.to_vec()), sum: None }
}

/// Encodes a sum as eight bytes: an integer of the column's sign that saturates, or the bits of a float.
pub(crate) fn sum_bits(datatype: Datatype, sum: Option<&Sum>) -> u64 {
    match sum {
        None => 0,
        Some(Sum::Float(sum)) => sum.to_bits(),
        Some(Sum::Int(sum)) => {
            if matches!(datatype.word().kind, ElementKind::Unsigned | ElementKind::Bool) {
                u64::try_from((*sum).max(0)).unwrap_or(u64::MAX)
            } else {
                let end = if *sum < 0 { i64::MIN } else { i64::MAX };
                i64::try_from(*sum).unwrap_or(end).cast_unsigned()
            }
        }
    }
}

/// Merges statistics of two sets of cells.
pub(crate) fn merge(datatype: Datatype, into: &mut ChunkStats, other: &ChunkStats) {
    use std::cmp::Ordering;
    let order = |a: &Scalar, b: &Scalar| crate::wire::datatype::compare(datatype, a.bytes(), b.bytes());
    let nan = |s: &Scalar| datatype.word().kind == ElementKind::Float && float(datatype, s.bytes()).is_nan();
    let pick = |mine: &mut Stat<Scalar>, theirs: &Stat<Scalar>, wins: Ordering| {
        let better = match (mine.exact(), theirs.exact()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(a), Some(b)) => !nan(b) && (nan(a) || order(b, a) == wins),
        };
        if better {
            mine.clone_from(theirs);
        }
    };
    pick(&mut into.min, &other.min, Ordering::Less);
    pick(&mut into.max, &other.max, Ordering::Greater);
    into.sum = match (&into.sum, &other.sum) {
        (Stat::Exact(Sum::Int(a)), Stat::Exact(Sum::Int(b))) => Stat::Exact(Sum::Int(a.saturating_add(*b))),
        (Stat::Exact(Sum::Float(a)), Stat::Exact(Sum::Float(b))) => {
            let sum = a + b;
            let finite = a.is_finite() && b.is_finite() && sum.is_infinite();
            Stat::Exact(Sum::Float(if finite { f64::MAX.copysign(sum) } else { sum }))
        }
        (Stat::Exact(sum), _) | (_, Stat::Exact(sum)) => Stat::Exact(*sum),
        _ => Stat::Absent,
    };
    into.nulls = Stat::Exact(into.nulls.exact().unwrap_or(&0) + other.nulls.exact().unwrap_or(&0));
    into.cells += other.cells;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f64s(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn a_nan_is_in_the_sum_but_not_in_the_extrema() {
        let datatype = Datatype::new(3).unwrap();
        let kept = KeptStats::of_attribute(datatype, 1);
        let stats = fixed(datatype, 1, kept, &f64s(&[1.0, f64::NAN, 5.0]), None).unwrap();
        assert_eq!(stats.min.exact().and_then(Scalar::as_f64), Some(1.0));
        assert_eq!(stats.max.exact().and_then(Scalar::as_f64), Some(5.0));
        assert!(matches!(stats.sum, Stat::Exact(Sum::Float(sum)) if sum.is_nan()));
        let other = fixed(datatype, 1, kept, &f64s(&[f64::NAN]), None).unwrap();
        let mut both = other.clone();
        merge(datatype, &mut both, &stats);
        assert_eq!(both.min, stats.min);
        let mut both = stats.clone();
        merge(datatype, &mut both, &other);
        assert_eq!((both.min, both.max), (stats.min, stats.max));
    }

    /// Parallel and sequential sums have the same bits; cells of similar magnitude use the parallel path.
    #[test]
    fn parallel_and_sequential_sums_are_equal() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut fast = [0; 8];
        for round in 0..4000 {
            let kind = round % 8;
            let count = 1 + random() % if round % 5 == 0 { 3000 } else { 40 };
            let spread = random() % 30;
            let mut cell = || {
                let bits = u32::try_from(random()).unwrap_or(0);
                let unit = (f64::from(bits) / f64::from(1_u32 << 31)) as f32;
                match kind {
                    0 => 250.0 + 50.0 * unit,
                    1 => -1.0 - unit,
                    2 => unit - 0.5,
                    3 => [0.0, -0.0, unit, -unit][bits as usize % 4],
                    4 => [0.0, -0.0][bits as usize % 2],
                    5 => {
                        (unit + 0.5) * 2_f32.powi(i32::try_from(u64::from(bits) % (spread + 1)).unwrap_or(0))
                    }
                    6 => f32::from_bits(bits % 0x0100_0000) * if bits & 1 == 0 { 1.0 } else { -1.0 },
                    _ => f32::from_bits(bits << 1),
                }
            };
            let values: Vec<f32> = (0..count).map(|_| cell()).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let Some(found) = any_order(&bytes) else { continue };
            fast[kind] += 1;
            let expected = floats(values.iter().copied());
            let bits = |folded: &TileStats| match folded.sum {
                Some(Sum::Float(sum)) => sum.to_bits(),
                _ => panic!("no sum of floats"),
            };
            assert_eq!(bits(&found), bits(&expected), "{values:?}");
            assert_eq!((found.min, found.max), (expected.min, expected.max), "{values:?}");
        }
        assert_eq!((fast[0], fast[1], fast[4]), (500, 500, 500));
        assert!(fast.iter().all(|n| *n > 0), "{fast:?}");
    }

    #[test]
    fn sums_saturate() {
        let unsigned = Datatype::new(10).unwrap();
        let cells: Vec<u8> = [u64::MAX, 1].iter().flat_map(|v| v.to_le_bytes()).collect();
        let kept = KeptStats::of_attribute(unsigned, 1);
        let stats = fixed(unsigned, 1, kept, &cells, None).unwrap();
        assert_eq!(sum_bits(unsigned, stats.sum.exact()), u64::MAX);
        let signed = Datatype::new(1).unwrap();
        let cells: Vec<u8> = [i64::MIN, -1, 1].iter().flat_map(|v| v.to_le_bytes()).collect();
        let stats = fixed(signed, 1, kept, &cells, Some(&[1, 1, 0])).unwrap();
        assert_eq!(sum_bits(signed, stats.sum.exact()).cast_signed(), i64::MIN);
        assert_eq!(stats.nulls, Stat::Exact(1));
    }
}
