//! Exact first and second moments.
//!
//! With exact sums the textbook formulas lose nothing: `n · Σx² − (Σx)²` is an exact integer times a power of two, however close
//! the two terms are, and the variance is that number divided by `n · (n − ddof)`, rounded once.

use tesseral_core::{Element, Result};

use super::block::{BLOCK, add_products, bounds};
use super::digits::Digits;
use super::fixed::{Fixed, parts};
use super::wire::{corrupt, parse_varint, write_varint};
use crate::reduce::kernel::block::WorkType;

/// Exact sum and, where they are requested, exact sum of squares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// Negative and positive infinities.
    infinities: [u64; 2],
    sum: Fixed,
    squares: Fixed,
}

impl Moments {
    pub(crate) fn new(infinities: [u64; 2], sum: Fixed, squares: Fixed) -> Self {
        Self { infinities, sum, squares }
    }

    /// Adds at most a block, and its squares if `spread`; false, without effect, with NaN or infinities.
    #[inline]
    pub(crate) fn add_block<W: WorkType>(&mut self, block: &[W], spread: bool) -> bool {
        W::add(block, &mut self.sum, spread.then_some(&mut self.squares))
    }

    /// Adds finite floats and their squares.
    pub fn add_floats(&mut self, values: &[f64]) {
        values.chunks(BLOCK).for_each(|block| {
            self.add_block(block, true);
        });
    }

    /// Adds infinities.
    pub(crate) fn add_infinities(&mut self, negative: u64, positive: u64) {
        self.infinities[0] += negative;
        self.infinities[1] += positive;
    }

    /// Adds `n` equal floats, and their squares if `spread`. NaN has no effect.
    pub fn add_float(&mut self, value: f64, n: u64, spread: bool) {
        if value.is_infinite() {
            self.infinities[usize::from(value > 0.0)] += n;
        }
        if !value.is_finite() {
            return;
        }
        let (magnitude, exponent) = parts(value);
        self.sum.add_wide(value.is_sign_negative(), u128::from(magnitude) * u128::from(n), exponent);
        if spread {
            add_square(&mut self.squares, magnitude, n, 2 * exponent);
        }
    }

    /// Adds `n` equal integers of at most 64 bits, and their squares if `spread`.
    pub fn add_integer(&mut self, value: i128, n: u64, spread: bool) {
        let magnitude = value.unsigned_abs() as u64;
        self.sum.add_wide(value < 0, u128::from(magnitude) * u128::from(n), 0);
        if spread {
            add_square(&mut self.squares, magnitude, n, 0);
        }
    }

    /// Adds the product of a value and a finite weight. Zero times infinity is NaN, as both infinities are.
    pub(crate) fn add_product(&mut self, value: f64, weight: f64) {
        if value.is_finite() && weight.is_finite() {
            let ((a, i), (b, j)) = (parts(value), parts(weight));
            let negative = value.is_sign_negative() != weight.is_sign_negative();
            self.sum.add_wide(negative, u128::from(a) * u128::from(b), i + j);
            return;
        }
        let product = value * weight;
        self.infinities[0] += u64::from(product.is_nan() || product < 0.0);
        self.infinities[1] += u64::from(product.is_nan() || product > 0.0);
    }

    /// Adds the product of a sum of finite values and a finite weight.
    pub(crate) fn add_scaled(&mut self, sum: &Fixed, weight: f64) {
        self.sum.add_scaled(sum, weight);
    }

    /// Adds the products of at most a block of finite values and as many finite weights.
    pub(crate) fn add_products(&mut self, values: &[f64], weights: &[f64]) {
        // Products with zeros only are zeros.
        if let (Some(a), Some(b)) = (bounds(values), bounds(weights)) {
            add_products(values, weights, (a, b), &mut self.sum);
        }
    }

