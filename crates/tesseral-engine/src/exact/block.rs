//! Exact sums of blocks of floats and of their products.
//!
//! # Algorithm
//!
//! All cells of a block are multiples of 2^`low` below 2^`top` by magnitude, which the largest and the smallest non-zero cell show.
//! A sum of `n ≤ 2^log` multiples of 2^low is a multiple too, so it is exact in a double as long as it stays below 2^(low + 53):
//!
//! ```text
//! top + log - low <= 53           add the cells: no addition rounds               (nearly all float32 data)
//! otherwise split each cell at 2^h, h = top + log - 53:
//!     high = (x + C) - C          the multiple of 2^h nearest to x, for C = 1.5 · 2^(52 + h)
//!     rest = x - high             exact, at most 2^(h - 1)
//!     the sum of the high parts is exact by the choice of h, that of the rests if (h - 1) + log - low <= 53
//!                                                                                 (nearly all float64 data)
//! otherwise split the rests once more; otherwise add the integers of all cells to limbs
//! ```
//!
//! The two or three exact sums of a block are added to limbs, which never round.
//!
//! 1. Plain sum, largest and smallest cell of float32 come from one loop, which is all that most blocks need. Sums of float64 are never
//!    exact without a split, so the plain sum is not tried.
//! 2. Zeros must not count as the smallest cell. One less than the bits of 0 is the largest unsigned integer, and a NaN as a
//!    double, so the same minimum that finds the smallest cell skips zeros.
//! 3. Sums have a fixed number of lanes, which are combined at the end; all of it is exact, so the number of lanes is free.
//! 4. Products are computed into a small buffer and summed like cells. A product of float32 is exact in a double. One of float64 is the
//!    rounded product and its error, which a fused multiply-add gives; both are summed. Where the error could underflow or the product
//!    overflow, the 106-bit integer products go to limbs.
//! 5. NaN and infinities show in the largest cell (float32) or the sum (float64); such blocks are left to the caller.

use multiversion::multiversion;

use super::fixed::{AllLimbs, Fixed};
use super::slots::SlotSums;

/// Cells whose sums are computed together.
pub(crate) const BLOCK: usize = 2048;
/// Products that are buffered.
const PRODUCTS: usize = 512;
const LANES: usize = 16;

/// All of some floats are at most 2^`top` by magnitude and multiples of 2^`low`; no non-zero one is below 2^`bottom`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    top: i32,
    bottom: i32,
    low: i32,
}

impl Bounds {
    /// Bounds from the largest and the smallest magnitude.
    fn new(largest: f64, smallest: f64, fraction_bits: i32, least: i32) -> Self {
        let bottom = exponent(smallest);
        Self { top: exponent(largest) + 1, bottom, low: (bottom - fraction_bits).max(least) }
    }

    /// Bounds of the products of cells.
    fn times(self, other: Self) -> Self {
        Self { top: self.top + other.top, bottom: self.bottom + other.bottom, low: self.low + other.low }
    }

    /// Whether products in these bounds split into a double and an error that are both exact.
    fn in_double_range(self) -> bool {
        self.top <= 1000 && self.low >= -1074
    }
}

/// The exponent of the highest bit of a positive float.
fn exponent(value: f64) -> i32 {
    let bits = value.to_bits();
    match (bits >> 52) as i32 {
        0 => -1011 - bits.leading_zeros() as i32,
        biased => biased - 1023,
    }
}

/// What one loop over a block finds.
pub(crate) struct BlockScan {
    /// The sum, of use if the bounds show that it is exact; `None` if there was no point in adding.
    sum: Option<f64>,
    /// `None` if all cells are zeros.
    bounds: Option<Bounds>,
}

