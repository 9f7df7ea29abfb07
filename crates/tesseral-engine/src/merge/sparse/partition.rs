//! Division of a read into slabs that fit in memory: consecutive ranges of coordinates in result order, with the chunks that
//! can contain cells of each.

use std::cmp::Ordering;

use tesseral_core::dtype::Class;
use tesseral_core::{DType, Element, Scalar, dispatch_element};
use tesseral_format::{CoordinateRanges, Cover, PlannedChunk};

/// Closed coordinate ranges per dimension, `None` for all, and the chunks that intersect them.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    pub limits: Vec<Option<CoordinateRanges>>,
    pub chunks: Vec<u32>,
    /// Number of divisions that led to this slab.
    depth: u32,
}

/// Maximum number of divisions. Text ranges can be divided without end.
const DEPTH: u32 = 160;

/// Returns whether a value is in a closed range.
fn within(value: &Scalar, (low, high): &(Scalar, Scalar)) -> bool {
    value.compare(low).is_some_and(Ordering::is_ge) && value.compare(high).is_some_and(Ordering::is_le)
}

/// Returns whether two closed ranges can overlap. Incomparable ones can.
fn meet(a: &(Scalar, Scalar), b: &(Scalar, Scalar)) -> bool {
    a.1.compare(&b.0) != Some(Ordering::Less) && a.0.compare(&b.1) != Some(Ordering::Greater)
}

/// Box of a sparse chunk.
pub(crate) fn bounds(chunk: &PlannedChunk) -> &[(Scalar, Scalar)] {
    match &chunk.cover {
        Cover::Bounds(bounds) => bounds,
        Cover::Exact(_) => &[],
    }
}

/// Returns whether every cell of a chunk is within the limits of a dimension.
pub(super) fn inside(chunk: &PlannedChunk, dim: usize, limits: &Option<CoordinateRanges>) -> bool {
    let Some(ranges) = limits else { return true };
    let Some((low, high)) = bounds(chunk).get(dim) else { return false };
    ranges.iter().any(|range| within(low, range) && within(high, range))
}

impl Slab {
    pub(super) fn new(ranges: &[CoordinateRanges], chunks: &[PlannedChunk]) -> Self {
        let limits = ranges.iter().map(|r| (!r.is_empty()).then(|| r.clone())).collect();
        Self { limits, chunks: (0..).take(chunks.len()).collect(), depth: 0 }
    }

    /// Estimated size of the rows of the slab in bytes: of each chunk the fraction of its box inside the limits.
    pub(super) fn estimate(&self, chunks: &[PlannedChunk], row: u64) -> f64 {
        self.chunks.iter().map(|&c| self.share(&chunks[c as usize], row)).sum()
    }

    fn share(&self, chunk: &PlannedChunk, row: u64) -> f64 {
        let mut bytes = chunk.cells.saturating_mul(row) as f64;
        for (bound, limits) in bounds(chunk).iter().zip(&self.limits) {
            let Some(ranges) = limits else { continue };
            bytes *= ranges.iter().map(|range| overlap(bound, range)).sum::<f64>().min(1.0);
        }
        bytes
    }

    /// Divides the slab if both parts are expected to be clearly smaller.
    pub(super) fn split_smaller(&self, chunks: &[PlannedChunk], row: u64) -> Option<(Self, Self)> {
        let whole = self.estimate(chunks, row);
        let parts = self.split(chunks, row)?;
        let worst = parts.0.estimate(chunks, row).max(parts.1.estimate(chunks, row));
        (worst < whole * 0.95).then_some(parts)
    }

    /// Divides the slab in two, in result order; `None` if all cells have one coordinate, or the coordinates are invalid.
    pub(super) fn split(&self, chunks: &[PlannedChunk], row: u64) -> Option<(Self, Self)> {
        for dim in 0..self.limits.len() {
            if self.depth >= DEPTH {
                return None;
            }
            let (low, high) = self.hull(chunks, dim)?;
            if low.compare(&high)?.is_lt() {
                return self.partition_at(chunks, row, dim, &low, &high);
            }
        }
        None
    }

