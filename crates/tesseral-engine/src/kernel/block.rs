//! The arithmetic of a block: as many cells as stay in L1 while several loops pass over them.
//!
//! Float additions round, so their order determines the result. It is fixed by *lanes*: element `i` is added to lane
//! `i mod L`, and the lanes are combined at the end by halves.
//!
//! ```text
//! lane[0..L] = 0
//! for each group of L cells:  lane[i] = lane[i] + cell[i] for all i     (a few vector instructions)
//! for the remaining cells:    the same, padded with zeros
//! while L > 1:                L = L / 2; lane[i] = lane[i] + lane[i + L]
//! ```
//!
//! 1. `L` does not depend on the machine, so neither does the order of additions: SSE2, AVX2 and NEON give the same
//!    bits. Nothing is contracted into fused multiply-adds, which would round differently.
//! 2. Several registers of lanes hide the latency of an addition.
//! 3. Integer sums are exact in any order, which is left to the compiler: cells of up to 16 bits are added in 32 bits,
//!    of 32 in 64, which a block cannot overflow, and 64-bit cells as their high and low halves.
//! 4. Minimum and maximum are computed on *keys*, integers in the order of the values: −0.0 sorts before 0.0, and NaNs lie
//!    outside the infinities, so that a NaN in a block shows in its range at no cost. It also shows in a sum that is not
//!    finite. NaNs are counted only then.
//! 5. Squares are taken around a center inside the block, so that a large common offset cancels before squaring; the
//!    rounding error of the center is corrected afterwards (`s2 - s1²/n`).

use bytemuck::Pod;
use multiversion::multiversion;
use tesseral_core::element::{bf16, f16};
use tesseral_core::{Element, Sum};

/// Second moments around a mean that is kept in two parts.
///
/// The mean is `mean + rest`: for cells at 10¹⁵ ± 1, one `f64` could not distinguish the means of two blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub mean: f64,
    pub rest: f64,
    /// Sum of squared deviations from the mean, and its rounding error.
    pub m2: f64,
    pub m2_rest: f64,
}

impl Moments {
    /// Moments from the sums of deviations and squared deviations around the center `high + low`.
    #[inline(always)]
    pub fn around(n: f64, high: f64, low: f64, s1: f64, s2: f64) -> Self {
        let shift = s1 / n;
        let m2 = s2 - s1 * shift;
        let (mean, rest) = two_sum(high, low + shift);
        // Not `max`, which would turn a NaN into 0.
        Self { mean, rest, m2: if m2 < 0.0 { 0.0 } else { m2 }, m2_rest: 0.0 }
    }

    /// Moments of equal cells.
    pub fn constant(high: f64, low: f64) -> Self {
        let (mean, rest) = two_sum(high, low);
        Self { mean, rest, m2: 0.0, m2_rest: 0.0 }
    }

    /// The combined moments, after Chan, Golub and LeVeque; `n` and `m` are the cell counts of both.
    #[inline(always)]
    pub fn merge(&mut self, n: f64, other: &Self, m: f64) {
        if m == 0.0 {
            return;
        }
        if n == 0.0 {
            *self = *other;
            return;
        }
        let part = m / (n + m);
        let delta = (other.mean - self.mean) + (other.rest - self.rest);
        neumaier(&mut self.m2, &mut self.m2_rest, other.m2);
        neumaier(&mut self.m2, &mut self.m2_rest, delta * delta * (n * part));
        self.m2_rest += other.m2_rest;
        let (mean, rest) = two_sum(self.mean, self.rest + delta * part);
        *self = Self { mean, rest, ..*self };
    }

    /// Sum of squared deviations from the mean.
    #[inline(always)]
    pub fn total(&self) -> f64 {
        compensated(self.m2, self.m2_rest)
    }
}

/// The rounded sum and its exact rounding error.
#[inline(always)]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// Adds `x` to a sum and the rounding error to `lost`.
#[inline(always)]
pub(crate) fn neumaier(sum: &mut f64, lost: &mut f64, x: f64) {
    let (a, b) = (*sum, x);
    let total = a + b;
    *lost += if a.abs() >= b.abs() { (a - total) + b } else { (b - total) + a };
    *sum = total;
}

