//! Sums of the parts of floats above and below powers of two.
//!
//! ```text
//! high = (x + C) - C          the multiple of 2^h nearest to x, for C = 1.5 · 2^(52 + h)
//! rest = x - high             exact, at most 2^(h - 1)
//! ```
//!
//! Loops run over several rows of a few columns: the sums of columns are loaded and stored once for all rows, and neighboring columns
//! are lanes of a loop that compilers vectorize. Loops over the lanes of registers are not vectorized reliably.

use multiversion::multiversion;

use super::block::Real;

/// Columns of a block of cells, and rows that are added together.
pub(super) const COLUMNS: usize = 16;
pub(super) const ROWS: usize = 8;

/// All of some floats are at most 2^`top` by magnitude and multiples of 2^`low`; no non-zero one is below 2^`bottom`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub top: i32,
    pub bottom: i32,
    pub low: i32,
}

impl Bounds {
    /// Bounds from the largest and the smallest magnitude.
    pub fn new(largest: f64, smallest: f64, fraction_bits: i32, least: i32) -> Self {
        let bottom = exponent(smallest);
        Self { top: exponent(largest) + 1, bottom, low: (bottom - fraction_bits).max(least) }
    }

    /// Bounds of these floats and of others.
    pub fn join(self, other: Self) -> Self {
        Self {
            top: self.top.max(other.top),
            bottom: self.bottom.min(other.bottom),
            low: self.low.min(other.low),
        }
    }

    /// Bounds of the products of cells.
    pub fn times(self, other: Self) -> Self {
        Self { top: self.top + other.top, bottom: self.bottom + other.bottom, low: self.low + other.low }
    }

    /// Bounds of rounded products, given those of exact ones.
    pub fn rounded(self) -> Self {
        Self { low: (self.bottom - 52).max(-1074), ..self }
    }

    /// Bounds of the errors of rounded products, given those of exact ones: at most half of the last bit.
    pub fn lost(self) -> Self {
        Self { top: self.top - 54, ..self }
    }

    /// Whether products in these bounds split into a double and an error that are both exact.
    pub fn in_double_range(self) -> bool {
        self.top <= 1000 && self.low >= -1074
    }
}

/// The exponent of the highest bit of a positive float.
pub(super) fn exponent(value: f64) -> i32 {
    let bits = value.to_bits();
    match (bits >> 52) as i32 {
        0 => -1011 - bits.leading_zeros() as i32,
        biased => biased - 1023,
    }
}

/// The number of bits by which a sum of `n` terms may exceed the largest.
#[inline(always)]
pub(super) fn growth(n: usize) -> i32 {
    n.next_power_of_two().trailing_zeros() as i32
}

/// The number whose addition and subtraction rounds to a multiple of 2^`unit`, from 2^-1074 on.
#[inline(always)]
pub(super) fn carrier(unit: i32) -> f64 {
    1.5 * f64::from_bits(((52 + unit + 1023) as u64) << 52)
}

/// Where terms are split so that the sum of each part is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cut {
    /// Nowhere: the sum of the terms is exact.
    Whole,
    /// Around one carrier, or two.
    Once([f64; 2]),
    Twice([f64; 2]),
}

impl Cut {
    /// The cut of `n` terms; `None` if two are not enough.
    pub fn new(bounds: Bounds, n: usize) -> Option<Self> {
        let Bounds { top, low, .. } = bounds;
        let log = growth(n).max(2);
        if top + log > 1020 {
            return None;
        }
        // The powers of two of the multiples that the parts above a carrier are. Nothing is left of terms below the lowest bit.
        let first = (top + log - 53).max(low);
        let second = first - 1 + log - 53;
        if top + log - low <= 53 {
            Some(Self::Whole)
        } else if first - 1 + log - low <= 53 {
            Some(Self::Once([carrier(first), 0.0]))
        } else if second - 1 + log - low <= 53 {
            Some(Self::Twice([carrier(first), carrier(second)]))
        } else {
            None
        }
    }

