//! Comparison of two sequences of cells of one dtype: bitwise, and by the size of differences.

use tesseral_core::{DType, Element, dispatch_element};

/// The differences between two sequences of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The first cell whose difference exceeds the tolerance.
    pub first: Option<u64>,
    /// The number of such cells.
    pub count: u64,
    /// The largest numeric difference of any two cells, within tolerance or not; `None` when cells differ only in bits without
    /// a numeric difference, such as those of NaN.
    pub max_abs: Option<f64>,
    /// The largest difference relative to the left value, where that is not 0.
    pub max_rel: Option<f64>,
    /// Whether some difference has no size: NaN against a number, an infinity, text.
    pub unmeasured: bool,
}

/// The allowed differences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Absolute tolerance.
    pub abs: Option<f64>,
    /// Tolerance relative to the left value.
    pub rel: Option<f64>,
}

impl Tolerance {
    fn allows(&self, left: f64, difference: f64) -> bool {
        let abs = self.abs.is_some_and(|most| difference <= most);
        abs || self.rel.is_some_and(|most| difference <= most * left.abs())
    }
}

impl Comparison {
    /// Compares cells of `size` bytes; `before` cells came earlier.
    pub fn add(
        &mut self,
        dtype: DType,
        size: usize,
        left: &[u8],
        right: &[u8],
        before: u64,
        tolerance: &Tolerance,
    ) {
        // Fast path: usually all bytes are equal.
        if left == right || size == 0 {
            return;
        }
        let pairs = left.chunks_exact(size).zip(right.chunks_exact(size));
        for (i, (a, b)) in pairs.enumerate().filter(|(_, (a, b))| a != b) {
            let measured = difference(dtype, a, b);
            let tolerated = measured.is_some_and(|(value, d)| tolerance.allows(value, d));
            match measured {
                Some((value, d)) => {
                    self.max_abs = Some(self.max_abs.unwrap_or(0.0).max(d));
                    if value != 0.0 {
                        self.max_rel = Some(self.max_rel.unwrap_or(0.0).max(d / value.abs()));
                    }
                }
                None => self.unmeasured = true,
            }
            if !tolerated {
                self.count += 1;
                self.first.get_or_insert(before + i as u64);
            }
        }
    }

    /// Records a cell that differs without a size, such as a null against a value.
    pub fn note(&mut self, cell: u64) {
        self.count += 1;
        self.unmeasured = true;
        self.first = Some(self.first.map_or(cell, |first| first.min(cell)));
    }
}

/// The left value and the absolute difference, for finite scalar cells.
fn difference(dtype: DType, left: &[u8], right: &[u8]) -> Option<(f64, f64)> {
    fn element_difference<T: Element>(left: &[u8], right: &[u8]) -> Option<(f64, f64)> {
        if left.len() != size_of::<T>() || right.len() != size_of::<T>() {
            return None;
        }
        let (a, b): (T, T) = (bytemuck::pod_read_unaligned(left), bytemuck::pod_read_unaligned(right));
        if T::IS_FLOAT {
            let (a, b) = (a.to_f64(), b.to_f64());
            return (a.is_finite() && b.is_finite()).then(|| (a, (a - b).abs()));
        }
        Some((a.to_f64(), a.to_i128().abs_diff(b.to_i128()) as f64))
    }
    dispatch_element!(dtype, T => element_difference::<T>(left, right), else => None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(left: &[f64], right: &[f64], tolerance: Tolerance) -> Comparison {
        let mut out = Comparison::default();
        out.add(DType::Float64, 8, bytemuck::cast_slice(left), bytemuck::cast_slice(right), 10, &tolerance);
        out
    }

    #[test]
    fn compares_bits_within_a_tolerance() {
        let none = Tolerance::default();
        let nan = f64::from_bits(0x7ff8_0000_0000_0001);
        assert_eq!(compared(&[1.0, nan], &[1.0, nan], none), Comparison::default());
        let zeros = compared(&[1.0, 0.0], &[1.0, -0.0], none);
        assert_eq!((zeros.first, zeros.count, zeros.max_abs), (Some(11), 1, Some(0.0)));
        let payloads = compared(&[nan], &[f64::NAN], none);
        assert_eq!((payloads.first, payloads.max_abs, payloads.unmeasured), (Some(10), None, true));
        let near = compared(&[100.0, 2.0], &[101.0, 2.5], Tolerance { abs: Some(1.0), rel: None });
        assert_eq!((near.count, near.max_abs), (0, Some(1.0)));
        let relative = compared(&[100.0, 2.0], &[101.0, 2.5], Tolerance { abs: None, rel: Some(0.02) });
        assert_eq!((relative.count, relative.first), (1, Some(11)));
        assert_eq!(relative.max_rel, Some(0.25));
    }

    #[test]
    fn integers_are_compared_without_rounding() {
        let (a, b) = ([u64::MAX, 5], [u64::MAX - 1, 5]);
        let mut out = Comparison::default();
        let (a, b) = (bytemuck::cast_slice(&a), bytemuck::cast_slice(&b));
        out.add(DType::UInt64, 8, a, b, 0, &Tolerance::default());
        assert_eq!((out.count, out.max_abs), (1, Some(1.0)));
    }
}