/// The compensated sum; infinite and NaN sums are returned unchanged.
#[inline(always)]
pub(crate) fn compensated(sum: f64, lost: f64) -> f64 {
    if sum.is_finite() { sum + lost } else { sum }
}

/// Conversion of cells into the type that the block loops work on.
pub(crate) trait Cell: Element {
    /// The working type: the type itself, or `f32` for 16-bit floats, which it represents exactly.
    type WorkType: WorkType;
    /// Converts the cell to the working type.
    fn widen(self) -> Self::WorkType;
    /// The cell with a given key of [`WorkType`].
    fn from_key(key: i64) -> Self;
}

/// A type that the block loops are implemented for.
pub(crate) trait WorkType: Pod + PartialEq {
    /// Whether NaN and infinities exist.
    const FLOAT: bool;
    /// Cells per full block: at most 16 KiB, and few enough for the lanes not to overflow.
    const BLOCK: usize = if size_of::<Self>() == 8 { 2048 } else { 4096 };
    /// Keys of −∞ and +∞ for floats; the range of all keys for integers.
    const KEYS: (i64, i64);
    /// An integer in the order of the values.
    fn key(self) -> i64;
    /// Whether it is a NaN.
    fn nan(self) -> bool;
    /// Whether it is infinite.
    fn infinite(self) -> bool;
    /// Sum of at most a block.
    fn sum(block: &[Self]) -> Sum;
    /// Minimum and maximum key of at most a block; `(i64::MAX, i64::MIN)` or narrower when it is empty.
    fn range(block: &[Self]) -> (i64, i64);
    /// Moments of a non-empty slice of at most a block, given its sum.
    fn moments(block: &[Self], sum: Sum) -> Moments;
}

/// Lanes of float additions.
const LANES: usize = 16;

/// Adds floats in lanes, and the lanes by halves.
#[inline(always)]
fn sum_lanes<T: Copy>(cells: &[T], value: impl Fn(T) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (groups, rest) = cells.as_chunks::<LANES>();
    for group in groups {
        for i in 0..LANES {
            lanes[i] += value(group[i]);
        }
    }
    // The last group is padded with zeros.
    let mut last = [0.0; LANES];
    for (last, &cell) in last.iter_mut().zip(rest) {
        *last = value(cell);
    }
    for i in 0..LANES {
        lanes[i] += last[i];
    }
    sum_halving(lanes)
}

/// Adds lanes by halves.
#[inline(always)]
fn sum_halving(mut lanes: [f64; LANES]) -> f64 {
    const { assert!(LANES.is_power_of_two()) };
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

// The loops are in functions that are always inlined, and these compile them for each instruction set: a closure in the
// multiversioned function itself would be tied to its instruction set and could not be inlined into the plain iterator
// that calls it.

/// The number of NaN and infinite cells of at most a block.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn specials<W: WorkType>(block: &[W]) -> (u64, u64) {
    if W::FLOAT { (count(block, W::nan), count(block, W::infinite)) } else { (0, 0) }
}

/// [`WorkType::sum`], compiled for each instruction set.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn sum<W: WorkType>(block: &[W]) -> Sum {
    W::sum(block)
}

/// [`WorkType::range`], compiled for each instruction set.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn range<W: WorkType>(block: &[W]) -> (i64, i64) {
    W::range(block)
}

/// [`WorkType::moments`], compiled for each instruction set.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn moments<W: WorkType>(block: &[W], sum: Sum) -> Moments {
    W::moments(block, sum)
}

/// The number of cells of at most a block that satisfy a test.
#[inline(always)]
fn count<T: Copy>(block: &[T], test: impl Fn(T) -> bool) -> u64 {
    let mut n = 0_u32;
    for &cell in block {
        n += u32::from(test(cell));
    }
    u64::from(n)
}

