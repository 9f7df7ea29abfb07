//! Weighted quantiles by exact arithmetic.
//!
//! The definition is that of xarray (Akinshin, "Weighted quantile estimators", type 7): with `S = Σw`, `Q = Σw²` and the
//! effective number of values `n = S² / Q`, the quantile is the mean of the weighted distribution over the window of width `1/n`
//! that starts at `q(n − 1)/n`. Multiplied by `S²` every bound is a sum of products:
//!
//! ```text
//! L = q(S² − Q)    H = L + Q    quantile = Σ x[i] · (clamp(C[i]·S) − clamp(C[i−1]·S)) / Q,    clamp to [L, H], C[i] = w[0] + … +
//! w[i]
//! ```
//!
//! With equal weights it is the quantile by linear interpolation.

use tesseral_core::Element;

use super::digits::Digits;
use super::fixed::Fixed;
use super::moments::digits_ratio;

/// The quantile of values in ascending order, none of which is NaN, with weights that are not negative, correctly rounded; `None`
/// if the weights add up to 0.
pub(crate) fn weighted_quantile<T: Element>(values: &[(T, f64)], q: f64) -> Option<f64> {
    let (mut total, mut squares) = (Fixed::default(), Fixed::default());
    for (_, weight) in values {
        total.add_f64(*weight);
        squares.add_square(*weight);
    }
    let (total, squares) = (total.digits(), squares.digits());
    if total.is_zero() {
        return None;
    }
    let mut share = Fixed::default();
    share.add_f64(q);
    let low = difference(&total.times(&total), &squares).times(&share.digits());
    let mut high = Fixed::from(&low);
    high.merge(&Fixed::from(&squares));
    let high = high.digits();

    let (mut below, mut before, mut sum) = (Fixed::default(), low.clone(), Fixed::default());
    let mut used: Vec<f64> = Vec::new();
    for (value, weight) in values {
        below.add_f64(*weight);
        let reached = below.digits().times(&total);
        let last = !less(&reached, &high);
        let reached = if last {
            high.clone()
        } else if less(&reached, &low) {
            low.clone()
        } else {
            reached
        };
        let part = difference(&reached, &before);
        if !part.is_zero() {
            let approximate = value.to_f64();
            if used.last() != Some(&approximate) {
                used.push(approximate);
            }
            let mut exact = Fixed::default();
            match T::IS_FLOAT {
                true if approximate.is_infinite() => {}
                true => exact.add_f64(approximate),
                false => exact.add_integer(value.to_i128()),
            }
            sum.merge(&Fixed::from(&exact.digits().times(&part)));
        }
        before = reached;
        if last {
            break;
        }
    }
    let (first, last) = (*used.first()?, *used.last()?);
    if first.is_infinite() || last.is_infinite() {
        // Both infinities are NaN; one of them with finite values is that infinity.
        return Some(first + last);
    }
    // The mean is between the smallest and the largest of its values, also where the largest doubles round up.
    Some(digits_ratio(&sum.digits(), &squares).clamp(first, last))
}

fn difference(a: &Digits, b: &Digits) -> Digits {
    let mut difference = Fixed::from(a);
    difference.merge(&Fixed::from(&Digits { negative: !b.negative && !b.is_zero(), ..b.clone() }));
    difference.digits()
}

fn less(a: &Digits, b: &Digits) -> bool {
    difference(a, b).negative
}
