//! Exact sums of blocks of floats and of their products.
//!
//! # Algorithm
//!
//! All cells of a block are multiples of 2^`low` below 2^`top` by magnitude, which the largest and the smallest non-zero cell show.
//! A sum of `n ≤ 2^log` multiples of 2^low is a multiple too, so it is exact in a double as long as it stays below 2^(low + 53):
//!
//! ```text
//! top + log - low <= 53           add the cells: no addition rounds               (nearly all float32 data)
//! otherwise split each cell at 2^h, h = top + log - 53 (see `split`):
//!     the sum of the high parts is exact by the choice of h, that of the rests if (h - 1) + log - low <= 53
//!                                                                                 (nearly all float64 data)
//! otherwise split the remainders again; otherwise add the integers of all cells to limbs
//! ```
//!
//! The two or three exact sums of a block are added to limbs, which never round.
//!
//! 1. Sums, largest and smallest cell come from one loop, which is all that most blocks need. For float32 it is the plain sum. For
//!    float64 the loop splits at a power that is guessed from the first cells; any `h` from `top + log - 53` to `54 + low - log`
//!    will do, so cells from 2^-24 to 2^8 times those agree with the guess. Other blocks take a second loop.
//! 2. Zeros must not count as the smallest cell. One less than the bits of 0 is the largest unsigned integer, and a NaN as a
//!    double, so the same minimum that finds the smallest cell skips zeros.
//! 3. Sums have a fixed number of lanes, which are combined at the end; all of it is exact, so the number of lanes is free.
//! 4. A product of float32 is exact in a double. One of float64 is the rounded product and its error, which a fused multiply-add
//!    gives; both are split and summed. Where the error could underflow or the product overflow, the 106-bit integer products go
//!    to limbs.
//! 5. Squares of float32 cells that differ by less than a factor of four are added around one of them.
//! 6. NaN and infinities show in the largest cell (float32) or the sum (float64); such blocks are left to the caller.

use multiversion::multiversion;

use super::fixed::{AllLimbs, Fixed, parts as parts_of};
use super::slots::SlotSums;
use super::split::{
    Bounds, COLUMNS, Cut, First, ProductError, ROWS, RoundedProduct, carrier, exponent, growth, halve, padded,
};

/// Cells whose sums are computed together.
pub(crate) const BLOCK: usize = 2048;
const LANES: usize = 16;
/// How many bits larger than the first cells others may be for the guess to hold.
const GUESS_SLACK: i32 = 8;

/// Result of one loop over a block.
pub(crate) struct BlockScan {
    /// The plain sum, or the sums of the parts above and below 2^`unit`; of use if the bounds show that they are exact.
    parts: [f64; 2],
    unit: Option<i32>,
    /// `None` if all cells are zeros.
    bounds: Option<Bounds>,
}

impl BlockScan {
    /// The parts, whose sum is that of `n` cells, if they are exact.
    fn exact(&self, bounds: Bounds, n: usize) -> Option<[f64; 2]> {
        let Bounds { top, low, .. } = bounds;
        let log = growth(n).max(2);
        let exact = match self.unit {
            None => top + log - low <= 53,
            Some(unit) => top + log <= (unit + 53).min(1020) && unit - 1 + log - low <= 53,
        };
        exact.then_some(self.parts)
    }
}