/// Sums of deviations and of their squares.
///
/// Deviations go through a small buffer: a loop that only converts and a loop that only adds both vectorize; a combined loop
/// with twice as many lanes does not.
#[inline(always)]
fn deviations<T: Copy>(block: &[T], deviation: impl Fn(T) -> f64) -> (f64, f64) {
    const BUFFER: usize = 8 * LANES;
    let (mut s1, mut s2) = ([0.0; LANES], [0.0; LANES]);
    let mut buffer = [0.0; BUFFER];
    for piece in block.chunks(BUFFER) {
        for (d, &cell) in buffer.iter_mut().zip(piece) {
            *d = deviation(cell);
        }
        // Cells without deviation do not change the sums: they pad the last group.
        let used = piece.len().next_multiple_of(LANES);
        buffer[piece.len()..used].fill(0.0);
        for d in buffer[..used].as_chunks::<LANES>().0 {
            for i in 0..LANES {
                s1[i] += d[i];
                s2[i] += d[i] * d[i];
            }
        }
    }
    (sum_halving(s1), sum_halving(s2))
}

/// The center of integers: an integer near their mean, also as the two parts of an `f64`.
#[inline(always)]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
pub(crate) fn integer_center(sum: Sum, n: usize) -> (i128, f64, f64) {
    // The sum of a block of integers is below 2^75; the quotient is in the range of the cells.
    let center = match sum {
        Sum::Int(sum) => match i64::try_from(sum) {
            Ok(sum) => i128::from(sum / n as i64),
            Err(_) => sum / n as i128,
        },
        Sum::Float(_) => 0,
    };
    let high = center as f64;
    (center, high, (center - high as i128) as f64)
}

macro_rules! itself {
    ($($t:ty),*) => {$(
        impl Cell for $t {
            type WorkType = $t;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn from_key(key: i64) -> Self {
                <$t>::decode_key(key)
            }
        }
    )*};
}

itself!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Cell for f16 {
    type WorkType = f32;
    // Exponent and fraction are 13 bits higher in an `f32`, whose exponent bias is larger by 112. Infinity and NaN have the
    // highest exponent, which is another 112 away. Subnormals have no implicit leading 1: one is added together with an
    // exponent, and a subtraction removes it again.
    #[inline(always)]
    fn widen(self) -> f32 {
        const REBASE: u32 = 112 << 23;
        let bits = u32::from(self.to_bits());
        let magnitude = (bits & 0x7FFF) << 13;
        let normal = magnitude + REBASE;
        let special = normal + REBASE;
        let subnormal = (f32::from_bits(normal + (1 << 23)) - f32::from_bits(REBASE + (1 << 23))).to_bits();
        let value = if magnitude >= 0x1F << 23 { special } else { normal };
        let value = if magnitude < 1 << 23 { subnormal } else { value };
        f32::from_bits(value | (bits & 0x8000) << 16)
    }
    fn from_key(key: i64) -> Self {
        f16::from_f32(f32::decode_key(key))
    }
}

impl Cell for bf16 {
    type WorkType = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    fn from_key(key: i64) -> Self {
        bf16::from_f32(f32::decode_key(key))
    }
}

/// Conversion from keys back to values.
trait DecodeKey {
    fn decode_key(key: i64) -> Self;
}

/// Minimum and maximum of keys of any width.
#[inline(always)]
fn key_range<T: Copy, K: Ord + Copy + Into<i64>>(
    block: &[T],
    none: (K, K),
    key: impl Fn(T) -> K,
) -> (i64, i64) {
    let (min, max) = block.iter().fold(none, |(min, max), &cell| {
        let key = key(cell);
        (min.min(key), max.max(key))
    });
    (min.into(), max.into())
}