    /// Adds a cell times a finite weight.
    pub(crate) fn add_weighted<T: Element>(&mut self, value: T, weight: f64) {
        if T::IS_FLOAT {
            return self.add_product(value.to_f64(), weight);
        }
        // 64 bits in two doubles, both exact.
        let value = value.to_i128();
        let (high, low) = (value >> 32 << 32, value & 0xFFFF_FFFF);
        [high, low].into_iter().for_each(|part| self.add_product(part as f64, weight));
    }

    /// Adds the square of a finite cell times a finite weight.
    pub(crate) fn add_weighted_square<T: Element>(&mut self, value: T, weight: f64) {
        let (magnitude, exponent) =
            if T::IS_FLOAT { parts(value.to_f64()) } else { (value.to_i128().unsigned_abs() as u64, 0) };
        let ((by, shift), square) = (parts(weight), u128::from(magnitude) * u128::from(magnitude));
        let (negative, exponent) = (weight.is_sign_negative(), 2 * exponent + shift);
        self.sum.add_wide(negative, (square & u128::from(u64::MAX)) * u128::from(by), exponent);
        self.sum.add_wide(negative, (square >> 64) * u128::from(by), exponent + 64);
    }

    /// Adds the sum of integers whose squares are not known.
    pub(crate) fn add_integer_sum(&mut self, sum: i128) {
        self.sum.add_integer(sum);
    }

    /// Adds the terms of others.
    pub fn merge(&mut self, other: &Self) {
        self.infinities.iter_mut().zip(other.infinities).for_each(|(a, b)| *a = a.saturating_add(b));
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// Sums of finite terms: of values and of squares.
    pub(crate) fn sums(&self) -> (&Fixed, &Fixed) {
        (&self.sum, &self.squares)
    }

    /// Negative and positive infinities.
    pub(crate) fn infinities(&self) -> [u64; 2] {
        self.infinities
    }

    /// Drops unrequested parts: counts of infinities, the sum, the squares.
    pub(crate) fn keep(&mut self, infinities: bool, sum: bool, squares: bool) {
        if !infinities {
            self.infinities = [0; 2];
        }
        if !sum {
            self.sum = Fixed::default();
        }
        if !squares {
            self.squares = Fixed::default();
        }
    }

    /// The sum if it is not finite.
    fn special(&self) -> Option<f64> {
        match self.infinities {
            [0, 0] => None,
            [_, 0] => Some(f64::NEG_INFINITY),
            [0, _] => Some(f64::INFINITY),
            _ => Some(f64::NAN),
        }
    }

    /// The correctly rounded sum.
    pub fn sum(&self) -> f64 {
        self.special().unwrap_or_else(|| self.sum.digits().to_f64())
    }

    /// The exact sum, if it is an integer of at most 128 bits.
    pub(crate) fn integer_sum(&self) -> Option<i128> {
        self.sum.digits().to_i128()
    }

    /// Whether an integer sum has at most 128 bits.
    pub(crate) fn integer_fits(&self) -> bool {
        self.sum.fits_i128()
    }

    /// The correctly rounded mean of `n` values, at least one.
    pub(crate) fn mean(&self, n: u64) -> f64 {
        self.special().unwrap_or_else(|| self.sum.digits().quotient(u128::from(n)))
    }

    /// The correctly rounded variance of `n > ddof` values.
    pub(crate) fn variance(&self, n: u64, ddof: u64) -> f64 {
        self.spread(n).map_or(f64::NAN, |spread| spread.quotient(degrees(n, ddof)))
    }

    /// The correctly rounded standard deviation of `n > ddof` values.
    pub(crate) fn std(&self, n: u64, ddof: u64) -> f64 {
        self.spread(n).map_or(f64::NAN, |spread| spread.root_of_quotient(degrees(n, ddof)))
    }

    /// The correctly rounded square root of the sum of squares.
    pub(crate) fn root_of_squares(&self) -> f64 {
        if self.infinities == [0, 0] { self.squares.digits().root_of_quotient(1) } else { f64::INFINITY }
    }

    /// `n · Σx² − (Σx)²`; `None` with infinities.
    pub(super) fn spread(&self, n: u64) -> Option<Digits> {
        let sum = self.sum.digits();
        (self.infinities == [0, 0]).then(|| co_spread(n, &self.squares, &sum, &sum))
    }

    /// Whether only zeros were added.
    pub(crate) fn is_zero(&self) -> bool {
        self.infinities == [0, 0] && self.sum.is_untouched() && self.squares.is_untouched()
    }

    /// Whether no squares other than zeros were added.
    pub(crate) fn has_no_squares(&self) -> bool {
        self.squares.is_untouched()
    }

    /// Whether the sum of squares is at least what the sum of `n` values implies.
    pub(crate) fn is_possible(&self, n: u64) -> bool {
        self.spread(n).is_none_or(|spread| !spread.negative)
    }

    /// Appends the bytes of the moments; their form is described in `exact/wire.rs`. Equal terms in any order give equal bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (infinite, squares) = (self.infinities != [0, 0], self.squares.digits());
        out.push(u8::from(infinite) | u8::from(!squares.is_zero()) << 1);
        if infinite {
            self.infinities.iter().for_each(|count| write_varint(*count, out));
        }
        self.sum.digits().write(out);
        if !squares.is_zero() {
            squares.write(out);
        }
    }