/// Floats that blocks consist of.
pub(crate) trait Real: Copy + Default {
    /// Whether a product is exact in a double.
    const EXACT_PRODUCT: bool;
    /// The value as a double.
    fn wide(self) -> f64;
    /// Whether all are below [`SlotSums::LIMIT`] by magnitude, which NaN is not.
    fn are_terms(cells: &[Self]) -> bool;
    /// Sums and bounds of at most a block; `None` with infinities, and with NaN unless it shows in the parts.
    fn scan(block: &[Self]) -> Option<BlockScan>;
    /// A magnitude in the form that loops compare.
    type Magnitude: Copy;
    /// The largest and the smallest magnitude of no cells.
    const NO_MAGNITUDES: (Self::Magnitude, Self::Magnitude);
    /// Compares with the largest and, except for zeros, with the smallest magnitude.
    fn compare(self, largest: &mut Self::Magnitude, smallest: &mut Self::Magnitude);
    /// Bounds of compared cells, `None` if all are zeros; an outer `None` with infinities and, for float32, with NaN.
    fn bounds_of(largest: &[Self::Magnitude], smallest: &[Self::Magnitude]) -> Option<Option<Bounds>>;
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
        let bounds = Self::bounds_of(&largest, &smallest)?;
        Some(BlockScan { parts: [halve(sum), 0.0], unit: None, bounds })
    }

    type Magnitude = u32;
    const NO_MAGNITUDES: (u32, u32) = (0, u32::MAX);

    #[inline(always)]
    fn compare(self, largest: &mut u32, smallest: &mut u32) {
        let magnitude = self.to_bits() & (u32::MAX >> 1);
        *largest = magnitude.max(*largest);
        *smallest = magnitude.wrapping_sub(1).min(*smallest);
    }

    #[inline(always)]
    fn bounds_of(largest: &[u32], smallest: &[u32]) -> Option<Option<Bounds>> {
        let largest = largest.iter().copied().fold(0, u32::max);
        let smallest = smallest.iter().copied().fold(u32::MAX, u32::min);
        if largest >= f32::INFINITY.to_bits() {
            return None;
        }
        let wide = |bits: u32| f64::from(f32::from_bits(bits));
        Some((largest > 0).then(|| Bounds::new(wide(largest), wide(smallest.wrapping_add(1)), 23, -149)))
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
        let first = block.iter().take(COLUMNS).fold(0.0_f64, |largest, x| x.abs().max(largest));
        let top = exponent(if first > 0.0 { first } else { 1.0 }) + 1 + GUESS_SLACK;
        let unit = (top + growth(block.len()) - 53).clamp(-1074, 960);
        let mut lanes = ScanLanes::new();
        let (rows, rest) = block.as_chunks::<COLUMNS>();
        let (groups, rows) = rows.as_chunks::<ROWS>();
        for group in groups {
            lanes.add(group, carrier(unit));
        }
        for row in rows {
            lanes.add(&[*row], carrier(unit));
        }
        lanes.add(&[padded(rest)], carrier(unit));
        let bounds = Self::bounds_of(&lanes.largest, &lanes.smallest)?;
        Some(BlockScan { parts: [halve(lanes.high), halve(lanes.rest)], unit: Some(unit), bounds })
    }

    type Magnitude = f64;
    const NO_MAGNITUDES: (f64, f64) = (0.0, f64::MAX);

    #[inline(always)]
    fn compare(self, largest: &mut f64, smallest: &mut f64) {
        let magnitude = self.abs();
        *largest = if magnitude > *largest { magnitude } else { *largest };
        let less = f64::from_bits(magnitude.to_bits().wrapping_sub(1));
        *smallest = if less < *smallest { less } else { *smallest };
    }

    #[inline(always)]
    fn bounds_of(largest: &[f64], smallest: &[f64]) -> Option<Option<Bounds>> {
        let largest = largest.iter().copied().fold(0.0, f64::max);
        let smallest = smallest.iter().copied().fold(f64::MAX, f64::min);
        if largest == f64::INFINITY {
            return None;
        }
        let smallest = f64::from_bits(smallest.to_bits() + 1).min(largest);
        Some((largest > 0.0).then(|| Bounds::new(largest, smallest, 52, -1074)))
    }
}

#[inline(always)]
fn scan_f32(
    group: &[f32; LANES],
    sum: &mut [f64; LANES],
    largest: &mut [u32; LANES],
    smallest: &mut [u32; LANES],
) {
    for i in 0..LANES {
        sum[i] += f64::from(group[i]);
    }
    for i in 0..LANES {
        group[i].compare(&mut largest[i], &mut smallest[i]);
    }
}

/// Sums of parts, the largest magnitude, and the one below the smallest, by column.
struct ScanLanes {
    high: [f64; COLUMNS],
    rest: [f64; COLUMNS],
    largest: [f64; COLUMNS],
    smallest: [f64; COLUMNS],
}

impl ScanLanes {
    #[inline(always)]
    fn new() -> Self {
        Self {
            high: [0.0; COLUMNS],
            rest: [0.0; COLUMNS],
            largest: [0.0; COLUMNS],
            smallest: [f64::MAX; COLUMNS],
        }
    }