macro_rules! integers {
    ($($t:ty, sum $wide:ty, moments $moments:ident;)*) => {$(
        impl DecodeKey for $t {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn decode_key(key: i64) -> Self {
                key as $t
            }
        }

        impl WorkType for $t {
            const FLOAT: bool = false;
            const KEYS: (i64, i64) = (i64::MIN, i64::MAX);
            #[inline(always)]
            fn key(self) -> i64 {
                i64::from(self)
            }
            #[inline(always)]
            fn nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn infinite(self) -> bool {
                false
            }
            #[inline(always)]
            fn sum(block: &[Self]) -> Sum {
                // Cannot overflow at this width; wrapping operations keep overflow checks out of the loops of test builds.
                let sum = block.iter().fold(0, |sum: $wide, &x| sum.wrapping_add(<$wide>::from(x)));
                Sum::Int(i128::from(sum))
            }
            #[inline(always)]
            fn range(block: &[Self]) -> (i64, i64) {
                key_range(block, (Self::MAX, Self::MIN), |x| x)
            }
            #[inline(always)]
            fn moments(block: &[Self], sum: Sum) -> Moments {
                $moments(block, sum)
            }
        }
    )*};
}

integers! {
    i8, sum i32, moments byte_moments;
    u8, sum i32, moments byte_moments;
    i16, sum i32, moments centered_moments;
    u16, sum i32, moments centered_moments;
    i32, sum i64, moments centered_moments;
    u32, sum i64, moments centered_moments;
}

/// Moments of bytes, entirely in integers: the squares of a block sum to less than 2^29. The order of exact additions is
/// irrelevant, so the compiler may use multiply-add instructions.
#[inline(always)]
#[allow(clippy::cast_precision_loss)]
fn byte_moments<T: Copy + Into<i32>>(block: &[T], sum: Sum) -> Moments {
    let squares = block.iter().fold(0_i32, |sum, &x| {
        let x: i32 = x.into();
        sum.wrapping_add(x.wrapping_mul(x))
    });
    let squares = i128::from(squares);
    let n = block.len() as i128;
    let (center, high, low) = integer_center(sum, block.len());
    let sum = match sum {
        Sum::Int(sum) => sum,
        Sum::Float(_) => 0,
    };
    let s1 = sum - n * center;
    let s2 = squares - 2 * center * sum + n * center * center;
    Moments::around(n as f64, high, low, s1 as f64, s2 as f64)
}

/// Moments of integers whose differences are exact in `f64`.
#[inline(always)]
#[allow(clippy::cast_precision_loss)]
fn centered_moments<T: Copy + Into<f64>>(block: &[T], sum: Sum) -> Moments {
    let (_, high, low) = integer_center(sum, block.len());
    let (s1, s2) = deviations(block, |x| x.into() - high);
    Moments::around(block.len() as f64, high, low, s1, s2)
}

/// Sum of 64-bit integers given as signed or unsigned high halves and low halves.
#[inline(always)]
fn sum_halves<T: Copy>(block: &[T], high: impl Fn(T) -> i64, low: impl Fn(T) -> i64) -> Sum {
    let (highs, lows) = block
        .iter()
        .fold((0_i64, 0_i64), |(highs, lows), &x| (highs.wrapping_add(high(x)), lows.wrapping_add(low(x))));
    Sum::Int((i128::from(highs) << 32) + i128::from(lows))
}

/// Moments of 64-bit integers given as biased high halves (`high + 2^31` for signed ones) and low halves.
///
/// A difference of two such integers may exceed 64 bits, and rounding either to `f64` first would lose the low bits under a
/// large offset. Halves are below 2^32: inserted into the fraction of 2^52 they are exact floats without a conversion, as are
/// their differences from the halves of the center, and only the sum of both is rounded, once.
#[inline(always)]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn centered_moments_halves<T: Copy>(
    block: &[T],
    sum: Sum,
    bias: i64,
    halves: impl Fn(T) -> (u64, u64),
) -> Moments {
    const CARRIER: u64 = 0x4330_0000_0000_0000;
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    const TWO_32: f64 = 4_294_967_296.0;
    let (center, high, low) = integer_center(sum, block.len());
    let center_high = TWO_52 + ((center >> 32) as i64 + bias) as f64;
    let center_low = TWO_52 + (center & 0xFFFF_FFFF) as f64;
    let (s1, s2) = deviations(block, |x| {
        let (high, low) = halves(x);
        let high = f64::from_bits(CARRIER | high) - center_high;
        let low = f64::from_bits(CARRIER | low) - center_low;
        high * TWO_32 + low
    });
    Moments::around(block.len() as f64, high, low, s1, s2)
}