    /// Parses moments from the start of `bytes`, and returns the bytes after them.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are truncated or the numbers are not possible.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let (&flags, mut rest) = bytes.split_first().ok_or_else(|| corrupt("truncated"))?;
        if flags > 3 {
            return Err(corrupt("unknown flags"));
        }
        let mut infinities = [0; 2];
        if flags & 1 != 0 {
            for count in &mut infinities {
                (*count, rest) = parse_varint(rest)?;
            }
            if infinities == [0, 0] {
                return Err(corrupt("not canonical"));
            }
        }
        let (sum, mut rest) = Digits::parse(rest)?;
        let mut squares = Digits::default();
        if flags & 2 != 0 {
            (squares, rest) = Digits::parse(rest)?;
            if squares.negative || squares.is_zero() {
                return Err(corrupt("impossible sum of squares"));
            }
        }
        Ok((Self { infinities, sum: Fixed::from(&sum), squares: Fixed::from(&squares) }, rest))
    }
}

/// The quotient of two sums, correctly rounded; `None` if the divisor is 0.
pub(crate) fn ratio(of: &Moments, by: &Moments) -> Option<f64> {
    let divisor = by.sum.digits();
    if divisor.is_zero() {
        return None;
    }
    if let Some(special) = of.special() {
        return Some(if divisor.negative { -special } else { special });
    }
    Some(digits_ratio(&of.sum.digits(), &divisor))
}

/// The weighted variance `(Σw · Σwx² − (Σwx)²) / (Σw)²`, correctly rounded, or, with `root`, the standard deviation, within one
/// unit in the last place; `None` if the weights add up to 0, NaN with infinities.
pub(crate) fn weighted_spread(
    weights: &Moments,
    values: &Moments,
    squares: &Moments,
    root: bool,
) -> Option<f64> {
    let total = weights.sum.digits();
    if total.is_zero() {
        return None;
    }
    if values.special().is_some() {
        return Some(f64::NAN);
    }
    let sum = values.sum.digits();
    let mut spread = Fixed::from(&squares.sum.digits().times(&total));
    let mut square = sum.times(&sum);
    square.negative = !square.is_zero();
    spread.merge(&Fixed::from(&square));
    let (spread, total) = (spread.digits(), total.times(&total));
    if !root {
        return Some(digits_ratio(&spread, &total));
    }
    if spread.negative {
        return Some(f64::NAN);
    }
    if spread.is_zero() {
        return Some(0.0);
    }
    Some(root_of_ratio(&spread, &total))
}

