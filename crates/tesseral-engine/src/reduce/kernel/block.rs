//! The arithmetic of a block: as many cells as stay in L1 while several loops pass over them.
//!
//! Sums are exact, so the order of additions is left to the compiler and the instruction set.
//!
//! 1. Integer sums: cells of up to 16 bits are added in 32 bits, of 32 in 64, which a block cannot overflow, and 64-bit cells as
//!    their high and low halves. Squares of more than 32 bits are added as halves, too.
//! 2. Float sums do not round; see [`exact`](crate::reduce::exact).
//! 3. Minimum and maximum are computed on *keys*, integers in the order of the values: −0.0 sorts before 0.0, and NaNs lie
//!    outside the infinities, so that a NaN in a block shows in its range at no cost. NaNs are counted only then.

use bytemuck::Pod;
use multiversion::multiversion;
use tesseral_core::Element;
use tesseral_core::element::{bf16, f16};

use crate::reduce::exact::block::add_block;
use crate::reduce::exact::fixed::Fixed;

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
    /// Adds at most a block to a sum, and the squares of its cells to another; false, without effect, with NaN or infinities.
    fn add(block: &[Self], sum: &mut Fixed, squares: Option<&mut Fixed>) -> bool;
    /// Minimum and maximum key of at most a block; `(i64::MAX, i64::MIN)` or narrower when it is empty.
    fn range(block: &[Self]) -> (i64, i64);
}

// The loops are in functions that are always inlined, and these compile them for each instruction set: a closure in the
// multiversioned function itself would be tied to its instruction set and could not be inlined into the plain iterator
// that calls it.

/// The number of NaNs of at most a block.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn nans<W: WorkType>(block: &[W]) -> u64 {
    if W::FLOAT { count(block, W::nan) } else { 0 }
}

/// The numbers of NaNs, negative and positive infinities of at most a block.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn specials<W: WorkType>(block: &[W]) -> [u64; 3] {
    if !W::FLOAT {
        return [0; 3];
    }
    [
        count(block, W::nan),
        count(block, |x: W| x.key() == W::KEYS.0),
        count(block, |x: W| x.key() == W::KEYS.1),
    ]
}

/// [`WorkType::range`], compiled for each instruction set.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn range<W: WorkType>(block: &[W]) -> (i64, i64) {
    W::range(block)
}

/// Sum and sum of squares of at most a block of integers.
#[multiversion(targets("x86_64+avx2"))]
fn integer_sums<T: Integer>(block: &[T], squares: bool) -> (i128, [u128; 2]) {
    (T::sum(block), if squares { T::squares(block) } else { [0, 0] })
}