/// Floats that blocks consist of.
pub(crate) trait Real: Copy + Default {
    /// Whether a product is exact in a double.
    const EXACT_PRODUCT: bool;
    /// The value as a double.
    fn wide(self) -> f64;
    /// Whether all are below [`SlotSums::LIMIT`] by magnitude, which NaN is not.
    fn are_terms(cells: &[Self]) -> bool;
    /// Bounds of at most a block; `None` with NaN or infinities, which may escape notice where there is no sum.
    fn scan(block: &[Self]) -> Option<BlockScan>;
}

impl Real for f32 {
    const EXACT_PRODUCT: bool = true;

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn are_terms(cells: &[Self]) -> bool {
        let magnitude = |x: &f32| x.to_bits() & (u32::MAX >> 1);
        cells.iter().fold(0, |largest, x| magnitude(x).max(largest)) < Self::INFINITY.to_bits()
    }

    #[inline(always)]
    fn scan(block: &[Self]) -> Option<BlockScan> {
        let mut sum = [0.0; LANES];
        let (mut largest, mut smallest) = ([0; LANES], [u32::MAX; LANES]);
        let (groups, rest) = block.as_chunks::<LANES>();
        for group in groups {
            scan_f32(group, &mut sum, &mut largest, &mut smallest);
        }
        scan_f32(&padded(rest), &mut sum, &mut largest, &mut smallest);
        let largest = largest.into_iter().fold(0, u32::max);
        let smallest = smallest.into_iter().fold(u32::MAX, u32::min);
        if largest >= f32::INFINITY.to_bits() {
            return None;
        }
        let wide = |bits: u32| f64::from(f32::from_bits(bits));
        let bounds =
            (largest > 0).then(|| Bounds::new(wide(largest), wide(smallest.wrapping_add(1)), 23, -149));
        Some(BlockScan { sum: Some(halve(sum)), bounds })
    }
}

impl Real for f64 {
    const EXACT_PRODUCT: bool = false;

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn are_terms(cells: &[Self]) -> bool {
        let magnitude = |x: &f64| (x.to_bits() & (u64::MAX >> 1)).cast_signed();
        cells.iter().fold(0, |largest, x| magnitude(x).max(largest)) < SlotSums::LIMIT.to_bits().cast_signed()
    }

    #[inline(always)]
    fn scan(block: &[Self]) -> Option<BlockScan> {
        let (mut largest, mut smallest) = ([0.0; LANES], [f64::MAX; LANES]);
        let (groups, rest) = block.as_chunks::<LANES>();
        for group in groups {
            scan_f64(group, &mut largest, &mut smallest);
        }
        scan_f64(&padded(rest), &mut largest, &mut smallest);
        let largest = largest.into_iter().fold(0.0, f64::max);
        let smallest = smallest.into_iter().fold(f64::MAX, f64::min);
        if largest == f64::INFINITY {
            return None;
        }
        let smallest = f64::from_bits(smallest.to_bits() + 1).min(largest);
        let bounds = (largest > 0.0).then(|| Bounds::new(largest, smallest, 52, -1074));
        Some(BlockScan { sum: None, bounds })
    }
}

#[inline(always)]
fn scan_f32(
    group: &[f32; LANES],
    sum: &mut [f64; LANES],
    largest: &mut [u32; LANES],
    smallest: &mut [u32; LANES],
) {
    const MAGNITUDE: u32 = u32::MAX >> 1;
    for i in 0..LANES {
        sum[i] += f64::from(group[i]);
    }
    for i in 0..LANES {
        let magnitude = group[i].to_bits() & MAGNITUDE;
        largest[i] = largest[i].max(magnitude);
        smallest[i] = smallest[i].min(magnitude.wrapping_sub(1));
    }
}

#[inline(always)]
fn scan_f64(group: &[f64; LANES], largest: &mut [f64; LANES], smallest: &mut [f64; LANES]) {
    for i in 0..LANES {
        let magnitude = group[i].abs();
        largest[i] = if magnitude > largest[i] { magnitude } else { largest[i] };
        let less = f64::from_bits(magnitude.to_bits().wrapping_sub(1));
        smallest[i] = if less < smallest[i] { less } else { smallest[i] };
    }
}

