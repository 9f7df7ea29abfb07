//! The arithmetic of one block: so many cells as stay in L1 while several loops pass over them.
//!
//! Additions of floats round, so their order is part of the result. It is written out as *lanes*: element `i` goes to
//! lane `i mod L`, and the lanes are joined at the end by halves.
//!
//! ```text
//! lane[0..L] = 0
//! for each group of L cells:  lane[i] = lane[i] + cell[i] for all i     (a few vector instructions)
//! for the cells left over:    the same, filled up with zeros
//! while L > 1:                L = L / 2; lane[i] = lane[i] + lane[i + L]
//! ```
//!
//! 1. `L` does not depend on the machine, so neither does the order of additions: SSE2, AVX2 and NEON give the same
//!    bits. Nothing is contracted into fused multiply-adds, which would round differently.
//! 2. Several registers of lanes hide the latency of an addition.
//! 3. Integers add up exactly, in any order, which is left to the compiler: cells of up to 16 bits in 32 bits, of 32 in
//!    64, which a block cannot overflow, and 64-bit cells as their high and low halves.
//! 4. The smallest and largest are found on *keys*, integers in the order of the values: −0.0 comes before 0.0, and
//!    NaNs fall outside the infinities, so that a block with a NaN gives itself away for free. So does a sum that is
//!    not finite. Only then are NaNs looked for.
//! 5. The spread is taken around a centre inside the block, so that a large offset common to all cells cancels before
//!    anything is squared; what rounding left of the offset is taken out afterwards (`s2 - s1²/n`).

use bytemuck::Pod;
use multiversion::multiversion;
use tesseral_core::element::{bf16, f16};
use tesseral_core::{Element, Sum};

/// Number of cells and what their squares tell, around a mean kept in two parts.
///
/// The mean is `mean + rest`: where cells lie at 10¹⁵ ± 1, one `f64` could not tell the means of two blocks apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub mean: f64,
    pub rest: f64,
    /// Sum of squared deviations from the mean, and what additions to it lost.
    pub m2: f64,
    pub m2_rest: f64,
}

impl Moments {
    /// From sums of deviations and of their squares around the centre `high + low`.
    #[inline(always)]
    pub fn around(n: f64, high: f64, low: f64, s1: f64, s2: f64) -> Self {
        let shift = s1 / n;
        let m2 = s2 - s1 * shift;
        let (mean, rest) = two_sum(high, low + shift);
        // Not `max`, which would turn a NaN into 0.
        Self { mean, rest, m2: if m2 < 0.0 { 0.0 } else { m2 }, m2_rest: 0.0 }
    }

    /// All of `n` cells equal.
    pub fn constant(high: f64, low: f64) -> Self {
        let (mean, rest) = two_sum(high, low);
        Self { mean, rest, m2: 0.0, m2_rest: 0.0 }
    }

    /// The moments of both together, after Chan, Golub and LeVeque; `n` and `m` count the cells of each.
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

/// The sum, rounded, and exactly what rounding dropped.
#[inline(always)]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// Adds `x` to a sum and what the addition drops to `lost`.
#[inline(always)]
pub(crate) fn neumaier(sum: &mut f64, lost: &mut f64, x: f64) {
    let (a, b) = (*sum, x);
    let total = a + b;
    *lost += if a.abs() >= b.abs() { (a - total) + b } else { (b - total) + a };
    *sum = total;
}

/// A sum with what was lost put back; infinite and NaN sums have nothing sensible to put back.
#[inline(always)]
pub(crate) fn compensated(sum: f64, lost: f64) -> f64 {
    if sum.is_finite() { sum + lost } else { sum }
}

/// How cells of a type come into a block.
pub(crate) trait Cell: Element {
    /// What the loops work on: the type itself, or `f32` for the 16-bit floats, which it holds exactly.
    type Work: Work;
    /// The cell as the type the loops work on.
    fn widen(self) -> Self::Work;
    /// The cell that a key of [`Work`] stands for.
    fn from_key(key: i64) -> Self;
}

/// A type that the loops over blocks are written for.
pub(crate) trait Work: Pod + PartialEq {
    /// Whether NaN and infinities exist.
    const FLOAT: bool;
    /// Cells of a full block: at most 16 KiB, and few enough for the lanes not to overflow.
    const BLOCK: usize = if size_of::<Self>() == 8 { 2048 } else { 4096 };
    /// Keys of −∞ and +∞ for floats; every key lies inside for integers.
    const KEYS: (i64, i64);
    /// An integer in the order of the values.
    fn key(self) -> i64;
    /// Whether it is a NaN.
    fn nan(self) -> bool;
    /// Whether it is infinite.
    fn infinite(self) -> bool;
    /// Sum of at most a block.
    fn sum(block: &[Self]) -> Sum;
    /// Smallest and largest key of at most a block; `(i64::MAX, i64::MIN)` or narrower when it is empty.
    fn range(block: &[Self]) -> (i64, i64);
    /// Moments of at most a block that is not empty, given its sum.
    fn moments(block: &[Self], sum: Sum) -> Moments;
}

/// Lanes of float additions.
const LANES: usize = 16;

/// Adds floats up in lanes, and the lanes by halves.
#[inline(always)]
fn add_up<T: Copy>(cells: &[T], value: impl Fn(T) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (groups, rest) = cells.as_chunks::<LANES>();
    for group in groups {
        for i in 0..LANES {
            lanes[i] += value(group[i]);
        }
    }
    // Zeros fill up the last group.
    let mut last = [0.0; LANES];
    for (last, &cell) in last.iter_mut().zip(rest) {
        *last = value(cell);
    }
    for i in 0..LANES {
        lanes[i] += last[i];
    }
    join(lanes)
}

/// Adds lanes by halves.
#[inline(always)]
fn join(mut lanes: [f64; LANES]) -> f64 {
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

// The loops are written in functions that are always inlined, and these hand them to each instruction set: a closure
// written in the multiversioned function itself would be tied to its instructions, and could no longer be inlined into
// the plain iterator that calls it.

/// How many cells of at most a block are NaN and how many infinite.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn specials<W: Work>(block: &[W]) -> (u64, u64) {
    if W::FLOAT { (count(block, W::nan), count(block, W::infinite)) } else { (0, 0) }
}

/// [`Work::sum`] for the machine at hand.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn sum<W: Work>(block: &[W]) -> Sum {
    W::sum(block)
}

