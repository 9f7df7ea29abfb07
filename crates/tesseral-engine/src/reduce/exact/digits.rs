//! Exact numbers in canonical form, and the one rounding at the end.
//!
//! A [`Digits`] is a sign and a magnitude in 32-bit digits at a power of two: `± Σ digit[i] · 2^(32·(first + i))`. Zero has no
//! digits; other numbers have no zero digit at either end, so equal numbers are equal values.
//!
//! # Rounding
//!
//! Every result is `|N| / D`, or its square root, for an exact `N` and an integer `D`:
//!
//! ```text
//! q = floor(|N| / D · 2^-e)       e chosen so that q has some more bits than the 53 of a double; e is even for roots
//! r = floor(sqrt(q))              for roots: the floor of the root of the floor is the floor of the root
//! round q (or r) · 2^e to nearest, ties to even, where a remainder anywhere counts as "a little more"
//! ```
//!
//! 1. Only the leading bits of `N` enter the division; the others matter as "zero or not", which the canonical form answers with the
//!    position of its last digit.
//! 2. Subnormal results round at the fixed bit 2^-1074, in the same step, so nothing is rounded twice.

use smallvec::SmallVec;

/// Powers of 2^32 between which digits of partial results lie: products of three of the smallest and of the largest floats, 2^64
/// times.
pub(super) const FIRST_DIGIT: i32 = -102;
pub(super) const END_DIGIT: i32 = 102;

/// An exact number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digits {
    pub negative: bool,
    pub first: i32,
    pub digits: SmallVec<[u32; 16]>,
}

impl Digits {
    /// A number from a magnitude that may have zero digits at the ends.
    pub fn new(negative: bool, first: i32, mut digits: SmallVec<[u32; 16]>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let low = digits.iter().take_while(|&&digit| digit == 0).count();
        digits.drain(..low);
        if digits.is_empty() {
            return Self::default();
        }
        Self { negative, first: first + low as i32, digits }
    }

    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// The exponent above the highest bit: the magnitude is less than 2^`high` and at least half of it.
    fn high(&self) -> i32 {
        let last = self.digits.last().copied().unwrap_or(0);
        32 * (self.first + self.digits.len() as i32) - last.leading_zeros() as i32
    }

    /// The exponent of the lowest bit that is set.
    fn low(&self) -> i32 {
        32 * self.first + self.digits.first().map_or(0, |digit| digit.trailing_zeros() as i32)
    }

    /// The digit at a power of 2^32.
    fn digit(&self, at: i32) -> u32 {
        usize::try_from(at - self.first).ok().and_then(|i| self.digits.get(i)).copied().unwrap_or(0)
    }

    /// 64 bits of the magnitude from 2^`at` on.
    fn bits(&self, at: i32) -> u64 {
        let (digit, shift) = (at.div_euclid(32), at.rem_euclid(32));
        let low = u64::from(self.digit(digit)) | u64::from(self.digit(digit + 1)) << 32;
        ((u128::from(low) | u128::from(self.digit(digit + 2)) << 64) >> shift) as u64
    }

    /// The magnitude as an integer, when it is one and fits.
    pub fn to_i128(&self) -> Option<i128> {
        if self.is_zero() {
            return Some(0);
        }
        if self.low() < 0 || self.high() > 128 {
            return None;
        }
        let [magnitude, _] = self.low_integer_bits();
        if self.negative { 0_i128.checked_sub_unsigned(magnitude) } else { i128::try_from(magnitude).ok() }
    }

    /// The power of 2^32 of the last digit.
    pub fn magnitude_digits(&self) -> i32 {
        self.first + self.digits.len() as i32 - 1
    }

    /// The number times a power of 2^32.
    pub fn shifted(&self, by: i32) -> Self {
        Self { first: if self.is_zero() { 0 } else { self.first + by }, ..self.clone() }
    }

    /// The bits of the magnitude from 1 on, below and from 2^128.
    pub fn low_integer_bits(&self) -> [u128; 2] {
        [0, 128].map(|at| u128::from(self.bits(at)) | u128::from(self.bits(at + 64)) << 64)
    }

    /// The number rounded to nearest, ties to even; ±∞ beyond the largest double.
    pub fn to_f64(&self) -> f64 {
        self.quotient(1)
    }

