//! Answers from sums of a few doubles, correctly rounded or known not to be.
//!
//! A result is computed as a double and a correction, which is at most about half a unit in its last place, with a bound for the
//! error of both:
//!
//! ```text
//! result + (correction - doubt) = result + (correction + doubt)   both rounded -> that is the correctly rounded result
//! otherwise, or where something could overflow or underflow                    -> NaN: integers have to decide
//! ```
//!
//! 1. Rounding is monotonic, and the exact result lies between the two, so it rounds as they do.
//! 2. The doubt is about 2^-100 of the result, unless most of it canceled, so integers decide very few results: those near the
//!    middle of two doubles.
//! 3. There are no branches, so neighboring positions are lanes.

/// Results and what they are computed from are between these by magnitude: products and quotients of them are normal doubles, as are
/// their rounding errors.
const SMALLEST: f64 = f64::from_bits((1023 - 900) << 52);
const LARGEST: f64 = f64::from_bits((1023 + 1000) << 52);
/// More than the rounding errors of some operations, relative to their results.
const ROUNDING: f64 = f64::from_bits((1023 - 48) << 52);
/// More than what a root loses to a correction of first order, and than products that underflow, relative to the result.
const REST: f64 = f64::from_bits((1023 - 100) << 52);

/// The rounded sum and its rounding error, of doubles whose sum does not overflow.
#[inline(always)]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// The result if it is certain.
#[inline(always)]
fn decided(result: f64, correction: f64, doubt: f64) -> f64 {
    let (low, high) = (result + (correction - doubt), result + (correction + doubt));
    if low == high { low } else { f64::NAN }
}

/// `(sum + rest) / n` for the rounded sum of both and a positive integer, rounded once; NaN if this does not decide how.
///
/// The remainder of `sum / n` is a double, so the quotient and the correction are known to about 100 bits.
#[inline(always)]
pub(super) fn quotient(sum: f64, rest: f64, n: f64) -> f64 {
    let quotient = sum / n;
    let correction = ((-quotient).mul_add(n, sum) + rest) / n;
    let known = decided(quotient, correction, correction.abs() * ROUNDING);
    let known = if quotient.abs() < SMALLEST { f64::NAN } else { known };
    if rest == 0.0 { quotient } else { known }
}

/// `(n · squares − sum²) / divisor`, or its root, for positive integers, rounded once; NaN if this does not decide how.
///
/// ```text
/// n · squares = a + a_rest + c + c_rest      sum² = b + b_rest + d + e
/// their difference = high + low              up to the rounding errors of d, e and low
/// ```
#[inline(always)]
pub(super) fn spread<const ROOT: bool>(sum: [f64; 3], squares: [f64; 3], n: f64, divisor: f64) -> f64 {
    let ((s, s_rest, s_lost), (q, q_rest, q_lost)) = (normalized(sum), normalized(squares));
    let (a, b, c) = (n * q, s * s, n * q_rest);
    let (a_rest, b_rest, c_rest) = (n.mul_add(q, -a), s.mul_add(s, -b), n.mul_add(q_rest, -c));
    let (d, e) = (2.0 * s * s_rest, s_rest * s_rest);
    let (top, top_error) = two_sum(a, -b);
    let (middle, middle_error) = two_sum(a_rest, -b_rest);
    let (high, first) = two_sum(top, middle);
    let (high, second) = two_sum(high, (c - d) - e);
    let (high, low) = two_sum(high, ((first + second) + (top_error + middle_error)) + c_rest);
    let errors = first.abs() + second.abs() + top_error.abs() + middle_error.abs() + c_rest.abs();
    let products = if s_rest == 0.0 { 0.0 } else { c.abs() + d.abs() + e.abs() };
    let lost = 4.0 * (n * q_lost.abs() + s.abs() * s_lost.abs());
    let doubt = (errors + products) * ROUNDING + lost;

    let result = high / divisor;
    let correction = ((-result).mul_add(divisor, high) + low) / divisor;
    let doubt = correction.abs() * ROUNDING + 2.0 * (doubt / divisor);
    let known = if ROOT {
        let root = result.sqrt();
        let correction = ((-root).mul_add(root, result) + correction) / (2.0 * root);
        decided(root, correction, correction.abs() * ROUNDING + doubt / root + root * REST)
    } else {
        decided(result, correction, doubt + result * REST)
    };
    let in_range = |x: f64| (SMALLEST..=LARGEST).contains(&x);
    // A product that underflows is less than the part of the result that is always in doubt, but no part of nothing.
    let whole = (s_rest == 0.0) & (s_lost == 0.0) & (q_lost == 0.0) & ((q_rest == 0.0) | in_range(c.abs()));
    let none = (q == 0.0) & (s == 0.0) & (q_rest == 0.0);
    let equal = (high == 0.0) & (low == 0.0) & (errors == 0.0) & in_range(a) & in_range(b);
    if whole & (none | equal) {
        0.0
    } else if in_range(a) & in_range(b) & in_range(high) & in_range(result) {
        known
    } else {
        f64::NAN
    }
}

/// Three doubles as one, its rounding error, and what is lost of both.
#[inline(always)]
fn normalized([a, b, c]: [f64; 3]) -> (f64, f64, f64) {
    let (a, b) = two_sum(a, b);
    let (b, lost) = two_sum(b, c);
    let (a, b) = two_sum(a, b);
    (a, b, lost)
}