macro_rules! wide_integers {
    ($($t:ty, flip $flip:expr, bias $bias:expr;)*) => {$(
        impl DecodeKey for $t {
            #[inline(always)]
            #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]
            fn decode_key(key: i64) -> Self {
                (key ^ $flip) as $t
            }
        }

        #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]
        impl WorkType for $t {
            const FLOAT: bool = false;
            const KEYS: (i64, i64) = (i64::MIN, i64::MAX);
            #[inline(always)]
            fn key(self) -> i64 {
                self as i64 ^ $flip
            }
            #[inline(always)]
            fn nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn infinite(self) -> bool {
                false
            }
            #[inline(always)]
            fn sum(block: &[Self]) -> Sum {
                sum_halves(block, |x| (x >> 32) as i64, |x| x as i64 & 0xFFFF_FFFF)
            }
            #[inline(always)]
            fn range(block: &[Self]) -> (i64, i64) {
                key_range(block, (i64::MAX, i64::MIN), WorkType::key)
            }
            #[inline(always)]
            fn moments(block: &[Self], sum: Sum) -> Moments {
                centered_moments_halves(block, sum, $bias, |x| {
                    let x = x as u64 ^ (($bias as u64) << 32);
                    (x >> 32, x & 0xFFFF_FFFF)
                })
            }
        }
    )*};
}

wide_integers! {
    i64, flip 0, bias 1_i64 << 31;
    u64, flip i64::MIN, bias 0_i64;
}

macro_rules! floats {
    ($($t:ty, key $key:ty;)*) => {$(
        impl DecodeKey for $t {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation)]
            fn decode_key(key: i64) -> Self {
                let key = key as $key;
                // The same conditional bit flip as in `key`, which is its own inverse.
                Self::from_bits((key ^ ((key >> (<$key>::BITS - 1)) & <$key>::MAX)).cast_unsigned())
            }
        }

        impl WorkType for $t {
            const FLOAT: bool = true;
            const KEYS: (i64, i64) = {
                let infinity = Self::INFINITY.to_bits().cast_signed();
                (!infinity as i64, infinity as i64)
            };
            #[inline(always)]
            #[allow(clippy::useless_conversion)]
            fn key(self) -> i64 {
                let bits = self.to_bits().cast_signed();
                // Negative numbers sort in reverse: all bits but the sign are flipped.
                i64::from(bits ^ ((bits >> (<$key>::BITS - 1)) & <$key>::MAX))
            }
            #[inline(always)]
            fn nan(self) -> bool {
                self.is_nan()
            }
            #[inline(always)]
            fn infinite(self) -> bool {
                self.is_infinite()
            }
            #[inline(always)]
            #[allow(clippy::useless_conversion)]
            fn sum(block: &[Self]) -> Sum {
                Sum::Float(sum_lanes(block, |x| f64::from(x)))
            }
            #[inline(always)]
            fn range(block: &[Self]) -> (i64, i64) {
                key_range::<_, $key>(block, (<$key>::MAX, <$key>::MIN), |x| {
                    let bits = x.to_bits().cast_signed();
                    bits ^ ((bits >> (<$key>::BITS - 1)) & <$key>::MAX)
                })
            }
            #[inline(always)]
            #[allow(clippy::useless_conversion, clippy::cast_precision_loss)]
            fn moments(block: &[Self], sum: Sum) -> Moments {
                let n = block.len() as f64;
                let center = sum.to_f64() / n;
                // An infinite or NaN sum gives no center; the result is then infinite or NaN anyway.
                let center = if center.is_finite() { center } else { 0.0 };
                let (s1, s2) = deviations(block, |x| f64::from(x) - center);
                Moments::around(n, center, 0.0, s1, s2)
            }
        }
    )*};
}

floats! {
    f32, key i32;
    f64, key i64;
}