/// [`Work::range`] for the machine at hand.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn range<W: Work>(block: &[W]) -> (i64, i64) {
    W::range(block)
}

/// [`Work::moments`] for the machine at hand.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn moments<W: Work>(block: &[W], sum: Sum) -> Moments {
    W::moments(block, sum)
}

/// How many cells of at most a block satisfy a test.
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
/// Deviations go through a small buffer. One loop that converts and one that only adds are each sure to be vectorised;
/// both at once in twice as many lanes are not.
#[inline(always)]
fn deviations<T: Copy>(block: &[T], deviation: impl Fn(T) -> f64) -> (f64, f64) {
    const BUFFER: usize = 8 * LANES;
    let (mut s1, mut s2) = ([0.0; LANES], [0.0; LANES]);
    let mut buffer = [0.0; BUFFER];
    for piece in block.chunks(BUFFER) {
        for (d, &cell) in buffer.iter_mut().zip(piece) {
            *d = deviation(cell);
        }
        // Cells that deviate by nothing change nothing: they fill up the last group.
        let used = piece.len().next_multiple_of(LANES);
        buffer[piece.len()..used].fill(0.0);
        for d in buffer[..used].as_chunks::<LANES>().0 {
            for i in 0..LANES {
                s1[i] += d[i];
                s2[i] += d[i] * d[i];
            }
        }
    }
    (join(s1), join(s2))
}

/// The centre of integers: a whole number near their mean, also as the two parts of an `f64`.
#[inline(always)]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
pub(crate) fn whole_centre(sum: Sum, n: usize) -> (i128, f64, f64) {
    // A block of integers has a sum below 2^75; the quotient is in the range of the cells.
    let centre = match sum {
        Sum::Int(sum) => match i64::try_from(sum) {
            Ok(sum) => i128::from(sum / n as i64),
            Err(_) => sum / n as i128,
        },
        Sum::Float(_) => 0,
    };
    let high = centre as f64;
    (centre, high, (centre - high as i128) as f64)
}

macro_rules! itself {
    ($($t:ty),*) => {$(
        impl Cell for $t {
            type Work = $t;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn from_key(key: i64) -> Self {
                <$t>::of_key(key)
            }
        }
    )*};
}

itself!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Cell for f16 {
    type Work = f32;
    // Exponent and fraction sit 13 bits further up in an `f32`, and its exponent counts from 112 lower. Infinity and
    // NaN have the highest exponent, which is another 112 away. Subnormals have no leading 1: they get one, together
    // with an exponent of their own, and a subtraction takes it away again.
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
        f16::from_f32(f32::of_key(key))
    }
}

impl Cell for bf16 {
    type Work = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    fn from_key(key: i64) -> Self {
        bf16::from_f32(f32::of_key(key))
    }
}

/// From keys back to values.
trait OfKey {
    fn of_key(key: i64) -> Self;
}

/// Smallest and largest of keys of any width.
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
        impl OfKey for $t {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn of_key(key: i64) -> Self {
                key as $t
            }
        }

        impl Work for $t {
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
                // Never wraps, by the choice of width; saying so keeps checks out of the loops of test builds.
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
    i8, sum i32, moments squares;
    u8, sum i32, moments squares;
    i16, sum i32, moments centred;
    u16, sum i32, moments centred;
    i32, sum i64, moments centred;
    u32, sum i64, moments centred;
}