/// Adds a block of integers.
#[inline]
fn add_integers<T: Integer>(block: &[T], sum: &mut Fixed, squares: Option<&mut Fixed>) -> bool {
    let (total, [low, high]) = integer_sums(block, squares.is_some());
    sum.add_integer(total);
    if let Some(squares) = squares {
        squares.add_wide(false, low, 0);
        squares.add_wide(false, high, 64);
    }
    true
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

macro_rules! itself {
    ($($t:ty),*) => {$(
        impl Cell for $t {
            type WorkType = $t;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
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

/// Exact sums of integers, in loops that vectorize.
trait Integer: Copy {
    /// Sum of at most a block.
    fn sum(block: &[Self]) -> i128;
    /// Sum of the squares of at most a block: a part, and another to be multiplied by 2^64.
    fn squares(block: &[Self]) -> [u128; 2];
}

macro_rules! integers {
    ($($t:ty, key $key:expr, value $value:expr, sum $sum:expr, squares $squares:expr;)*) => {$(
        impl DecodeKey for $t {
            #[inline(always)]
            fn decode_key(key: i64) -> Self {
                $value(key) as $t
            }
        }

        impl Integer for $t {
            #[inline(always)]
            fn sum(block: &[Self]) -> i128 {
                $sum(block)
            }
            #[inline(always)]
            fn squares(block: &[Self]) -> [u128; 2] {
                $squares(block)
            }
        }

        impl WorkType for $t {
            const FLOAT: bool = false;
            const KEYS: (i64, i64) = (i64::MIN, i64::MAX);
            #[inline(always)]
            fn key(self) -> i64 {
                $key(self)
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
            fn add(block: &[Self], sum: &mut Fixed, squares: Option<&mut Fixed>) -> bool {
                add_integers(block, sum, squares)
            }
            #[inline(always)]
            fn range(block: &[Self]) -> (i64, i64) {
                let (min, max) = block.iter().fold((Self::MAX, Self::MIN), |(min, max), &x| (min.min(x), max.max(x)));
                ($key(min), $key(max))
            }
        }
    )*};
}

// 64-bit keys are signed: the highest bit of an unsigned integer is flipped.
integers! {
    i8, key i64::from, value |key| key, sum sum_in_i32, squares |block: &[i8]| small_squares(block);
    u8, key i64::from, value |key| key, sum sum_in_i32, squares |block: &[u8]| small_squares(block);
    i16, key i64::from, value |key| key, sum sum_in_i32, squares |block: &[i16]| small_squares(block);
    u16, key i64::from, value |key| key, sum sum_in_i32, squares |block: &[u16]| small_squares(block);
    i32, key i64::from, value |key| key, sum sum_in_i64, squares |block: &[i32]| squares_32(block, i32::unsigned_abs);
    u32, key i64::from, value |key| key, sum sum_in_i64, squares |block: &[u32]| squares_32(block, |x| x);
    i64, key |x: i64| x, value |key: i64| key, sum |block: &[i64]| sum_halves(block, |x| x >> 32, |x| x & 0xFFFF_FFFF),
        squares |block: &[i64]| squares_64(block, i64::unsigned_abs);
    u64, key |x: u64| x.cast_signed() ^ i64::MIN, value |key: i64| key ^ i64::MIN,
        sum |block: &[u64]| sum_halves(block, |x| (x >> 32).cast_signed(), |x| (x & 0xFFFF_FFFF).cast_signed()),
        squares |block: &[u64]| squares_64(block, |x| x);
}

// None of these sums can overflow at its width; wrapping operations keep overflow checks out of the loops of test builds.

#[inline(always)]
fn sum_in_i32<T: Copy + Into<i32>>(block: &[T]) -> i128 {
    i128::from(block.iter().fold(0_i32, |sum, &x| sum.wrapping_add(x.into())))
}

#[inline(always)]
fn sum_in_i64<T: Copy + Into<i64>>(block: &[T]) -> i128 {
    i128::from(block.iter().fold(0_i64, |sum, &x| sum.wrapping_add(x.into())))
}

/// Sum of 64-bit integers given as signed or unsigned high halves and low halves.
#[inline(always)]
fn sum_halves<T: Copy>(block: &[T], high: impl Fn(T) -> i64, low: impl Fn(T) -> i64) -> i128 {
    let (highs, lows) = block
        .iter()
        .fold((0_i64, 0_i64), |(highs, lows), &x| (highs.wrapping_add(high(x)), lows.wrapping_add(low(x))));
    (i128::from(highs) << 32) + i128::from(lows)
}

#[inline(always)]
fn small_squares<T: Copy + Into<i32>>(block: &[T]) -> [u128; 2] {
    // A square of 16 bits is below 2^32 and exact as an unsigned product.
    let squares = block.iter().fold(0_u64, |sum, &x| {
        let x: i32 = x.into();
        sum.wrapping_add(u64::from((x as u32).wrapping_mul(x as u32)))
    });
    [u128::from(squares), 0]
}

#[inline(always)]
fn squares_32<T: Copy>(block: &[T], magnitude: impl Fn(T) -> u32) -> [u128; 2] {
    let (mut lows, mut highs) = (0_u64, 0_u64);
    for &x in block {
        let x = u64::from(magnitude(x));
        add_halves(x.wrapping_mul(x), &mut lows, &mut highs);
    }
    [u128::from(lows) + (u128::from(highs) << 32), 0]
}

/// Squares of `a · 2^32 + b`: `a² · 2^64 + 2ab · 2^32 + b²`.
#[inline(always)]
fn squares_64<T: Copy>(block: &[T], magnitude: impl Fn(T) -> u64) -> [u128; 2] {
    let mut sums = [0_u64; 6];
    for &x in block {
        let x = magnitude(x);
        let (a, b) = (x >> 32, x & 0xFFFF_FFFF);
        let [low, high, middle_low, middle_high, top_low, top_high] = &mut sums;
        add_halves(b.wrapping_mul(b), low, high);
        add_halves(a.wrapping_mul(b), middle_low, middle_high);
        add_halves(a.wrapping_mul(a), top_low, top_high);
    }
    let sums = sums.map(u128::from);
    let low = sums[0] + ((sums[1] + 2 * sums[2]) << 32);
    [low, 2 * sums[3] + sums[4] + (sums[5] << 32)]
}

#[inline(always)]
fn add_halves(x: u64, lows: &mut u64, highs: &mut u64) {
    *lows = lows.wrapping_add(x & 0xFFFF_FFFF);
    *highs = highs.wrapping_add(x >> 32);
}

macro_rules! floats {
    ($($t:ty, key $key:ty;)*) => {$(
        impl DecodeKey for $t {
            #[inline(always)]
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
            fn add(block: &[Self], sum: &mut Fixed, squares: Option<&mut Fixed>) -> bool {
                add_block(block, sum, squares)
            }
            #[inline(always)]
            fn range(block: &[Self]) -> (i64, i64) {
                key_range::<_, $key>(block, (<$key>::MAX, <$key>::MIN), |x| {
                    let bits = x.to_bits().cast_signed();
                    bits ^ ((bits >> (<$key>::BITS - 1)) & <$key>::MAX)
                })
            }
        }
    )*};
}

floats! {
    f32, key i32;
    f64, key i64;
}