/// The square root of the quotient of two positive numbers, within one unit in the last place.
pub(super) fn root_of_ratio(dividend: &Digits, divisor: &Digits) -> f64 {
    // The quotient is scaled to about 1 by a power of 2^64, whose root is a power of 2^32.
    let half = (dividend.magnitude_digits() - divisor.magnitude_digits()).div_euclid(2);
    let mut scaled = Fixed::default();
    scaled.add_f64(digits_ratio(&dividend.shifted(-2 * half), divisor).sqrt());
    scaled.digits().shifted(half).to_f64()
}

/// The quotient of two numbers, correctly rounded; the divisor is not 0.
pub(super) fn digits_ratio(dividend: &Digits, divisor: &Digits) -> f64 {
    if dividend.is_zero() {
        return 0.0;
    }
    // Both are scaled to about 1, so that nothing overflows; the powers of two are applied at the end.
    let (up, down) = (dividend.magnitude_digits(), divisor.magnitude_digits());
    let pair = |digits: &Digits| {
        let high = digits.to_f64();
        let mut rest = Fixed::from(digits);
        rest.add_f64(-high);
        (high, rest.digits().to_f64())
    };
    // A double and the rest as another are about 106 bits of each: the quotient is off by one unit in the last place at most.
    let ((a, a_rest), (b, b_rest)) = (pair(&dividend.shifted(-up)), pair(&divisor.shifted(-down)));
    let quotient = a / b;
    let correction = ((-quotient).mul_add(b, a) + a_rest - quotient * b_rest) / b;
    let mut scaled = Fixed::default();
    scaled.add_f64(quotient);
    scaled.add_f64(correction);
    let near = scaled.digits().shifted(up - down).to_f64();
    nearest_quotient(dividend, divisor, near)
}

/// Of a double and its neighbors, the one that is nearest to an exact quotient; of two, the even one.
fn nearest_quotient(dividend: &Digits, divisor: &Digits, near: f64) -> f64 {
    if !near.is_finite() {
        return near;
    }
    // How far the dividend is from the divisor times a candidate.
    let distance = |candidate: f64| {
        let mut factor = Fixed::default();
        factor.add_f64(-candidate);
        let mut rest = Fixed::from(&factor.digits().times(divisor));
        rest.merge(&Fixed::from(dividend));
        Digits { negative: false, ..rest.digits() }
    };
    let less = |a: &Digits, b: &Digits| {
        let mut difference = Fixed::from(a);
        difference.merge(&Fixed::from(&Digits { negative: !b.is_zero(), ..b.clone() }));
        let difference = difference.digits();
        (difference.negative, difference.is_zero())
    };
    let (mut best, mut least) = (near, distance(near));
    for other in [near.next_down(), near.next_up()].into_iter().filter(|other| other.is_finite()) {
        let apart = distance(other);
        let (nearer, equal) = less(&apart, &least);
        if nearer || (equal && other.to_bits() & 1 == 0) {
            (best, least) = (other, apart);
        }
    }
    best
}

/// Adds `n · magnitude² · 2^exponent`, up to 192 bits.
fn add_square(to: &mut Fixed, magnitude: u64, n: u64, exponent: i32) {
    let square = u128::from(magnitude) * u128::from(magnitude);
    let n = u128::from(n);
    to.add_wide(false, (square & u128::from(u64::MAX)) * n, exponent);
    to.add_wide(false, (square >> 64) * n, exponent + 64);
}

/// The divisor of a variance.
pub(super) fn degrees(n: u64, ddof: u64) -> u128 {
    u128::from(n) * u128::from(n.saturating_sub(ddof).max(1))
}

/// `n · Σxy − Σx · Σy`.
pub(super) fn co_spread(n: u64, products: &Fixed, x: &Digits, y: &Digits) -> Digits {
    let mut count = Fixed::default();
    count.add(false, n, 0);
    let mut spread = Fixed::from(&products.digits().times(&count.digits()));
    let mut product = x.times(y);
    product.negative = !product.negative;
    spread.merge(&Fixed::from(&product));
    spread.digits()
}