/// Moments of bytes, in integers all the way: a block's squares add up to less than 2^29. The order of exact additions
/// does not matter, so the compiler is left to find the multiply-add instructions for it.
#[inline(always)]
#[allow(clippy::cast_precision_loss)]
fn squares<T: Copy + Into<i32>>(block: &[T], sum: Sum) -> Moments {
    let squares = block.iter().fold(0_i32, |sum, &x| {
        let x: i32 = x.into();
        sum.wrapping_add(x.wrapping_mul(x))
    });
    let squares = i128::from(squares);
    let n = block.len() as i128;
    let (centre, high, low) = whole_centre(sum, block.len());
    let sum = match sum {
        Sum::Int(sum) => sum,
        Sum::Float(_) => 0,
    };
    let s1 = sum - n * centre;
    let s2 = squares - 2 * centre * sum + n * centre * centre;
    Moments::around(n as f64, high, low, s1 as f64, s2 as f64)
}

/// Moments of integers of which every difference is an exact `f64`.
#[inline(always)]
#[allow(clippy::cast_precision_loss)]
fn centred<T: Copy + Into<f64>>(block: &[T], sum: Sum) -> Moments {
    let (_, high, low) = whole_centre(sum, block.len());
    let (s1, s2) = deviations(block, |x| x.into() - high);
    Moments::around(block.len() as f64, high, low, s1, s2)
}

/// Sum of 64-bit integers given as high halves, of either sign, and low halves.
#[inline(always)]
fn sum_halves<T: Copy>(block: &[T], high: impl Fn(T) -> i64, low: impl Fn(T) -> i64) -> Sum {
    let (highs, lows) = block
        .iter()
        .fold((0_i64, 0_i64), |(highs, lows), &x| (highs.wrapping_add(high(x)), lows.wrapping_add(low(x))));
    Sum::Int((i128::from(highs) << 32) + i128::from(lows))
}

/// Moments of 64-bit integers given as biased high halves (`high + 2^31` for signed ones) and low halves.
///
/// A difference of two such integers need not fit 64 bits, and rounding either to `f64` first would lose what a large
/// offset leaves over. Halves are below 2^32: set into the fraction of 2^52 they are exact floats without a
/// conversion, so are their differences from the centre's halves, and only the sum of both is rounded, once.
#[inline(always)]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn centred_halves<T: Copy>(block: &[T], sum: Sum, bias: i64, halves: impl Fn(T) -> (u64, u64)) -> Moments {
    const CARRIER: u64 = 0x4330_0000_0000_0000;
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    const TWO_32: f64 = 4_294_967_296.0;
    let (centre, high, low) = whole_centre(sum, block.len());
    let centre_high = TWO_52 + ((centre >> 32) as i64 + bias) as f64;
    let centre_low = TWO_52 + (centre & 0xFFFF_FFFF) as f64;
    let (s1, s2) = deviations(block, |x| {
        let (high, low) = halves(x);
        let high = f64::from_bits(CARRIER | high) - centre_high;
        let low = f64::from_bits(CARRIER | low) - centre_low;
        high * TWO_32 + low
    });
    Moments::around(block.len() as f64, high, low, s1, s2)
}

macro_rules! wide_integers {
    ($($t:ty, flip $flip:expr, bias $bias:expr;)*) => {$(
        impl OfKey for $t {
            #[inline(always)]
            #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]
            fn of_key(key: i64) -> Self {
                (key ^ $flip) as $t
            }
        }

        #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]
        impl Work for $t {
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
                key_range(block, (i64::MAX, i64::MIN), Work::key)
            }
            #[inline(always)]
            fn moments(block: &[Self], sum: Sum) -> Moments {
                centred_halves(block, sum, $bias, |x| {
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
        impl OfKey for $t {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation)]
            fn of_key(key: i64) -> Self {
                let key = key as $key;
                // The same fold of the sign as in `key`; doing it twice undoes it.
                Self::from_bits((key ^ ((key >> (<$key>::BITS - 1)) & <$key>::MAX)).cast_unsigned())
            }
        }

        impl Work for $t {
            const FLOAT: bool = true;
            const KEYS: (i64, i64) = {
                let infinity = Self::INFINITY.to_bits().cast_signed();
                (!infinity as i64, infinity as i64)
            };
            #[inline(always)]
            #[allow(clippy::useless_conversion)]
            fn key(self) -> i64 {
                let bits = self.to_bits().cast_signed();
                // Negative numbers count downwards: all bits but the sign are flipped.
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
                Sum::Float(add_up(block, |x| f64::from(x)))
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
                let centre = sum.to_f64() / n;
                // A sum beyond all floats has no centre to offer; what then comes out is infinite or NaN anyway.
                let centre = if centre.is_finite() { centre } else { 0.0 };
                let (s1, s2) = deviations(block, |x| f64::from(x) - centre);
                Moments::around(n, centre, 0.0, s1, s2)
            }
        }
    )*};
}

floats! {
    f32, key i32;
    f64, key i64;
}