    /// The smallest range along a dimension that contains every cell.
    fn hull(&self, chunks: &[PlannedChunk], dim: usize) -> Option<(Scalar, Scalar)> {
        let mut hull: Option<(Scalar, Scalar)> = None;
        for &c in &self.chunks {
            let bound = bounds(&chunks[c as usize]).get(dim)?;
            let whole = [bound.clone()];
            let ranges = self.limits[dim].as_deref().unwrap_or(&whole);
            for range in ranges.iter().filter(|range| meet(range, bound)) {
                let low = larger(&range.0, &bound.0)?;
                let high = smaller(&range.1, &bound.1)?;
                hull = Some(match hull {
                    None => (low.clone(), high.clone()),
                    Some((a, b)) => (smaller(&a, low)?.clone(), larger(&b, high)?.clone()),
                });
            }
        }
        hull
    }

    fn partition_at(
        &self,
        chunks: &[PlannedChunk],
        row: u64,
        dim: usize,
        low: &Scalar,
        high: &Scalar,
    ) -> Option<(Self, Self)> {
        // At chunk boundaries no chunk is read twice; otherwise in the middle, so that neither side stays as large as the
        // whole.
        let mut ends: Vec<&Scalar> = self
            .chunks
            .iter()
            .filter_map(|&c| bounds(&chunks[c as usize]).get(dim))
            .map(|bound| &bound.1)
            .filter(|end| {
                end.compare(high) == Some(Ordering::Less) && end.compare(low) != Some(Ordering::Less)
            })
            .collect();
        ends.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
        let median = ends.get(ends.len() / 2).copied().cloned();
        let middle = middle(low, high);
        let best = [median, middle, Some(low.clone())].into_iter().flatten().filter_map(|at| {
            let parts = self.cut_at(chunks, dim, low, high, &at)?;
            let worst = parts.0.estimate(chunks, row).max(parts.1.estimate(chunks, row));
            Some((worst, parts))
        });
        best.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, parts)| parts)
    }

    /// Cells up to a coordinate, and cells after it.
    fn cut_at(
        &self,
        chunks: &[PlannedChunk],
        dim: usize,
        low: &Scalar,
        high: &Scalar,
        at: &Scalar,
    ) -> Option<(Self, Self)> {
        let next = successor(at)?;
        // Both sides must be smaller.
        if at.compare(low)?.is_lt() || next.compare(high)?.is_gt() {
            return None;
        }
        let part = |range: (Scalar, Scalar)| -> Option<Self> {
            let clipped = match &self.limits[dim] {
                None => vec![range],
                Some(ranges) => {
                    let mut out = Vec::new();
                    for other in ranges.iter().filter(|other| meet(other, &range)) {
                        out.push((larger(&other.0, &range.0)?.clone(), smaller(&other.1, &range.1)?.clone()));
                    }
                    out
                }
            };
            let holds = |&&c: &&u32| {
                let bound = bounds(&chunks[c as usize]).get(dim);
                bound.is_none_or(|bound| clipped.iter().any(|range| meet(range, bound)))
            };
            let kept = self.chunks.iter().filter(holds).copied().collect();
            let mut limits = self.limits.clone();
            limits[dim] = Some(clipped);
            Some(Self { limits, chunks: kept, depth: self.depth + 1 })
        };
        Some((part((low.clone(), at.clone()))?, part((next, high.clone()))?))
    }
}

fn smaller<'a>(a: &'a Scalar, b: &'a Scalar) -> Option<&'a Scalar> {
    a.compare(b).map(|order| if order.is_le() { a } else { b })
}

fn larger<'a>(a: &'a Scalar, b: &'a Scalar) -> Option<&'a Scalar> {
    a.compare(b).map(|order| if order.is_ge() { a } else { b })
}

/// Fraction of a box inside a range, from 0 to 1.
fn overlap(bound: &(Scalar, Scalar), range: &(Scalar, Scalar)) -> f64 {
    if !meet(bound, range) {
        return 0.0;
    }
    let place = |value: &Scalar| value.as_f64();
    let (Some(a), Some(b), Some(from), Some(to)) =
        (place(&bound.0), place(&bound.1), place(&range.0), place(&range.1))
    else {
        // Text: a division takes about half of the box.
        return if within(&bound.0, range) && within(&bound.1, range) { 1.0 } else { 0.5 };
    };
    let unit = if bound.0.dtype().class() == Class::Float { 0.0 } else { 1.0 };
    let length = b - a + unit;
    if length.is_nan() || length <= 0.0 {
        return 1.0;
    }
    ((b.min(to) - a.max(from) + unit) / length).clamp(0.0, 1.0)
}