/// The last cells of a block and zeros.
#[inline(always)]
fn padded<T: Copy + Default, const N: usize>(rest: &[T]) -> [T; N] {
    let mut group = [T::default(); N];
    group[..rest.len()].copy_from_slice(rest);
    group
}

/// Adds lanes by halves.
#[inline(always)]
fn halve<const N: usize>(mut lanes: [f64; N]) -> f64 {
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

// The loops are in functions that are always inlined, and these compile them for each instruction set.

#[multiversion(targets("x86_64+avx2"))]
fn scan<T: Real>(block: &[T]) -> Option<BlockScan> {
    T::scan(block)
}

#[multiversion(targets("x86_64+avx2"))]
fn split<T: Real, const TWICE: bool>(block: &[T], carriers: [f64; 2]) -> [f64; 3] {
    split_lanes::<T, TWICE>(block, carriers)
}

/// Sums of the parts of cells around the carriers.
///
/// Parts go through small buffers: loops that only split and loops that only add both vectorize; a combined loop does not.
#[inline(always)]
fn split_lanes<T: Real, const TWICE: bool>(block: &[T], [first, second]: [f64; 2]) -> [f64; 3] {
    const BUFFER: usize = 8 * LANES;
    let (mut high, mut middle, mut low) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let (mut upper, mut lower, mut rest) = ([0.0; BUFFER], [0.0; BUFFER], [0.0; BUFFER]);
    for piece in block.chunks(BUFFER) {
        for ((upper, rest), x) in upper.iter_mut().zip(&mut rest).zip(piece) {
            let x = x.wide();
            *upper = (x + first) - first;
            *rest = x - *upper;
        }
        // Zeros pad the last group.
        let used = piece.len().next_multiple_of(LANES);
        upper[piece.len()..used].fill(0.0);
        rest[piece.len()..used].fill(0.0);
        add_lanes(&upper[..used], &mut high);
        if TWICE {
            for (lower, rest) in lower[..used].iter_mut().zip(&mut rest[..used]) {
                *lower = (*rest + second) - second;
                *rest -= *lower;
            }
            add_lanes(&lower[..used], &mut middle);
        }
        add_lanes(&rest[..used], &mut low);
    }
    [halve(high), halve(middle), halve(low)]
}

#[inline(always)]
fn add_lanes(cells: &[f64], lanes: &mut [f64; LANES]) {
    for group in cells.as_chunks::<LANES>().0 {
        for i in 0..LANES {
            lanes[i] += group[i];
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn multiply<T: Real>(x: &[T], y: &[T], products: &mut [f64], errors: &mut [f64]) {
    multiply_each(x, y, products, errors);
}

/// Products of cells, and their rounding errors where there are any.
#[inline(always)]
fn multiply_each<T: Real>(x: &[T], y: &[T], products: &mut [f64], errors: &mut [f64]) {
    for ((product, x), y) in products.iter_mut().zip(x).zip(y) {
        *product = x.wide() * y.wide();
    }
    if !T::EXACT_PRODUCT {
        for (((error, product), x), y) in errors.iter_mut().zip(products).zip(x).zip(y) {
            *error = x.wide().mul_add(y.wide(), -*product);
        }
    }
}

/// The number of bits by which a sum of `n` terms may exceed the largest.
#[inline(always)]
fn growth(n: usize) -> i32 {
    n.next_power_of_two().trailing_zeros() as i32
}

/// Adds floats within bounds to a sum; false, without effect, if a NaN escaped notice.
#[inline(always)]
fn add_within<T: Real>(block: &[T], bounds: Bounds, to: &mut Fixed) -> bool {
    let Bounds { top, low, .. } = bounds;
    let log = growth(block.len()).max(2);
    // The powers of two of the multiples that the parts above a carrier are. Nothing is left of cells below the lowest bit.
    let first = (top + log - 53).max(low);
    let second = first - 1 + log - 53;
    let carrier = |unit: i32| 1.5 * power_of_two(52 + unit);
    let sums = if top + log > 1020 {
        None
    } else if first - 1 + log - low <= 53 {
        Some(split::<T, false>(block, [carrier(first), 0.0]))
    } else if second - 1 + log - low <= 53 {
        Some(split::<T, true>(block, [carrier(first), carrier(second)]))
    } else {
        None
    };
    match sums {
        Some(sums) if sums[0].is_finite() => sums.into_iter().for_each(|sum| to.add_f64(sum)),
        Some(_) => return false,
        None => {
            if block.iter().any(|x| x.wide().is_nan()) {
                return false;
            }
            let mut limbs = AllLimbs::new();
            block.iter().for_each(|x| limbs.add_f64(x.wide()));
            limbs.add_to(to);
        }
    }
    true
}

/// 2^`exponent`, for the exponents of normal doubles.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Adds at most a block to a sum, and the squares of its cells to another; false, without effect, with NaN or infinities.
#[inline]
pub(crate) fn add_block<T: Real>(block: &[T], sum: &mut Fixed, squares: Option<&mut Fixed>) -> bool {
    let Some(BlockScan { sum: plain, bounds }) = scan(block) else { return false };
    let Some(bounds) = bounds else {
        // NaNs among zeros do not show in the bounds of doubles.
        return block.iter().all(|x| x.wide() == 0.0);
    };
    let exact = bounds.top + growth(block.len()) - bounds.low <= 53;
    match plain.filter(|_| exact) {
        Some(plain) => sum.add_f64(plain),
        None if !add_within(block, bounds, sum) => return false,
        None => {}
    }
    if let Some(squares) = squares {
        add_products(block, block, (bounds, bounds), squares);
    }
    true
}

/// Whether sums of one cell from each row are exact doubles; false if that is not known, as with NaN or infinities.
pub(crate) fn rows_add_exactly<'a, T: Real + 'a>(rows: impl ExactSizeIterator<Item = &'a [T]>) -> bool {
    let log = growth(rows.len());
    let (mut top, mut low) = (i32::MIN, i32::MAX);
    for row in rows {
        match scan(row) {
            // Without a sum there is no hope: the cells have as many bits as a double.
            None | Some(BlockScan { sum: None, .. }) => return false,
            Some(BlockScan { bounds, .. }) => {
                top = bounds.map_or(top, |bounds| bounds.top.max(top));
                low = bounds.map_or(low, |bounds| bounds.low.min(low));
            }
        }
    }
    low == i32::MAX || top + log - low <= 53
}

/// Bounds of at most a block of finite floats; `None` if all are zeros.
pub(crate) fn bounds<T: Real>(block: &[T]) -> Option<Bounds> {
    scan(block)?.bounds
}

/// Adds the products of finite cells, two and two, to a sum, given bounds of both.
pub(crate) fn add_products<T: Real>(x: &[T], y: &[T], bounds: (Bounds, Bounds), to: &mut Fixed) {
    let exact = bounds.0.times(bounds.1);
    if !exact.in_double_range() {
        let mut limbs = AllLimbs::new();
        x.iter().zip(y).for_each(|(x, y)| limbs.add_product(x.wide(), y.wide()));
        limbs.add_to(to);
        return;
    }
    let (mut products, mut errors) = ([0.0; PRODUCTS], [0.0; PRODUCTS]);
    for (x, y) in x.chunks(PRODUCTS).zip(y.chunks(PRODUCTS)) {
        let n = x.len();
        multiply(x, y, &mut products[..n], &mut errors[..n]);
        if T::EXACT_PRODUCT {
            add_within(&products[..n], exact, to);
        } else {
            // The error of a rounded product is at most half of its last bit.
            let rounded = Bounds { low: (exact.bottom - 52).max(-1074), ..exact };
            let lost = Bounds { top: exact.top - 54, ..exact };
            add_within(&products[..n], rounded, to);
            add_within(&errors[..n], lost, to);
        }
    }
}