    /// Whether the sums of the parts of `n` terms in these bounds are exact; false for cuts around two carriers.
    pub fn holds(self, bounds: Bounds, n: usize) -> bool {
        let Bounds { top, low, .. } = bounds;
        let log = growth(n).max(2);
        match self {
            Self::Whole => top + log <= (low + 53).min(1020),
            Self::Once([first, _]) => {
                let unit = exponent(first) - 52;
                top + log <= (unit + 53).min(1020) && unit - 1 + log - low <= 53
            }
            Self::Twice(_) => false,
        }
    }

    /// The cut, around one carrier where none is needed.
    pub fn split_once(self, bounds: Bounds) -> Self {
        if let Self::Whole = self { Self::Once([carrier(bounds.low), 0.0]) } else { self }
    }

    /// The sums of the parts of terms.
    #[inline]
    pub fn sums<T: Real, K: Term>(self, x: &[T], y: &[T]) -> [f64; 3] {
        match self {
            Self::Whole => split::<T, K, 1>(x, y, [0.0; 2]),
            Self::Once(carriers) => split::<T, K, 2>(x, y, carriers),
            Self::Twice(carriers) => split::<T, K, 3>(x, y, carriers),
        }
    }

    /// Adds the terms of the columns of rows of the same length to the parts of each column.
    #[inline]
    pub fn add_columns<'a, T: Real + 'a, K: Term>(
        self,
        rows: impl ExactSizeIterator<Item = &'a [T]>,
        parts: &mut [Vec<f64>; 3],
    ) {
        let mut rows = rows;
        let mut eight: [&[T]; ROWS] = [&[]; ROWS];
        while rows.len() > 0 {
            let count = rows.len().min(ROWS);
            eight.iter_mut().zip(&mut rows).take(count).for_each(|(to, row)| *to = row);
            if count < ROWS {
                eight[..count].iter().for_each(|row| self.add_each::<T, K, 1>([row], parts));
                return;
            }
            self.add_each::<T, K, ROWS>(eight, parts);
        }
    }

    #[inline]
    fn add_each<T: Real, K: Term, const R: usize>(self, rows: [&[T]; R], parts: &mut [Vec<f64>; 3]) {
        match self {
            Self::Whole => split_columns::<T, K, 1, R>(rows, [0.0; 2], parts),
            Self::Once(carriers) => split_columns::<T, K, 2, R>(rows, carriers, parts),
            Self::Twice(carriers) => split_columns::<T, K, 3, R>(rows, carriers, parts),
        }
    }

    /// The number of parts of a term.
    pub fn parts(self) -> usize {
        match self {
            Self::Whole => 1,
            Self::Once(_) => 2,
            Self::Twice(_) => 3,
        }
    }
}

/// The term that two cells add to a sum.
pub(crate) trait Term {
    fn value(x: f64, y: f64) -> f64;
}

/// The first cell.
pub(crate) struct First;
/// The rounded product.
pub(crate) struct RoundedProduct;
/// The rounding error of the product.
pub(crate) struct ProductError;

impl Term for First {
    #[inline(always)]
    fn value(x: f64, _: f64) -> f64 {
        x
    }
}

impl Term for RoundedProduct {
    #[inline(always)]
    fn value(x: f64, y: f64) -> f64 {
        x * y
    }
}

impl Term for ProductError {
    #[inline(always)]
    fn value(x: f64, y: f64) -> f64 {
        x.mul_add(y, -(x * y))
    }
}

/// Adds the parts of a term.
#[inline(always)]
fn add_parts<const PARTS: usize>(term: f64, [first, second]: [f64; 2], sums: &mut [f64; 3]) {
    if PARTS == 1 {
        sums[0] += term;
        return;
    }
    let high = (term + first) - first;
    sums[0] += high;
    let mut rest = term - high;
    if PARTS == 3 {
        let middle = (rest + second) - second;
        sums[2] += middle;
        rest -= middle;
    }
    sums[1] += rest;
}

// The loops are in functions that are always inlined, and these compile them for each instruction set.