    /// The number divided by a positive integer, rounded once.
    pub fn quotient(&self, divisor: u128) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let at = self.high() - (128 - divisor.leading_zeros() as i32) - 66;
        let (quotient, inexact) = self.divide(divisor, at);
        round(self.negative, quotient, at, inexact)
    }

    /// The square root of the magnitude divided by a positive integer, rounded once.
    pub fn root_of_quotient(&self, divisor: u128) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let at = self.high() - (128 - divisor.leading_zeros() as i32) - 116;
        let at = at - at.rem_euclid(2);
        let (quotient, inexact) = self.divide(divisor, at);
        let root = quotient.isqrt();
        round(false, root, at / 2, inexact || root * root != quotient)
    }

    /// `floor(magnitude / (divisor · 2^at))`, which the caller keeps below 2^128, and whether anything is left.
    fn divide(&self, divisor: u128, at: i32) -> (u128, bool) {
        let parts = [3, 2, 1, 0].map(|i| self.bits(at + 64 * i));
        let below = self.low() < at;
        if let Ok(divisor) = u64::try_from(divisor) {
            // Long division in base 2^64: a remainder is less than the divisor, so each quotient is one digit.
            let divisor = u128::from(divisor);
            let (mut quotient, mut rest) = (0_u128, 0_u128);
            for part in parts {
                let dividend = rest << 64 | u128::from(part);
                quotient = (quotient << 64) | (dividend / divisor);
                rest = dividend % divisor;
            }
            return (quotient, below || rest != 0);
        }
        let (mut quotient, mut rest) = (0_u128, 0_u128);
        for part in parts {
            for bit in (0..64).rev() {
                let carry = rest >> 127 != 0;
                rest = rest << 1 | u128::from(part >> bit & 1);
                quotient <<= 1;
                if carry || rest >= divisor {
                    rest = rest.wrapping_sub(divisor);
                    quotient |= 1;
                }
            }
        }
        (quotient, below || rest != 0)
    }

    /// The product of two numbers.
    pub fn times(&self, other: &Self) -> Self {
        let mut digits: SmallVec<[u32; 16]> = SmallVec::from_elem(0, self.digits.len() + other.digits.len());
        for (i, &a) in self.digits.iter().enumerate() {
            let mut carry = 0_u64;
            for (j, &b) in other.digits.iter().enumerate() {
                let sum = u64::from(a) * u64::from(b) + u64::from(digits[i + j]) + carry;
                digits[i + j] = sum as u32;
                carry = sum >> 32;
            }
            digits[i + other.digits.len()] = carry as u32;
        }
        Self::new(self.negative != other.negative, self.first + other.first, digits)
    }
}

/// `(magnitude + rest) · 2^exponent`, where the rest is less than 1 and positive if `inexact`, rounded to nearest, ties to even.
///
/// An inexact magnitude has at least 55 bits, or the bits beyond the 53 of a result could not be known.
fn round(negative: bool, magnitude: u128, exponent: i32, inexact: bool) -> f64 {
    const LOWEST: i32 = -1074;
    let high = exponent + 128 - magnitude.leading_zeros() as i32;
    let unit = (high - 53).max(LOWEST);
    let shift = unit - exponent;
    debug_assert!(shift > 0 || !inexact);
    let kept = match shift {
        ..=0 => (magnitude << -shift) as u64,
        1..=127 => {
            let kept = (magnitude >> shift) as u64;
            let half = 1_u128 << (shift - 1);
            let rest = magnitude & ((half << 1) - 1);
            let above = rest > half || (rest == half && (inexact || kept & 1 == 1));
            kept + u64::from(above)
        }
        // Less than half of the lowest bit: magnitudes have fewer than 127 bits.
        _ => 0,
    };
    // A normal `kept` has its implicit bit at 2^52, which adds the 1 that the biased exponent lacks here; a carry into 2^53
    // raises the exponent as it must.
    let bits = (u64::from((unit - LOWEST) as u32) << 52).wrapping_add(kept);
    let value = if unit > 971 { f64::INFINITY } else { f64::from_bits(bits) };
    if negative { -value } else { value }
}