/// The next larger value of the same dtype.
pub(super) fn successor(value: &Scalar) -> Option<Scalar> {
    let dtype = value.dtype();
    if dtype.class() == Class::Text {
        let mut bytes = value.bytes().to_vec();
        bytes.push(0);
        return Scalar::from_le_bytes(dtype, &bytes).ok();
    }
    if dtype.class() == Class::Float {
        return match dtype {
            DType::Float64 => value.get::<f64>().map(f64::next_up).map(Scalar::from_element),
            DType::Float32 => value.get::<f32>().map(f32::next_up).map(Scalar::from_element),
            _ => None,
        };
    }
    integer(dtype, value.as_i128()?.checked_add(1)?)
}

/// An integer of a dtype, if it fits.
fn integer(dtype: DType, value: i128) -> Option<Scalar> {
    dispatch_element!(dtype, T => {
        let bytes = value.to_le_bytes();
        let size = size_of::<T>();
        let scalar = Scalar::from_le_bytes(dtype, &bytes[..size]).ok()?;
        (!T::IS_FLOAT && scalar.as_i128() == Some(value)).then_some(scalar)
    }, else => None)
}

/// A value between two others, including the lower one.
fn middle(low: &Scalar, high: &Scalar) -> Option<Scalar> {
    let dtype = low.dtype();
    match dtype.class() {
        Class::Text => {
            let (a, b) = (low.bytes(), high.bytes());
            let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
            // Bytes after the common prefix, read as one number.
            let number = |bytes: &[u8]| {
                let mut wide = [0; 8];
                let rest = &bytes[same..];
                let len = rest.len().min(8);
                wide[..len].copy_from_slice(&rest[..len]);
                u64::from_be_bytes(wide)
            };
            let (x, y) = (number(a), number(b));
            let mut bytes = a[..same].to_vec();
            bytes.extend(x.midpoint(y).to_be_bytes());
            let middle = Scalar::from_le_bytes(dtype, &bytes).ok()?;
            (middle.compare(low)?.is_ge() && middle.compare(high)?.is_lt()).then_some(middle)
        }
        Class::Float => {
            let middle = low.as_f64()?.midpoint(high.as_f64()?);
            match dtype {
                DType::Float64 => Some(Scalar::from_element(middle)),
                DType::Float32 => Some(Scalar::from_element(middle as f32)),
                _ => None,
            }
        }
        _ => {
            let (a, b) = (low.as_i128()?, high.as_i128()?);
            integer(dtype, a + (b - a) / 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successors_are_next() {
        assert_eq!(successor(&Scalar::from_element(7_i32)), Some(Scalar::from_element(8_i32)));
        assert_eq!(successor(&Scalar::from_element(i8::MAX)), None);
        assert_eq!(successor(&Scalar::from_element(u64::MAX - 1)), Some(Scalar::from_element(u64::MAX)));
        assert_eq!(successor(&Scalar::from_element(-1_i64)), Some(Scalar::from_element(0_i64)));
        let next = successor(&Scalar::from_text("ab")).unwrap();
        assert_eq!(next.bytes(), b"ab\0");
        let one = successor(&Scalar::from_element(1.0_f64)).unwrap();
        assert_eq!(one.get::<f64>(), Some(1.0_f64.next_up()));
    }

    #[test]
    fn middles_lie_between() {
        for (a, b) in [("a", "b"), ("", "zz"), ("abc", "abcd"), ("x\0", "x\0\0"), ("same", "samez")] {
            let (low, high) = (Scalar::from_text(a), Scalar::from_text(b));
            if let Some(middle) = middle(&low, &high) {
                assert!(middle.compare(&low).unwrap().is_ge() && middle.compare(&high).unwrap().is_lt());
            }
        }
        let middle = middle(&Scalar::from_element(i64::MIN), &Scalar::from_element(i64::MAX)).unwrap();
        assert_eq!(middle.get::<i64>(), Some(-1));
    }
}