    #[inline(always)]
    fn add<const R: usize>(&mut self, rows: &[[f64; COLUMNS]; R], carrier: f64) {
        let Self { high, rest, largest, smallest } = self;
        for i in 0..COLUMNS {
            let (mut above, mut below, mut most, mut least) = (high[i], rest[i], largest[i], smallest[i]);
            for row in rows {
                let x = row[i];
                x.compare(&mut most, &mut least);
                let part = (x + carrier) - carrier;
                above += part;
                below += x - part;
            }
            (high[i], rest[i], largest[i], smallest[i]) = (above, below, most, least);
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn scan<T: Real>(block: &[T]) -> Option<BlockScan> {
    T::scan(block)
}

/// Adds at most a block to a sum, and the squares of its cells to another; false, without effect, with NaN or infinities.
#[inline]
pub(crate) fn add_block<T: Real>(block: &[T], sum: &mut Fixed, squares: Option<&mut Fixed>) -> bool {
    let Some(scan) = scan(block) else { return false };
    let Some(bounds) = scan.bounds else {
        // NaNs among zeros do not show in the bounds of doubles.
        return block.iter().all(|x| x.wide() == 0.0);
    };
    let parts = scan
        .exact(bounds, block.len())
        .map(|[high, rest]| [high, rest, 0.0])
        .or_else(|| Cut::new(bounds, block.len()).map(|cut| cut.sums::<T, First>(block, block)));
    match &parts {
        Some(parts) if parts.iter().all(|part| part.is_finite()) => {
            parts.iter().for_each(|part| sum.add_f64(*part));
        }
        Some(_) => return false,
        None => {
            if block.iter().any(|x| x.wide().is_nan()) {
                return false;
            }
            let mut limbs = AllLimbs::new();
            block.iter().for_each(|x| limbs.add_f64(x.wide()));
            limbs.add_to(sum);
        }
    }
    if let Some(squares) = squares
        && !parts.is_some_and(|parts| add_centered_squares(block, bounds, parts, squares))
    {
        add_products(block, block, (bounds, bounds), squares);
    }
    true
}

/// Adds the squares of similar cells, given the parts of their sum; false, without effect, if the squares of their distances from the
/// first one do not add up to an exact double. They need one multiplication and two additions per cell, parts of squares three more:
///
/// ```text
/// Σx² = Σ(x − c)² + 2c · Σx − n · c²
/// ```
///
/// Distances are multiples of 2^`low`, their squares and all sums of them multiples of 2^(2 · low). Rounding is monotonic, so no
/// rounded square and no rounded partial sum is larger than the last sum. If that is below 2^(2 · low + 53), all are exact.
fn add_centered_squares<T: Real>(block: &[T], bounds: Bounds, parts: [f64; 3], to: &mut Fixed) -> bool {
    let Bounds { top, bottom, low } = bounds;
    let cut = Cut::new(bounds.times(bounds), block.len());
    if !T::EXACT_PRODUCT || cut == Some(Cut::Whole) || top - bottom > 2 || top + 1 - low > 53 {
        return false;
    }
    let Some(center) = block.first().map(|x| x.wide()) else { return false };
    let squares = squared_distances(block, center);
    // In range, because cells whose products are doubles are far from the ends of the range.
    let limit = f64::from_bits(((2 * low + 53 + 1023) as u64) << 52);
    if squares >= limit {
        return false;
    }
    to.add_f64(squares);
    let (c, exponent) = parts_of(center);
    for part in parts {
        let (sum, shift) = parts_of(part);
        let negative = center.is_sign_negative() != part.is_sign_negative();
        to.add_wide(negative, u128::from(c) * u128::from(sum), exponent + shift + 1);
    }
    // 24 bits of c and at most 2^12 cells.
    to.add_wide(true, u128::from(c) * u128::from(c) * block.len() as u128, 2 * exponent);
    true
}

/// The sum of the squares of the distances from a center, in doubles.
#[multiversion(targets("x86_64+avx2"))]
fn squared_distances<T: Real>(block: &[T], center: f64) -> f64 {
    add_squared_distances(block, center)
}

#[inline(always)]
fn add_squared_distances<T: Real>(block: &[T], center: f64) -> f64 {
    let mut sums = [0.0; LANES];
    let (groups, rest) = block.as_chunks::<LANES>();
    for group in groups {
        for i in 0..LANES {
            let distance = group[i].wide() - center;
            sums[i] += distance * distance;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        let distance = x.wide() - center;
        *sum += distance * distance;
    }
    halve(sums)
}

/// Bounds of all cells of some rows of at most a block, `None` if all are zeros; an outer `None` if one may be NaN or infinite.
pub(crate) fn rows_bounds<'a, T: Real + 'a>(rows: impl Iterator<Item = &'a [T]>) -> Option<Option<Bounds>> {
    let mut all: Option<Bounds> = None;
    for row in rows {
        let BlockScan { parts, bounds, .. } = scan(row)?;
        if !parts.iter().all(|part| part.is_finite()) {
            return None;
        }
        all = match (all, bounds) {
            (Some(all), Some(bounds)) => Some(all.join(bounds)),
            (all, bounds) => all.or(bounds),
        };
    }
    Some(all)
}

/// Bounds of at most a block of finite floats; `None` if all are zeros.
pub(crate) fn bounds<T: Real>(block: &[T]) -> Option<Bounds> {
    scan(block)?.bounds
}

/// Adds the products of finite cells, two and two, to a sum, given bounds of both.
pub(crate) fn add_products<T: Real>(x: &[T], y: &[T], bounds: (Bounds, Bounds), to: &mut Fixed) {
    let mut add = |parts: [f64; 3]| parts.into_iter().for_each(|part| to.add_f64(part));
    match product_cuts::<T>(bounds.0.times(bounds.1), x.len()) {
        Some((products, errors)) => {
            add(products.sums::<T, RoundedProduct>(x, y));
            if let Some(errors) = errors {
                add(errors.sums::<T, ProductError>(x, y));
            }
        }
        None => {
            let mut limbs = AllLimbs::new();
            x.iter().zip(y).for_each(|(x, y)| limbs.add_product(x.wide(), y.wide()));
            limbs.add_to(to);
        }
    }
}

/// The cuts of `n` products within bounds, and of their errors where they have any; `None` if there is no way.
pub(crate) fn product_cuts<T: Real>(exact: Bounds, n: usize) -> Option<(Cut, Option<Cut>)> {
    if !exact.in_double_range() {
        return None;
    }
    if T::EXACT_PRODUCT {
        return Some((Cut::new(exact, n)?, None));
    }
    Some((Cut::new(exact.rounded(), n)?, Some(Cut::new(exact.lost(), n)?)))
}