#[multiversion(targets("x86_64+avx2+fma"))]
fn split<T: Real, K: Term, const PARTS: usize>(x: &[T], y: &[T], carriers: [f64; 2]) -> [f64; 3] {
    split_rows::<T, K, PARTS>(x, y, carriers)
}

#[inline(always)]
fn split_rows<T: Real, K: Term, const PARTS: usize>(x: &[T], y: &[T], carriers: [f64; 2]) -> [f64; 3] {
    let mut sums = [[0.0; COLUMNS]; 3];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<COLUMNS>(), y.as_chunks::<COLUMNS>());
    let ((x, x_rows), (y, y_rows)) = (x.as_chunks::<ROWS>(), y.as_chunks::<ROWS>());
    for (x, y) in x.iter().zip(y) {
        add_rows::<T, K, PARTS, ROWS>(x, y, carriers, &mut sums);
    }
    for (x, y) in x_rows.iter().zip(y_rows) {
        add_rows::<T, K, PARTS, 1>(&[*x], &[*y], carriers, &mut sums);
    }
    // Parts of zeros are zeros.
    add_rows::<T, K, PARTS, 1>(&[padded(x_rest)], &[padded(y_rest)], carriers, &mut sums);
    sums.map(halve)
}

#[inline(always)]
fn add_rows<T: Real, K: Term, const PARTS: usize, const R: usize>(
    x: &[[T; COLUMNS]; R],
    y: &[[T; COLUMNS]; R],
    carriers: [f64; 2],
    [high, low, middle]: &mut [[f64; COLUMNS]; 3],
) {
    for i in 0..COLUMNS {
        let mut sums = [high[i], low[i], middle[i]];
        for r in 0..R {
            add_parts::<PARTS>(K::value(x[r][i].wide(), y[r][i].wide()), carriers, &mut sums);
        }
        [high[i], low[i], middle[i]] = sums;
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn split_columns<T: Real, K: Term, const PARTS: usize, const R: usize>(
    rows: [&[T]; R],
    carriers: [f64; 2],
    parts: &mut [Vec<f64>; 3],
) {
    split_each_column::<T, K, PARTS, R>(rows, carriers, parts);
}

#[inline(always)]
fn split_each_column<T: Real, K: Term, const PARTS: usize, const R: usize>(
    rows: [&[T]; R],
    carriers: [f64; 2],
    [high, low, middle]: &mut [Vec<f64>; 3],
) {
    let n = high.len();
    let rows = rows.map(|row| &row[..n]);
    // Parts that do not occur have no columns.
    match PARTS {
        1 => {
            for (i, high) in high.iter_mut().enumerate() {
                for row in &rows {
                    *high += K::value(row[i].wide(), row[i].wide());
                }
            }
        }
        2 => {
            let (high, low) = (&mut high[..n], &mut low[..n]);
            for i in 0..n {
                let mut sums = [high[i], low[i], 0.0];
                for row in &rows {
                    add_parts::<PARTS>(K::value(row[i].wide(), row[i].wide()), carriers, &mut sums);
                }
                [high[i], low[i], _] = sums;
            }
        }
        _ => {
            let (high, low, middle) = (&mut high[..n], &mut low[..n], &mut middle[..n]);
            for i in 0..n {
                let mut sums = [high[i], low[i], middle[i]];
                for row in &rows {
                    add_parts::<PARTS>(K::value(row[i].wide(), row[i].wide()), carriers, &mut sums);
                }
                [high[i], low[i], middle[i]] = sums;
            }
        }
    }
}

/// The last cells of a block and zeros.
#[inline(always)]
pub(super) fn padded<T: Copy + Default, const N: usize>(rest: &[T]) -> [T; N] {
    let mut group = [T::default(); N];
    group[..rest.len()].copy_from_slice(rest);
    group
}

/// Adds lanes by halves.
#[inline(always)]
pub(super) fn halve<const N: usize>(mut lanes: [f64; N]) -> f64 {
    const { assert!(N.is_power_of_two()) };
    let mut width = N;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}
